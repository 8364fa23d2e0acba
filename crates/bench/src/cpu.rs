//! Processor time, by the clocks that the system keeps for each process.

use std::io;

/// What process `number` took so far, user and system, in nanoseconds. It is not asked, and need not get a core to say so.
pub(crate) fn taken_ns(number: u32) -> io::Result<u64> {
    let mut clock = 0;
    // SAFETY: it writes one clock's number, to where there is room for it.
    let failed = unsafe { libc::clock_getcpuclockid(number.cast_signed(), &mut clock) };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    let mut taken = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes one time, to where there is room for it.
    if unsafe { libc::clock_gettime(clock, &mut taken) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(taken.tv_sec.cast_unsigned() * 1_000_000_000 + taken.tv_nsec.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use std::process;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn time_that_is_spent_is_seen_and_time_asleep_is_not() {
        let before = taken_ns(process::id()).unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(taken_ns(process::id()).unwrap() > before);

        let mut asleep = process::Command::new("sleep").arg("60").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(50));
        let taken = taken_ns(asleep.id()).unwrap();
        asleep.kill().unwrap();
        asleep.wait().unwrap();
        assert!(taken < 50_000_000, "{taken}");
        assert!(taken_ns(asleep.id()).is_err());
    }
}
