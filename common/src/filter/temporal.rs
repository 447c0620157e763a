//! Dates, times and timestamps in text.

use chrono::{NaiveDate, NaiveTime, Timelike};

/// A point in time as text gives it: exact to the nanosecond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// Since 1970, by the clock that the text shows.
    local_nanos: i128,
    /// Of the zone from UTC, where the text has one.
    pub(super) offset_seconds: Option<i32>,
}

const NANOS_PER_SECOND: i128 = 1_000_000_000;
/// Of one day.
pub(super) const NANOS_PER_DAY: i128 = 86_400 * NANOS_PER_SECOND;

impl Moment {
    /// The begin of a day, so many days since 1970, in no zone.
    pub(super) fn midnight(days: i32) -> Self {
        Self { local_nanos: i128::from(days) * NANOS_PER_DAY, offset_seconds: None }
    }

    /// Since 1970 in the text's own clock.
    pub(super) fn local_nanos(self) -> i128 {
        self.local_nanos
    }

    /// Since 1970 in UTC; a text without a zone is taken as UTC.
    pub(super) fn utc_nanos(self) -> i128 {
        self.local_nanos - i128::from(self.offset_seconds.unwrap_or(0)) * NANOS_PER_SECOND
    }
}

/// Days since 1970 of `2026-01-31`.
pub(super) fn date(text: &str) -> Option<i32> {
    let (year, rest) = text.strip_prefix('-').unwrap_or(text).split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let year = digits(year, 4..=6)?;
    let year = if text.starts_with('-') { -year } else { year };
    let date = NaiveDate::from_ymd_opt(year, digits(month, 2..=2)? as u32, digits(day, 2..=2)? as u32)?;
    Some(date.to_epoch_days())
}

/// Nanoseconds since midnight of `12:30`, `12:30:15` or `12:30:15.123456789`.
pub(super) fn time(text: &str) -> Option<i64> {
    let (hour, rest) = text.split_once(':')?;
    let (minute, second) = rest.split_once(':').unwrap_or((rest, "0"));
    let (second, fraction) = second.split_once('.').map_or((second, None), |(second, rest)| (second, Some(rest)));
    let nanos = match fraction {
        Some(fraction) => {
            let value = digits(fraction, 1..=9)?;
            value * 10_i32.pow(9 - u32::try_from(fraction.len()).ok()?)
        }
        None => 0,
    };
    let [hour, minute, second] = [digits(hour, 2..=2)?, digits(minute, 2..=2)?, digits(second, 1..=2)?];
    let time = NaiveTime::from_hms_nano_opt(hour as u32, minute as u32, second as u32, nanos as u32)?;
    Some(i64::from(time.num_seconds_from_midnight()) * 1_000_000_000 + i64::from(time.nanosecond()))
}

/// A date, or a date and a time with a blank or a `T` between them, with `Z` or `+01:00` after it or without.
pub(super) fn moment(text: &str) -> Option<Moment> {
    let Some((day, rest)) = text.split_once(['T', ' ']) else {
        return Some(Moment { local_nanos: i128::from(date(text)?) * NANOS_PER_DAY, offset_seconds: None });
    };
    let (clock, offset_seconds) = match rest.strip_suffix(['Z', 'z']) {
        Some(clock) => (clock, Some(0)),
        None => match rest.find(['+', '-']) {
            Some(at) => (&rest[..at], Some(offset(&rest[at..])?)),
            None => (rest, None),
        },
    };
    let nanos = i128::from(time(clock)?);
    Some(Moment { local_nanos: i128::from(date(day)?) * NANOS_PER_DAY + nanos, offset_seconds })
}

fn offset(text: &str) -> Option<i32> {
    let (hours, minutes) = text.get(1..)?.split_once(':')?;
    let (hours, minutes) = (digits(hours, 2..=2)?, digits(minutes, 2..=2)?);
    if hours > 18 || minutes > 59 {
        return None;
    }
    let seconds = (hours * 60 + minutes) * 60;
    Some(if text.starts_with('-') { -seconds } else { seconds })
}

fn digits(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<i32> {
    if !length.contains(&text.len()) || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_times_and_moments_are_read_exactly_or_not_at_all() {
        assert_eq!(date("1970-01-01"), Some(0));
        assert_eq!(date("1969-12-31"), Some(-1));
        assert_eq!(date("2024-02-29"), Some(19_782));
        for text in ["", "2023-02-29", "2024-2-9", "24-02-09", "2024-02-09x", "٢٠٢٤-02-09", "9999999-01-01", "-", "--"]
        {
            assert_eq!(date(text), None, "{text}");
        }
        assert_eq!(time("00:00"), Some(0));
        assert_eq!(time("23:59:59.000000001"), Some(86_399_000_000_001));
        assert_eq!(time("01:00:00.5"), Some(3_600_500_000_000));
        for text in ["", "24:00", "12:60", "12:00:60", "1:00", "12:00:00.", "12:00:00.1234567890", "12"] {
            assert_eq!(time(text), None, "{text}");
        }
        let nanos = |text| moment(text).map(|moment| (moment.utc_nanos(), moment.offset_seconds));
        assert_eq!(nanos("1970-01-01"), Some((0, None)));
        assert_eq!(nanos("1969-12-31 23:59:59.999999999"), Some((-1, None)));
        assert_eq!(nanos("1970-01-01T01:00:00+01:00"), Some((0, Some(3600))));
        assert_eq!(nanos("1970-01-01T00:00Z"), Some((0, Some(0))));
        assert_eq!(nanos("1969-12-31 23:30:00-00:30"), Some((0, Some(-1800))));
        for text in ["", "1970-01-01T", "1970-01-01T00:00+1", "1970-01-01 00:00+01", "1970-01-01T00:00+19:00"] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}
