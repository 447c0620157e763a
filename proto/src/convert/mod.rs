//! Conversions between the wire and the model. They check what the wire cannot say by its types: that a field is there,
//! that a number is in range, that an index points at something.
//!
//! Proto3 cannot tell a missing text from an empty one, so a text that must not be empty is missing when it is.

mod changelog;
mod context;
mod error;
mod message;
mod staged;
mod task;
#[cfg(test)]
mod tests;
mod work;

pub use error::{ConvertError, Unreadable};
pub use message::{read_coordinator_message, read_worker_message, write_coordinator_message, write_worker_message};

/// The value, which has to be there.
fn required<T>(value: Option<T>, message: &'static str, field: &'static str) -> Result<T, ConvertError> {
    value.ok_or(ConvertError::Missing { message, field })
}

/// The text, which has to be there.
fn required_text(value: String, message: &'static str, field: &'static str) -> Result<String, ConvertError> {
    if value.is_empty() { Err(ConvertError::Missing { message, field }) } else { Ok(value) }
}
