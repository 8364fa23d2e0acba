//! Dates as messages say them (RFC 9110 section 5.6.7), read as a cache reads them (RFC 9111 section 4.2).
//!
//! ```text
//!   Sun, 06 Nov 1994 08:49:37 GMT      as it is written today
//!   Sunday, 06-Nov-94 08:49:37 GMT     RFC 850
//!   Sun Nov  6 08:49:37 1994           asctime
//! ```
//!
//! Case does not matter, and the day of the week is not compared with the date. Anything else is no date: another zone than `GMT`, a digit too few, a
//! second space.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;

const MONTHS: [&[u8; 3]; 12] =
    [b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];
const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// Years of two digits below this one are of this century: what else would be more than 50 years ahead (RFC 9110 section 5.6.7).
const PIVOT: u64 = 70;
/// The longest of the three forms: `Wednesday, 09-Nov-94 08:49:37 GMT`.
const LONGEST: usize = 33;

/// The moment that is meant, if it is a date after 1969.
pub(crate) fn date(value: &HeaderValue) -> Option<SystemTime> {
    let said = value.as_bytes().trim_ascii();
    if said.len() > LONGEST {
        return None;
    }
    let said = said.to_ascii_lowercase();
    let (year, month, day, time) = match said.iter().position(|byte| *byte == b',') {
        Some(3) => in_full(&said)?,
        Some(end) => of_two_digits(&said[end..]).filter(|_| DAYS.iter().any(|day| day.as_bytes() == &said[..end]))?,
        None => as_c_writes_it(&said)?,
    };
    let is_day = (1..=days_of(year, month)).contains(&day);
    let seconds = days_before(year, month)?.checked_add(day.checked_sub(1)?)?.checked_mul(86_400)?.checked_add(time)?;
    is_day.then(|| UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Year, month from 0 on, day, and second of the day.
type Parts = (u64, u64, u64, u64);

fn in_full(said: &[u8]) -> Option<Parts> {
    let [w, e, d, b',', b' ', rest @ ..] = said else { return None };
    let [d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' ', time @ .., b' ', b'g', b'm', b't'] = rest else {
        return None;
    };
    is_short_day(&[*w, *e, *d])?;
    Some((number(&[*y1, *y2, *y3, *y4])?, month(&[*m1, *m2, *m3])?, number(&[*d1, *d2])?, second(time)?))
}

fn of_two_digits(behind_day: &[u8]) -> Option<Parts> {
    let [b',', b' ', d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', time @ .., b' ', b'g', b'm', b't'] = behind_day
    else {
        return None;
    };
    let year = number(&[*y1, *y2])?;
    let year = if year < PIVOT { 2000 + year } else { 1900 + year };
    Some((year, month(&[*m1, *m2, *m3])?, number(&[*d1, *d2])?, second(time)?))
}

fn as_c_writes_it(said: &[u8]) -> Option<Parts> {
    let [w, e, d, b' ', m1, m2, m3, b' ', d1, d2, b' ', time @ .., b' ', y1, y2, y3, y4] = said else { return None };
    is_short_day(&[*w, *e, *d])?;
    let tens = if *d1 == b' ' { b'0' } else { *d1 };
    Some((number(&[*y1, *y2, *y3, *y4])?, month(&[*m1, *m2, *m3])?, number(&[tens, *d2])?, second(time)?))
}

fn is_short_day(short: &[u8; 3]) -> Option<()> {
    DAYS.iter().any(|day| day.as_bytes().starts_with(short)).then_some(())
}

fn month(name: &[u8; 3]) -> Option<u64> {
    (0..).zip(MONTHS).find(|(_, month)| *month == name).map(|(at, _)| at)
}

fn second(time: &[u8]) -> Option<u64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = time else { return None };
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    // A minute may have a leap second.
    (hour < 24 && minute < 60 && second <= 60).then(|| hour * 3600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        1 => 28 + u64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

/// Days from 1 January 1970 to the first of the month.
fn days_before(year: u64, month: u64) -> Option<u64> {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year.checked_sub(1970)? * 365) + leaps(year - 1) - leaps(1969);
    Some(years + (0..month).map(|month| days_of(year, month)).sum::<u64>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(said: &str) -> Option<u64> {
        let moment = date(&HeaderValue::from_bytes(said.as_bytes()).unwrap())?;
        Some(moment.duration_since(UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn three_forms_are_dates_in_any_case_and_nothing_else_is() {
        for same in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "SUN, 06 NOV 1994 08:49:37 gmt",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun Nov 06 08:49:37 1994",
        ] {
            assert_eq!(read(same), Some(784_111_777), "{same}");
        }
        assert_eq!(read("Wednesday, 01-Jan-69 00:00:00 GMT"), read("Tue, 01 Jan 2069 00:00:00 GMT"));
        for none in [
            "0",
            "-1",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 AEST",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov  1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Day, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0u64..253_402_300_800) {
            let written = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            prop_assert_eq!(read(&written), Some(seconds));
        }
    }
}
