//! Step 3, read: scan task -> Arrow batches of rows that went or came, by field id, in the read schema.
