//! Rules that choose packets: one at a random place in every block, and bursts.

use std::fmt;
use std::str::FromStr;

use crate::chance::Chance;
use crate::units::Probability;

/// One packet, at a random place, in every block of `length`: dissertation 8.2.2, *drop_rate* and *ooo_rate*. Unlike a
/// probability it chooses exactly one of each block, so what a short run sees is known beforehand.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    length: u64,
    /// Of the next packet in its block.
    place: u64,
    chosen: u64,
    chance: Chance,
}

impl Blocks {
    /// Of `length` packets, at least 1.
    pub fn new(length: u64, mut chance: Chance) -> Self {
        let chosen = chance.below(length);
        Blocks { length, place: 0, chosen, chance }
    }

    /// Whether the next packet is the one of its block.
    pub fn chooses(&mut self) -> bool {
        let is_chosen = self.place == self.chosen;
        self.place += 1;
        if self.place == self.length {
            self.place = 0;
            self.chosen = self.chance.below(self.length);
        }
        is_chosen
    }
}

/// Loss in bursts: the model of Gilbert and Elliott (E. N. Elliott, "Estimates of error rates for codes on burst-noise channels", 1963). A way is
/// good or bad; before each packet it may change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// From good to bad, a packet.
    pub begins: Probability,
    /// From bad to good, a packet: its inverse is the mean length of a burst.
    pub ends: Probability,
    /// Loss while it is bad.
    pub loss_in: Probability,
    /// Loss while it is good.
    pub loss_out: Probability,
}

impl Burst {
    /// The part of all packets that is lost in a long run.
    pub fn loss(&self) -> f64 {
        let (begins, ends) = (self.begins.part(), self.ends.part());
        let bad = if begins + ends > 0.0 { begins / (begins + ends) } else { 0.0 };
        bad * self.loss_in.part() + (1.0 - bad) * self.loss_out.part()
    }
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "{text:?} is not two to four probabilities: a burst begins, it ends, loss within (100%), loss outside (0%); \
                 such as \"0.1%,20%\""
            )
        };
        let parts: Vec<Probability> =
            text.split(',').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
        let (begins, ends) = match parts[..] {
            [begins, ends, ..] if parts.len() <= 4 => (begins, ends),
            _ => return Err(expected()),
        };
        let one = Probability::new(1.0).unwrap_or_default();
        Ok(Burst {
            begins,
            ends,
            loss_in: parts.get(2).copied().unwrap_or(one),
            loss_out: parts.get(3).copied().unwrap_or_default(),
        })
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.begins, self.ends, self.loss_in, self.loss_out)
    }
}

/// A way with bursts, and how it is now.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    burst: Burst,
    is_bad: bool,
    changes: Chance,
    losses: Chance,
}

impl Weather {
    /// Good at first.
    pub fn new(burst: Burst, changes: Chance, losses: Chance) -> Self {
        Weather { burst, is_bad: false, changes, losses }
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        let change = if self.is_bad { self.burst.ends } else { self.burst.begins };
        self.is_bad ^= self.changes.happens(change.part());
        let loss = if self.is_bad { self.burst.loss_in } else { self.burst.loss_out };
        self.losses.happens(loss.part())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::chance::Purpose;

    #[test]
    fn every_block_has_exactly_one_and_every_place_its_share() {
        let mut blocks = Blocks::new(10, Chance::new(5, 0, Purpose::DropRate));
        let mut places = [0u32; 10];
        for _ in 0..100_000 {
            let chosen: Vec<usize> = (0..10).filter(|_| blocks.chooses()).collect();
            assert_eq!(chosen.len(), 1);
            places[chosen[0]] += 1;
        }
        // 100,000 draws of one place in ten: 3.89 standard deviations of 95 are 369.
        assert!(places.iter().all(|count| count.abs_diff(10_000) < 369), "{places:?}");
        let mut all = Blocks::new(1, Chance::new(5, 0, Purpose::DropRate));
        assert!((0..10).all(|_| all.chooses()));
    }

    #[test]
    fn bursts_are_as_long_and_as_frequent_as_asked() {
        let burst: Burst = "1%,20%".parse().unwrap();
        let mut weather = Weather::new(burst, Chance::new(3, 0, Purpose::Burst), Chance::new(3, 0, Purpose::BurstLoss));
        let lost: Vec<bool> = (0..1_000_000).map(|_| weather.loses()).collect();
        let bursts = lost.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        let losses = lost.iter().filter(|lost| **lost).count() as f64;
        // About 47,600 bursts of 5 packets in the mean (deviation 4.5): 3.89 standard errors are 0.08 packets.
        assert!((losses / bursts - 5.0).abs() < 0.09, "{losses} in {bursts}");
        assert!((losses / 1e6 - burst.loss()).abs() < 0.002, "{losses}, asked {}", burst.loss());
    }

    #[test]
    fn bursts_can_leave_packets_in_and_lose_some_outside() {
        let burst: Burst = "10%,10%,50%,2%".parse().unwrap();
        assert!((burst.loss() - 0.26).abs() < 1e-9);
        let mut weather = Weather::new(burst, Chance::new(4, 0, Purpose::Burst), Chance::new(4, 0, Purpose::BurstLoss));
        let losses = (0..1_000_000).filter(|_| weather.loses()).count() as f64;
        assert!((losses / 1e6 - 0.26).abs() < 0.005, "{losses}");
        for text in ["", "1%", "1%,2%,3%,4%,5%", "1%,x"] {
            assert!(text.parse::<Burst>().is_err(), "{text:?}");
        }
    }
}
