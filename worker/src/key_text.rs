//! A key as text, for messages.

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};

/// A printed key is cut after so many characters.
const PRINTED_CHARACTERS_MAX: usize = 200;

/// `id=7, region=null`.
pub(crate) fn printed(schema: &SchemaRef, key: &[ArrayRef], row: usize) -> String {
    let options = FormatOptions::default().with_null("null");
    let parts = schema.fields().iter().zip(key).map(|(field, column)| {
        let value = ArrayFormatter::try_new(column.as_ref(), &options)
            .and_then(|formatter| formatter.value(row).try_to_string())
            .unwrap_or_else(|_| "?".to_owned());
        format!("{}={value}", field.name())
    });
    let mut text = parts.collect::<Vec<_>>().join(", ");
    if let Some((end, _)) = text.char_indices().nth(PRINTED_CHARACTERS_MAX) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}
