//! Processor time, by the clocks that the system keeps for each process.

use std::io;
use std::time::Duration;

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

/// What all processors of the machine took so far for whatever they did, interrupts among it: from /proc/stat, to a hundredth of a second.
pub(crate) fn machine() -> io::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let ticks =
        ticks(&stat).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no such line"))?;
    Ok(Duration::from_millis(ticks * 10))
}

/// User, nice, system, irq and softirq of the first line, proc_stat(5): in units of 1/100 s, whatever the kernel counts in (USER_HZ).
fn ticks(stat: &str) -> Option<u64> {
    let fields: Vec<u64> = stat.strip_prefix("cpu ")?.lines().next()?.split_whitespace().flat_map(str::parse).collect();
    [0, 1, 2, 5, 6].into_iter().map(|field| fields.get(field)).sum()
}

#[cfg(test)]
mod tests {
    use std::process;
    use std::time::Instant;

    use super::*;

    #[test]
    fn idle_time_is_not_taken() {
        assert_eq!(ticks("cpu  1 2 4 1000 1000 8 16 1000 0 0\ncpu0 9 9 9 9 9 9 9\n"), Some(31));
        assert_eq!(ticks("cpu  1 2 4\n"), None);
        let before = machine().unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert!(machine().unwrap() > before);
    }

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
