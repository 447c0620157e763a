//! Step 5, stage: tagged batches -> staged data files and delete files of the target, with Iceberg metrics.
