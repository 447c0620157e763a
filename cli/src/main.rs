//! The `iceferry` command.
fn main() {}
