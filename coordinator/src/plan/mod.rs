//! Step 1, plan: source table, range -> scan tasks.
