//! Tests of the callers that the connection manager lets in, on machines with devices.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use verbena_terms::Incarnation;
use verbena_testkit::machine;

use super::adapter::{Adapter, Reached};
use super::batches::Place;
use super::entries::Request;
use super::guests::{Guests, Wish};
use super::introductions::{Meeting, Purpose};
use super::line::Line;
use super::manager::{Listener, Ticket};
use super::tally::Tally;
use super::{Completions, VerbsConfig};
use crate::error::{Error, Result};
use crate::memory::Words;
use crate::message::Class;
use crate::operation::Operation;
use crate::tcp::TcpConfig;

#[test]
fn on_iwarp_nobody_gets_in_without_a_ticket() {
    machine::in_machine_at_length("siw", "verbs::tests::inside_siw");
}

#[test]
fn on_roce_nobody_gets_in_without_a_ticket() {
    machine::in_machine_at_length("rxe", "verbs::tests::inside_rxe");
}

#[test]
fn inside_siw() {
    check("siw", true);
}

#[test]
fn inside_rxe() {
    check("rxe", false);
}

/// Calls of iWARP come to a port of TCP's.
fn check(kind: &str, is_tcp: bool) {
    if !machine::is_inside() {
        return;
    }
    let refused = a_port_that_somebody_has_is_named(kind, is_tcp);
    let called = a_ticket_is_good_for_one_call(kind);
    let connected = of_too_many_callers_the_oldest_connection_ends(kind);
    println!("counted: {refused} ports refused, {called} calls, {connected} callers on {kind}");
}

fn adapter(kind: &str, number: u8) -> Arc<Adapter> {
    let address = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1 + number));
    Adapter::open(&VerbsConfig {
        tcp: TcpConfig::default(),
        device: format!("{kind}{number}"),
        port: 1,
        gid_index: u32::from(kind == "rxe"),
        gid: None,
        rdma_cm: true,
        address: Some(address),
        rdma_cm_port: 0,
        service_levels: [0, 0],
        sends: true,
        completions: Completions::Told,
    })
    .unwrap()
}

fn a_port_that_somebody_has_is_named(kind: &str, is_tcp: bool) -> usize {
    let adapter = adapter(kind, 0);
    let free = SocketAddr::new(adapter.managed.unwrap().ip(), 0);
    let first = Listener::new(&adapter, free).unwrap();
    let socket = TcpListener::bind(free).unwrap();
    let taken = [Some(first.address), is_tcp.then(|| socket.local_addr().unwrap())];
    let taken: Vec<SocketAddr> = taken.into_iter().flatten().collect();
    for address in &taken {
        let error = Listener::new(&adapter, *address).map(|_| ()).unwrap_err().to_string();
        let named = ["fabric.verbs_rdma_cm_port", &format!("port {}", address.port()), &address.to_string()];
        assert!(named.iter().all(|part| error.contains(part)), "{error}");
    }
    taken.len()
}

/// A node that takes calls, and one that calls.
struct Scene {
    answers: Arc<Adapter>,
    calls: Arc<Adapter>,
    guests: Arc<Guests>,
    tally: Arc<Tally>,
    at: SocketAddr,
    is_over: Arc<AtomicBool>,
    porter: Option<thread::JoinHandle<Vec<Error>>>,
}

impl Scene {
    fn new(kind: &str, most: usize) -> Self {
        let [answers, calls] = [0, 1].map(|number| adapter(kind, number));
        let (tally, is_over) = (Arc::new(Tally::default()), Arc::new(AtomicBool::new(false)));
        let guests = Arc::new(Guests::new(answers.clone(), [None, None], most, tally.clone()));
        let listener = Listener::new(&answers, SocketAddr::new(answers.managed.unwrap().ip(), 0)).unwrap();
        let at = listener.address;
        let porter = {
            let (guests, is_over) = (guests.clone(), is_over.clone());
            thread::spawn(move || {
                let mut refused = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    if let Some(call) = listener.next(Duration::from_millis(50)).unwrap() {
                        refused.extend(guests.called(call).err());
                    }
                }
                refused
            })
        };
        Scene { answers, calls, guests, tally, at, is_over, porter: Some(porter) }
    }

    fn ticket(&self, rank: u32) -> Ticket {
        let caller = Incarnation::new(rank, 1);
        let wish = Wish { caller, class: Class::Control, purpose: Purpose::Operations, request: 1 };
        self.guests.expect(wish).unwrap().unwrap()
    }

    fn call(&self, ticket: Ticket) -> Result<Line> {
        let mut line = Line::new(&self.calls, &self.calls.channel()?, Class::Control)?;
        line.call(&Meeting { at: self.at, ticket, serves: self.answers.serves })?;
        Ok(line)
    }

    /// Why calls were refused.
    fn end(&mut self) -> Vec<Error> {
        self.is_over.store(true, Ordering::Relaxed);
        self.porter.take().unwrap().join().unwrap()
    }
}

fn a_ticket_is_good_for_one_call(kind: &str) -> u64 {
    let mut scene = Scene::new(kind, 16);
    let refused = |ticket| {
        let error = scene.call(ticket).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("it refuses"), "{error}");
    };
    refused([0; 16]);
    let ticket = scene.ticket(3);
    let mut near = ticket;
    near[15] ^= 1;
    refused(near);
    let line = scene.call(ticket).unwrap();
    refused(ticket);
    drop(line);
    let reasons = scene.end();
    let is_ticket = |error: &Error| matches!(error, Error::Malformed { reason, .. } if reason.contains("ticket"));
    // The manager calls again where it was refused in the course of things.
    assert!(reasons.len() >= 3 && reasons.iter().all(is_ticket), "{reasons:?}");
    assert_eq!(scene.tally.connections().taken, 1);
    reasons.len() as u64 + 1
}

fn of_too_many_callers_the_oldest_connection_ends(kind: &str) -> u64 {
    const MOST: usize = 3;
    let mut scene = Scene::new(kind, MOST);
    let words = Words::anonymous(4096).unwrap();
    words.store(8, 77);
    let access = scene.answers.everything();
    // SAFETY: `words` is dropped behind it.
    let reached: Reached = unsafe { scene.answers.reach(words.address(), words.bytes(), access) }.unwrap();
    let place = Place { remote_key: reached.rkey(), address: words.address(), bytes: words.bytes() };
    let read = |line: &mut Line, number| {
        let operation = Operation::ReadWord { at: 8 };
        line.post(place, [Request { number, operation: &operation, is_signaled: true }].into_iter()).unwrap();
        let until = Instant::now() + Duration::from_secs(4);
        loop {
            match line.poll() {
                (Some(_), None) => return Some(line.word(number, &operation)),
                (_, Some(_)) => return None,
                // Soft-RoCE asks an end that is no more for ever.
                (None, None) if Instant::now() > until => return None,
                (None, None) => {}
            }
            thread::sleep(Duration::from_millis(1));
        }
    };
    let mut lines: Vec<Line> = (1..=MOST as u32).map(|rank| scene.call(scene.ticket(rank)).unwrap()).collect();
    for line in &mut lines {
        assert_eq!(read(line, 0), Some(77));
    }
    let mut newest = scene.call(scene.ticket(MOST as u32 + 1)).unwrap();
    assert_eq!(read(&mut newest, 0), Some(77));
    let read: Vec<_> = lines.iter_mut().map(|line| read(line, 1)).collect();
    assert_eq!(read, [None, Some(77), Some(77)], "of {MOST} the oldest makes room");
    let reasons = scene.end();
    assert!(reasons.is_empty(), "{reasons:?}");
    scene.tally.connections().taken
}
