//! What conditions say of rows.

use super::*;
use crate::fault::{Class, Classified};

/// The conditions, and of which of the values they are true.
fn check(column: &str, values: &[Raw], cases: &[(&str, &[usize])]) {
    let rows: Vec<_> = values.iter().map(|value| row(column, value.clone())).collect();
    for (text, expected) in cases {
        let found = matching(&bound(text), &rows);
        let found: Vec<usize> = (0..rows.len()).filter(|at| found[*at]).collect();
        assert_eq!(found, *expected, "{text}");
    }
}

#[test]
fn a_row_stays_only_where_the_condition_is_true_and_unknown_is_not_true() {
    check(
        "i",
        &[Some(I(1)), Some(I(2)), Some(I(3)), None],
        &[
            ("i = 2", &[1]),
            ("2 = i", &[1]),
            ("NOT i = 2", &[0, 2]),
            ("i <> 2", &[0, 2]),
            ("NOT NOT i = 2", &[1]),
            ("2 < i", &[2]),
            ("2 <= i", &[1, 2]),
            ("NOT (2 <= i)", &[0]),
            ("i IS NULL", &[3]),
            ("NOT i IS NULL", &[0, 1, 2]),
            ("i IN (1, 3, 9)", &[0, 2]),
            ("i NOT IN (1, 3, 9)", &[1]),
            ("NOT i NOT IN (1, 3, 9)", &[0, 2]),
            ("i BETWEEN 2 AND 3", &[1, 2]),
            ("i BETWEEN 3 AND 2", &[]),
            ("i NOT BETWEEN 2 AND 3", &[0]),
            ("i = 2 OR i IS NULL", &[1, 3]),
            ("NOT (i = 2 AND i IS NOT NULL)", &[0, 2, 3]),
            ("i = 2 OR NOT i = 2", &[0, 1, 2]),
            ("I >= 2 and \"i\" < 3", &[1]),
        ],
    );
    check(
        "flag",
        &[Some(B(true)), Some(B(false)), None],
        &[
            ("flag", &[0]),
            ("NOT flag", &[1]),
            ("flag = FALSE", &[1]),
            ("FALSE < Flag", &[0]),
            ("flag IN (true, false)", &[0, 1]),
        ],
    );
}

#[test]
fn a_literal_that_the_column_cannot_hold_is_compared_exactly() {
    let (min, max) = (i128::from(i32::MIN), i128::from(i32::MAX));
    check(
        "i",
        &[Some(I(min)), Some(I(-3)), Some(I(-2)), Some(I(2)), Some(I(3)), Some(I(max)), None],
        &[
            ("i = 2.5", &[]),
            ("i <> 2.5", &[0, 1, 2, 3, 4, 5]),
            ("i < 2.5", &[0, 1, 2, 3]),
            ("i > 2.5", &[4, 5]),
            ("i >= -2.5", &[2, 3, 4, 5]),
            ("i <= -2.5", &[0, 1]),
            ("NOT i <= -2.5", &[2, 3, 4, 5]),
            ("i = 2.000", &[3]),
            ("i = 200e-2", &[3]),
            ("i < 3000000000", &[0, 1, 2, 3, 4, 5]),
            ("i >= 3000000000", &[]),
            ("NOT i >= 3000000000", &[0, 1, 2, 3, 4, 5]),
            ("i > -99999999999999999999999999999999999999999999", &[0, 1, 2, 3, 4, 5]),
            ("i < -2147483648.5", &[]),
            ("i <= 2147483647.5", &[0, 1, 2, 3, 4, 5]),
            ("i > 2147483647.5", &[]),
            ("i IN (2.5, 3, 1e99)", &[4]),
            ("i NOT IN (2.5, 1e99)", &[0, 1, 2, 3, 4, 5]),
            ("i IN (2.5)", &[]),
            ("i < 0.00000000000000000000000000000000000000000000000001", &[0, 1, 2]),
        ],
    );
    check(
        "dec",
        &[Some(I(-150)), Some(I(149)), Some(I(150)), None],
        &[
            ("dec = 1.5", &[2]),
            ("dec = '1.50'", &[2]),
            ("dec < 1.495", &[0, 1]),
            ("dec = 1.495", &[]),
            ("dec <> 1.495", &[0, 1, 2]),
            ("dec > -1.505", &[0, 1, 2]),
            ("dec < 99999999", &[0, 1, 2]),
        ],
    );
    check(
        "day",
        &[Some(I(-1)), Some(I(0)), Some(I(1)), None],
        &[
            ("day = '1970-01-01'", &[1]),
            ("day >= DATE '1970-01-01'", &[1, 2]),
            ("day > TIMESTAMP '1969-12-31 12:00:00'", &[1, 2]),
            ("day <= TIMESTAMP '1969-12-31 12:00:00'", &[0]),
            ("day = TIMESTAMP '1970-01-01 00:00:00'", &[1]),
        ],
    );
    check(
        "ts",
        &[Some(I(-1)), Some(I(0)), Some(I(1))],
        &[
            ("ts = '1970-01-01'", &[1]),
            ("ts = DATE '1970-01-01'", &[1]),
            ("ts < '1970-01-01 00:00:00.0000005'", &[0, 1]),
            ("ts = '1970-01-01 00:00:00.0000005'", &[]),
            ("ts <= '1969-12-31T23:59:59.999999'", &[0]),
        ],
    );
    check(
        "tz",
        &[Some(I(0)), Some(I(3_600_000_000))],
        &[
            ("tz = '1970-01-01 01:00:00'", &[1]),
            ("tz = '1970-01-01T02:00:00+01:00'", &[1]),
            ("tz < '1970-01-01 00:30:00Z'", &[0]),
        ],
    );
    check("tsn", &[Some(I(1)), Some(I(2))], &[("tsn > '1970-01-01 00:00:00.000000001'", &[1])]);
    check("clock", &[Some(I(0)), Some(I(1))], &[("clock > '00:00'", &[1]), ("clock <= TIME '00:00:00.0000009'", &[0])]);
}

#[test]
fn nan_equals_nan_and_is_larger_than_all_else_and_zeros_are_equal() {
    let values = [F(f64::NEG_INFINITY), F(-0.0), F(0.0), F(1.5), F(f64::INFINITY), F(f64::NAN), F(-f64::NAN)].map(Some);
    let values: Vec<Raw> = values.into_iter().chain([None]).collect();
    for column in ["f", "d"] {
        let cases: &[(&str, &[usize])] = &[
            ("# = 'NaN'", &[5, 6]),
            ("# <> 'nan'", &[0, 1, 2, 3, 4]),
            ("NOT # = 'NaN'", &[0, 1, 2, 3, 4]),
            ("# < 'NaN'", &[0, 1, 2, 3, 4]),
            ("# <= 'NaN'", &[0, 1, 2, 3, 4, 5, 6]),
            ("# > 'NaN'", &[]),
            ("'NaN' <= #", &[5, 6]),
            ("# > 1.5", &[4, 5, 6]),
            ("# >= 'Infinity'", &[4, 5, 6]),
            ("# = '-Infinity'", &[0]),
            ("# = 0", &[1, 2]),
            ("# < 0", &[0]),
            ("# >= 0", &[1, 2, 3, 4, 5, 6]),
            ("# IS NAN", &[5, 6]),
            ("# IS NOT NAN", &[0, 1, 2, 3, 4, 7]),
            ("# IN (0, 'NaN')", &[1, 2, 5, 6]),
            ("# NOT IN (0, 1.5)", &[0, 4, 5, 6]),
            ("# NOT IN (0, 'NaN')", &[0, 3, 4]),
            ("# <> 1.5", &[0, 1, 2, 4, 5, 6]),
            ("# < 1e999", &[0, 1, 2, 3]),
            ("# > 1e999", &[4, 5, 6]),
            ("# = 1e999", &[]),
            ("# > -1e999", &[1, 2, 3, 4, 5, 6]),
        ];
        for (text, expected) in cases {
            check(column, &values, &[(&text.replace('#', column), expected)]);
        }
    }
    // The nearest value of the column's own type.
    check("f", &[Some(F(f64::from(0.1_f32)))], &[("f = 0.1", &[0])]);
    check("d", &[Some(F(0.1)), Some(F(f64::from(0.1_f32)))], &[("d = 0.1", &[0])]);
}

#[test]
fn text_and_bytes_are_compared_as_they_are() {
    let text = |text: &str| Some(S(text.into()));
    check(
        "text",
        &[text(""), text("a"), text("ab"), text("b"), text("it's"), text("\u{ffff}"), text("𝄞"), None],
        &[
            ("text = ''", &[0]),
            ("text LIKE 'a%'", &[1, 2]),
            ("text NOT LIKE 'a%'", &[0, 3, 4, 5, 6]),
            ("text LIKE 'a'", &[1]),
            ("text NOT LIKE 'a'", &[0, 2, 3, 4, 5, 6]),
            ("text LIKE '%'", &[0, 1, 2, 3, 4, 5, 6]),
            ("text NOT LIKE '%'", &[]),
            ("text = 'it''s'", &[4]),
            ("text > '\u{ffff}'", &[6]),
            ("text BETWEEN 'a' AND 'b'", &[1, 2, 3]),
            ("text IN ('b', 'a', 'b')", &[1, 3]),
        ],
    );
    let bytes = |bytes: &[u8]| Some(Y(bytes.to_vec()));
    check(
        "bin",
        &[bytes(&[]), bytes(&[0x7f]), bytes(&[0x80]), bytes(&[0x80, 0])],
        &[("bin = X''", &[0]), ("bin > X'7f'", &[2, 3]), ("bin = x'8000'", &[3])],
    );
    check("fix", &[bytes(&[0x80, 0])], &[("fix = X'80'", &[]), ("fix > X'80'", &[0])]);
    let mut uuid = vec![0; 16];
    uuid[0] = 0xf0;
    check(
        "uu",
        &[Some(Y(uuid)), Some(Y(vec![0; 16]))],
        &[("uu = 'F0000000-0000-0000-0000-000000000000'", &[0]), ("uu > '00000000-0000-0000-0000-000000000000'", &[0])],
    );
}

#[test]
fn odd_names_and_fields_of_structs_are_found() {
    let odd = columns()[at("Odd \"name\" #1.x 🚢")].0;
    check(
        odd,
        &[Some(I(1)), None],
        &[("\"Odd \"\"name\"\" #1.x 🚢\" = 1", &[0]), ("`odd \"NAME\" #1.X 🚢` = 1", &[0])],
    );
    check(
        "s.a",
        &[Some(I(1)), Some(I(2)), None],
        &[
            ("s.a = 1", &[0]),
            ("\"S\".`A` = 2", &[1]),
            ("s.a IS NULL", &[2]),
            ("s.a <> 1", &[1]),
            ("s.b IS NULL", &[0, 1, 2]),
        ],
    );
    assert_eq!(bound("s.b = 'x' and i = 1 and s.a = 2 and I > 5").field_ids(), [22, 2, 21]);
    assert_eq!(bound("s.b = 'x' and i = 1 and s.a = 2 and I > 5").top_level_ids(), [20, 2]);
}

#[test]
fn the_canonical_text_of_a_bound_filter_goes_by_field_id_and_tells_literals_apart() {
    let cases = [
        ("i = 5 AND NOT (text LIKE 'a%' OR flag)", "(2 = 5 and 13 not like 'a'% and 1 <> true)"),
        ("I = 5.0", "2 = 5"),
        ("i < 5.5", "2 <= 5"),
        ("i IN (3, 1, 3)", "2 in (1, 3)"),
        ("i IN (3, 3)", "2 = 3"),
        ("dec = 1.5", "6 = 150"),
        ("day = '1970-01-02'", "7 = 1"),
        ("d NOT IN (1, 'NaN')", "(5 is not null and 5 is not nan and 5 <> 1.0)"),
        ("i = 1.5", "false"),
        ("i = 1.5 OR flag", "1 = true"),
        ("text = 'it''s'", "13 = 'it''s'"),
    ];
    for (text, canonical) in cases {
        assert_eq!(bound(text).canonical(), canonical, "{text}");
    }
}

#[test]
fn rows_without_the_column_or_of_another_type_are_a_fault_of_the_caller() {
    let filter = bound("i = 1 or s.a = 2");
    let arrays = arrays(&[row("i", Some(I(1)))]);
    let error = filter.evaluate(&|_| None, 1).unwrap_err();
    assert_eq!(error.to_string(), "the filter cannot be applied to column i: the rows do not have it");
    assert_eq!(error.class(), Class::Bug);
    let error = filter.evaluate(&|id| arrays.get(&id).cloned(), 2).unwrap_err();
    assert_eq!(error.to_string(), "the filter cannot be applied to column i: it has 1 values for 2 rows");
    let error = filter.evaluate(&|_| arrays.get(&3).cloned(), 1).unwrap_err();
    assert_eq!(error.to_string(), "the filter cannot be applied to column s.a: it stands in what is no struct");
    let error = bound("i = 1").evaluate(&|_| arrays.get(&13).cloned(), 1).unwrap_err();
    assert_eq!(error.to_string(), "the filter cannot be applied to column i: its rows are Utf8 and the table has int");
}
