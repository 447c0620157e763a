//! Timestamps of the job file: milliseconds since 1970, or RFC 3339.

use chrono::{DateTime, Timelike};

/// Which end of a range a timestamp is: what is finer than a millisecond is rounded so that the range never grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Start,
    End,
}

/// What is wanted, for messages.
pub(super) const WANTED: &str = "milliseconds since 1970, or RFC 3339 such as 2026-01-31T12:00:00Z";

/// Milliseconds at 2000-01-01 and 2100-01-01: commits of Iceberg tables lie between. A number outside is in another unit
/// or a slip of the hand; who means it writes it as RFC 3339.
const PLAUSIBLE_MS: std::ops::Range<i64> = 946_684_800_000..4_102_444_800_000;

/// Milliseconds of `text`, or what is wrong with it. `shown` stands for the text in messages.
pub(super) fn parse(text: &str, shown: &str, end: End) -> Result<i64, String> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return milliseconds(text, shown);
    }
    let Ok(time) = DateTime::parse_from_rfc3339(text) else {
        let is_a_date = chrono::NaiveDate::parse_from_str(text.get(..10).unwrap_or_default(), "%Y-%m-%d").is_ok();
        let hint = if is_a_date { " (with the time of day, and with Z or an offset such as +02:00)" } else { "" };
        return Err(format!("wants {WANTED}{hint}, not '{shown}'"));
    };
    let is_finer = time.nanosecond() % 1_000_000 != 0;
    Ok(time.timestamp_millis() + i64::from(is_finer && end == End::Start))
}

fn milliseconds(text: &str, shown: &str) -> Result<i64, String> {
    let number = text.parse::<i128>().unwrap_or(i128::MAX);
    let is_plausible = |ms: i128| i64::try_from(ms).is_ok_and(|ms| PLAUSIBLE_MS.contains(&ms));
    if is_plausible(number) {
        return i64::try_from(number).map_err(|_| format!("wants {WANTED}, not {shown}"));
    }
    let seems = |unit: &str, ms: i128| {
        // The number itself may have come from the environment, and is then not repeated.
        let advice = if shown == text { format!("write {ms}") } else { "convert it".to_owned() };
        Err(format!("{shown} seems to be in {unit}, not milliseconds: {advice}"))
    };
    if is_plausible(number.saturating_mul(1000)) {
        return seems("seconds", number * 1000);
    }
    if is_plausible(number / 1000) {
        return seems("microseconds", number / 1000);
    }
    if is_plausible(number / 1_000_000) {
        return seems("nanoseconds", number / 1_000_000);
    }
    Err(format!("{shown} is not between the years 2000 and 2100 in milliseconds: write RFC 3339 if it is meant"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_give_the_same_milliseconds() {
        let cases = [
            ("1769860800000", 1_769_860_800_000),
            ("2026-01-31T12:00:00Z", 1_769_860_800_000),
            ("2026-01-31T14:00:00+02:00", 1_769_860_800_000),
            ("2026-01-31T12:00:00.000Z", 1_769_860_800_000),
            ("2026-01-31t12:00:00.123z", 1_769_860_800_123),
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59.999Z", -1),
            ("946684800000", 946_684_800_000),
        ];
        for (text, ms) in cases {
            for end in [End::Start, End::End] {
                assert_eq!(parse(text, text, end), Ok(ms), "{text}");
            }
        }
    }

    #[test]
    fn a_part_of_a_millisecond_never_widens_the_range() {
        for (text, start, end) in
            [("2026-01-31T12:00:00.0005Z", 1_769_860_800_001, 1_769_860_800_000), ("1969-12-31T23:59:59.9995Z", 0, -1)]
        {
            assert_eq!((parse(text, text, End::Start), parse(text, text, End::End)), (Ok(start), Ok(end)), "{text}");
        }
    }

    #[test]
    fn another_unit_is_noticed_and_named() {
        let cases = [
            ("1769860800", "1769860800 seems to be in seconds, not milliseconds: write 1769860800000"),
            ("1769860800000000", "1769860800000000 seems to be in microseconds, not milliseconds: write 1769860800000"),
            (
                "1769860800000000000",
                "1769860800000000000 seems to be in nanoseconds, not milliseconds: write 1769860800000",
            ),
            ("0", "0 is not between the years 2000 and 2100 in milliseconds: write RFC 3339 if it is meant"),
            ("-1", "-1 is not between the years 2000 and 2100 in milliseconds: write RFC 3339 if it is meant"),
            (
                "20260131",
                "20260131 is not between the years 2000 and 2100 in milliseconds: write RFC 3339 if it is meant",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text, text, End::Start).unwrap_err(), message);
        }
        assert!(parse(&"9".repeat(60), "big", End::Start).is_err());
    }

    #[test]
    fn what_is_no_timestamp_says_what_is_wanted() {
        for text in ["", "-", "yesterday", "1.7e12", "2026-13-01T00:00:00Z"] {
            let message = parse(text, text, End::Start).unwrap_err();
            assert_eq!(message, format!("wants {WANTED}, not '{text}'"));
        }
        for text in ["2026-01-31", "2026-01-31T12:00:00", "2026-01-31 12:00"] {
            let message = parse(text, text, End::Start).unwrap_err();
            assert!(message.contains("with Z or an offset"), "{message}");
        }
    }
}
