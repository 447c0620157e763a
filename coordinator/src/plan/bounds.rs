//! Bounds of columns: when two files can certainly not share a value. Every doubt means that they may.

use std::cmp::Ordering;
use std::collections::HashSet;

use iceberg::spec::{Datum, PrimitiveType, Schema};

use super::manifest::{Entry, Layout, of_column};

/// What a manifest tells of one column of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ColumnBounds {
    pub(super) field_id: i32,
    pub(super) lower: Option<Bound>,
    pub(super) upper: Option<Bound>,
    /// False only when the file certainly has no null here.
    pub(super) may_have_null: bool,
    /// False only when the file certainly has nothing but nulls here.
    pub(super) may_have_value: bool,
}

/// A bound in a form that compares across the widenings that a column can go through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Bound {
    /// Int, long.
    Integer(i64),
    /// Date, time and timestamps, each only with its like.
    Moment(PrimitiveType, i64),
    /// Unscaled decimal, with its scale.
    Decimal(i128, u32),
    /// String and binary, possibly cut short: then the true lower bound is not less, and a careless writer's true upper
    /// bound begins with this.
    Bytes(Vec<u8>),
}

impl Bound {
    /// The bound in these bytes of a column that had this type when the manifest was written; its length tells whether it is
    /// from before the column was promoted. `None` for types whose order differs between writers (uuid), or in which unequal
    /// values may be equal (floats), for booleans, where bounds say next to nothing, and for bytes that are no value.
    fn of(kind: &PrimitiveType, bytes: &[u8]) -> Option<Self> {
        match kind {
            PrimitiveType::Int | PrimitiveType::Long => whole(bytes).map(Self::Integer),
            PrimitiveType::Date
            | PrimitiveType::Time
            | PrimitiveType::Timestamp
            | PrimitiveType::Timestamptz
            | PrimitiveType::TimestampNs
            | PrimitiveType::TimestamptzNs => Some(Self::Moment(written_type(kind, bytes)?, whole(bytes)?)),
            PrimitiveType::Decimal { scale, .. } => Some(Self::Decimal(unscaled(bytes)?, *scale)),
            PrimitiveType::String | PrimitiveType::Binary | PrimitiveType::Fixed(_) => {
                Some(Self::Bytes(bytes.to_vec()))
            }
            PrimitiveType::Boolean | PrimitiveType::Float | PrimitiveType::Double | PrimitiveType::Uuid => None,
        }
    }

    fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (Self::Moment(of_a, a), Self::Moment(of_b, b)) if of_a == of_b => Some(a.cmp(b)),
            (Self::Decimal(a, scale_a), Self::Decimal(b, scale_b)) if scale_a == scale_b => Some(a.cmp(b)),
            (Self::Bytes(a), Self::Bytes(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }

    /// Whether every value that has `self` as a lower bound is certainly above every value that has `upper` as an upper
    /// bound.
    fn is_above(&self, upper: &Self) -> bool {
        if let (Self::Bytes(lower), Self::Bytes(upper)) = (self, upper)
            && lower.starts_with(upper)
        {
            return false;
        }
        self.compare(upper) == Some(Ordering::Greater)
    }
}

/// Columns whose bounds are worth keeping: top-level ones, since a nested value has nulls of its parents.
pub(super) fn top_level(schemas: impl IntoIterator<Item = impl AsRef<Schema>>) -> HashSet<i32> {
    let mut ids = HashSet::new();
    for schema in schemas {
        ids.extend(schema.as_ref().as_struct().fields().iter().map(|field| field.id));
    }
    ids
}

/// The type that a value of so many bytes was written in, of a column that has had this type since: the type itself, or one
/// that it can have been promoted from. `None` when the bytes are of neither.
fn written_type(kind: &PrimitiveType, bytes: &[u8]) -> Option<PrimitiveType> {
    use PrimitiveType as T;
    match (kind, bytes.len()) {
        (T::Int | T::Long, 4) => Some(T::Int),
        // A data file may have come after the promotion into a manifest that was begun before it.
        (T::Int | T::Long, 8) => Some(T::Long),
        (T::Float | T::Double, 4) => Some(T::Float),
        (T::Float | T::Double, 8) => Some(T::Double),
        (T::Date | T::Timestamp | T::TimestampNs, 4) => Some(T::Date),
        (T::Time | T::Timestamp | T::Timestamptz | T::TimestampNs | T::TimestamptzNs, 8) => Some(kind.clone()),
        (T::Uuid, 16) => Some(T::Uuid),
        (T::Decimal { .. }, 1..=16) | (T::Boolean | T::String | T::Binary | T::Fixed(_), _) => Some(kind.clone()),
        _ => None,
    }
}

/// The datum in these bytes, as [`written_type`] has it.
pub(super) fn datum(kind: &PrimitiveType, bytes: &[u8]) -> Option<Datum> {
    Datum::try_from_bytes(bytes, written_type(kind, bytes)?).ok()
}

fn whole(bytes: &[u8]) -> Option<i64> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(|bytes| i64::from(i32::from_le_bytes(bytes))),
        8 => bytes.try_into().ok().map(i64::from_le_bytes),
        _ => None,
    }
}

/// Two's complement, big-endian.
fn unscaled(bytes: &[u8]) -> Option<i128> {
    let fill = if bytes.first()? & 0x80 != 0 { 0xff } else { 0 };
    let mut wide = [fill; 16];
    let begin = wide.len().checked_sub(bytes.len())?;
    wide[begin..].copy_from_slice(bytes);
    Some(i128::from_be_bytes(wide))
}

/// The bounds of a file in these columns, in their order; columns of which nothing is known are left out.
pub(super) fn of_entry(layout: &Layout, entry: &Entry<'_>, columns: &[i32]) -> Box<[ColumnBounds]> {
    let of_column = |field_id: &i32| {
        let kind = layout.column(*field_id);
        let bound = |bounds: &[(i32, &[u8])]| Bound::of(kind?, of_column(bounds, *field_id)?);
        let nulls = of_column(&entry.null_counts, *field_id);
        let values = of_column(&entry.value_counts, *field_id);
        let bounds = ColumnBounds {
            field_id: *field_id,
            lower: bound(&entry.lower_bounds),
            upper: bound(&entry.upper_bounds),
            may_have_null: nulls != Some(0),
            may_have_value: !(nulls.is_some() && nulls == values),
        };
        let says_something =
            bounds.lower.is_some() || bounds.upper.is_some() || !bounds.may_have_null || !bounds.may_have_value;
        says_something.then_some(bounds)
    };
    columns.iter().filter_map(of_column).collect()
}

/// Whether some row of one file may equal some row of the other in all of these columns, null equal to null.
pub(super) fn may_share(a: &[ColumnBounds], b: &[ColumnBounds], columns: &[i32]) -> bool {
    columns.iter().all(|column| {
        let of = |bounds: &[ColumnBounds]| bounds.iter().position(|bound| bound.field_id == *column);
        match (of(a), of(b)) {
            (Some(at_a), Some(at_b)) => column_may_share(&a[at_a], &b[at_b]),
            _ => true,
        }
    })
}

fn column_may_share(a: &ColumnBounds, b: &ColumnBounds) -> bool {
    if a.may_have_null && b.may_have_null {
        return true;
    }
    if !a.may_have_value || !b.may_have_value {
        return false;
    }
    // A file whose bounds are the wrong way round has bounds that say nothing.
    let trusted = |column: &ColumnBounds| match (&column.lower, &column.upper) {
        (Some(lower), Some(upper)) => !lower.is_above(upper),
        _ => true,
    };
    if !trusted(a) || !trusted(b) {
        return true;
    }
    let above = |x: &ColumnBounds, y: &ColumnBounds| match (&x.lower, &y.upper) {
        (Some(lower), Some(upper)) => lower.is_above(upper),
        _ => false,
    };
    !above(a, b) && !above(b, a)
}

/// The range of paths that a position delete file names; both ends may be cut short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PathRange {
    pub(super) lower: Option<String>,
    pub(super) upper: Option<String>,
}

impl PathRange {
    /// Ends that are the wrong way round say nothing.
    pub(super) fn new(lower: Option<String>, upper: Option<String>) -> Self {
        match (lower, upper) {
            (Some(lower), Some(upper)) if lower > upper => Self::default(),
            (lower, upper) => Self { lower, upper },
        }
    }

    /// The one path, or the beginning of the few paths, that it names.
    pub(super) fn single(&self) -> Option<&str> {
        match (&self.lower, &self.upper) {
            (Some(lower), Some(upper)) if lower == upper => Some(lower),
            _ => None,
        }
    }

    pub(super) fn may_name(&self, path: &str) -> bool {
        let not_below = self.lower.as_deref().is_none_or(|lower| path >= lower);
        let not_above = self.upper.as_deref().is_none_or(|upper| path <= upper || path.starts_with(upper));
        not_below && not_above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(lower: Option<Bound>, upper: Option<Bound>, may_have_null: bool) -> [ColumnBounds; 1] {
        [ColumnBounds { field_id: 1, lower, upper, may_have_null, may_have_value: true }]
    }

    fn integers(lower: i64, upper: i64) -> [ColumnBounds; 1] {
        column(Some(Bound::Integer(lower)), Some(Bound::Integer(upper)), false)
    }

    fn text(lower: &str, upper: &str) -> [ColumnBounds; 1] {
        column(Some(Bound::Bytes(lower.into())), Some(Bound::Bytes(upper.into())), false)
    }

    #[test]
    fn only_certainty_keeps_two_files_apart() {
        let null_too = column(Some(Bound::Integer(1)), Some(Bound::Integer(2)), true);
        let null_high = column(Some(Bound::Integer(8)), Some(Bound::Integer(9)), true);
        let only_null =
            [ColumnBounds { field_id: 1, lower: None, upper: None, may_have_null: true, may_have_value: false }];
        let date =
            column(Some(Bound::Moment(PrimitiveType::Date, 90)), Some(Bound::Moment(PrimitiveType::Date, 99)), false);
        let open = column(Some(Bound::Integer(5)), None, false);
        let cases: [(&str, &[ColumnBounds], &[ColumnBounds], bool); 13] = [
            ("apart", &integers(1, 5), &integers(6, 9), false),
            ("touching", &integers(1, 5), &integers(5, 9), true),
            ("overlapping", &integers(10, 18), &integers(15, 20), true),
            ("bounds missing", &integers(1, 5), &[], true),
            ("one side open", &integers(1, 4), &open, false),
            ("open above", &integers(100, 200), &open, true),
            ("null meets null", &null_too, &null_high, true),
            ("null on one side only", &null_too, &integers(8, 9), false),
            ("nothing but null against no null", &only_null, &integers(8, 9), false),
            ("types that do not compare", &integers(1, 2), &date, true),
            ("inverted bounds say nothing", &integers(9, 1), &integers(20, 30), true),
            ("cut short to the same beginning", &text("aa", "aa"), &text("aaX", "aaY"), true),
            ("texts apart", &text("aa", "ab"), &text("b", "c"), false),
        ];
        for (name, a, b, shared) in cases {
            assert_eq!(may_share(a, b, &[1]), shared, "{name}");
            assert_eq!(may_share(b, a, &[1]), shared, "{name}, the other way round");
        }
    }

    #[test]
    fn a_bound_is_read_in_the_type_that_its_length_tells() {
        use PrimitiveType as T;
        let days = 3i32.to_le_bytes();
        let moment = 3i64.to_le_bytes();
        let decimal = T::Decimal { precision: 9, scale: 2 };
        let cases: [(T, &[u8], Option<Bound>, bool); 16] = [
            (T::Int, &days, Some(Bound::Integer(3)), true),
            (T::Long, &days, Some(Bound::Integer(3)), true),
            (T::Long, &moment, Some(Bound::Integer(3)), true),
            (T::Int, &moment, Some(Bound::Integer(3)), true),
            (T::Long, &[1, 2, 3], None, false),
            (T::Date, &days, Some(Bound::Moment(T::Date, 3)), true),
            (T::Timestamp, &days, Some(Bound::Moment(T::Date, 3)), true),
            (T::TimestampNs, &days, Some(Bound::Moment(T::Date, 3)), true),
            (T::Timestamptz, &days, None, false),
            (T::Timestamp, &moment, Some(Bound::Moment(T::Timestamp, 3)), true),
            (T::Date, &moment, None, false),
            (decimal.clone(), &[0xff, 0x85], Some(Bound::Decimal(-123, 2)), true),
            (decimal, &[], None, false),
            (T::String, b"\xff", Some(Bound::Bytes(vec![0xff])), false),
            (T::Double, &days, None, true),
            (T::Uuid, &[7; 16], None, true),
        ];
        for (kind, bytes, bound, is_datum) in cases {
            assert_eq!(Bound::of(&kind, bytes), bound, "{kind} {bytes:?}");
            assert_eq!(datum(&kind, bytes).is_some(), is_datum, "{kind} {bytes:?}");
        }
    }

    #[test]
    fn composite_keys_are_apart_when_one_column_is() {
        let two = |first: i64, second: i64| {
            let mut columns = integers(first, first).to_vec();
            columns.extend(integers(second, second));
            columns[1].field_id = 2;
            columns
        };
        assert!(!may_share(&two(1, 1), &two(1, 2), &[1, 2]));
        assert!(may_share(&two(1, 1), &two(1, 2), &[1]));
        assert!(may_share(&two(1, 1), &two(1, 1), &[1, 2]));
    }

    #[test]
    fn a_path_range_that_is_cut_short_or_inverted_loses_no_file() {
        let range = |lower: &str, upper: &str| PathRange::new(Some(lower.into()), Some(upper.into()));
        assert!(range("/t/a", "/t/c").may_name("/t/b"));
        assert!(!range("/t/a", "/t/c").may_name("/t/d"));
        assert!(range("/t/data", "/t/data").may_name("/t/data/00001.parquet"));
        assert!(range("/t/z", "/t/a").may_name("/t/m"));
        assert!(PathRange::default().may_name("/anything"));
    }
}
