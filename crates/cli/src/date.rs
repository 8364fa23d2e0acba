//! Days in the calendar, for certificates, and moments, for views.

use std::time::{Duration, SystemTime};

const DAY: u64 = 86_400;

/// The day of a moment, in UTC, as `2027-11-21`.
pub fn day(moment: SystemTime) -> String {
    let days = since_1970(moment).as_secs() / DAY;
    // Years are counted from March here, so that the day that comes and goes is a year's last (Hinnant, chrono-compatible
    // low-level date algorithms, civil_from_days).
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A moment in UTC, as `2027-11-21T17:04:05.123Z`.
pub fn moment(moment: SystemTime) -> String {
    format!("{}.{:03}Z", second(moment), since_1970(moment).subsec_millis())
}

/// A moment in UTC as the log has it: `2027-11-21T17:04:05.123456Z`.
pub fn exact_moment(moment: SystemTime) -> String {
    format!("{}.{:06}Z", second(moment), since_1970(moment).subsec_micros())
}

fn second(moment: SystemTime) -> String {
    let of_day = since_1970(moment).as_secs() % DAY;
    format!("{}T{:02}:{:02}:{:02}", day(moment), of_day / 3600, of_day / 60 % 60, of_day % 60)
}

fn since_1970(moment: SystemTime) -> Duration {
    moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO)
}

/// Whole days from `now` to `then`; negative if it is past.
pub fn days_until(then: SystemTime, now: SystemTime) -> i64 {
    let days = |length: Duration| i64::try_from(length.as_secs() / DAY).unwrap_or(i64::MAX);
    match then.duration_since(now) {
        Ok(left) => days(left),
        Err(past) => -days(past.duration()) - 1,
    }
}

/// Seconds since 1970.
pub fn unix_seconds(moment: SystemTime) -> u64 {
    moment.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }

    #[test]
    fn a_moment_is_told_to_the_millisecond_or_as_in_the_log() {
        assert_eq!(moment(SystemTime::UNIX_EPOCH), "1970-01-01T00:00:00.000Z");
        let late = SystemTime::UNIX_EPOCH + Duration::from_micros(1_735_689_599_007_089);
        assert_eq!(moment(late), "2024-12-31T23:59:59.007Z");
        assert_eq!(exact_moment(late), "2024-12-31T23:59:59.007089Z");
    }

    #[test]
    fn what_ended_a_moment_ago_has_no_day_left() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(10 * DAY);
        assert_eq!(days_until(now + Duration::from_secs(DAY + 1), now), 1);
        assert_eq!(days_until(now + Duration::from_secs(1), now), 0);
        assert_eq!(days_until(now - Duration::from_secs(1), now), -1);
    }
}
