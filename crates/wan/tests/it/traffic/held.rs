//! Packets that stay in the kernel until the router lets them go on.

use std::fs;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use verbena_namespaces::{Namespace, or_skipped};
use verbena_wan::probe::Probe;
use verbena_wan::router::{DataPath, Mode};
use verbena_wan::{Backend, Error, Link, Plan, Site, Way, Which};

use super::streams::{MIB, transfer};
use super::{PATIENCE, address, routers, send, there};
use crate::stage::Stage;

/// Sites in a row, with these options both ways between each two; `None` where networks cannot be made, or the kernel does not hold packets.
fn held(options: &str, sites: u8, mode: Mode) -> Option<Stage> {
    let mut way = Way::default();
    way.change(options, &|path| Err(format!("{path}: there are no files here"))).unwrap();
    let sites: Vec<Site> = (0..sites).map(|number| Site::numbered(format!("s{number}"), number)).collect();
    let link = |first: usize| Link {
        name: format!("link{first}"),
        between: [first, first + 1],
        mtu: 1500,
        ways: [way.clone(), way.clone()],
    };
    let links = (0..sites.len() - 1).map(link).collect();
    let backend = Backend::Router { mode, path: DataPath::Nfqueue, seed: 1, core: None };
    let plan = Plan { sites, links, backend };
    or_skipped(Namespace::new()).unwrap()?;
    match Stage::up(plan) {
        Err(Error::Lacking { part, .. }) => {
            println!("skipped: this kernel has no {part}");
            None
        }
        made => Some(made.unwrap()),
    }
}

/// How many packets the kernel holds in the networks of all routers of this process: one, for tests have one at a time.
fn waiting() -> u64 {
    let tables = routers().map(|thread| fs::read_to_string(thread.join("net/netfilter/nfnetlink_queue")).unwrap());
    let numbers: Vec<u64> = tables
        .flat_map(|table| {
            table.lines().map(|line| line.split_whitespace().nth(2).unwrap().parse().unwrap()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(numbers.len(), 2, "a queue for each end");
    numbers.iter().sum()
}

/// Linux does from 6.3 on, of both families.
fn knows_larger_frames() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut parts = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    [parts.next(), parts.next()] >= [Some(6), Some(3)]
}

fn none(path: &str) -> Result<String, String> {
    Err(format!("{path}: there are no files here"))
}

#[test]
fn streams_pass_whole_and_late_by_both_families_in_both_modes() {
    for mode in [Mode::Precise, Mode::Sleep] {
        // A sender that waits for its turn fills smaller frames: what is held can be large if it is so once.
        let mut are_large = false;
        for _ in 0..5 {
            let Some(frames) = streams_pass(mode) else { return };
            are_large = frames.iter().all(|frames| *frames < 200);
            if are_large || !knows_larger_frames() {
                break;
            }
        }
        // As frames of 64 KiB they would be 256 of each family.
        assert!(are_large || !knows_larger_frames());
    }
}

/// Frames of each family, of 16 MiB each.
fn streams_pass(mode: Mode) -> Option<[u64; 2]> {
    let wan = held("delay=2ms", 2, mode)?;
    let mut of_v4 = 0;
    for is_ipv4 in [true, false] {
        transfer(wan.site("s0").unwrap(), wan.site("s1").unwrap(), address(&wan, 1, is_ipv4), 16 * MIB);
        if is_ipv4 {
            of_v4 = there(&wan).took.unwrap().frames;
        }
    }
    let seen = there(&wan);
    // As many packets as a wire would have seen, in far fewer frames.
    let full = 32 * MIB as u64 / 1448;
    assert!((full..full + full / 5).contains(&seen.counts.packets), "{seen:?}");
    let took = seen.took.unwrap();
    assert!(took.frames > 50 && took.frames < seen.counts.packets / 2, "{took:?}");
    assert!(took.least_ns > 1_900_000, "{took:?}");
    Some([of_v4, took.frames - of_v4])
}

#[test]
fn datagrams_come_in_order_and_all_of_them_also_over_a_site_between() {
    for is_ipv4 in [true, false] {
        let Some(wan) = held("delay=3ms", 3, Mode::Precise) else { return };
        let [from, to] = ["s0", "s2"].map(|site| wan.site(site).unwrap());
        let mut probe = Probe::new(from, to, address(&wan, 2, is_ipv4)).unwrap();
        let (came, seen) = send(&wan, &mut probe, 500);
        assert!(came.len() == 500 && came.is_sorted(), "{came:?}");
        assert!(seen.took.unwrap().least_ns > 2_900_000, "{seen:?}");
    }
}

#[test]
fn what_memory_does_not_hold_is_dropped_and_the_rest_goes_on() {
    let Some(mut wan) = held("delay=100ms memory=20KiB", 2, Mode::Precise) else { return };
    let (from, to) = (wan.site("s0").unwrap(), wan.site("s1").unwrap());
    let mut probe = Probe::new(from, to, address(&wan, 1, true)).unwrap();
    let (came, seen) = send(&wan, &mut probe, 500);
    let dropped = seen.counts.dropped.memory;
    assert!(dropped > 100 && came.len() as u64 == 500 - dropped && came.len() > 20, "{seen:?}");
    // What was dropped is held by nobody. What neighbours say to find each other is not counted above, and may be under way yet.
    let began = Instant::now();
    while waiting() > 0 {
        assert!(began.elapsed() < PATIENCE, "{} packets are held", waiting());
        std::thread::sleep(Duration::from_millis(20));
    }
    wan.change("link0", Which::Both, "delay=1ms memory=1MiB", &none).unwrap();
    let refused = wan.change("link0", Which::There, "loss=1%", &none).unwrap_err().to_string();
    assert!(refused.starts_with("link0: loss: the path nfqueue cannot do it: "), "{refused}");
    let before = there(&wan).counts;
    for _ in 0..50 {
        probe.send(200).unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    let after = there(&wan).counts;
    assert_eq!((after.packets - before.packets, after.arrived - before.arrived), (50, 50), "{after:?}");
}

#[test]
fn what_is_held_holds_back_nobody_who_sends() {
    let Some(wan) = held("delay=3s", 2, Mode::Precise) else { return };
    let bound = |site: &str, to: usize| {
        let socket = wan.site(site).unwrap().enter(|| UdpSocket::bind((address(&wan, to, true), 0))).unwrap().unwrap();
        socket.set_write_timeout(Some(Duration::from_millis(1500))).unwrap();
        socket
    };
    let (from, to) = (bound("s0", 0), bound("s1", 1));
    from.connect(to.local_addr().unwrap()).unwrap();
    // More than a socket has room for, as the kernel counts it: 212,992 bytes.
    (0..2000).for_each(|_| assert_eq!(from.send(&[7; 100]).unwrap(), 100));
    let began = Instant::now();
    while there(&wan).counts.packets < 2000 {
        assert!(began.elapsed() < PATIENCE, "{:?}", there(&wan));
    }
}
