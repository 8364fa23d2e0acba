//! Retries an operation on something that another process holds for a moment and that gives no notice when it is free.

use std::thread::sleep;
use std::time::Duration;

use verbena_terms::{BootClock, Clock, Time};

/// How long others may take for their turn.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Attempts, at least once, until one succeeds, fails for a reason that does not pass, or fails after `until`: what that one gave.
pub(crate) fn retry<T, E>(
    until: Time,
    attempt: impl Fn() -> Result<T, E>,
    is_passing: impl Fn(&E) -> bool,
) -> Result<T, E> {
    loop {
        match attempt() {
            Err(error) if is_passing(&error) && BootClock.now() < until => sleep(LOOK_AGAIN),
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn only_what_passes_is_tried_again_and_only_in_time() {
        let tries = |until, attempts: &[Result<(), &'static str>]| {
            let next = Cell::new(0);
            let outcome = retry(until, || attempts[next.replace(next.get() + 1)], |error| *error == "busy");
            (outcome, next.get())
        };
        assert_eq!(tries(Time::FAR, &[Err("busy"), Err("busy"), Ok(()), Err("busy")]), (Ok(()), 3));
        assert_eq!(tries(Time::FAR, &[Err("busy"), Err("broken"), Ok(())]), (Err("broken"), 2));
        assert_eq!(tries(Time::ZERO, &[Err("busy"), Ok(())]), (Err("busy"), 1));
        assert_eq!(tries(Time::ZERO, &[Ok(())]), (Ok(()), 1));
    }
}
