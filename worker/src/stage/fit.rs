//! Columns of the read schema as columns of the write schema.
//!
//! Both have the same shape, so no value is touched. What differs is the types' own names, field ids and nullability
//! inside structs, lists and maps, and the encoder takes those from the arrays; nested arrays are put together anew
//! around the same buffers. Top-level primitive columns pass as they are.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, MapArray, StructArray, make_array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};

use super::StageError;

/// `column` as a column of `field`.
///
/// # Errors
/// When the shapes differ, or a required field has a null that no null around it hides.
pub(super) fn fit(table: &str, column: &ArrayRef, field: &Field) -> Result<ArrayRef, StageError> {
    Fit { table }.fit(column, field, None, field.name())
}

struct Fit<'a> {
    table: &'a str,
}

impl Fit<'_> {
    /// `hidden` has the slots that a null struct around the array hides.
    fn fit(
        &self,
        array: &ArrayRef,
        field: &Field,
        around: Option<&NullBuffer>,
        path: &str,
    ) -> Result<ArrayRef, StageError> {
        let array = &self.without_nulls_if_required(array, field, around, path)?;
        match (array.data_type(), field.data_type()) {
            (found, wanted) if found == wanted => Ok(Arc::clone(array)),
            (DataType::Struct(found), DataType::Struct(wanted)) if found.len() == wanted.len() => {
                let array = array.as_struct();
                let around = NullBuffer::union(around, array.nulls());
                let children = wanted
                    .iter()
                    .zip(array.columns())
                    .map(|(field, child)| self.fit(child, field, around.as_ref(), &format!("{path}.{}", field.name())));
                let children = children.collect::<Result<Vec<_>, _>>()?;
                let made = StructArray::try_new(wanted.clone(), children, array.nulls().cloned());
                made.map(|array| Arc::new(array) as ArrayRef).map_err(|error| self.misshapen(path, &error))
            }
            (DataType::List(_), DataType::List(element)) => {
                let array = array.as_list::<i32>();
                let (offsets, range) = window(array.offsets(), array.values().len());
                let values = array.values().slice(range.start, range.len());
                let values = self.fit(&values, element, None, &format!("{path}.element"))?;
                let made = ListArray::try_new(Arc::clone(element), offsets, values, array.nulls().cloned());
                made.map(|array| Arc::new(array) as ArrayRef).map_err(|error| self.misshapen(path, &error))
            }
            (DataType::Map(_, _), DataType::Map(entries, ordered)) => {
                self.fit_map(array.as_map(), entries, *ordered, path)
            }
            (found, wanted) => Err(StageError::Shape {
                table: self.table.to_owned(),
                column: path.to_owned(),
                found: found.to_string(),
                expected: wanted.to_string(),
            }),
        }
    }

    fn fit_map(&self, array: &MapArray, entries: &FieldRef, ordered: bool, path: &str) -> Result<ArrayRef, StageError> {
        let DataType::Struct(fields) = entries.data_type() else {
            return Err(self.misshapen(path, &"a map without entries"));
        };
        let (offsets, range) = window(array.offsets(), array.entries().len());
        let children = fields.iter().zip(array.entries().columns()).map(|(field, child)| {
            let child = child.slice(range.start, range.len());
            self.fit(&child, field, None, &format!("{path}.{}", field.name()))
        });
        let children = children.collect::<Result<Vec<_>, _>>()?;
        let made = StructArray::try_new(fields.clone(), children, None)
            .and_then(|found| MapArray::try_new(Arc::clone(entries), offsets, found, array.nulls().cloned(), ordered));
        made.map(|array| Arc::new(array) as ArrayRef).map_err(|error| self.misshapen(path, &error))
    }

    /// A required array has no nulls but those that a null around it hides; those are taken off, since Arrow lets no
    /// null buffer with nulls into a required field.
    fn without_nulls_if_required(
        &self,
        array: &ArrayRef,
        field: &Field,
        around: Option<&NullBuffer>,
        path: &str,
    ) -> Result<ArrayRef, StageError> {
        let nulls = match array.nulls() {
            Some(nulls) if !field.is_nullable() && nulls.null_count() > 0 => nulls,
            _ => return Ok(Arc::clone(array)),
        };
        let all_hidden = around.is_some_and(|around| (around.inner() & &!nulls.inner()).count_set_bits() == 0);
        if !all_hidden {
            return Err(StageError::NullInRequired { table: self.table.to_owned(), column: path.to_owned() });
        }
        let bare = array.to_data().into_builder().nulls(None).build();
        bare.map(make_array).map_err(|error| self.misshapen(path, &error))
    }

    fn misshapen(&self, path: &str, error: &dyn std::fmt::Display) -> StageError {
        StageError::Shape {
            table: self.table.to_owned(),
            column: path.to_owned(),
            found: error.to_string(),
            expected: "a column of the write schema".to_owned(),
        }
    }
}

/// The range of the values that the offsets reach, and offsets into that range: nulls beyond it, as a slice of a longer
/// batch has them, must not count against a required field.
fn window(offsets: &OffsetBuffer<i32>, length: usize) -> (OffsetBuffer<i32>, Range<usize>) {
    let index = |offset: i32| usize::try_from(offset).unwrap_or(0);
    let first = offsets.first().copied().unwrap_or(0);
    let range = index(first)..index(offsets.last().copied().unwrap_or(0));
    if range == (0..length) {
        return (offsets.clone(), range);
    }
    (OffsetBuffer::new(ScalarBuffer::from_iter(offsets.iter().map(|offset| offset - first))), range)
}
