//! From one thread to another by a word of memory: what a machine adds to the delay of a thread that polls without
//! rest.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// One thread waits for a time, `count` of them with such a gap, and says so to another: microseconds from each time until the other knew of it, if only by
/// a later one.
pub(super) fn handed(gap: Duration, count: u32) -> Vec<f64> {
    let came = AtomicU32::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=count {
                while start.elapsed() < gap * number {
                    spin_loop();
                }
                came.store(number, Ordering::Release);
            }
        });
        let mut took = Vec::with_capacity(count as usize);
        while took.len() < count as usize {
            let (known, seen) = (took.len() as u32, came.load(Ordering::Acquire));
            if seen > known {
                let now = start.elapsed();
                took.extend((known + 1..=seen).map(|number| now.saturating_sub(gap * number).as_nanos() as f64 / 1e3));
            }
            spin_loop();
        }
        took
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_on_was_due_before_it_was_seen() {
        let began = Instant::now();
        let took = handed(Duration::from_micros(300), 200);
        let most_us = began.elapsed().as_nanos() as f64 / 1e3;
        assert!(took.len() == 200 && most_us >= 60_000.0, "{} in {most_us}", took.len());
        assert!(took.iter().all(|us| (0.0..most_us).contains(us)), "{took:?}");
    }
}
