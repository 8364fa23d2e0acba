//! Processes that share the program on an interface: it is there as long as one of them is, and what one leaves is taken away.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_fabric::conformance::{Processes, Target, serve_if_asked};
use verbena_fabric::tcp::TcpConfig;
use verbena_fabric::xdp::{XdpConfig, XdpFabric, interface};
use verbena_fabric::{Batch, Class, Fabric, Operation, Result, SharedRemote, XdpMode};
use verbena_namespaces::{End, Namespace};
use verbena_terms::{BootClock, Clock, Incarnation};
use verbena_testkit::namespaces;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 80, 0, 1));
/// The ends of a link to another network.
const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 81, 0, 1));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 81, 0, 2));
const BYTES: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(10);

#[test]
fn a_program_survives_whoever_loaded_it_and_goes_with_the_last() {
    let Some(_own) = namespaces::own(HERE) else { return };
    let mut processes = Processes::default();
    let (first, second) = (
        processes.start("xdp_sharing::at_7001", Incarnation::new(1, 1), BYTES),
        processes.start("xdp_sharing::at_7002", Incarnation::new(2, 1), BYTES),
    );
    let fabric = open(Incarnation::new(3, 1), 7003).unwrap();
    let [to_first, to_second] = [&first, &second].map(|target| remote(&fabric, target));
    for times in 1..100 {
        assert_eq!([add(&to_first).unwrap(), add(&to_second).unwrap()], [times, times]);
    }

    // It had the program first.
    processes.kill(first.incarnation);
    // The kernel answers for the second one, and for nobody where the first one was.
    processes.pause(second.incarnation);
    for times in 100..200 {
        assert_eq!(add(&to_second).unwrap(), times);
    }
    processes.resume(second.incarnation);
    let ended = until(|| add(&to_first).is_err());
    assert!(ended, "an ended process is answered for");

    // A second life at the same address, of another process.
    let again = processes.start("xdp_sharing::at_7001", Incarnation::new(1, 2), BYTES);
    let to_again = remote(&fabric, &again);
    assert_eq!([add(&to_again).unwrap(), add(&to_second).unwrap()], [1, 200]);
    // What has the program now came by it from others.
    processes.kill(second.incarnation);
    assert_eq!(add(&to_again).unwrap(), 2);
    drop(to_again);
    drop(fabric);
    assert!(has_program("lo"), "one is still there");
    processes.kill(again.incarnation);
    assert!(until(|| !has_program("lo")), "a program without a process");
}

#[test]
fn while_the_only_process_that_has_the_program_is_stopped_nobody_loads_another() {
    let Some(_networks) = linked() else { return };
    let mut processes = Processes::default();
    let target = processes.start("xdp_sharing::at_7001", Incarnation::new(1, 1), BYTES);
    processes.pause(target.incarnation);
    // On another interface it could; then two of this network would not reach each other's memory.
    let on_near = || open_on(&["lo", "near"], NEAR, Incarnation::new(2, 1), 7002);
    for tried in [open(Incarnation::new(3, 1), 7003), open_on(&["near"], NEAR, Incarnation::new(2, 1), 7002)] {
        let Err(error) = tried else { panic!("got it from a stopped process") };
        assert!(error.to_string().contains("is it stopped?"), "{error}");
    }
    assert!(!has_program("near"));
    processes.resume(target.incarnation);
    let fabrics = [open(Incarnation::new(3, 1), 7003).unwrap(), on_near().unwrap()];
    for (times, fabric) in (1..).zip(&fabrics) {
        assert_eq!(add(&remote(fabric, &target)).unwrap(), times);
    }
}

#[test]
fn somebody_else_s_program_is_named_and_left_alone() {
    let Some(_networks) = linked() else { return };
    let others = interface::pass_all("near").unwrap();
    let Err(error) = open_on(&[], NEAR, Incarnation::new(1, 1), 7001) else { panic!("two have an interface") };
    let said = error.to_string();
    assert!(said.contains("interface near: the program \"pass\" (number "), "{said}");
    assert!(has_program("near"));
    drop(others);
    open_on(&[], NEAR, Incarnation::new(1, 1), 7001).unwrap();
}

/// What is sent to its address is taken for frames: nobody else may have that port.
#[test]
fn a_node_has_its_datagram_port_for_itself() {
    let Some(_own) = namespaces::own(HERE) else { return };
    let taken = UdpSocket::bind((HERE, 7003)).unwrap();
    let Err(error) = open(Incarnation::new(1, 1), 7003) else { panic!("two have a port") };
    assert!(error.to_string().contains("10.80.0.1:7003"), "{error}");
    drop(taken);
    let _node = open(Incarnation::new(1, 1), 7003).unwrap();
    assert!(UdpSocket::bind((HERE, 7003)).is_err());
}

#[test]
fn sixteen_processes_share_an_interface_and_one_more_is_refused() {
    let Some(_own) = namespaces::own(HERE) else { return };
    let mut processes = Processes::default();
    let targets: Vec<Target> =
        (1..=15).map(|rank| processes.start("xdp_sharing::anywhere", Incarnation::new(rank, 1), BYTES)).collect();
    let fabric = open(Incarnation::new(16, 1), 7003).unwrap();
    for target in &targets {
        assert_eq!(add(&remote(&fabric, target)).unwrap(), 1);
    }
    drop(fabric);
    processes.start("xdp_sharing::anywhere", Incarnation::new(16, 1), BYTES);
    let Err(error) = open(Incarnation::new(17, 1), 7003) else { panic!("a seventeenth was let in") };
    assert!(error.to_string().contains("16"), "{error}");
    // As soon as one is gone there is room.
    processes.kill(targets[7].incarnation);
    open(Incarnation::new(17, 1), 7003).unwrap();
}

/// A node of this machine is reached by `lo`, one of another network by the link to it.
#[test]
fn a_node_answers_on_every_interface_that_it_was_given() {
    let Some([_own, other]) = linked() else { return };
    let mut processes = Processes::default();
    let target = processes.start("xdp_sharing::on_two_interfaces", Incarnation::new(1, 1), BYTES);
    let here = open_on(&["lo"], HERE, Incarnation::new(2, 1), 7002).unwrap();
    let from_here = remote(&here, &target);
    // Its sockets are made where it connects.
    let enter = || {
        let there = open_on(&[], FAR, Incarnation::new(3, 1), 7003).unwrap();
        (remote(&there, &target), there)
    };
    let (from_there, _there) = other.enter(enter).unwrap();
    // Its agent cannot.
    processes.pause(target.incarnation);
    for times in 0..100 {
        assert_eq!([add(&from_here).unwrap(), add(&from_there).unwrap()], [2 * times + 1, 2 * times + 2]);
    }
    processes.resume(target.incarnation);
    assert!(has_program("lo") && has_program("near"));
}

#[test]
fn on_two_interfaces() {
    serve_if_asked(|incarnation| open_on(&["lo", "near"], NEAR, incarnation, 7001).unwrap());
}

#[test]
fn at_7001() {
    serve_if_asked(|incarnation| open(incarnation, 7001).unwrap());
}

#[test]
fn at_7002() {
    serve_if_asked(|incarnation| open(incarnation, 7002).unwrap());
}

#[test]
fn anywhere() {
    serve_if_asked(|incarnation| open(incarnation, 0).unwrap());
}

/// The test's own network, and another one behind the link from `near` to `far`.
fn linked() -> Option<[Namespace; 2]> {
    let own = namespaces::own(HERE)?;
    let other = Namespace::new().unwrap();
    own.link(End::new("near", NEAR), &other, End::new("far", FAR)).unwrap();
    Some([own, other])
}

fn open(incarnation: Incarnation, port: u16) -> Result<Arc<dyn Fabric>> {
    open_on(&["lo"], HERE, incarnation, port)
}

fn open_on(interfaces: &[&str], ip: IpAddr, incarnation: Incarnation, port: u16) -> Result<Arc<dyn Fabric>> {
    let tcp = TcpConfig { listen: SocketAddr::new(ip, port), insecure: true, ..TcpConfig::default() };
    let interfaces = interfaces.iter().copied().map(String::from).collect();
    Ok(Arc::new(XdpFabric::open(incarnation, XdpConfig { tcp, interfaces, mode: XdpMode::Auto })?))
}

fn remote(fabric: &Arc<dyn Fabric>, target: &Target) -> SharedRemote {
    fabric.set_view(target.key.view);
    let peer = fabric.connect(target.incarnation, &target.address).unwrap();
    peer.open(&target.key, fabric.clock().now() + PATIENCE).unwrap()
}

/// Adds one to the first word; how often that was done now.
fn add(remote: &SharedRemote) -> Result<u64> {
    let deadline = BootClock.now() + PATIENCE;
    let batch = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
    let done = remote.post(batch, Class::Control, deadline).wait()?;
    Ok(1 + done[0].word().unwrap())
}

fn until(holds: impl Fn() -> bool) -> bool {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

fn has_program(interface: &str) -> bool {
    let output = Command::new("ip").args(["link", "show", "dev", interface]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().contains("prog/xdp")
}
