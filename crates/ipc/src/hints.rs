//! What the helper says of itself so that its clients know better what spinning is worth: where it runs, and whether a crowd asks it. (Clients say where they run, for the helper, each
//! in its own memory.)
//!
//! A crowd is as many clients as the helper has cores, or more: with the helper they are more than the cores. They ask so often that the helper would not
//! sleep between two requests.
//!
//! Both are hints. A client that has an old one spins in vain for a moment, or sleeps where it need not have. A helper that was moved to the core of
//! a client that spins there cannot say so before it runs: until the client's budget is over, or the kernel lets the helper run.

use std::time::Duration;

use verbena_terms::Time;

use crate::beacon::Beacon;
use crate::cores;
use crate::spin::MOST;

/// So long who asked is counted among those who ask: long enough for a client that is seldom given a core to be among them.
const COUNT_EVERY: Duration = Duration::from_millis(10);
/// Requests within that time that keep the helper from sleeping.
const OFTEN: u64 = (COUNT_EVERY.as_nanos() / MOST.as_nanos()) as u64;

/// What was said last.
#[derive(Debug)]
pub(crate) struct Hints {
    /// That the helper may use.
    cores: usize,
    core: Option<usize>,
    is_crowded: bool,
    count_due: Time,
    /// Requests of all time when the counting began anew.
    requests: u64,
}

impl Hints {
    /// Hints of a helper that may use `cores` cores.
    pub(crate) fn new(cores: usize) -> Hints {
        Hints { cores, core: None, is_crowded: false, count_due: Time::ZERO, requests: 0 }
    }

    /// Whether a crowd asks, as last counted.
    pub(crate) fn is_crowded(&self) -> bool {
        self.is_crowded
    }

    /// Says where this thread is. A store only where it has moved: the page is in the caches of all clients.
    pub(crate) fn say_core(&mut self, beacon: &Beacon) {
        let core = cores::current();
        if self.core.replace(core) != Some(core) {
            beacon.say_core(core);
        }
    }

    /// Says whether those who `asked` are a crowd, after `requests` requests since the start. A crowd is reported at
    /// once; its end is reported when all have had the time to ask again. Then the counting begins anew.
    pub(crate) fn count<'a>(
        &mut self,
        now: Time,
        beacon: &Beacon,
        requests: u64,
        asked: impl Iterator<Item = &'a mut bool>,
    ) {
        let due = now >= self.count_due;
        let clients =
            asked.map(|asked| if due { std::mem::take(asked) } else { *asked }).filter(|asked| *asked).count();
        let is_crowded = clients >= self.cores && requests - self.requests >= OFTEN;
        if due {
            self.count_due = now + COUNT_EVERY;
            self.requests = requests;
        }
        if is_crowded != self.is_crowded && (is_crowded || due) {
            self.is_crowded = is_crowded;
            beacon.say_crowd(is_crowded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{HELPER_CORE, HELPER_CROWD};

    #[test]
    fn a_crowd_is_seen_at_once_and_its_end_after_a_while() {
        let (beacon, mut hints) = (Beacon::new(false).unwrap(), Hints::new(2));
        let (mut asked, mut requests) = ([false; 3], 0);
        let mut is_crowded = |at_ms: u64, clients: &[usize], more_requests: u64| {
            clients.iter().for_each(|client| asked[*client] = true);
            requests += more_requests;
            hints.count(Time::ZERO + Duration::from_millis(at_ms), &beacon, requests, asked.iter_mut());
            assert_eq!(beacon.word(HELPER_CROWD), u64::from(hints.is_crowded()));
            hints.is_crowded()
        };
        assert!(!is_crowded(0, &[], 0));
        assert!(!is_crowded(1, &[0], OFTEN), "one client is none");
        assert!(is_crowded(2, &[2], 0));
        assert!(is_crowded(9, &[], 0));
        assert!(is_crowded(10, &[], 0));
        assert!(is_crowded(19, &[0], 1));
        assert!(!is_crowded(20, &[0], 1), "one client is none");
        assert!(!is_crowded(29, &[0, 1, 2], OFTEN - 1), "it would sleep in between");
        assert!(is_crowded(29, &[0], 1));
    }

    #[test]
    fn where_the_helper_is_is_said_whenever_it_has_moved() {
        let move_about = || {
            let (beacon, mut hints) = (Beacon::new(false).unwrap(), Hints::new(2));
            assert_eq!(cores::of_word(beacon.word(HELPER_CORE)), None);
            for core in verbena_terms::usable_cores().unwrap() {
                verbena_terms::stay_on(core).unwrap();
                hints.say_core(&beacon);
                assert_eq!(cores::of_word(beacon.word(HELPER_CORE)), Some(core));
            }
        };
        std::thread::spawn(move_about).join().unwrap();
    }
}
