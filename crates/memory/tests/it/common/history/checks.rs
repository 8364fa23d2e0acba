//! What each coherence promises of a segment's history.

use std::collections::{BTreeMap, HashMap, HashSet};

use verbena_memory::Coherence;
use verbena_terms::Time;

use super::{BEHIND, Fate, GetOf, History, PATIENCE, PutOf};

/// Clocks differ by 200 parts per million at most: far less than this in [`PATIENCE`].
const CLOCKS: u64 = 100_000;

impl History {
    /// What its coherence promises.
    pub fn check(&self) -> Result<(), String> {
        self.nothing_from_the_future()?;
        if self.coherence == Coherence::Null {
            return Ok(());
        }
        let is_parted = self.is_parted();
        if !is_parted {
            self.whole()?;
        }
        self.versions_are_puts()?;
        self.as_its_version_was()?;
        match self.coherence {
            Coherence::Null | Coherence::Read => Ok(()),
            Coherence::Write => self.nothing_overwritten(),
            Coherence::Strict if is_parted => self.in_order_of_versions(),
            Coherence::Strict => self.linearizable().and_then(|()| self.in_order_of_versions()),
            Coherence::Version => self.one_put_a_version(),
            Coherence::Delta(_) => self.at_most_behind(|_, newest| newest.saturating_sub(u64::from(BEHIND))),
            Coherence::Temporal(_) => self.at_most_old(),
        }
    }

    /// What was put, by the version that it was made.
    fn made(&self) -> BTreeMap<u64, &PutOf> {
        let version = |put: &PutOf| if let Fate::Done(version, _) = put.fate { Some(version) } else { None };
        self.puts.iter().filter_map(|put| Some((version(put)?, put))).collect()
    }

    /// Whatever a reader sees somebody had begun to put, and it was not said to be not done.
    fn nothing_from_the_future(&self) -> Result<(), String> {
        let puts: HashMap<u64, &PutOf> = self.puts.iter().map(|put| (put.number, put)).collect();
        for get in &self.gets {
            for number in get.words.iter().filter(|number| **number != 0) {
                let Some(put) = puts.get(number) else { continue };
                if put.begun > get.ended {
                    return Err(format!("{number} was read at {} and put at {}", get.ended, put.begun));
                }
                if put.fate == Fate::Not && self.coherence != Coherence::Null {
                    return Err(format!("{number} was read, and is said not to have been put"));
                }
            }
        }
        Ok(())
    }

    /// Each value is one put's.
    fn whole(&self) -> Result<(), String> {
        let torn = self.gets.iter().find(|get| get.words.iter().any(|word| *word != get.words[0]));
        torn.map_or(Ok(()), |get| Err(format!("half a value was read at {}: {:?}", get.ended, get.words)))
    }

    /// Each word has one writer, whose numbers grow: what a put had ended with before a get began, the get sees, or something newer.
    fn nothing_overwritten(&self) -> Result<(), String> {
        let mut newest: HashMap<usize, BTreeMap<Time, u64>> = HashMap::new();
        for put in &self.puts {
            if let (Some(cell), Fate::Done(_, ended)) = (put.cell, put.fate) {
                newest.entry(cell).or_default().insert(ended, put.number);
            }
        }
        for get in &self.gets {
            for (cell, word) in (get.from..).zip(&get.words) {
                let ended = newest.get(&cell).and_then(|puts| puts.range(..get.begun).next_back());
                if let Some((when, number)) = ended.filter(|(_, number)| *number > word) {
                    return Err(format!(
                        "{number} was put to word {cell} until {when}, and {word} is there at {}",
                        get.begun
                    ));
                }
            }
        }
        Ok(())
    }

    /// A value has all puts up to its version, and nothing of a later one; and the time stamp of the last of them. A put of which nobody knows may be any version
    /// that no other one is.
    fn as_its_version_was(&self) -> Result<(), String> {
        let puts: HashMap<u64, &PutOf> = self.puts.iter().map(|put| (put.number, put)).collect();
        let made = self.made();
        let mut gets: Vec<&GetOf> = self.gets.iter().collect();
        gets.sort_by_key(|get| get.version);
        let cells = gets.iter().map(|get| get.from + get.words.len()).max().unwrap_or(0);
        (0..cells).try_for_each(|cell| self.part_as_its_version_was(cell, &gets, &puts, &made))?;
        for get in gets {
            let Some(stamp) = get.stamp else { continue };
            let of = puts.get(&stamp);
            let is_its = match made.get(&get.version) {
                Some(put) => put.number == stamp,
                // Nobody has put anything yet: its first version is any.
                None if stamp == 0 => {
                    made.range(..get.version).next().is_none() && get.words.iter().all(|word| *word == 0)
                }
                None => of.is_some_and(|put| put.fate == Fate::Open),
            };
            let mut covered = (get.from..).zip(&get.words).filter(|(cell, _)| of.is_some_and(|put| put.covers(*cell)));
            if !is_its || covered.any(|(_, word)| *word != stamp) {
                return Err(format!("version {} has the time stamp of {stamp}: {:?}", get.version, get.words));
            }
        }
        Ok(())
    }

    /// The same of one part. Gets are in the order of their versions.
    fn part_as_its_version_was(
        &self,
        cell: usize,
        gets: &[&GetOf],
        puts: &HashMap<u64, &PutOf>,
        made: &BTreeMap<u64, &PutOf>,
    ) -> Result<(), String> {
        let mut next = made.iter().filter(|(_, put)| put.covers(cell)).peekable();
        // What is there, since which version at the latest, and what was.
        let (mut now, mut at, mut before) = (0, 0, HashSet::new());
        for get in gets {
            let Some(word) = cell.checked_sub(get.from).and_then(|nth| get.words.get(nth)) else { continue };
            while let Some((version, put)) = next.next_if(|(version, _)| **version <= get.version) {
                before.insert(now);
                (now, at) = (put.number, *version);
            }
            if *word != now {
                let may_be = puts.get(word).is_some_and(|put| put.fate == Fate::Open && put.covers(cell));
                let is_room = (at + 1..=get.version).any(|version| !made.contains_key(&version));
                // Where each part has one writer, its numbers grow.
                let may_follow = self.coherence != Coherence::Write || *word > now;
                if !may_be || !is_room || !may_follow || before.contains(word) {
                    return Err(format!(
                        "{now} is what part {cell} of version {} is, and {word} is there, which was read at {}",
                        get.version, get.ended
                    ));
                }
                before.insert(now);
                now = *word;
            }
            at = get.version;
        }
        Ok(())
    }

    /// The order of versions is one of the moments at which things were done: nothing that begins when something has ended is before it, nor is it the same if it is
    /// a put. With what each version is, that makes all of them as one after the other.
    fn in_order_of_versions(&self) -> Result<(), String> {
        let puts = self.made().into_iter().filter_map(|(version, put)| match put.fate {
            Fate::Done(_, ended) => Some((put.begun, ended, version, true)),
            _ => None,
        });
        let gets = self.gets.iter().map(|get| (get.begun, get.ended, get.version, false));
        let mut begun: Vec<(Time, Time, u64, bool)> = puts.chain(gets).collect();
        let mut ended: Vec<(Time, u64)> = begun.iter().map(|(_, ended, version, _)| (*ended, *version)).collect();
        begun.sort_unstable();
        ended.sort_unstable();
        let (mut ended, mut newest) = (ended.into_iter().peekable(), 0);
        for (begun, _, version, is_put) in begun {
            while let Some((_, version)) = ended.next_if(|(ended, _)| *ended < begun) {
                newest = newest.max(version);
            }
            if version < newest || is_put && version == newest {
                let what = if is_put { "put" } else { "read" };
                return Err(format!(
                    "version {newest} was there before {begun}, when {version} was begun to be {what}"
                ));
            }
        }
        Ok(())
    }

    /// Gibbons and Korach 1997, for values that are put once: the operations on one value lie around its zone. Zones of values that must have
    /// been there between two moments do not overlap, and no other value's lies within such a one.
    pub fn linearizable(&self) -> Result<(), String> {
        let far = Time::FAR;
        // By value: the earliest end, and the latest beginning, of what was done with it.
        let mut zones: BTreeMap<u64, (Time, Time, bool)> = BTreeMap::from([(0, (Time::ZERO, Time::ZERO, true))]);
        for put in &self.puts {
            let ended = if let Fate::Done(_, ended) = put.fate { ended } else { far };
            zones.insert(put.number, (ended, put.begun, ended < far));
        }
        for get in &self.gets {
            let Some((ended, begun, is_there)) = zones.get_mut(&get.words[0]) else {
                return Err(format!("{} was never put", get.words[0]));
            };
            (*ended, *begun, *is_there) = (get.ended.min(*ended), get.begun.max(*begun), true);
        }
        // A put of which nobody knows, and that nobody saw, may never have been.
        let zones: Vec<(u64, Time, Time)> =
            zones.into_iter().filter(|(_, zone)| zone.2).map(|(value, (end, begin, _))| (value, end, begin)).collect();
        let is_forward = |(_, end, begin): &&(u64, Time, Time)| end < begin;
        for zone in zones.iter().filter(is_forward) {
            let (value, from, until) = *zone;
            for &(other, end, begin) in zones.iter().filter(|(other, ..)| *other != value) {
                // Of a backward zone it is to lie within, from its beginning to its end; of a forward one to touch.
                let overlaps = end < until && from < begin;
                if overlaps {
                    return Err(format!(
                        "{value} was there from {from} to {until}, and {other} at some moment of {begin} and {end}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Each put made its version of the one that it named.
    fn one_put_a_version(&self) -> Result<(), String> {
        for put in &self.puts {
            let (Some(named), Fate::Done(version, _)) = (put.named, put.fate) else { continue };
            if version != named + 1 {
                return Err(format!("{} replaced version {}, and not {named} that it named", put.number, version - 1));
            }
        }
        Ok(())
    }

    /// Each version is one put's.
    fn versions_are_puts(&self) -> Result<(), String> {
        let mut made: BTreeMap<u64, u64> = BTreeMap::new();
        for put in &self.puts {
            if let Fate::Done(version, _) = put.fate
                && let Some(other) = made.insert(version, put.number)
            {
                return Err(format!("{} and {other} are both version {version}", put.number));
            }
        }
        Ok(())
    }

    /// The newest version that a put had ended with before this.
    fn newest_before(&self, when: Time) -> u64 {
        let ended = |put: &PutOf| match put.fate {
            Fate::Done(version, ended) if ended < when => Some(version),
            _ => None,
        };
        self.puts.iter().filter_map(ended).max().unwrap_or(0)
    }

    fn at_most_behind(&self, least: impl Fn(&GetOf, u64) -> u64) -> Result<(), String> {
        for get in &self.gets {
            let newest = self.newest_before(get.begun);
            if get.version < least(get, newest) {
                return Err(format!("version {} was read at {}, when there was {newest}", get.version, get.begun));
            }
        }
        Ok(())
    }

    fn at_most_old(&self) -> Result<(), String> {
        for get in &self.gets {
            let then = Time::from_nanos(get.begun.nanos().saturating_sub(PATIENCE.as_nanos() as u64 + CLOCKS));
            let newest = self.newest_before(then);
            if get.version < newest {
                return Err(format!(
                    "version {} was read at {}, and {newest} was there at {then}",
                    get.version, get.begun
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn history(coherence: Coherence, puts: &[(u64, u64, Option<u64>)], gets: &[(u64, u64, u64)]) -> History {
        let put = |(nth, &(number, begun, ended)): (usize, &(u64, u64, Option<u64>))| {
            let fate = ended.map_or(Fate::Open, |ended| Fate::Done(nth as u64 + 2, at(ended)));
            PutOf { number, cell: None, named: None, begun: at(begun), fate }
        };
        let get = |&(number, begun, ended): &(u64, u64, u64)| {
            let version = puts.iter().position(|(put, ..)| *put == number).map_or(1, |nth| nth as u64 + 2);
            let words = vec![number, number];
            GetOf { from: 0, words, version, stamp: None, begun: at(begun), ended: at(ended) }
        };
        History { coherence, puts: puts.iter().enumerate().map(put).collect(), gets: gets.iter().map(get).collect() }
    }

    #[test]
    fn what_is_linearizable_is_told_from_what_is_not() {
        let strict = |puts: &[_], gets: &[_]| history(Coherence::Strict, puts, gets).linearizable();
        assert_eq!(strict(&[(7, 10, Some(20))], &[(0, 11, 12), (7, 15, 16), (7, 30, 31)]), Ok(()));
        assert!(strict(&[(7, 10, Some(20))], &[(0, 30, 31)]).is_err(), "an old value");
        assert!(strict(&[(7, 10, Some(20))], &[(7, 12, 13), (0, 14, 15)]).is_err(), "a value goes back");
        assert!(strict(&[(7, 10, Some(20)), (8, 30, Some(40))], &[(7, 50, 51)]).is_err(), "an overwritten one");
        assert!(strict(&[], &[(9, 1, 2)]).is_err(), "a value that nobody put");
        assert_eq!(
            strict(&[(7, 10, None)], &[(0, 30, 31), (7, 40, 41)]),
            Ok(()),
            "one of which nobody knows may come late"
        );
        assert!(strict(&[(7, 10, None)], &[(7, 40, 41), (0, 42, 43)]).is_err(), "but comes once");
        assert_eq!(strict(&[(7, 10, Some(50)), (8, 20, Some(40))], &[(8, 30, 31), (7, 45, 46), (7, 60, 61)]), Ok(()));
        let crossed = [(7, 0, Some(5)), (8, 10, Some(90)), (9, 20, Some(80))];
        assert!(strict(&crossed, &[(8, 30, 31), (9, 40, 41), (8, 50, 51)]).is_err(), "there and back");
    }

    #[test]
    fn versions_that_go_back_are_seen() {
        let order = |puts: &[_], gets: &[_]| history(Coherence::Strict, puts, gets).in_order_of_versions();
        let puts = [(7, 10, Some(20)), (8, 15, Some(40))];
        assert_eq!(order(&puts, &[(0, 11, 12), (7, 15, 16), (8, 17, 18), (8, 41, 42)]), Ok(()));
        assert!(order(&puts, &[(8, 16, 17), (7, 18, 19)]).is_err(), "a value goes back");
        assert!(order(&puts, &[(7, 41, 42)]).is_err(), "an old value");
        assert!(order(&[(7, 30, Some(40)), (8, 10, Some(20))], &[]).is_err(), "a put before one that had ended");
        assert!(order(&[(7, 30, Some(40))], &[(7, 10, 20)]).is_err(), "a value of later");
    }

    #[test]
    fn a_put_of_which_nobody_knows_is_one_version_once() {
        let puts = [(1, 0, Some(1)), (2, 2, Some(3)), (9, 4, None), (8, 4, None)];
        let mut unknown = history(Coherence::Read, &puts, &[]);
        let mut holds = |read: &[(u64, u64)]| {
            let get = |&(version, word): &(u64, u64)| {
                let (begun, ended) = (at(10), at(11));
                GetOf { from: 0, words: vec![word], version, stamp: None, begun, ended }
            };
            unknown.gets = read.iter().map(get).collect();
            unknown.as_its_version_was().is_ok()
        };
        assert!(holds(&[(1, 0), (2, 1), (3, 2), (4, 9), (5, 8)]));
        assert!(holds(&[(6, 8), (6, 8), (5, 9)]));
        assert!(!holds(&[(3, 9)]), "a version that another put is");
        assert!(!holds(&[(4, 9), (5, 2)]), "it comes and goes");
        assert!(!holds(&[(4, 9), (5, 8), (6, 9)]), "it comes again");
        assert!(!holds(&[(4, 9), (4, 8)]), "two values of one version");
    }

    #[test]
    fn stamps_of_others_are_seen() {
        let mut stamped = history(Coherence::Strict, &[(1, 0, Some(1)), (2, 2, None)], &[(1, 5, 6)]);
        let tried = [(1, 0, 0, true), (2, 1, 1, true), (2, 1, 0, false), (2, 1, 2, false), (3, 2, 2, true)];
        let broken = [(3, 2, 1, false), (3, 2, 0, false), (3, 1, 2, false)];
        for (version, word, stamp, holds) in tried.into_iter().chain(broken) {
            let get = &mut stamped.gets[0];
            (get.version, get.words, get.stamp) = (version, vec![word; 2], Some(stamp));
            assert_eq!(stamped.as_its_version_was().is_ok(), holds, "{stamp} of version {version}");
        }
    }

    #[test]
    fn old_copies_are_told_from_too_old_ones() {
        let puts: Vec<(u64, u64, Option<u64>)> = (1..=5).map(|nth| (nth, nth * 10, Some(nth * 10 + 1))).collect();
        let delta = |gets: &[_]| history(Coherence::Delta(BEHIND), &puts, gets).check();
        assert_eq!(delta(&[(3, 60, 61)]), Ok(()));
        assert!(delta(&[(2, 60, 61)]).is_err());
        let temporal = |gets: &[_]| history(Coherence::Temporal(20_000), &puts, gets).check();
        assert_eq!(temporal(&[(3, 60, 61), (5, 90, 91)]), Ok(()));
        assert!(temporal(&[(2, 60, 61)]).is_err());
    }

    #[test]
    fn half_values_lost_words_and_shared_versions_are_seen() {
        let mut torn = history(Coherence::Read, &[(1, 0, Some(1)), (2, 2, Some(3))], &[(2, 5, 6)]);
        assert_eq!(torn.check(), Ok(()));
        torn.gets[0].words[1] = 1;
        assert!(torn.check().is_err());
        let mut lost = history(Coherence::Write, &[(1, 0, Some(1))], &[(1, 5, 6)]);
        lost.puts[0].cell = Some(1);
        lost.gets[0].words[0] = 0;
        assert_eq!(lost.check(), Ok(()));
        lost.gets[0].words[1] = 0;
        assert!(lost.check().is_err() && lost.nothing_overwritten().is_err());
        // Some of a value's parts were put, others are what a whole put has left.
        let mut mixed = history(Coherence::Strict, &[(1, 0, Some(1)), (2, 2, Some(3)), (3, 4, None)], &[(1, 8, 9)]);
        (mixed.puts[1].cell, mixed.puts[2].cell) = (Some(1), Some(1));
        for (words, from, version, holds) in [
            (vec![1, 1], 0, 2, true),
            (vec![1, 2], 0, 3, true),
            (vec![2], 1, 3, true),
            (vec![1, 3], 0, 4, true),
            (vec![2, 1], 0, 3, false),
            (vec![3, 2], 0, 4, false),
            (vec![1], 1, 3, false),
            (vec![0, 2], 0, 3, false),
        ] {
            let get = &mut mixed.gets[0];
            (get.words, get.from, get.version) = (words.clone(), from, version);
            assert_eq!(mixed.as_its_version_was().is_ok(), holds, "{words:?} from {from} as version {version}");
        }
        // Two words of a value, of which one was there before the other was put, and one only after it.
        let mut parts = history(Coherence::Write, &[(1, 0, Some(1)), (2, 2, Some(3))], &[(1, 1, 9)]);
        (parts.puts[0].cell, parts.puts[1].cell) = (Some(0), Some(1));
        for (words, version, holds) in [
            ([0, 0], 1, true),
            ([1, 0], 2, true),
            ([1, 2], 3, true),
            ([1, 2], 2, false),
            ([0, 2], 3, false),
            ([1, 0], 3, false),
            ([1, 0], 1, false),
        ] {
            (parts.gets[0].words, parts.gets[0].version) = (words.to_vec(), version);
            assert_eq!(parts.as_its_version_was().is_ok(), holds, "{words:?} as version {version}");
        }
        let mut named = history(Coherence::Version, &[(1, 0, Some(1)), (2, 2, Some(3))], &[]);
        (named.puts[0].named, named.puts[1].named) = (Some(1), Some(2));
        assert_eq!(named.check(), Ok(()));
        named.puts[1].named = Some(1);
        assert!(named.check().is_err());
    }
}
