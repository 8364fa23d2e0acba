//! `busy`: threads that do nothing but take time of their core, as many as are asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::threads;
use crate::child::{Answer, hear, say};

pub(crate) const ROLE: &str = "busy";

/// More are not started.
const MOST: usize = 1_024;

/// Turns between two looks at whether to go on: so few that a thread which gets its core to see that it is to sleep gives it back at once.
const TURNS: u32 = 500;

/// How long it may take until all threads have followed an order: each has to get its core for that.
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(clap::Parser)]
struct Part {}

/// How many threads are to spin, and do. The others are asleep, and cost nothing. They share no lock: a thread that
/// waited for one would wait for its turn among those that spin.
#[derive(Default)]
struct Wanted {
    spinning: AtomicUsize,
    obeying: AtomicUsize,
}

/// Orders are numbers of threads.
pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let Part {} = threads::part(ROLE, arguments)?;
    let wanted = Arc::new(Wanted::default());
    let mut started: Vec<Thread> = Vec::new();
    while let Some(spinning) = hear::<usize>()? {
        if spinning > MOST {
            return Err(format!("{spinning} threads are more than {MOST}"));
        }
        let before = wanted.spinning.swap(spinning, Ordering::Relaxed);
        started.iter().take(spinning).skip(before).for_each(Thread::unpark);
        for number in started.len()..spinning {
            let wanted = Arc::clone(&wanted);
            let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(move || wanted.obey(number));
            started.push(thread.map_err(|error| format!("thread {number}: {error}"))?.thread().clone());
        }
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
    fn obey(&self, number: usize) {
        loop {
            self.obeying.fetch_add(1, Ordering::Relaxed);
            while number < self.spinning.load(Ordering::Relaxed) {
                (0..TURNS).for_each(|_| std::hint::spin_loop());
            }
            self.obeying.fetch_sub(1, Ordering::Relaxed);
            while number >= self.spinning.load(Ordering::Relaxed) {
                std::thread::park();
            }
        }
    }
}
