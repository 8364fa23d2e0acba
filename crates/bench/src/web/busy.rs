//! `busy`: threads that do nothing but take time of their core, as many as are asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use super::threads;
use crate::child::{Answer, hear, say};

pub(crate) const ROLE: &str = "busy";

/// More are not started.
const MOST: usize = 1_024;

/// Turns between two looks at whether to go on: so few that a thread which gets its core to see that it is to sleep gives it back at once.
const TURNS: u32 = 500;

/// How long it may take until all threads do what they were told: each has to get its core for that.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(clap::Parser)]
struct Part {}

/// How many threads are to spin, and do. The others are asleep, and cost nothing.
#[derive(Default)]
struct Wanted {
    spinning: AtomicUsize,
    obeying: AtomicUsize,
    changed: Mutex<()>,
    change: Condvar,
}

/// Orders are numbers of threads.
pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let Part {} = threads::part(ROLE, arguments)?;
    let wanted = Arc::new(Wanted::default());
    let mut started = 0;
    while let Some(spinning) = hear::<usize>()? {
        if spinning > MOST {
            return Err(format!("{spinning} threads are more than {MOST}"));
        }
        for number in started..spinning {
            let wanted = Arc::clone(&wanted);
            let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || wanted.obey(number));
            thread.map_err(|error| format!("thread {number}: {error}"))?;
        }
        started = started.max(spinning);
        wanted.change_to(spinning);
        let until = Instant::now() + PATIENCE;
        while wanted.obeying.load(Ordering::Relaxed) != spinning {
            if Instant::now() > until {
                return Err(format!("{spinning} threads were not spinning within {PATIENCE:?}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        say(&Answer::Done(()))?;
    }
    Ok(())
}

impl Wanted {
    fn change_to(&self, spinning: usize) {
        let _changed = self.changed.lock();
        self.spinning.store(spinning, Ordering::Relaxed);
        self.change.notify_all();
    }

    fn obey(&self, number: usize) {
        loop {
            self.obeying.fetch_add(1, Ordering::Relaxed);
            while number < self.spinning.load(Ordering::Relaxed) {
                (0..TURNS).for_each(|_| std::hint::spin_loop());
            }
            self.obeying.fetch_sub(1, Ordering::Relaxed);
            let Ok(guard) = self.changed.lock() else { return };
            let asleep = self.change.wait_while(guard, |()| number >= self.spinning.load(Ordering::Relaxed));
            if asleep.is_err() {
                return;
            }
        }
    }
}
