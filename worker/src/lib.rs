//! The worker: it takes a scan task, reads the rows that went or came ([`read`]), cancels what was only carried over
//! ([`tag`]) and stages data and delete files of the target ([`stage`]). To compare two tables it counts and hashes the rows
//! instead ([`digest`]). It is stateless: a task and its epoch's context
//! are all that it needs. What does not change is carried over as bytes (`splice`). [`attempt`] is one try at a task; [`serve`] takes leases from a coordinator.

pub mod attempt;
mod change;
pub mod digest;
pub mod exchange;
mod key_text;
pub mod read;
pub mod serve;
pub(crate) mod splice;
pub mod stage;
pub mod tag;
mod vector;

pub use change::{Change, ChangeBatch, Columns};
