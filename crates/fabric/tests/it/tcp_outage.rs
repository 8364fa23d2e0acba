//! The provider `tcp` on a way that is closed for a while: both ends are there, and nothing arrives.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::{Batch, Class, Fabric, Operation, Port, Rights, Views};
use verbena_namespaces::{Crossing, Namespace, or_skipped};
use verbena_terms::{Incarnation, ViewNumber};

const VIEW: ViewNumber = ViewNumber(1);
const PORT: Port = Port(5);
const HERE: Ipv4Addr = Ipv4Addr::new(10, 80, 1, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 80, 1, 2);
/// Left to itself TCP repeats what was sent 0.2, 0.6, 1.4 and 3.0 s after the way was closed, and the first packet of a new connection every second.
const CLOSED: Duration = Duration::from_millis(1800);
/// A connection every 0.2 s, and what a busy machine adds.
const SOON: Duration = Duration::from_millis(600);

fn node(network: &Namespace, rank: u32, address: Ipv4Addr) -> TcpFabric {
    let listen = SocketAddr::from((address, 7001));
    let config = TcpConfig { listen, insecure: true, ..TcpConfig::default() };
    network.enter(|| TcpFabric::open(Incarnation::new(rank, 1), config).unwrap()).unwrap()
}

/// How long it takes until `arrives` says yes, tried every 10 ms.
fn until(mut arrives: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !arrives() {
        assert!(began.elapsed() < Duration::from_secs(20), "nothing arrives any more");
        std::thread::sleep(Duration::from_millis(10));
    }
    began.elapsed()
}

#[test]
fn what_is_sent_after_an_outage_arrives_soon() {
    let Some(middle) = or_skipped(Namespace::new()).unwrap() else { return };
    let crossing = Crossing::new(middle, Ipv4Addr::new(10, 80, 0, 1)).unwrap();
    let (one, other) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    crossing.connect("one", &one, &[HERE]).unwrap();
    crossing.connect("other", &other, &[THERE]).unwrap();
    let (caller, owner) = (node(&one, 1, HERE), node(&other, 2, THERE));
    let region = owner.register(4096, VIEW).unwrap();
    let inbox = owner.listen(PORT, Views::Any).unwrap();
    let peer = caller.connect(owner.identity(), &owner.address()).unwrap();
    let soon = |length| caller.clock().now() + length;
    let remote = peer.open(&region.key(Rights::Change), soon(Duration::from_secs(10))).unwrap();
    let mut messages = 0;
    let mut message = || {
        messages += 1;
        // What cannot be sent is sent again.
        let _ = peer.send(Class::Control, VIEW, PORT, messages, b"are you there");
        std::iter::from_fn(|| inbox.try_take()).any(|message| message.number + 5 > messages)
    };
    let add = || {
        let add = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
        remote.post(add, Class::Control, soon(Duration::from_millis(100))).wait().is_ok()
    };
    // Messages alone first: nothing is due for them that could be missed.
    let outage = |from: Ipv4Addr, to: Ipv4Addr, arrives: &mut dyn FnMut() -> bool| {
        until(&mut *arrives);
        crossing.close(from, to).unwrap();
        let closed = Instant::now();
        let mut failed = 0;
        while closed.elapsed() < CLOSED {
            failed += u32::from(!arrives());
            std::thread::sleep(Duration::from_millis(10));
        }
        crossing.open(from, to).unwrap();
        let back = until(&mut *arrives);
        println!("closed from {from}: {failed} failed, and {back:?} after it was open one arrived");
        assert!(failed > 5, "the way was open");
        assert!(back < SOON, "{back:?} after the way was open");
    };
    outage(HERE, THERE, &mut message);
    outage(HERE, THERE, &mut &add);
    outage(THERE, HERE, &mut &add);
}
