//! Times and sizes as people write them in a configuration file: `"2s"`, `"64MiB"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time, written as numbers with units: `"250ms"`, `"2s"`, `"1m30s"`, `"1.5s"`. Units: `ns`, `us`, `ms`, `s`, `m`, `h`,
/// `d`, each at most once; the last number may have decimals, down to a whole nanosecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lapse(pub Duration);

/// A number of bytes, written with a unit: `"64MiB"`, `"4096B"`, `"1.5GiB"`. Units: `B`, `KiB`, `MiB`, `GiB`, `TiB`. The last number may
/// have decimals, if that makes whole bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(pub u64);

const TIMES: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const SIZES: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Lapse {
    /// `seconds` of time.
    pub const fn seconds(seconds: u64) -> Self {
        Lapse(Duration::from_secs(seconds))
    }

    /// `millis` thousandths of a second.
    pub const fn millis(millis: u64) -> Self {
        Lapse(Duration::from_millis(millis))
    }

    /// Reads a time as a command line has it: a number without a unit is seconds, as for timeout(1), sleep(1) and flock(1). A configuration file names the
    /// unit, so [`FromStr`] refuses such a number.
    ///
    /// # Errors
    /// What is wrong with the text, and what a time looks like.
    pub fn or_seconds(text: &str) -> Result<Self, String> {
        let number =
            Some(text.trim()).filter(|text| is_number(text)).and_then(|number| sum(&format!("{number}s"), &TIMES));
        match number {
            Some(nanos) => Ok(Lapse(Duration::from_nanos(nanos))),
            None => text.parse().map_err(|error| format!("{error}; a number without a unit is seconds")),
        }
    }
}

impl FromStr for Lapse {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanos = sum(text, &TIMES).ok_or_else(|| format!("{text:?} is not a time such as \"250ms\" or \"2s\""))?;
        Ok(Lapse(Duration::from_nanos(nanos)))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        sum(text, &SIZES).map(Size).ok_or_else(|| match text.trim() {
            number if is_number(number) => {
                format!("{text:?} has no unit: write {number}MiB, or another of B, KiB, MiB, GiB and TiB")
            }
            _ => format!("{text:?} is not a size such as \"64MiB\" or \"4096B\""),
        })
    }
}

impl fmt::Display for Lapse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_sum(f, u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX), &TIMES, "0s")
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One unit, the largest that leaves no rest, so that what was written is what is shown.
        let (unit, factor) = SIZES.iter().find(|(_, factor)| self.0.is_multiple_of(*factor)).unwrap_or(&("B", 1));
        if self.0 == 0 { f.write_str("0B") } else { write!(f, "{}{unit}", self.0 / factor) }
    }
}

/// Digits, with a point or without.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Adds up `12h30m`: numbers with units, larger units first, none twice, the last one with decimals or without. `None` if it is anything else, does not fit, or
/// is not a whole number of the smallest unit.
fn sum(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let mut rest = text.trim();
    let mut total = 0u64;
    let mut allowed = units;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let decimals = rest[digits..].strip_prefix('.').map(|rest| rest.split_once(|c: char| !c.is_ascii_digit()));
        let decimals = match decimals {
            Some(split) => Some(split?.0),
            None => None,
        };
        rest = &rest[digits + decimals.map_or(0, |decimals| 1 + decimals.len())..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let at = allowed.iter().position(|(unit, _)| *unit == &rest[..letters])?;
        let factor = allowed[at].1;
        total = total.checked_add(number.checked_mul(factor)?)?;
        rest = &rest[letters..];
        if let Some(decimals) = decimals {
            total = total.checked_add(part(decimals, factor)?)?;
            // After 1.5h nothing follows.
            allowed = &[];
        } else {
            allowed = &allowed[at + 1..];
        }
    }
    Some(total)
}

/// What `0.DECIMALS` of `factor` is, if that is a whole number.
fn part(decimals: &str, factor: u64) -> Option<u64> {
    let significant = decimals.trim_end_matches('0');
    let digits = u32::try_from(significant.len()).ok().filter(|_| !decimals.is_empty())?;
    // More decimals than this divide no unit.
    let whole = 10u128.checked_pow(digits).filter(|_| digits <= 18)?;
    let number = if digits == 0 { 0 } else { significant.parse::<u128>().ok()? };
    let part = number * u128::from(factor);
    u64::try_from(part / whole).ok().filter(|_| part.is_multiple_of(whole))
}

fn write_sum(f: &mut fmt::Formatter<'_>, mut total: u64, units: &[(&str, u64)], zero: &str) -> fmt::Result {
    if total == 0 {
        return f.write_str(zero);
    }
    for (unit, factor) in units {
        if total >= *factor {
            write!(f, "{}{unit}", total / factor)?;
            total %= factor;
        }
    }
    Ok(())
}

impl Serialize for Lapse {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lapse {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(
            "a time such as \"250ms\" or \"2s\", with its unit: ns, us, ms, s, m, h or d",
            str::parse,
        ))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_str(Text("a size such as \"64MiB\", with its unit: B, KiB, MiB, GiB or TiB", str::parse))
    }
}

/// A visitor for values that are written as text: what is expected, and how it is read.
struct Text<T>(&'static str, fn(&str) -> Result<T, String>);

impl<T> de::Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_shown() {
        for text in ["0s", "250ms", "2s", "1m30s", "1d2h", "7ns"] {
            assert_eq!(text.parse::<Lapse>().map(|lapse| lapse.to_string()), Ok(text.to_owned()));
        }
        for text in ["0B", "64MiB", "4097B", "3TiB"] {
            assert_eq!(text.parse::<Size>().map(|size| size.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("90s".parse(), Ok(Lapse::seconds(90)));
        assert_eq!(Lapse::seconds(90).to_string(), "1m30s");
    }

    #[test]
    fn the_last_number_may_have_decimals() {
        for (text, shown) in [
            ("1.5s", "1s500ms"),
            ("0.25ms", "250us"),
            ("1m2.5s", "1m2s500ms"),
            ("2.0s", "2s"),
            ("0.5h", "30m"),
            ("1.000000001s", "1s1ns"),
        ] {
            assert_eq!(text.parse::<Lapse>().map(|lapse| lapse.to_string()), Ok(shown.to_owned()), "{text}");
        }
        assert_eq!("1.5MiB".parse(), Ok(Size(3 << 19)));
        assert_eq!("0.5KiB".parse(), Ok(Size(512)));
        for text in
            ["1.s", ".5s", "1.5", "1.5.5s", "0.5ns", "1.0000000001s", "1.5h30m", "1..5s", "1.-5s", "1.5 s", "0.1B"]
        {
            assert!(text.parse::<Lapse>().is_err() && text.parse::<Size>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn a_number_alone_is_seconds_on_a_command_line() {
        for (text, shown) in [("5", "5s"), ("0", "0s"), ("1.5", "1s500ms"), (" 90 ", "1m30s"), ("250ms", "250ms")] {
            assert_eq!(Lapse::or_seconds(text).map(|lapse| lapse.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for text in ["", ".", "5.", "-5", "+5", "5 5", "soon", "99999999999999999999"] {
            let error = Lapse::or_seconds(text).expect_err(text);
            assert!(error.contains("a number without a unit is seconds"), "{error}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in
            ["", "2", "s", "2 s", "-1s", "1s1s", "1s2m", "2.5.5s", "99999999999999999999s", "999999999999d", "2S", "1é"]
        {
            assert!(text.parse::<Lapse>().is_err(), "{text:?} was taken for a time");
        }
        for text in ["", "64", "64MB", "16777216TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text:?} was taken for a size");
        }
        for text in ["64", " 1.5 "] {
            let error = text.parse::<Size>().expect_err(text);
            assert!(error.contains("has no unit") && error.contains(&format!("{}MiB", text.trim())), "{error}");
        }
    }
}
