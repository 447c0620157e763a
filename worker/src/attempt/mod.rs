//! One try at a scan task: read, tag and stage.
