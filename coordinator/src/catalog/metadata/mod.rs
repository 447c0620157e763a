//! Table metadata as files: reading them with clear refusals, changing them by requirements and updates, making the
//! first one of a table, and writing one under a name that is new.

mod change;
mod create;
mod file;
mod parse;

pub(super) use change::{Changed, NotChanged, change};
pub(super) use create::{check_properties, check_schema, create, same_columns};
pub(super) use file::{Encoded, delete_expired, encode, next_location};
pub(super) use parse::from_json;
pub(crate) use parse::parse;
