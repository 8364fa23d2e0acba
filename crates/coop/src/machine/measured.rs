//! What a node measures for the adaptive scheme, and what it counts for people.

use std::collections::BTreeMap;
use std::time::Duration;

use verbena_terms::Time;

use crate::ghosts::Ghosts;
use crate::holder::Evicted;
use crate::placement::Measures;
use crate::tenant::Tenant;

/// Reads in one measure.
const READS: u64 = 512;
/// Ghosts reach back by that part of the objects.
const GHOST_PART: usize = 8;
/// Misses of which the end is awaited.
const MOST_MISSES: usize = 4096;
/// How long a client takes at most to store what it missed.
const LONGEST_MISS: Duration = Duration::from_secs(10);
/// Weight of a new sample in a mean.
const WEIGHT: f64 = 0.05;
/// Keys among which the hottest are.
const MOST_HOT: usize = 64;
/// Reads are looked at for that whose number gives none of these bits: one of four.
const LOOKED_AT: u64 = 0b11;
/// Reads of which the half counts no more later on.
const HALVED: u64 = 1 << 16;

/// What a node counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads that found an object here.
    pub local_hits: u64,
    /// Reads that found one at another node.
    pub remote_hits: u64,
    /// Reads that found none.
    pub misses: u64,
    /// Objects that others took in for this node, or that were offered to them for that.
    pub offered: u64,
    /// Objects that this node took in for others.
    pub taken_in: u64,
    /// Copies of others' objects that it kept.
    pub copies: u64,
    /// Objects of others that came here for good.
    pub moves: u64,
    /// Those among them for which another one left.
    pub swaps: u64,
    /// Objects that left for want of room.
    pub evicted: u64,
}

/// A mean that follows.
#[derive(Clone, Copy, Debug, Default)]
struct Mean(Option<f64>);

impl Mean {
    fn add(&mut self, sample: Duration) {
        let sample = sample.as_secs_f64();
        self.0 = Some(self.0.map_or(sample, |mean| mean + WEIGHT * (sample - mean)));
    }
}

/// The keys that are read most, as Metwally, Agrawal and El Abbadi (ICDT 2005) keep them: of more keys than places, the rarest gives its place and its count.
#[derive(Debug, Default)]
pub(super) struct Hottest(Vec<((Tenant, Vec<u8>), u64)>);

impl Hottest {
    fn add(&mut self, tenant: Tenant, key: &[u8]) {
        if let Some((_, count)) = self.0.iter_mut().find(|((of, known), _)| *of == tenant && known == key) {
            *count += 1;
        } else if self.0.len() < MOST_HOT {
            self.0.push(((tenant, key.to_vec()), 1));
        } else if let Some(rarest) = self.0.iter_mut().min_by_key(|(_, count)| *count) {
            *rarest = ((tenant, key.to_vec()), rarest.1 + 1);
        }
    }

    /// Of the last while what is read counts more than of before.
    fn age(&mut self) {
        self.0.iter_mut().for_each(|(_, count)| *count /= 2);
        self.0.retain(|(_, count)| *count > 0);
    }
}

#[derive(Debug, Default)]
pub(super) struct Measured {
    pub tally: Tally,
    hottest: Hottest,
    asked: u64,
    copies: Ghosts,
    singles: Ghosts,
    ghost_reads: u64,
    ghost_misses: u64,
    reads: u64,
    local: Mean,
    remote: Mean,
    miss: Mean,
    /// When keys were missed that nothing was stored for yet.
    misses: BTreeMap<u64, Time>,
}

impl Measured {
    /// A client reads this key.
    pub fn asked(&mut self, tenant: Tenant, key: &[u8]) {
        self.asked += 1;
        // Not every so many-th: clients ask in turns.
        if self.asked.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32 & LOOKED_AT == 0 {
            self.hottest.add(tenant, key);
        }
        if self.asked.is_multiple_of(HALVED) {
            self.hottest.age();
        }
    }

    /// The keys that are read most, the hottest first, with their part of the reads that were looked at.
    pub fn hottest(&self, tenant: Tenant, most: usize) -> Vec<(Vec<u8>, u64)> {
        let of_tenant = self.hottest.0.iter().filter(|((of, _), _)| *of == tenant);
        let mut hottest: Vec<_> = of_tenant.map(|((_, key), count)| (key.clone(), *count)).collect();
        hottest.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        hottest.truncate(most);
        hottest
    }

    /// A read found the object of this key, here or elsewhere, after so long.
    pub fn hit(&mut self, hash: u64, is_here: bool, after: Duration) {
        self.reads += 1;
        if is_here {
            self.tally.local_hits += 1;
            self.local.add(after);
        } else {
            self.tally.remote_hits += 1;
            self.remote.add(after);
            self.ghost_reads += u64::from(self.copies.take(hash));
        }
    }

    /// A read that began then found nothing.
    pub fn missed(&mut self, hash: u64, began: Time) {
        self.reads += 1;
        self.tally.misses += 1;
        self.ghost_misses += u64::from(self.singles.take(hash));
        if self.misses.len() >= MOST_MISSES {
            self.misses.pop_first();
        }
        self.misses.insert(hash, began);
    }

    /// A value of this key is being stored: what a miss costs is how long that took.
    pub fn stored(&mut self, hash: u64, now: Time) {
        let took = self.misses.remove(&hash).map(|began| now.since(began));
        if let Some(took) = took.filter(|took| *took <= LONGEST_MISS) {
            self.miss.add(took);
        }
    }

    /// An object left for want of room, of so many.
    pub fn evicted(&mut self, evicted: &Evicted, objects: usize) {
        self.tally.evicted += 1;
        let ghosts = if evicted.is_redundant { &mut self.copies } else { &mut self.singles };
        ghosts.add(evicted.hash, objects / GHOST_PART);
    }

    /// What was measured, if that is enough. A node knows of its own misses alone: where requests are spread over `active` nodes, there are as many more.
    pub fn take(&mut self, is_full: bool, active: usize) -> Option<Measures> {
        if self.reads < READS {
            return None;
        }
        let local = self.local.0.unwrap_or(0.0);
        let measures = Measures {
            ghost_reads: self.ghost_reads,
            ghost_misses: self.ghost_misses * active as u64,
            remote_cost: self.remote.0.map_or(0.0, |remote| (remote - local).max(0.0)),
            miss_cost: self.miss.0.map_or(0.0, |miss| (miss - local).max(0.0)),
            is_full,
        };
        (self.reads, self.ghost_reads, self.ghost_misses) = (0, 0, 0);
        Some(measures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::version::Version;

    #[test]
    fn the_key_that_is_read_most_is_the_hottest() {
        let mut measured = Measured::default();
        for nth in 0..40_000u64 {
            let key = if nth % 8 < 3 { "hot".to_owned() } else { format!("key{}", nth * 7_919 % 5_000) };
            measured.asked(Tenant::DEFAULT, key.as_bytes());
        }
        assert_eq!(measured.hottest(Tenant(1), 3), [], "of another tenant");
        let hottest = measured.hottest(Tenant::DEFAULT, 3);
        assert_eq!((hottest[0].0.as_slice(), hottest.len()), (&b"hot"[..], 3));
        assert!(hottest[0].1 > 2 * hottest[1].1, "{hottest:?}");
    }

    #[test]
    fn ghosts_and_costs_are_measured() {
        let mut measured = Measured::default();
        let gone = |hash, is_redundant| Evicted { hash, version: Version(1), unit: 0, units: 1, is_redundant };
        measured.evicted(&gone(1, true), 80);
        measured.evicted(&gone(2, false), 80);
        let ms = Duration::from_millis;
        (0..READS).for_each(|hash| measured.hit(hash + 9, true, ms(1)));
        measured.hit(1, false, ms(3));
        measured.hit(1, false, ms(3));
        measured.missed(2, Time::ZERO);
        measured.missed(3, Time::ZERO);
        measured.stored(2, Time::ZERO + ms(51));
        measured.stored(3, Time::ZERO + Duration::from_secs(60));
        let measures = measured.take(true, 4).unwrap();
        assert_eq!((measures.ghost_reads, measures.ghost_misses, measures.is_full), (1, 4, true));
        assert!(
            (measures.remote_cost - 0.002).abs() < 1e-9 && (measures.miss_cost - 0.05).abs() < 1e-9,
            "{measures:?}"
        );
        assert_eq!(measured.take(true, 4), None);
        assert_eq!((measured.tally.local_hits, measured.tally.remote_hits, measured.tally.evicted), (READS, 2, 2));
    }
}
