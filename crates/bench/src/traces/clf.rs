//! The Common Log Format of web servers, and the combined format, which is the same with two fields behind it:
//!
//! ```text
//! 127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326 "referrer" "agent"
//! host      identity user [time]                 "request line"                status bytes  (combined only)
//! ```
//!
//! In quoted fields a backslash protects what follows it. A request line of `-` (a connection that sent nothing) is no
//! request and is skipped. The key is the request's target as it stands; `-` bytes are 0. A log is in the order in which
//! answers ended, so a line can be a little earlier than the one before it: it gets that line's time.

use std::io::BufRead;

use super::input::{Lines, TraceError};
use super::record::Request;

/// Requests of a log in the Common Log Format.
pub struct ClfReader<R> {
    lines: Lines<R>,
    first_s: Option<i64>,
    last_us: u64,
    skipped: u64,
}

impl<R: BufRead> ClfReader<R> {
    /// Reads the log `reader`; `input` is what errors call it.
    pub fn new(input: String, reader: R) -> Self {
        ClfReader { lines: Lines::new(input, reader), first_s: None, last_us: 0, skipped: 0 }
    }

    /// How many lines so far held no request.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            let parsed = match self.lines.next()? {
                None => return Ok(None),
                Some(line) => parse(line),
            };
            let entry = parsed.map_err(|refusal| self.lines.error(refusal.at, refusal.what))?;
            let first_s = *self.first_s.get_or_insert(entry.unix_s);
            let Some(key) = entry.target else {
                self.skipped += 1;
                continue;
            };
            let since_first_s = u64::try_from(entry.unix_s - first_s).unwrap_or(0);
            self.last_us = self.last_us.max(since_first_s.saturating_mul(1_000_000));
            return Ok(Some(Request { at_us: self.last_us, key, size_bytes: entry.size_bytes }));
        }
    }
}

impl<R: BufRead> Iterator for ClfReader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

struct Entry {
    unix_s: i64,
    target: Option<String>,
    size_bytes: u64,
}

/// What is wrong, and at which byte of the line.
#[derive(Debug)]
struct Refusal {
    at: usize,
    what: String,
}

fn parse(line: &[u8]) -> Result<Entry, Refusal> {
    let mut cursor = Cursor { line, at: 0 };
    for field in ["host", "identity", "user"] {
        cursor.word(field)?;
        cursor.blank(field)?;
    }
    let unix_s = cursor.time()?;
    cursor.blank("time")?;
    let target = cursor.request_line()?;
    cursor.blank("request line")?;
    cursor.status()?;
    cursor.blank("status")?;
    let size_bytes = cursor.size()?;
    if !cursor.rest().is_empty() {
        for field in ["referrer", "user agent"] {
            cursor.blank("field before it")?;
            cursor.quoted(field)?;
        }
        if !cursor.rest().is_empty() {
            return Err(cursor.refuse("something stands behind the last field"));
        }
    }
    Ok(Entry { unix_s, target, size_bytes })
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.line[self.at..]
    }

    fn refuse(&self, what: impl Into<String>) -> Refusal {
        Refusal { at: self.at, what: what.into() }
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), Refusal> {
        if self.rest().first() != Some(&byte) {
            return Err(self.refuse(what));
        }
        self.at += 1;
        Ok(())
    }

    fn blank(&mut self, behind: &str) -> Result<(), Refusal> {
        self.expect(b' ', &format!("a blank belongs behind the {behind}"))
    }

    fn word(&mut self, what: &str) -> Result<&'a [u8], Refusal> {
        let rest = self.rest();
        let length = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        if length == 0 {
            return Err(self.refuse(format!("the {what} is missing")));
        }
        self.at += length;
        Ok(&rest[..length])
    }

    fn number(&mut self, digits: std::ops::RangeInclusive<usize>, what: &str) -> Result<u64, Refusal> {
        let rest = self.rest();
        let length = rest.iter().take(*digits.end()).take_while(|byte| byte.is_ascii_digit()).count();
        let text = str::from_utf8(&rest[..length]).expect("invariant: digits are ASCII");
        match text.parse() {
            Ok(number) if digits.contains(&length) => {
                self.at += length;
                Ok(number)
            }
            _ => Err(self.refuse(format!("the {what} is not a number as it should be"))),
        }
    }

    /// `[day/Mon/year:hour:minute:second zone]` as seconds since 1970.
    fn time(&mut self) -> Result<i64, Refusal> {
        const MONTHS: [&[u8]; 12] =
            [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
        let part = |cursor: &mut Self, what: &str, most: u64| {
            let start = cursor.at;
            match cursor.number(2..=2, what)? {
                number if number <= most => Ok(number as i64),
                number => Err(Refusal { at: start, what: format!("there is no {what} {number}") }),
            }
        };

        self.expect(b'[', "the time begins with `[`")?;
        let start = self.at;
        let day = part(self, "day", 31)?;
        self.expect(b'/', "a `/` belongs behind the day")?;
        let name = self.rest().get(..3).unwrap_or(self.rest());
        let Some(month) = MONTHS.iter().position(|month| *month == name) else {
            return Err(self.refuse("the month is one of Jan, Feb, .. Dec"));
        };
        self.at += 3;
        self.expect(b'/', "a `/` belongs behind the month")?;
        let year = self.number(4..=4, "year")? as i64;
        let Some(days) = days_since_1970(year, month as i64 + 1, day) else {
            return Err(Refusal { at: start, what: "there is no such day".to_owned() });
        };
        self.expect(b':', "a `:` belongs behind the year")?;
        let hour = part(self, "hour", 23)?;
        self.expect(b':', "a `:` belongs behind the hour")?;
        let minute = part(self, "minute", 59)?;
        self.expect(b':', "a `:` belongs behind the minute")?;
        let second = part(self, "second", 60)?;
        self.blank("second")?;
        let sign = match self.rest().first() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return Err(self.refuse("the zone begins with `+` or `-`")),
        };
        self.at += 1;
        let zone_minutes = part(self, "zone hour", 14)? * 60 + part(self, "zone minute", 59)?;
        self.expect(b']', "the time ends with `]`")?;
        Ok(days * 86_400 + hour * 3_600 + minute * 60 + second - sign * zone_minutes * 60)
    }

    /// The target of a quoted request line: `None` of a line that is no request.
    fn request_line(&mut self) -> Result<Option<String>, Refusal> {
        let start = self.at + 1;
        let text = self.quoted("request line")?;
        if text == b"-" || text.is_empty() {
            return Ok(None);
        }
        let mut words = text.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let (_method, target) = (words.next(), words.next());
        let Some(target) = target else {
            return Err(Refusal { at: start, what: "the request line has no target behind its method".to_owned() });
        };
        match str::from_utf8(target) {
            Ok(target) => Ok(Some(target.to_owned())),
            Err(_) => Err(Refusal { at: start, what: "the request's target is not UTF-8".to_owned() }),
        }
    }

    /// What stands between two quotes, its escapes left as they are.
    fn quoted(&mut self, what: &str) -> Result<&'a [u8], Refusal> {
        self.expect(b'"', &format!("the {what} begins with a quote"))?;
        let rest = self.rest();
        let mut length = 0;
        while let Some(&byte) = rest.get(length) {
            match byte {
                b'"' => {
                    self.at += length + 1;
                    return Ok(&rest[..length]);
                }
                b'\\' => length += 2,
                _ => length += 1,
            }
        }
        Err(self.refuse(format!("the {what} has no closing quote")))
    }

    fn status(&mut self) -> Result<u64, Refusal> {
        let start = self.at;
        match self.number(3..=3, "status")? {
            status @ 100..=999 => Ok(status),
            status => Err(Refusal { at: start, what: format!("{status:03} is not a status") }),
        }
    }

    fn size(&mut self) -> Result<u64, Refusal> {
        if self.rest().first() == Some(&b'-') {
            self.at += 1;
            return Ok(0);
        }
        self.number(1..=usize::MAX, "number of bytes")
    }
}

/// Days from 1970-01-01 to a day of the Gregorian calendar, if there is such a day (H. Hinnant's algorithm).
fn days_since_1970(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let longest = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1..=longest).contains(&day) {
        return None;
    }
    let year_from_march = year - i64::from(month <= 2);
    let era = year_from_march.div_euclid(400);
    let year_of_era = year_from_march.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(log: &str) -> Result<Vec<Request>, TraceError> {
        ClfReader::new("log".to_owned(), log.as_bytes()).collect()
    }

    #[test]
    fn both_formats_are_read() {
        let log = r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326
::1 - - [10/Oct/2000:20:55:38 +0000] "GET /a\"b HTTP/1.1" 304 - "http://x/" "agent \"x\" 1"
::1 - - [10/Oct/2000:20:55:37 +0000] "POST /late" 200 7
::1 - - [10/Oct/2000:20:55:40 +0000] "-" 408 -
"#;
        let mut reader = ClfReader::new("log".to_owned(), log.as_bytes());
        let requests: Vec<Request> = reader.by_ref().map(Result::unwrap).collect();
        let request = |at_us, key: &str, size_bytes| Request { at_us, key: key.to_owned(), size_bytes };
        assert_eq!(
            requests,
            [request(0, "/apache_pb.gif", 2326), request(2_000_000, r#"/a\"b"#, 0), request(2_000_000, "/late", 7),]
        );
        assert_eq!(reader.skipped(), 1);
    }

    #[test]
    fn refusals_name_line_and_column() {
        let good = "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1\n";
        for (bad, column, told) in [
            ("", 1, "the host is missing"),
            ("h - -", 6, "blank belongs behind the user"),
            ("h - - 10/Oct", 7, "begins with `[`"),
            ("h - - [32/Oct/2000:13:55:36 -0700] \"GET / \" 200 1", 8, "no day 32"),
            ("h - - [30/Feb/2000:13:55:36 -0700] \"GET / \" 200 1", 8, "no such day"),
            ("h - - [10/Okt/2000:13:55:36 -0700] \"GET / \" 200 1", 11, "the month"),
            ("h - - [10/Oct/2000:24:55:36 -0700] \"GET / \" 200 1", 20, "no hour 24"),
            ("h - - [10/Oct/2000:13:55:36 0700] \"GET / \" 200 1", 29, "the zone"),
            ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / \\\" 200 1", 37, "no closing quote"),
            ("h - - [10/Oct/2000:13:55:36 -0700] \"GET\" 200 1", 37, "no target"),
            ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / \" 20 1", 45, "the status"),
            ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / \" 200 x", 49, "number of bytes"),
            ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / \" 200 1 x", 51, "begins with a quote"),
            ("h - - [10/Oct/2000:13:55:36 -0700] \"GET / \" 200 99999999999999999999", 49, "number of bytes"),
        ] {
            let refusal = read(&format!("{good}{bad}\n")).unwrap_err().to_string();
            assert!(refusal.starts_with(&format!("log, line 2, column {column}: ")), "{bad}: {refusal}");
            assert!(refusal.contains(told), "{bad}: {refusal}");
        }
    }

    #[test]
    fn days_are_counted_as_calendars_do() {
        assert_eq!(days_since_1970(1970, 1, 1), Some(0));
        assert_eq!(days_since_1970(2000, 3, 1), Some(11_017));
        assert_eq!(days_since_1970(1969, 12, 31), Some(-1));
        assert_eq!(days_since_1970(2024, 2, 29), Some(19_782));
        assert_eq!(days_since_1970(1900, 2, 29), None);
        assert_eq!(days_since_1970(2023, 4, 31), None);
    }
}
