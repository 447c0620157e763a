//! Filter: which rows of a table a job keeps, as a condition in SQL.
//!
//! [`Filter::parse`] reads the text and knows no table; [`Filter::bind`] gives names their field ids and literals the types
//! of their columns. The [`BoundFilter`] then says of a row whether it stays ([`BoundFilter::evaluate`]), and of many rows at
//! once whether some may ([`BoundFilter::may_match`]) or all must ([`BoundFilter::must_match`]) by what their file, row group
//! or page tells of its columns, or by their partition ([`BoundFilter::project`]). All of it is pure.
//!
//! # The language
//!
//! A condition compares columns with literals and joins that by `AND`, `OR`, `NOT` and parentheses:
//!
//! - `=`, `<>`, `!=`, `<`, `<=`, `>`, `>=` with a literal on one side; `[NOT] BETWEEN low AND high`; `[NOT] IN (...)`;
//! - `IS [NOT] NULL`; `IS [NOT] NAN`; `[NOT] LIKE 'abc%'`, with a `%` at the end or none; a column of booleans alone.
//!
//! A name is found as it is written, else in any letter case if only one column has it. One that is no plain word stands in
//! double quotes or backquotes. A dot leads into a struct. Literals are `'text'`, `12`, `-1.5`, `1e3`, `TRUE`, `FALSE`,
//! `DATE '2026-01-31'`, `TIME '12:30:00'`, `TIMESTAMP '2026-01-31 12:30:00'` and `X'00ff'`; text is taken for dates, times,
//! timestamps, decimals and UUIDs as well, and `'NaN'` and `'Infinity'` for floating-point columns.
//!
//! # What a condition means
//!
//! - Logic has three values, as in SQL: a comparison with null is unknown, so is its opposite, and a row stays only where the
//!   whole is true. `IS NULL` and `IS NAN` are never unknown; null is not NaN.
//! - A number is compared exactly: `id < 2.5` on integers means `id <= 2`, and `id = 2.5` is true of no row. Beside a
//!   floating-point column alone a number is the nearest value of the column's type.
//! - Floating-point values are ordered as in Spark: NaN equals NaN and is larger than all else; `-0.0` equals `0.0`.
//! - Text is ordered by code points, bytes and UUIDs by unsigned bytes.
//! - A date beside a timestamp is its midnight. A timestamp without a zone beside a column with one is in UTC; one with a zone
//!   beside a column without one is refused.

mod bind;
mod condition;
mod error;
mod evaluate;
mod literal;
mod operand;
mod parse;
mod partition;
mod prune;
mod syntax;
mod table;
mod temporal;
mod token;
mod transform;
mod value;

#[cfg(test)]
mod tests;

use std::fmt;

use iceberg::spec::Schema;

pub use bind::BoundFilter;
pub use error::FilterError;
pub use partition::PartitionFilter;
pub use prune::{ColumnStatistics, Statistics};
pub use table::TableFilter;
pub use value::whole_datum;

/// A condition on rows, well formed, of a table that is not known yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Filter {
    text: String,
    root: syntax::Expression,
}

impl Filter {
    /// Reads a condition. No table is looked at.
    ///
    /// # Errors
    /// When the text is no condition, or one that is not supported; the message says where, and what was expected, and has
    /// nothing of the literals in it.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Ok(Self { text: text.to_owned(), root: parse::parse(text)? })
    }

    /// The condition as it was written. It may hold what others must not read.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// One text for all ways to write the same condition with other blanks, letter case of words, or quotes.
    pub fn canonical(&self) -> String {
        self.root.canonical()
    }

    /// Binds the condition to a table's columns, as they are in `schema`.
    ///
    /// # Errors
    /// When the schema has no such column, or one that cannot be compared with the literal beside it.
    pub fn bind(&self, schema: &Schema) -> Result<BoundFilter, FilterError> {
        bind::bind(&self.root, schema)
    }
}

/// Literals may hold what logs must not show.
impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter(***)")
    }
}
