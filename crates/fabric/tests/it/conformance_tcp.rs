//! The conformance suite on the provider `tcp`, in the clear and secured.
//!
//! Every node reaches every other through a relay of its own, so that a fault can be between any two of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::common::keys::Keys;
use crate::common::network::{Network, socket};
use verbena_fabric::conformance::{Able, Fault, Harness, Processes, Target, Unable, run_all, serve_if_asked};
use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::{Address, Error, Fabric, RegionKey, Rights, Secret};
use verbena_terms::{Incarnation, Rank, ViewNumber};
use verbena_testkit::relay::Mode;

#[test]
fn in_the_clear() {
    check(&mut Tcp::new("conformance_tcp::target", None));
}

#[test]
fn secured() {
    check(&mut Tcp::new("conformance_tcp::secured_target", Some(Keys::new(keys_of(std::process::id())))));
}

fn check(tcp: &mut Tcp) {
    let report = run_all(tcp);
    let skipped: Vec<&str> = report.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, ["repeated_requests_execute_once", "synchronous_means_complete_on_return"]);
    assert_eq!(report.ran, 41);
}

#[test]
fn target() {
    serve_if_asked(|incarnation| Arc::new(TcpFabric::open(incarnation, config()).expect("a fabric on loopback")));
}

#[test]
fn secured_target() {
    serve_if_asked(|incarnation| {
        let keys = Keys::of(keys_of(std::os::unix::process::parent_id()));
        let config = TcpConfig { tls: Some(keys.identity(incarnation.rank)), ..config() };
        Arc::new(TcpFabric::open(incarnation, config).expect("a fabric on loopback"))
    });
}

fn config() -> TcpConfig {
    TcpConfig::default()
}

/// Where the process with this number keeps the keys of its nodes.
fn keys_of(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("verbena-conformance-tcp-{process}"))
}

struct Tcp {
    next_rank: u32,
    keys: Option<Keys>,
    /// The test that a target runs.
    target: &'static str,
    network: Arc<Network>,
    processes: Processes,
}

impl Tcp {
    fn new(target: &'static str, keys: Option<Keys>) -> Self {
        Tcp { next_rank: 1, keys, target, network: Arc::default(), processes: Processes::default() }
    }

    fn open(&self, incarnation: Incarnation, listen: Option<SocketAddr>) -> Arc<dyn Fabric> {
        let mut config = config();
        config.tls = self.keys.as_ref().map(|keys| keys.identity(incarnation.rank));
        config.listen = listen.unwrap_or(config.listen);
        let inner = TcpFabric::open(incarnation, config).expect("a fabric on loopback");
        self.network.join(inner)
    }

    fn rank(&mut self) -> u32 {
        self.next_rank += 1;
        if let Some(keys) = &self.keys {
            keys.issue(Rank(self.next_rank));
        }
        self.next_rank
    }
}

impl Harness for Tcp {
    fn node(&mut self) -> Arc<dyn Fabric> {
        let rank = self.rank();
        self.open(Incarnation::new(rank, 1), None)
    }

    fn advance(&mut self) {
        std::thread::sleep(Duration::from_micros(200));
    }

    fn threads(&self) -> bool {
        true
    }

    fn fault(&mut self, fault: Fault, from: Incarnation, to: Incarnation) -> Able<()> {
        let way = self.network.between(from, to);
        match fault {
            Fault::Cut => {
                way.up(Mode::Lose);
                self.network.between(to, from).down(Mode::Lose);
            }
            Fault::LoseAnswers => way.down(Mode::Lose),
            Fault::Hold => way.up(Mode::Hold),
            Fault::Repeat => return Err(Unable("a connection does not repeat what it carries")),
        }
        Ok(())
    }

    fn heal(&mut self, from: Incarnation, to: Incarnation) {
        let way = self.network.between(from, to);
        way.up(Mode::Pass);
        way.down(Mode::Pass);
        self.network.between(to, from).down(Mode::Pass);
    }

    fn target(&mut self, bytes: u64) -> Able<Target> {
        let incarnation = Incarnation::new(self.rank(), 1);
        Ok(self.processes.start(self.target, incarnation, bytes))
    }

    fn processes(&mut self) -> Option<&mut Processes> {
        Some(&mut self.processes)
    }

    fn restart(&mut self, former: Arc<dyn Fabric>) -> Able<Arc<dyn Fabric>> {
        let (address, Incarnation { rank, start }) = (socket(&former.address()), former.identity());
        drop(former);
        Ok(self.open(Incarnation { rank, start: start + 1 }, Some(address)))
    }

    fn speak_another_version(&mut self, at: &dyn Fabric) -> Able<Error> {
        // The other version's caller is answered with ours, and its connection ends.
        let mut caller = std::net::TcpStream::connect(socket(&at.address())).expect("a listening node");
        let mut preamble = *b"VTCP\x63\0\0\0\0\0\0\0\0\0\0\0";
        caller.write_all(&preamble).expect("a preamble is taken");
        let mut answer = Vec::new();
        caller.read_to_end(&mut answer).expect("the answer ends");
        assert_eq!(answer[..6], *b"VTCP\x01\0", "a refusal says the version that is spoken");

        // And where the target is of the other version, the node here says both.
        preamble[8] = 7;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = Address(format!("tcp://{}", listener.local_addr().expect("a bound socket")));
        let other = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            stream.read_exact(&mut [0; 16]).expect("its preamble");
            stream.write_all(&preamble).expect("an answer is taken");
        });
        let someone = Incarnation::new(1_000_000, 1);
        let key = RegionKey {
            owner: someone,
            region: 1,
            view: ViewNumber(1),
            bytes: 64,
            rights: Rights::Read,
            secret: Secret([0; 16]),
        };
        let deadline = at.clock().now() + Duration::from_secs(5);
        let error = at.connect(someone, &address).and_then(|peer| peer.open(&key, deadline)).map(|_| ());
        other.join().expect("the other version was asked");
        Ok(error.expect_err("another version is refused"))
    }
}
