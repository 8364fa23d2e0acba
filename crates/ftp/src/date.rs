//! Dates in listings, in `MDTM` and in the transfer log. All are UTC (RFC 3659, section 2.3).

/// A moment by the calendar, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The year, from 0 to 9999.
    pub year: i64,
    /// 1 to 12.
    pub month: u32,
    /// 1 to 31.
    pub day: u32,
    /// 0 to 23.
    pub hour: u32,
    /// 0 to 59.
    pub minute: u32,
    /// 0 to 59.
    pub second: u32,
    /// 0 is Sunday.
    pub weekday: u32,
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

impl Date {
    /// The date of `seconds` since 1970. Clamped to the years 0 to 9999.
    pub fn of(seconds: i64) -> Date {
        let seconds = seconds.clamp(-62_167_219_200, 253_402_300_799);
        let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) as u32);
        // Days since 1 March of the year 0 (Gregorian, extended backwards), in eras of 400 years.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let weekday = (days + 4).rem_euclid(7) as u32;
        Date { year, month, day, hour: rest / 3_600, minute: rest / 60 % 60, second: rest % 60, weekday }
    }

    /// Seconds since 1970.
    pub fn seconds(&self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let month_from_march = i64::from((self.month + 9) % 12);
        let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(self.day) - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        days * 86_400 + i64::from(self.hour * 3_600 + self.minute * 60 + self.second)
    }

    /// `YYYYMMDDHHMMSS`.
    pub fn compact(&self) -> String {
        let Date { year, month, day, hour, minute, second, .. } = self;
        format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
    }

    /// Reads `YYYYMMDDHHMM[SS[.digits]]`. `None` for a date that no calendar has.
    pub fn parse(text: &[u8]) -> Option<Date> {
        let text = std::str::from_utf8(text).ok()?;
        let (digits, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(digits) || !all_digits(fraction) || !(digits.len() == 12 || digits.len() == 14) {
            return None;
        }
        let part = |from: usize, to: usize| digits.get(from..to).map_or(Some(0), |digits| digits.parse::<u32>().ok());
        let date = Date {
            year: i64::from(part(0, 4)?),
            month: part(4, 6)?,
            day: part(6, 8)?,
            hour: part(8, 10)?,
            minute: part(10, 12)?,
            // A leap second counts as the one before it.
            second: part(12, 14)?.min(if part(12, 14)? == 60 { 59 } else { u32::MAX }),
            weekday: 0,
        };
        let back = Date::of(date.seconds());
        let is_real = Date { weekday: 0, ..back } == date && (1..=12).contains(&date.month);
        is_real.then_some(back)
    }

    /// The date in a line of `ls`: with the time if it is within half a year of `now`, else with the year.
    pub fn ls(&self, now: i64) -> String {
        let month = MONTHS[(self.month - 1) as usize];
        let age = now - self.seconds();
        if (-86_400..15_778_476).contains(&age) {
            format!("{month} {:2} {:02}:{:02}", self.day, self.hour, self.minute)
        } else {
            format!("{month} {:2} {:5}", self.day, self.year)
        }
    }

    /// `Thu Sep 23 09:30:00 2004`, as in the transfer log.
    pub fn log(&self) -> String {
        let (day, month) = (DAYS[self.weekday as usize], MONTHS[(self.month - 1) as usize]);
        format!("{day} {month} {:2} {:02}:{:02}:{:02} {}", self.day, self.hour, self.minute, self.second, self.year)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_day_of_a_thousand_years_comes_back() {
        for day in -200_000..200_000i64 {
            let date = Date::of(day * 86_400 + 3_661);
            assert_eq!(date.seconds(), day * 86_400 + 3_661);
            assert_eq!(Date::parse(date.compact().as_bytes()), Some(date), "{day}");
        }
    }

    #[test]
    fn known_dates() {
        assert_eq!(Date::of(0).log(), "Thu Jan  1 00:00:00 1970");
        assert_eq!(Date::of(1_709_210_096).compact(), "20240229123456");
        assert_eq!(Date::of(1_709_210_096).ls(1_709_210_096), "Feb 29 12:34");
        assert_eq!(Date::of(1_709_210_096).ls(1_809_210_096), "Feb 29  2024");
    }

    #[test]
    fn what_no_calendar_has_is_refused() {
        for bad in
            ["", "2024", "20230229000000", "20241301000000", "20240001000000", "20240101250000", "2024010100000x"]
        {
            assert_eq!(Date::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Date::parse(b"20240101000000.123").map(|date| date.seconds()), Some(1_704_067_200));
    }
}
