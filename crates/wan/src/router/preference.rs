//! A thread that goes before others, so that it is there when a frame is due: what is late most in one packet of a hundred is late because another
//! thread had the core.

use std::time::Duration;

use rustix::process::{getpriority_process, setpriority_process};
use verbena_terms::Time;

/// The least nice (nice(2)): a thread of usual priority that shares its core gets about a hundredth of it, and is moved to another one.
const FIRST: i32 = -20;
/// Looked at so often. Where more has come meanwhile (1.6 Gbit/s, or 33,000 small packets a second) something sends as much as it can: what it gets is
/// less where its ends may not use the core of the router while that has nothing to do, and no frame of it finds an empty way.
const LOOKS: Duration = Duration::from_millis(10);
const BULK: u64 = 2_000_000;
/// Any frame takes as long as this many bytes do.
const FRAME: u64 = 6_000;

/// Whether the router goes first.
#[derive(Debug)]
pub(super) struct Preference {
    work: u64,
    looked: Time,
    goes_first: bool,
}

impl Preference {
    pub fn new() -> Self {
        Preference { work: 0, looked: Time::ZERO, goes_first: false }
    }

    /// Whether it is to now.
    pub fn goes_first(&self) -> bool {
        self.goes_first
    }

    /// A frame of `bytes` bytes has come.
    pub fn note(&mut self, bytes: u32) {
        self.work += FRAME + u64::from(bytes);
    }

    /// Whether the thread is to go first from now on, or not any more, where that changes.
    pub fn look(&mut self, now: Time) -> Option<bool> {
        if now.since(self.looked) < LOOKS {
            return None;
        }
        let goes_first = self.work <= BULK;
        (self.work, self.looked) = (0, now);
        (goes_first != self.goes_first).then(|| {
            self.goes_first = goes_first;
            goes_first
        })
    }
}

/// The nice value of this thread, to which it may be set back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usual(i32);

impl Usual {
    /// `None` where this thread may not go first: that takes CAP_SYS_NICE in the first user namespace. Without it the thread is one of many, and more
    /// of what it releases is late.
    pub fn of_this_thread() -> Option<Self> {
        let usual = getpriority_process(None).map(Usual);
        let may = usual.and_then(|usual| {
            setpriority_process(None, FIRST)?;
            setpriority_process(None, usual.0)?;
            Ok(usual)
        });
        may.inspect_err(|error| tracing::info!("the router goes before no other thread: {error}")).ok()
    }

    /// Has this thread go first, or as it would.
    pub fn set(self, goes_first: bool) {
        // It was tried.
        let _ = setpriority_process(None, if goes_first { FIRST } else { self.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_first_but_for_those_who_send_much() {
        let at = |millis| Time::ZERO + Duration::from_millis(millis);
        let mut preference = Preference::new();
        assert_eq!(preference.look(at(20)), Some(true));
        let much = |preference: &mut Preference, frames: u64, bytes| (0..frames).for_each(|_| preference.note(bytes));
        much(&mut preference, 30, 60_000);
        assert_eq!((preference.look(at(29)), preference.look(at(30))), (None, None));
        much(&mut preference, 32, 60_000);
        assert_eq!(preference.look(at(40)), Some(false));
        much(&mut preference, 340, 64);
        assert_eq!(preference.look(at(50)), None);
        much(&mut preference, 320, 64);
        assert_eq!(preference.look(at(60)), Some(true));
    }

    #[test]
    fn one_thread_goes_first_and_no_other() {
        let own = || getpriority_process(None).ok();
        let before = own();
        std::thread::spawn(move || {
            let Some(usual) = Usual::of_this_thread() else {
                println!("skipped: no thread may go before others here");
                return;
            };
            assert_eq!(own(), before);
            usual.set(true);
            assert_eq!(own(), Some(FIRST));
            usual.set(false);
            assert_eq!(own(), before);
            usual.set(true);
        })
        .join()
        .unwrap();
        assert_eq!(own(), before);
    }
}
