//! Times and sizes as people write them in a configuration file: `"2s"`, `"64MiB"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A length of time, written as whole numbers with units: `"250ms"`, `"2s"`, `"1m30s"`. Units: `ns`, `us`, `ms`, `s`, `m`, `h`,
/// `d`, each at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lapse(pub Duration);

/// A number of bytes, written with a unit: `"64MiB"`, `"4096B"`. Units: `B`, `KiB`, `MiB`, `GiB`, `TiB`.
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
        sum(text, &SIZES).map(Size).ok_or_else(|| format!("{text:?} is not a size such as \"64MiB\" or \"4096B\""))
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

/// Adds up `12h30m`: numbers with units, larger units first, none twice. `None` if it is anything else or does not fit.
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
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let at = allowed.iter().position(|(unit, _)| *unit == &rest[..letters])?;
        total = total.checked_add(number.checked_mul(allowed[at].1)?)?;
        allowed = &allowed[at + 1..];
        rest = &rest[letters..];
    }
    Some(total)
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
        deserializer.deserialize_str(Text("a time such as \"250ms\" or \"2s\"", str::parse))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text("a size such as \"64MiB\"", str::parse))
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
    fn anything_else_is_refused() {
        for text in
            ["", "2", "s", "2 s", "-1s", "1s1s", "1s2m", "2.5s", "99999999999999999999s", "999999999999d", "2S", "1é"]
        {
            assert!(text.parse::<Lapse>().is_err(), "{text:?} was taken for a time");
        }
        for text in ["", "64", "64MB", "16777216TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text:?} was taken for a size");
        }
    }
}
