//! Numbers as people write them: probabilities, rates, limits of a queue.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use verbena_terms::{Lapse, Size};

/// How often something happens to a packet: `0.1%` or `0.001`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

impl Probability {
    /// From 0 to 1; `None` for anything else.
    pub fn new(part: f64) -> Option<Self> {
        (0.0..=1.0).contains(&part).then_some(Probability(part))
    }

    /// From 0 to 1.
    pub fn part(self) -> f64 {
        self.0
    }
}

impl FromStr for Probability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |number| (number, 100.0));
        let number = number.parse::<f64>().ok().filter(|_| is_plain(number));
        let probability = number.and_then(|number| Probability::new(number / unit));
        probability.ok_or_else(|| format!("{text:?} is not a probability such as \"0.1%\" or \"0.001\""))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Bits of Ethernet frames (without preamble and checksum) a second: `10mbit`, `2.5gbit`. Units: `bit`, `kbit`, `mbit`, `gbit`, by thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(u64);

const RATES: [(&str, u64); 4] = [("gbit", 1_000_000_000), ("mbit", 1_000_000), ("kbit", 1_000), ("bit", 1)];

/// A million times what one core forwards: beyond it a transmission takes no time that could be counted.
const HIGHEST_RATE: f64 = 1e16;

impl Rate {
    /// In bits a second; `None` for 0.
    pub fn bits_per_s(bits: u64) -> Option<Self> {
        (1..=HIGHEST_RATE as u64).contains(&bits).then_some(Rate(bits))
    }

    /// In bits a second.
    pub fn in_bits_per_s(self) -> u64 {
        self.0
    }

    /// How long `bytes` take.
    pub fn lasts(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.trim().to_ascii_lowercase();
        let found = RATES.iter().find_map(|(unit, factor)| {
            let number = lower.strip_suffix(unit)?;
            let bits = number.parse::<f64>().ok().filter(|_| is_plain(number))? * *factor as f64;
            (1.0..=HIGHEST_RATE).contains(&bits).then_some(Rate(bits.round() as u64))
        });
        found.ok_or_else(|| format!("{text:?} is not a rate such as \"10mbit\" or \"2.5gbit\" (bits a second)"))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = RATES.iter().find(|(_, factor)| self.0.is_multiple_of(*factor)).unwrap_or(&("bit", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

/// How much may wait in front of a rate limit: `1000` packets, `64KiB`, or what takes `50ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A number of packets.
    Packets(u64),
    /// A number of bytes.
    Bytes(u64),
    /// A packet that would have to wait longer is dropped.
    Time(Duration),
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let packets = || text.trim().parse().ok().filter(|packets| *packets > 0).map(Limit::Packets);
        let bytes = || text.parse().ok().filter(|Size(bytes)| *bytes > 0).map(|Size(bytes)| Limit::Bytes(bytes));
        let time = || text.parse().ok().filter(|lapse: &Lapse| !lapse.0.is_zero()).map(|lapse| Limit::Time(lapse.0));
        let limit = packets().or_else(bytes).or_else(time);
        limit
            .ok_or_else(|| format!("{text:?} is not a limit above 0 such as \"1000\" (packets), \"64KiB\" or \"50ms\""))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Packets(packets) => write!(f, "{packets}"),
            Limit::Bytes(bytes) => Size(*bytes).fmt(f),
            Limit::Time(time) => Lapse(*time).fmt(f),
        }
    }
}

/// Digits and a point: `parse` takes `inf`, `nan`, signs and exponents too.
pub(crate) fn is_plain(number: &str) -> bool {
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_with_their_units() {
        assert_eq!("0.1%".parse(), Ok(Probability(0.001)));
        assert_eq!("1".parse(), Ok(Probability(1.0)));
        assert_eq!("10mbit".parse(), Ok(Rate(10_000_000)));
        assert_eq!("2.5Gbit".parse(), Ok(Rate(2_500_000_000)));
        assert_eq!("9.6kbit".parse(), Ok(Rate(9_600)));
        assert_eq!("1000".parse(), Ok(Limit::Packets(1000)));
        assert_eq!("64KiB".parse(), Ok(Limit::Bytes(65_536)));
        assert_eq!("50ms".parse(), Ok(Limit::Time(Duration::from_millis(50))));
        assert_eq!(Rate(8_000_000).lasts(1500), Duration::from_micros(1500));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in ["", "%", "-1%", "101%", "1.5", "nan", "inf", "1e-3", "+0.5"] {
            assert!(text.parse::<Probability>().is_err(), "{text:?}");
        }
        for text in ["", "10", "mbit", "0bit", "0.1bit", "-1mbit", "nanmbit", "1e9bit", "10MiB", "99999999999gbit"] {
            assert!(text.parse::<Rate>().is_err(), "{text:?}");
        }
        for text in ["", "0", "0B", "0ms", "-5", "5 packets"] {
            assert!(text.parse::<Limit>().is_err(), "{text:?}");
        }
    }
}
