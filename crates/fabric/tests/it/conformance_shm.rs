//! `shm` passes the suite.

use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
use verbena_fabric::conformance::{Able, CHECKS, Harness, Processes, Target, run_all, serve_if_asked};
use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::{Error, Fabric, Pool};
use verbena_terms::{Format, Incarnation};

fn open(identity: Incarnation) -> Arc<dyn Fabric> {
    Shm::open(Settings { identity, pool: Pool::new(64 << 20), allowed_users: vec![] }).unwrap()
}

#[derive(Default)]
struct Shared {
    nodes: u32,
    processes: Processes,
}

impl Shared {
    fn incarnation(&mut self) -> Incarnation {
        self.nodes += 1;
        Incarnation::new(self.nodes, 5)
    }
}

impl Harness for Shared {
    fn node(&mut self) -> Arc<dyn Fabric> {
        open(self.incarnation())
    }

    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(200));
    }

    fn threads(&self) -> bool {
        true
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let incarnation = self.incarnation();
        Ok(self.processes.start("conformance_shm::target", incarnation, bytes))
    }

    fn processes(&mut self) -> Option<&mut Processes> {
        Some(&mut self.processes)
    }

    fn speak_another_version(&mut self, at: &dyn Fabric) -> Able<Error> {
        // A hello that is right but for its version: who, what for, the address's secret, and who is meant.
        let frames = Format::new(*b"VSHF", 99);
        let address = at.address();
        let (name, secret) = address.rest().split_once('/').unwrap();
        let mut hello = [0; 64];
        hello[..8].copy_from_slice(&frames.header());
        (hello[8], hello[9]) = (1, 2);
        hello[24..32].copy_from_slice(&Incarnation::new(1000, 1).to_word().to_le_bytes());
        hello[32..48].copy_from_slice(&u128::from_str_radix(secret, 16).unwrap().to_be_bytes());
        hello[48..56].copy_from_slice(&at.identity().to_word().to_le_bytes());
        let name = SocketAddrUnix::new_abstract_name(format!("verbena-{name}").as_bytes()).unwrap();
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&socket, &name).unwrap();
        rustix::net::send(&socket, &hello, SendFlags::NOSIGNAL).unwrap();
        let mut answer = [0; 64];
        let (length, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
        assert_eq!(answer[8], 3, "it is refused");
        Ok(Error::format(at.identity(), &frames.check(&answer[..length]).unwrap_err()))
    }
}

#[test]
fn shm_passes_the_suite() {
    let report = run_all(&mut Shared::default());
    // Nothing can be lost, held or repeated between a processor and its memory, and no address is used twice.
    let skipped: Vec<_> = report.skipped.iter().map(|(name, _)| *name).collect();
    let faults = [
        "repeated_requests_execute_once",
        "lost_answers_are_settled_to_their_outcome",
        "lost_requests_are_settled_for_ever",
        "late_copies_do_not_execute_after_settling",
        "identifiers_are_never_reused",
        "a_full_window_asks_to_settle_first",
        "what_was_under_way_never_lands_in_new_memory",
        "a_restarted_node_is_not_taken_for_the_former",
        "every_operation_ends_at_its_deadline",
    ];
    assert_eq!(skipped, faults);
    assert_eq!(report.ran, CHECKS.len() - faults.len());
}

/// What a process does that the suite has started; nothing in an ordinary run.
#[test]
fn target() {
    serve_if_asked(open);
}
