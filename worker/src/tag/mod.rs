//! Step 4, tag: change batches -> change batches with carry-over cancelled.
