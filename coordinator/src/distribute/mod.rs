//! Step 2, distribute: scan tasks -> leases to workers over gRPC.
