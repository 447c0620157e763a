//! Step 6, commit: all staged files of an epoch -> one target snapshot, at most once.
