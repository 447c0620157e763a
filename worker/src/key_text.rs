//! Values as text, for messages.

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// A printed key is cut after so many characters.
const PRINTED_CHARACTERS_MAX: usize = 200;

/// `id=7, region=null`.
pub(crate) fn printed(schema: &SchemaRef, key: &[ArrayRef], row: usize) -> String {
    let parts = schema.fields().iter().zip(key);
    let parts = parts.map(|(field, column)| format!("{}={}", field.name(), whole(column, row)));
    cut(parts.collect::<Vec<_>>().join(", "), PRINTED_CHARACTERS_MAX)
}

/// One value, cut after so many characters.
pub(crate) fn value(column: &ArrayRef, row: usize, characters_max: usize) -> String {
    cut(whole(column, row), characters_max)
}

fn whole(column: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::default().with_null("null");
    ArrayFormatter::try_new(column.as_ref(), &options)
        .and_then(|formatter| formatter.value(row).try_to_string())
        .unwrap_or_else(|_| "?".to_owned())
}

fn cut(mut text: String, characters_max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(characters_max) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
