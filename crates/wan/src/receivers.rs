//! Which processor receives what comes to an interface (receive packet steering, Documentation/networking/scaling.rst of the kernel).
//!
//! Without it the processor of the sender receives each frame, so that frames overtake each other where their sender
//! moves, or where an acknowledgement has the kernel send too. With it a frame crosses from one processor to another,
//! which takes microseconds, many of them where that one has to be woken first.

use std::fs::{self, File};
use std::io::{self, Write};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use crate::network::own_mounts;

/// Bits of a group in a mask of processors.
const GROUP: usize = 32;

/// Interfaces of one network.
#[derive(Debug)]
pub(crate) struct Receivers {
    /// What /sys/class/net is in that network.
    folder: File,
    interfaces: Vec<String>,
}

impl Receivers {
    /// Interfaces of the network that this thread is in. What is mounted where is another view for the thread from now on, so it should end soon.
    ///
    /// # Errors
    /// What the system said: a container may not mount this.
    pub fn of(interfaces: Vec<String>) -> io::Result<Self> {
        own_mounts()?;
        // Of the network that this thread is in: what is mounted already is of another one.
        match mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None) {
            // What is there is of this network.
            Err(Errno::BUSY) => {}
            mounted => mounted?,
        }
        Ok(Receivers { folder: File::open("/sys/class/net")?, interfaces })
    }

    /// From now on this processor receives what comes to them; for `None` that of the sender.
    ///
    /// # Errors
    /// What the system said.
    pub fn put(&self, processor: Option<usize>) -> io::Result<()> {
        let mask = processor.map_or_else(|| "0".to_owned(), mask);
        for interface in &self.interfaces {
            let path = format!("{interface}/queues/rx-0/rps_cpus");
            let setting = openat(&self.folder, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            File::from(setting).write_all(mask.as_bytes())?;
        }
        Ok(())
    }
}

/// The mask of one processor, as the kernel reads it: groups of 32 bits, the last of which has the first processors (lib/bitmap-str.c: bitmap_parse).
fn mask(processor: usize) -> String {
    format!("{:x}{}", 1u32 << (processor % GROUP), ",00000000".repeat(processor / GROUP))
}

/// The ends of all links: those in the sites, network by network, and those of the router, where they could be reached.
#[derive(Debug, Default)]
pub(crate) struct Steering {
    pub sites: Vec<Receivers>,
    pub router: Option<Receivers>,
    /// Processors that this process may use.
    pub usable: Vec<usize>,
}

impl Steering {
    /// From now on these processors receive what comes to the sites and to the router; for `None` that of the sender.
    pub fn put(&self, of_sites: Option<usize>, of_router: Option<usize>) {
        let sites = self.sites.iter().map(|site| (site, of_sites));
        let router = self.router.iter().map(|router| (router, of_router));
        if let Err(error) = sites.chain(router).try_for_each(|(receivers, processor)| receivers.put(processor)) {
            by_any(&error);
        }
    }

    /// The processor that is to receive what comes to the router while that is on this one: another one, which it does not keep busy, if there is one.
    pub fn beside(&self, router: usize) -> usize {
        self.another_than(router).unwrap_or(router)
    }

    /// The first processor that may be used and that is another one than `processor`, if there is one.
    pub fn another_than(&self, processor: usize) -> Option<usize> {
        self.usable.iter().copied().find(|other| *other != processor)
    }
}

/// Has all frames of these interfaces received by one processor, the one with this number, so that none overtakes another. To be called by a thread
/// that ends after it.
pub fn pin(interfaces: impl Iterator<Item = String>, processor: usize) {
    if let Err(error) = Receivers::of(interfaces.collect()).and_then(|receivers| receivers.put(Some(processor))) {
        by_any(&error);
    }
}

/// Whether something waits for one of these processors. A kernel before 5.10 does not say, which is taken for no.
pub(crate) fn waits(processors: &[usize]) -> bool {
    let queues = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
    processors.iter().any(|processor| waiting(&queues, *processor).is_some_and(|waiting| waiting > 0))
}

/// How many frames wait for a processor, by the kernel's table (net/core/net-procfs.c: softnet_seq_show): its twelfth column, of the line whose
/// thirteenth is the processor, all in hexadecimal.
fn waiting(table: &str, processor: usize) -> Option<u64> {
    table.lines().find_map(|line| {
        let mut words = line.split_whitespace().map(|word| u64::from_str_radix(word, 16).ok());
        let waiting = words.nth(11)??;
        (words.next()?? == processor as u64).then_some(waiting)
    })
}

/// Says that frames can change places when their sender moves, which is rare.
pub(crate) fn by_any(error: &io::Error) {
    tracing::info!("frames are received by any processor: {error}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn masks_are_in_groups() {
        assert_eq!(mask(0), "1");
        assert_eq!(mask(5), "20");
        assert_eq!(mask(31), "80000000");
        assert_eq!(mask(32), "1,00000000");
        assert_eq!(mask(70), "40,00000000,00000000");
    }

    #[test]
    fn what_waits_for_a_processor_stands_in_the_table_of_the_kernel() {
        let row = |waits: u32, processor: u32| {
            format!("0000ffff {}{waits:08x} {processor:08x} 00000000 00000000\n", "00000001 ".repeat(10))
        };
        let table = [row(0, 0), row(18, 1), row(3, 17)].concat();
        assert_eq!([0, 1, 17, 2].map(|processor| waiting(&table, processor)), [Some(0), Some(18), Some(3), None]);
        // Before 5.10 there were eleven.
        assert_eq!([waiting(&"00000001 ".repeat(11), 1), waiting("", 0)], [None, None]);
        let here = fs::read_to_string("/proc/net/softnet_stat").unwrap();
        assert!(waiting(&here, rustix::thread::sched_getcpu()).is_some(), "{here}");
    }

    #[test]
    fn another_processor_is_another() {
        let steering = |usable: &[usize]| Steering { usable: usable.to_vec(), ..Steering::default() };
        let of = |usable, processor| steering(usable).another_than(processor);
        assert_eq!((of(&[1, 3], 1), of(&[1, 3], 3), of(&[1, 3], 2)), (Some(3), Some(1), Some(1)));
        assert_eq!((of(&[1], 1), of(&[], 1)), (None, None));
    }
}
