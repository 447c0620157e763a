//! Takes leases from a coordinator and runs them.
