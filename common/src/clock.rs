//! The one place that time comes from.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Now, for measuring spans.
pub fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970-01-01 UTC, as Iceberg's timestamps have them.
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
