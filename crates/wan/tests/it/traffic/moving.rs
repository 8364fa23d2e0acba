//! A router that the scheduler moves between cores, on cores that have other frames to receive.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use verbena_namespaces::{Family, Namespace, netfilter, or_skipped};
use verbena_terms::usable_cores;
use verbena_wan::pin;
use verbena_wan::router::Mode;

use super::{PATIENCE, probe, routers, send, wan};

/// Longer than those who receive stay where they are.
const STAY: Duration = Duration::from_millis(25);
/// Rules that are looked through for each packet, so that it takes some 10 us to receive one.
const RULES: usize = 400;
/// Packets at once, and how long after they came until the next. A kernel drops what comes when a thousand packets wait for one core, so that nothing is sent
/// before all that was sent has come.
const BURST: usize = 200;
const PAUSE: Duration = Duration::from_millis(2);

/// A network in which all is received by this core, and slowly.
fn slow(core: usize) -> Option<Namespace> {
    let network = or_skipped(Namespace::new()).unwrap()?;
    let rules: Vec<String> = (0..RULES).map(|_| "-A INPUT -p udp -s 192.0.2.1 -j DROP".to_owned()).collect();
    if let Err(refused) = network.enter(|| netfilter(Family::V4, &rules)).unwrap() {
        println!("skipped: this kernel has no rules for packets: {refused}");
        return None;
    }
    network.enter(|| pin(["lo".to_owned()].into_iter(), core)).unwrap();
    Some(network)
}

fn flood(network: &Namespace, is_done: &AtomicBool) -> usize {
    let [from, to] = [(); 2].map(|()| network.enter(|| UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap());
    to.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut came = 0;
    while !is_done.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            from.send_to(&[0; 8], to.local_addr().unwrap()).unwrap();
        }
        for _ in 0..BURST {
            to.recv(&mut [0; 8]).unwrap();
            came += 1;
        }
        std::thread::sleep(PAUSE);
    }
    came
}

/// Says so when it ends, however it ends, so that nothing goes on beside a test that failed.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The number of the router's thread: one, for tests have one at a time.
fn router() -> Pid {
    let thread = routers().next().unwrap();
    Pid::from_raw(thread.file_name().unwrap().to_str().unwrap().parse().unwrap()).unwrap()
}

/// The processors that receive what comes to a site, as its kernel has them.
fn receivers(site: &Namespace) -> String {
    let script = "mount -t sysfs sysfs /sys && cat /sys/class/net/*/queues/rx-0/rps_cpus";
    let said = site.enter(|| Command::new("unshare").args(["--mount", "sh", "-c", script]).output().unwrap()).unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// Moves the router to and fro while these packets cross, and both cores receive others.
fn the_order_is_kept(options: &str, count: u64, expected: u64) {
    let usable = usable_cores().unwrap();
    let &[one, other, ..] = &usable[..] else {
        println!("skipped: there is one core, and none to move to");
        return;
    };
    let cores = [one, other];
    let Some(wan) = wan(options, Mode::Precise) else { return };
    let Some(networks) = cores.iter().map(|core| slow(*core)).collect::<Option<Vec<_>>>() else { return };
    let (mut probe, router, is_done) = (probe(&wan, true), router(), AtomicBool::new(false));
    let site = wan.site("b").unwrap();
    let (moves, floods, (came, _)) = std::thread::scope(|scope| {
        let is_done = &is_done;
        let floods: Vec<_> = networks.iter().map(|network| scope.spawn(move || flood(network, is_done))).collect();
        let moving = scope.spawn(|| {
            let (mut moves, mut followed) = (0, BTreeSet::new());
            while !is_done.load(Ordering::Relaxed) {
                let mut core = CpuSet::new();
                core.set(cores[moves % 2]);
                sched_setaffinity(Some(router), &core).unwrap();
                moves += 1;
                std::thread::sleep(STAY);
                if moves % 3 == 0 {
                    followed.insert(receivers(site));
                }
            }
            (moves, followed)
        });
        let done = Done(is_done);
        let sent = send(&wan, &mut probe, count);
        drop(done);
        (moving.join().unwrap(), floods.into_iter().map(|flood| flood.join().unwrap()).min(), sent)
    });
    let behind = came.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!((came.len() as u64, behind), (expected, 0), "{options}: {moves:?}, {floods:?} packets beside");
    // Those who receive are these, and then those.
    assert!(moves.0 >= 10 && moves.1.len() >= 2 && floods >= Some(5_000), "{options}: {moves:?}, {floods:?} beside");
}

/// What it sent before it moved waits for one core and what it sends next for another one, if those who receive follow it at once.
#[test]
fn the_order_is_kept_while_the_router_moves_between_cores() {
    the_order_is_kept("delay=1ms", 40_000, 40_000);
    // With another option what comes to the router is received by one core, which is another one then too.
    the_order_is_kept("delay=1ms drop_rate=20", 40_000, 38_000);
}
