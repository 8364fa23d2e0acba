//! Real packets between two sites, through the router.

mod held;
mod moving;
mod packets;
mod streams;

use std::fs;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use verbena_namespaces::{Namespace, or_skipped};
use verbena_wan::probe::Probe;
use verbena_wan::router::{Mode, Seen};
use verbena_wan::{Plan, Wan, Way};

use crate::stage::Stage;

/// Long enough for a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(20);
/// Packets of a test that may wait before the router, at most: a kernel drops what comes when a thousand wait for one core.
const AHEAD: u64 = 256;

/// `None` where networks cannot be made.
fn stage(plan: Plan) -> Option<Stage> {
    or_skipped(Namespace::new()).unwrap()?;
    Some(Stage::up(plan).unwrap())
}

/// Sites a and b with these options both ways.
fn wan(options: &str, mode: Mode) -> Option<Stage> {
    let mut way = Way::default();
    way.change(options, &|path| Err(format!("{path}: there are no files here"))).unwrap();
    stage(Plan::two_sites([way.clone(), way], mode, 42))
}

/// The threads of all routers of this process, by their folders.
fn routers() -> impl Iterator<Item = PathBuf> {
    let threads = fs::read_dir("/proc/self/task").unwrap().map(|thread| thread.unwrap().path());
    threads.filter(|thread| fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "wan-router\n"))
}

fn address(wan: &Wan, site: usize, is_ipv4: bool) -> IpAddr {
    wan.plan().sites[site].addresses.iter().copied().find(|address| address.is_ipv4() == is_ipv4).unwrap()
}

fn probe(wan: &Wan, is_ipv4: bool) -> Probe {
    Probe::new(wan.site("a").unwrap(), wan.site("b").unwrap(), address(wan, 1, is_ipv4)).unwrap()
}

/// What the way from a to b has done.
fn there(wan: &Wan) -> Seen {
    let [there, _] = wan.look().unwrap().remove(0);
    assert_eq!((there.overrun, there.unsent), (0, 0), "the router was too slow to be asserted on");
    there
}

/// Sends datagrams and takes what comes of them, until the router has let through as many as it should and none has come for a while.
fn send(wan: &Wan, probe: &mut Probe, count: u64) -> (Vec<u64>, Seen) {
    // Packets that are sent from two cores wait in two queues of the kernel, before the emulator, and may overtake each other there.
    let before = sched_getaffinity(None).unwrap();
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    sched_setaffinity(None, &here).unwrap();
    let mut came = vec![];
    for number in 0..count {
        probe.send(200).unwrap();
        if number == 0 {
            // Packets that wait in the kernel until the router's hardware address is known are sent by another core than those behind them.
            let began = Instant::now();
            while there(wan).counts.packets == 0 {
                assert!(began.elapsed() < PATIENCE, "the router saw no packet");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // So that no queue of a socket fills: the test is about the router's.
        if number % 32 == 31 {
            std::thread::sleep(Duration::from_micros(500));
            came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
            let began = Instant::now();
            while number % 128 == 127 && there(wan).counts.packets + AHEAD < number {
                assert!(began.elapsed() < PATIENCE, "the router saw {} of {number}", there(wan).counts.packets);
                std::thread::sleep(Duration::from_millis(1));
                came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
            }
        }
    }
    sched_setaffinity(None, &before).unwrap();
    let began = Instant::now();
    loop {
        came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
        let seen = there(wan);
        let (counts, dropped) = (seen.counts, seen.counts.dropped.all());
        if counts.packets == count
            && counts.arrived == count - dropped + counts.duplicated
            && came.len() as u64 == counts.arrived
        {
            return (came, seen);
        }
        assert!(began.elapsed() < PATIENCE, "{} of {count} came: {seen:?}", came.len());
        std::thread::sleep(Duration::from_millis(2));
    }
}
