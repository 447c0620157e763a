//! What is a condition, and what is refused in which words.

use super::super::Filter;
use super::model::{Random, cases, seed};
use super::schema;
use crate::fault::{Class, Classified};

#[test]
fn one_condition_has_one_canonical_text_however_it_is_written() {
    let cases = [
        ("i = 5", "\"i\" = 5e0"),
        ("5=i", "\"i\" = 5e0"),
        ("  `i`==5.0 ", "\"i\" = 5e0"),
        ("+50e-1 = \"i\"", "\"i\" = 5e0"),
        ("10 < i", "\"i\" > 1e1"),
        ("-1 >= i", "\"i\" <= -1e0"),
        ("i != - 5", "\"i\" <> -5e0"),
        ("flag", "\"flag\""),
        ("not flag and i > 1 or l < 2", "((not \"flag\" and \"i\" > 1e0) or \"l\" < 2e0)"),
        ("not flag and (i > 1 or l < 2)", "(not \"flag\" and (\"i\" > 1e0 or \"l\" < 2e0))"),
        ("NOT NOT NOT flag", "not \"flag\""),
        ("a is not null", "\"a\" is not null"),
        ("a Is Nan", "\"a\" is nan"),
        ("a in ('x', 'it''s')", "\"a\" in ('x', 'it''s')"),
        ("a not in (1)", "\"a\" not in (1e0)"),
        ("a like 'x'", "\"a\" = 'x'"),
        ("a not like 'x%'", "\"a\" not like 'x'%"),
        ("a like '%%'", "\"a\" like ''%"),
        ("a between 1 and 2 and b", "(\"a\" between 1e0 and 2e0 and \"b\")"),
        ("\"a \"\"b\"\"\".c.`d``e`.\"f.g\" = TRUE", "\"a \"\"b\"\"\".\"c\".\"d`e\".\"f.g\" = true"),
        ("s.in = 1 and date = DATE '1970-01-02'", "(\"s\".\"in\" = 1e0 and \"date\" = date 1)"),
        ("time = time '00:00:01'", "\"time\" = time 1000000000"),
        ("t < timestamp '1970-01-01T01:00:00+01:00'", "\"t\" < timestamp 0 utc"),
        ("x = X'00Ff' or x = x''", "(\"x\" = x'00ff' or \"x\" = x'')"),
        ("größe_1 = 'ü'", "\"größe_1\" = 'ü'"),
    ];
    for (text, canonical) in cases {
        let filter = Filter::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(filter.canonical(), canonical, "{text}");
        assert_eq!(filter.text(), text);
    }
}

#[test]
fn what_is_no_condition_is_refused_with_its_place_and_what_was_expected() {
    let cases = [
        ("", "at character 1: expected a column, a literal, NOT or (, found the end"),
        ("i >", "at character 4: expected a literal, found the end"),
        (
            "i 5",
            "at character 3: expected =, <>, <, <=, >, >=, [NOT] IN, [NOT] LIKE, [NOT] BETWEEN or IS [NOT], found a number",
        ),
        ("ü = 5 5", "at character 7: expected AND, OR or the end, found a number"),
        ("(i = 5", "at character 7: expected AND, OR or ), found the end"),
        ("i = 5)", "at character 6: expected AND, OR or the end, found )"),
        ("i in 5", "at character 6: expected ( and a list of literals, found a number"),
        ("i in ()", "at character 7: expected a literal, found )"),
        ("i in (1 2)", "at character 9: expected , or ), found a number"),
        ("i is 5", "at character 6: expected NOT, NULL or NAN, found a number"),
        ("i is not true", "at character 10: expected NULL or NAN, found TRUE"),
        ("i not = 5", "at character 7: expected IN, LIKE or BETWEEN, found ="),
        ("i between 1 or 2", "at character 13: expected AND and the upper end, found OR"),
        ("5", "at character 2: expected =, <>, <, <=, > or >=, and a column, after the literal, found the end"),
        ("a = 'x", "at character 7: expected a quote that ends the text, found the end"),
        ("\"a = 5", "at character 7: expected a quote that ends the name, found the end"),
        ("a = X'0'", "at character 5: expected two hexadecimal digits for each byte, found other characters"),
        ("a. = 5", "at character 4: expected the name of a field after the dot, found ="),
        (
            "a = 5x",
            "at character 5: expected a number such as 12, 1.5 or 1e3; a name that begins with a digit stands in double quotes, found other characters",
        ),
        ("a = - 'x'", "at character 7: expected a number after the sign, found text"),
        ("a = date '2026-02-30'", "at character 10: expected a date such as 2026-01-31, found other text"),
        (
            "a = timestamp 'now'",
            "at character 15: expected a timestamp such as 2026-01-31 12:30:00, with or without a zone such as Z or +01:00, found other text",
        ),
        (
            "a = #",
            "at character 5: expected a column, an operator or a literal; a name with other characters stands in double quotes, found another character",
        ),
        (
            "a = ;",
            "at character 5: expected a column, an operator or a literal; a name with other characters stands in double quotes, found another character",
        ),
        ("and", "at character 1: expected a column, a literal, NOT or (, found AND"),
        ("a like b", "at character 8: expected a pattern as text, such as 'abc%', found a name"),
    ];
    for (text, message) in cases {
        let error = Filter::parse(text).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
        assert_eq!(error.class(), Class::Config);
    }
}

#[test]
fn sql_that_is_not_supported_is_refused_by_name() {
    let cases = [
        (
            "a = b",
            "at character 5: comparing a column with a column is not supported: compare it with a literal; text stands in single quotes",
        ),
        (
            "a = \"secret\"",
            "at character 5: comparing a column with a column is not supported: compare it with a literal; text stands in single quotes",
        ),
        ("upper(a) = 'X'", "at character 1: function upper is not supported: compare a column with a literal"),
        ("a = now()", "at character 5: function now is not supported: compare a column with a literal"),
        ("a + 1 = 2", "at character 3: arithmetic is not supported: compare the column itself with a literal"),
        ("a -1 = 2", "at character 3: arithmetic is not supported: compare the column itself with a literal"),
        ("a = 1 + 1", "at character 7: arithmetic is not supported: write the result"),
        ("1 = 1", "at character 5: comparing two literals is not supported: compare a column with a literal"),
        ("a = NULL", "at character 5: comparing with NULL is true of no row: write IS NULL or IS NOT NULL"),
        ("a in (1, null)", "at character 10: comparing with NULL is true of no row: write IS NULL or IS NOT NULL"),
        ("a <=> 1", "at character 3: <=> is not supported: write = or IS NULL"),
        (
            "a like '%x'",
            "at character 8: a LIKE pattern is not supported unless it is text with at most a % at its end, without _ and \\",
        ),
        (
            "a like 'x_'",
            "at character 8: a LIKE pattern is not supported unless it is text with at most a % at its end, without _ and \\",
        ),
        (
            "a like 'x\\%'",
            "at character 8: a LIKE pattern is not supported unless it is text with at most a % at its end, without _ and \\",
        ),
        ("a like 'x%' escape '!'", "at character 13: ESCAPE is not supported: write a pattern without it"),
        (
            "(a) = 1",
            "at character 5: only a column or a literal is compared: write it without parentheses, and one comparison at a time",
        ),
        (
            "1 < a < 5",
            "at character 7: only a column or a literal is compared: write it without parentheses, and one comparison at a time",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(Filter::parse(text).expect_err(text).to_string(), message, "{text}");
    }
    let long = format!("\"a\n{}\"(5)", "b".repeat(100));
    let message = Filter::parse(&long).unwrap_err().to_string();
    assert!(message.starts_with("at character 1: function \"a\\nbbb") && message.len() < 200, "{message}");
    let deep = format!("{}a{}", "(".repeat(65), ")".repeat(65));
    let message = Filter::parse(&deep).unwrap_err().to_string();
    assert_eq!(message, "at character 65: more than 64 parentheses inside each other are not supported: nest less");
    assert!(Filter::parse(&format!("{}a{}", "(".repeat(64), ")".repeat(64))).is_ok());
    assert!(Filter::parse(&format!("a{}", " and not not a".repeat(10_000))).is_ok());
    assert!(Filter::parse(&" ".repeat(300_000)).unwrap_err().to_string().contains("shorten it"));
}

#[test]
fn a_column_or_literal_that_does_not_fit_the_table_is_refused_by_name() {
    let cases = [
        (
            "nope = 1",
            "at character 1: column nope is not in the table: look at its columns; a name with dots or blanks stands in double quotes",
        ),
        (
            "case = 1",
            "at character 1: column case is the name of several columns in other letter cases: write it as the table does",
        ),
        ("s = 1", "at character 1: column s is a struct: name one of its fields after a dot"),
        ("s is null", "at character 1: column s is a struct: name one of its fields after a dot"),
        (
            "s.c = 1",
            "at character 1: column s.c is not in the table: look at its columns; a name with dots or blanks stands in double quotes",
        ),
        ("i.a = 1", "at character 1: column i.a is no struct, so nothing follows it after a dot"),
        (
            "tags.element = 1",
            "at character 1: column tags.element is or stands in a list, which a filter cannot look into",
        ),
        (
            "attributes.value = 1",
            "at character 1: column attributes.value is or stands in a map, which a filter cannot look into",
        ),
        ("i", "at character 1: column i is of type int: only a boolean column is a condition alone: compare it"),
        ("i is nan", "at character 1: column i is of type int: NaN is asked of float and double columns only"),
        ("i like 'x%'", "at character 1: column i is of type int: LIKE is asked of string columns only"),
        ("i = 'secret'", "at character 5: column i is of type int, which is compared with a number without quotes"),
        ("TEXT = 5", "at character 8: column text is of type string, which is compared with text in single quotes"),
        ("flag = 1", "at character 8: column flag is of type boolean, which is compared with TRUE or FALSE"),
        (
            "d = 'secret'",
            "at character 5: column d is of type double, which is compared with a number without quotes, 'NaN', 'Infinity' or '-Infinity'",
        ),
        ("dec = 'secret'", "at character 7: column dec is of type decimal(9, 2), which is compared with a number"),
        (
            "day = 'secret'",
            "at character 7: column day is of type date, which is compared with a date such as '2026-01-31'",
        ),
        (
            "day = '2026-01-31T00:00Z'",
            "at character 7: column day is of type date, which is compared with a date such as '2026-01-31'",
        ),
        (
            "clock = 'secret'",
            "at character 9: column clock is of type time, which is compared with a time such as '12:30:00'",
        ),
        (
            "ts = '2026-01-31T00:00Z'",
            "at character 6: column ts is of type timestamp, which is compared with a timestamp without a zone such as '2026-01-31 12:30:00'",
        ),
        (
            "tz = 5",
            "at character 6: column tz is of type timestamptz, which is compared with a timestamp such as '2026-01-31 12:30:00Z' or '2026-01-31 12:30:00+01:00'",
        ),
        ("uu = 'secret'", "at character 6: column uu is of type uuid, which is compared with a UUID in single quotes"),
        (
            "bin = 'secret'",
            "at character 7: column bin is of type binary, which is compared with bytes such as X'00ff'",
        ),
    ];
    for (text, message) in cases {
        let error = Filter::parse(text).unwrap().bind(&schema()).expect_err(text);
        assert_eq!(error.to_string(), message, "{text}");
        assert_eq!(error.class(), Class::Config);
    }
}

#[test]
fn a_filter_hides_its_literals_from_debug_output() {
    let filter = Filter::parse("text = 'secret' and Text <> 'secret'").unwrap();
    assert!(!format!("{filter:?}").contains("secret"));
    assert!(!format!("{:?}", filter.bind(&schema()).unwrap()).contains("secret"));
}

#[test]
fn no_text_makes_the_parser_panic_and_no_message_repeats_a_literal() {
    const WORDS: &[&str] = &[
        "i",
        "text",
        "s.a",
        "flag",
        "\"",
        "'",
        "`",
        "(",
        ")",
        ",",
        ".",
        "=",
        "<",
        ">",
        "<=>",
        "-",
        "+",
        "%",
        "and",
        "or",
        "not",
        "in",
        "is",
        "null",
        "nan",
        "like",
        "between",
        "date",
        "timestamp",
        "x'",
        "é",
        "🚢",
        "\\",
        "1",
        "1e9999999999",
        "9e99",
        "0.5",
        "'secret'",
        " ",
        "\n",
        "\0",
        "true",
        "2020-01-01",
        "escape",
        "((((",
    ];
    let seed = seed();
    for case in 0..cases(20_000) {
        let mut random = Random(seed.wrapping_add(case));
        let words = random.below(12);
        let blank = if random.chance(50) { " " } else { "" };
        let text = (0..words).map(|_| WORDS[random.below(WORDS.len() as u64) as usize]).collect::<Vec<_>>().join(blank);
        match Filter::parse(&text).and_then(|filter| filter.bind(&schema()).map(|bound| (filter, bound))) {
            // The canonical text is no language of its own, but it is stable.
            Ok((filter, _)) => assert_eq!(filter.canonical(), Filter::parse(&text).unwrap().canonical()),
            Err(error) => {
                assert!(!text.contains("'secret'") || !error.to_string().contains("secret"), "{text}: {error}")
            }
        }
    }
}
