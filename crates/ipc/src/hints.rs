//! What the helper says of itself so that its clients know better what spinning is worth: where it runs, and how many ask it.
//!
//! Both are hints. A client that has an old one spins in vain for a moment, or sleeps where it need not have.

use std::time::Duration;

use verbena_terms::Time;

use crate::beacon::Beacon;
use crate::cores;

/// So long who asked is counted among those who ask: long enough for a client that is seldom given a core to be among them.
const COUNT_EVERY: Duration = Duration::from_millis(10);

/// What was said last.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    core: Option<usize>,
    crowd: usize,
    count_due: Time,
}

impl Hints {
    /// Clients that asked, as last counted.
    pub(crate) fn crowd(&self) -> usize {
        self.crowd
    }

    /// Says where this thread is. A store only where it has moved: the page is in the caches of all clients.
    pub(crate) fn say_core(&mut self, beacon: &Beacon) {
        let core = cores::current();
        if self.core.replace(core) != Some(core) {
            beacon.say_core(core);
        }
    }

    /// Says how many of them `asked`. More are said at once, fewer when all have had the time to ask again: then it begins anew.
    pub(crate) fn count<'a>(&mut self, now: Time, beacon: &Beacon, asked: impl Iterator<Item = &'a mut bool>) {
        let due = now >= self.count_due;
        if due {
            self.count_due = now + COUNT_EVERY;
        }
        let crowd = asked.map(|asked| if due { std::mem::take(asked) } else { *asked }).filter(|asked| *asked).count();
        if crowd > self.crowd || due && crowd < self.crowd {
            self.crowd = crowd;
            beacon.say_crowd(crowd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{HELPER_CORE, HELPER_CROWD};

    #[test]
    fn a_crowd_is_seen_at_once_and_its_end_after_a_while() {
        let (beacon, mut hints) = (Beacon::new(false).unwrap(), Hints::default());
        let mut asked = [false; 3];
        let mut count = |at: u64, now_ask: &[usize]| {
            now_ask.iter().for_each(|client| asked[*client] = true);
            hints.count(Time::ZERO + Duration::from_millis(at), &beacon, asked.iter_mut());
            assert_eq!(beacon.word(HELPER_CROWD), hints.crowd() as u64);
            hints.crowd()
        };
        assert_eq!([count(0, &[]), count(1, &[0]), count(2, &[1, 2])], [0, 1, 3]);
        assert_eq!([count(9, &[0]), count(10, &[0]), count(11, &[0])], [3, 3, 3]);
        assert_eq!([count(20, &[]), count(30, &[])], [1, 0]);
    }

    #[test]
    fn where_the_helper_is_is_said_when_it_has_moved() {
        std::thread::spawn(|| {
            let (beacon, mut hints) = (Beacon::new(false).unwrap(), Hints::default());
            assert_eq!(beacon.word(HELPER_CORE), 0);
            verbena_terms::stay_on(cores::current()).unwrap();
            hints.say_core(&beacon);
            assert_eq!(beacon.word(HELPER_CORE), cores::current() as u64 + 1);
        })
        .join()
        .unwrap();
    }
}
