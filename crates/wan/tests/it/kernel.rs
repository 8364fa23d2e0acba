//! Links that netem of the kernel runs. What a kernel without it can show is that it says so; the rest runs where there is one.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use verbena_namespaces::{Namespace, or_skipped};
use verbena_wan::probe::Probe;
use verbena_wan::router::{Mode, Seen};
use verbena_wan::{Backend, Error, Link, Plan, Site, Wan, Way, Which};

use crate::stage::{Stage, turn};

/// Long enough for a machine that is emulated.
const PATIENCE: Duration = Duration::from_secs(60);
/// What sites say to find each other counts here; in a test it is not more than this.
const HOUSEKEEPING: u64 = 40;

fn way(options: &str) -> Way {
    let mut way = Way::default();
    way.change(options, &|path| Err(format!("{path}: there are no files here"))).unwrap();
    way
}

fn plan(there: &str) -> Plan {
    Plan { backend: Backend::Kernel, ..Plan::two_sites([way(there), Way::default()], Mode::default(), 1) }
}

/// `None`, after it was said that the test is skipped, where networks cannot be made or the kernel has no netem.
fn up(plan: Plan) -> Option<Stage> {
    or_skipped(Namespace::new()).unwrap()?;
    match Stage::up(plan) {
        Err(lacking @ Error::Lacking { .. }) => {
            assert!(std::env::var_os("VERBENA_NETEM").is_none(), "{lacking}");
            println!("skipped: this kernel has no netem");
            None
        }
        made => Some(made.unwrap()),
    }
}

fn address(wan: &Wan, site: usize, is_ipv4: bool) -> IpAddr {
    wan.plan().sites[site].addresses.iter().copied().find(|address| address.is_ipv4() == is_ipv4).unwrap()
}

fn probe(wan: &Wan) -> Probe {
    Probe::new(wan.site("a").unwrap(), wan.site("b").unwrap(), address(wan, 1, true)).unwrap()
}

fn there(wan: &Wan) -> Seen {
    let [there, _] = wan.look().unwrap().remove(0);
    there
}

/// Sends datagrams, few at a time, and takes what comes of them, until nothing is under way. Says what was counted beside what was sent.
fn send(wan: &Wan, probe: &mut Probe, count: u64, gap: Duration) -> (Vec<u64>, Seen) {
    let (mut came, packets_before) = (vec![], there(wan).counts.packets);
    for _ in 0..count {
        probe.send(200).unwrap();
        std::thread::sleep(gap);
        came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
    }
    let (began, mut last) = (Instant::now(), Instant::now());
    loop {
        let (seen, before) = (settled(wan), came.len());
        // After that: to ask the kernel can take long, and what came meanwhile is looked at too.
        came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
        if came.len() > before {
            last = Instant::now();
        } else if last.elapsed() > Duration::from_millis(300) {
            let packets = seen.counts.packets - packets_before;
            assert!((count..=count + HOUSEKEEPING).contains(&packets), "{seen:?}");
            return (came, seen);
        }
        assert!(began.elapsed() < PATIENCE, "{} of {count} came: {seen:?}", came.len());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What the way from a to b has done, when nothing of it is under way.
fn settled(wan: &Wan) -> Seen {
    let began = Instant::now();
    loop {
        let seen = there(wan);
        let counts = seen.counts;
        if seen.under_way + seen.queued_packets + seen.overrun == 0 {
            assert_eq!(counts.packets + counts.duplicated, counts.arrived + counts.dropped.all(), "{seen:?}");
            assert!(seen.took.is_none() && seen.unknown.contains(&"took".to_owned()), "{seen:?}");
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "{seen:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What this process holds of networks beside its own.
fn networks() -> usize {
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten().flat_map(|entry| std::fs::read_link(entry.path()));
    open.filter(|link| link.to_string_lossy().starts_with("net:") && *link != own).count()
}

#[test]
fn a_kernel_without_netem_is_named_and_nothing_is_left_either_way() {
    if or_skipped(Namespace::new()).unwrap().is_none() {
        return;
    }
    let _turn = turn();
    let entries = || std::fs::read_dir("/sys/class/net").unwrap().count();
    let interfaces = entries();
    match Wan::up(plan("delay=10ms jitter=1ms loss=1%")) {
        Ok(wan) => drop(wan),
        Err(error) => {
            let said = error.to_string();
            let parts = [
                "this kernel has no netem (module sch_netem)",
                "`modprobe -a sch_netem` as root, or leave the backend out",
            ];
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            assert!(said.contains("tc qdisc add dev lo root netem: ") && !error.is_not_permitted(), "{said}");
        }
    }
    // Other tests of this process look meanwhile whether networks can be made.
    let began = Instant::now();
    while networks() > 0 {
        assert!(began.elapsed() < 4 * PATIENCE, "{} networks", networks());
        std::thread::sleep(Duration::from_millis(10));
    }
    // Nor is there anything else mounted where these stand.
    assert_eq!(entries(), interfaces);
}

#[test]
fn packets_take_the_delay_in_both_families_and_no_less() {
    let Some(mut wan) = up(plan("delay=20ms km=200")) else { return };
    for is_ipv4 in [true, false] {
        let (a, b) = (wan.site("a").unwrap(), wan.site("b").unwrap());
        let mut probe = Probe::new(a, b, address(&wan, 1, is_ipv4)).unwrap();
        let mut took: Vec<Duration> = (0..30).map(|_| probe.one_way(PATIENCE).unwrap().unwrap()).collect();
        took.sort();
        // Ticks of 64 ns are cut off. Half of them meet no machine that is elsewhere for long.
        assert!(took[0] >= Duration::from_nanos(20_999_900) && took[15] < Duration::from_millis(120), "{took:?}");
    }
    let mut probe = probe(&wan);
    let none = |path: &str| Err(path.to_owned());
    wan.change("wan", Which::There, "delay=80ms km=none", &none).unwrap();
    let took = probe.one_way(PATIENCE).unwrap().unwrap();
    assert!(took >= Duration::from_micros(79_999), "{took:?}");
    wan.change("wan", Which::Both, "delay=1ms loss=100%", &none).unwrap();
    assert_eq!(probe.one_way(Duration::from_millis(300)).unwrap(), None);
    wan.change("wan", Which::Both, "loss=none", &none).unwrap();
    assert!(probe.one_way(PATIENCE).unwrap().is_some());
    let refused = wan.change("wan", Which::Back, "delay=3ms drop_rate=10", &none).unwrap_err().to_string();
    assert!(refused.starts_with("wan: drop_rate: the backend kernel cannot do it: "), "{refused}");
    assert_eq!(wan.plan().links[0].ways[1].to_string(), "delay=1ms", "what was refused has changed nothing");
    let seen = settled(&wan);
    // What was lost before the last change is lost, and the other datagrams have arrived.
    assert!(seen.counts.dropped.loss >= 1 && seen.counts.arrived >= 62, "{seen:?}");
}

#[test]
fn as_many_are_lost_as_was_asked() {
    let Some(wan) = up(plan("delay=1ms loss=20%")) else { return };
    let (came, seen) = send(&wan, &mut probe(&wan), 2000, Duration::ZERO);
    // 400, with a deviation of 18.
    let lost = 2000 - came.len() as u64;
    assert!(seen.counts.arrived.abs_diff(came.len() as u64) <= HOUSEKEEPING, "{} {seen:?}", came.len());
    assert!(lost.abs_diff(400) < 100 && seen.counts.dropped.loss.abs_diff(lost) <= HOUSEKEEPING, "{lost} {seen:?}");
    assert_eq!(seen.counts.dropped.all(), seen.counts.dropped.loss);
    assert!(came.is_sorted(), "{came:?}");
}

#[test]
fn bursts_are_as_long_and_as_frequent_as_asked() {
    let Some(wan) = up(plan("burst=5%,20%")) else { return };
    let (came, seen) = send(&wan, &mut probe(&wan), 4000, Duration::ZERO);
    let lost = (4000 - came.len()) as f64;
    let bursts = came.windows(2).filter(|pair| pair[1] > pair[0] + 1).count() as f64;
    // 160 bursts of five in the mean: a fifth of all, with a deviation of 2%, and 0.36 packets.
    assert!((lost / 4000.0 - 0.2).abs() < 0.1 && (3.0..8.0).contains(&(lost / bursts)), "{lost} in {bursts}");
    assert!(
        seen.counts.dropped.burst as f64 >= lost && seen.counts.dropped.all() == seen.counts.dropped.burst,
        "{seen:?}"
    );
}

#[test]
fn packets_arrive_twice_as_often_as_is_counted() {
    let Some(wan) = up(plan("delay=2ms duplicate=10%")) else { return };
    let (came, seen) = send(&wan, &mut probe(&wan), 2000, Duration::ZERO);
    let twice = came.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!(came.len() as u64, 2000 + twice, "one behind the other");
    // 200, with a deviation of 13.
    assert!(twice.abs_diff(200) < 75 && seen.counts.duplicated.abs_diff(twice) <= HOUSEKEEPING, "{twice} {seen:?}");
}

#[test]
fn a_changed_packet_is_noticed_by_who_receives_it() {
    let Some(wan) = up(plan("corrupt=100%")) else { return };
    let mut probe = probe(&wan);
    for _ in 0..300 {
        probe.send(600).unwrap();
    }
    let began = Instant::now();
    while there(&wan).counts.arrived < 300 {
        assert!(began.elapsed() < PATIENCE, "{:?}", there(&wan));
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    // What was changed in the sender's hardware address is as good as before: one of a hundred.
    let came = std::iter::from_fn(|| probe.receive().unwrap()).count();
    assert!(came < 30, "{came} of 300 changed packets were taken for good");
}

#[test]
fn jitter_spreads_packets_and_lets_them_overtake_each_other_only_where_they_may() {
    let Some(mut wan) = up(plan("delay=30ms jitter=25ms")) else { return };
    let mut probe = probe(&wan);
    let mut took: Vec<Duration> = (0..60).map(|_| probe.one_way(PATIENCE).unwrap().unwrap()).collect();
    took.sort();
    // Of sixty the first fifth is below 20 ms, and the last one above 40: how late a machine is does not change the first.
    assert!(took[0] >= Duration::from_micros(4999) && took[0] < Duration::from_millis(20), "{took:?}");
    assert!(took[59] > Duration::from_millis(40), "{took:?}");
    let (came, _) = send(&wan, &mut probe, 500, Duration::from_micros(200));
    assert!(came.len() == 500 && came.is_sorted(), "{came:?}");
    wan.change("wan", Which::There, "order=free jitter=normal:5ms", &|path| Err(path.to_owned())).unwrap();
    let before = there(&wan).counts.packets;
    for _ in 0..500 {
        probe.send(200).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    let (began, mut came) = (Instant::now(), vec![]);
    while came.len() < 500 {
        came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
        assert!(began.elapsed() < PATIENCE, "{} of 500 came", came.len());
    }
    let late = came.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(late > 50 && there(&wan).counts.packets >= before + 500, "{late}");
    // The heavy tail adds, and takes nothing off.
    wan.change("wan", Which::There, "order=none jitter=pareto:3ms", &|path| Err(path.to_owned())).unwrap();
    let took: Vec<Duration> = (0..60).map(|_| probe.one_way(PATIENCE).unwrap().unwrap()).collect();
    assert!(took.iter().all(|took| *took >= Duration::from_micros(29_990)), "{took:?}");
}

#[test]
fn a_full_queue_drops_and_says_so_apart() {
    let Some(wan) = up(plan("rate=8mbit limit=10 delay=5ms")) else { return };
    let mut probe = probe(&wan);
    let began = Instant::now();
    // With its headers each is a millisecond long.
    for _ in 0..200 {
        probe.send(958).unwrap();
    }
    let mut came = vec![];
    loop {
        came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
        let seen = there(&wan);
        if seen.under_way + seen.queued_packets == 0 && seen.counts.packets >= 200 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{seen:?}");
    }
    let took = began.elapsed();
    std::thread::sleep(Duration::from_millis(100));
    came.extend(std::iter::from_fn(|| probe.receive().unwrap()));
    let seen = settled(&wan);
    let (dropped, came) = (seen.counts.dropped, came.len() as u64);
    // One in transmission, ten that wait, and as many as were transmitted while the others were sent.
    assert!((11..=150).contains(&came), "{came} {seen:?}");
    assert!(
        dropped.queue_limit.abs_diff(200 - came) <= HOUSEKEEPING && dropped.all() == dropped.queue_limit,
        "{seen:?}"
    );
    assert!(took >= Duration::from_millis(came + 4), "{came} in {took:?}");
}

/// What arrives of one that is sent whole.
fn transfer(from: &Namespace, to: &Namespace, address: IpAddr, bytes: usize) -> Duration {
    let listener = to.enter(|| TcpListener::bind((address, 0)).unwrap()).unwrap();
    let at = listener.local_addr().unwrap();
    let mut sender = from.enter(|| TcpStream::connect_timeout(&at, PATIENCE).unwrap()).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let content: Vec<u8> = (0..bytes as u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (expected, began) = (content.clone(), Instant::now());
    let sending = std::thread::spawn(move || sender.write_all(&content).unwrap());
    let mut came = vec![];
    receiver.read_to_end(&mut came).unwrap();
    sending.join().unwrap();
    assert!(came == expected, "{} bytes came of {bytes}, or others", came.len());
    began.elapsed()
}

#[test]
fn streams_are_whole_in_large_frames_and_as_fast_as_the_rate() {
    const BYTES: usize = 2 << 20;
    let Some(mut wan) = up(plan("delay=1ms")) else { return };
    let large = transfer(wan.site("a").unwrap(), wan.site("b").unwrap(), address(&wan, 1, false), BYTES);
    assert!(there(&wan).counts.packets > BYTES as u64 / 1500, "{:?} {large:?}", there(&wan));
    let none = |path: &str| Err(path.to_owned());
    wan.change("wan", Which::There, "rate=16mbit limit=100", &none).unwrap();
    let took = transfer(wan.site("a").unwrap(), wan.site("b").unwrap(), address(&wan, 1, true), BYTES);
    // 2 MiB are 1.05 s, less what the first segments take of the window at the end.
    assert!(took > Duration::from_millis(1000), "{took:?}");
    settled(&wan);
}

#[test]
fn links_have_ways_of_their_own() {
    let link = |name: &str, first, second, options: [&str; 2]| Link {
        name: name.into(),
        between: [first, second],
        mtu: 1500,
        ways: options.map(way),
    };
    let names = ["paris", "delhi", "tokyo"].into_iter().zip(0..);
    let plan = Plan {
        sites: names.map(|(name, number)| Site::numbered(name, number)).collect(),
        links: vec![
            link("west", 0, 1, ["delay=5ms jitter=1ms", ""]),
            link("east", 1, 2, ["delay=10ms jitter=2ms", "delay=40ms"]),
        ],
        backend: Backend::Kernel,
    };
    let Some(wan) = up(plan) else { return };
    let least = |from: &str, to: &str, address| {
        let mut probe = Probe::new(wan.site(from).unwrap(), wan.site(to).unwrap(), address).unwrap();
        (0..10).map(|_| probe.one_way(PATIENCE).unwrap().unwrap()).min().unwrap()
    };
    let there = least("paris", "tokyo", address(&wan, 2, false));
    let back = least("tokyo", "paris", address(&wan, 0, true));
    let ms = Duration::from_millis;
    assert!(there >= ms(12) && there < ms(39) && back >= ms(39), "{there:?} {back:?}");
    let seen = wan.look().unwrap();
    assert!(seen.iter().flatten().all(|way| way.counts.arrived >= 10), "{seen:?}");
}
