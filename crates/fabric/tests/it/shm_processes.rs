//! `shm` between processes that are killed: what survives works, and nothing is left.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};
use verbena_fabric::conformance::{Processes, Target, serve_if_asked};
use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::{
    Address, Batch, Class, Error, Fabric, Inbox, Operation, Pool, Port, Region, Rights, SharedRemote, Views,
};
use verbena_terms::{Incarnation, Time};
use verbena_testkit::programs;

/// Kills of each kind.
const KILLS: u32 = 20;

/// How long anything may take that takes a moment.
const PATIENCE: Duration = Duration::from_secs(10);

const PORT: Port = Port(4);

/// The user "nobody".
const STRANGER: u32 = 65534;

/// Peers that are killed while they open, add and send leave the owner as it was before they came.
#[test]
fn killed_peers_leave_nothing() {
    alone("killed_peers_leave_nothing", || {
        let mut dice = Dice::new();
        let owner = Owner::new();
        let baseline = Traces::now();
        let (mut adds, mut messages) = (0, 0);
        for round in 0..KILLS {
            let mut peers: Vec<Peer> =
                (0..2).map(|n| Peer::start(&owner.target(), 2 + round * 2 + n, u64::MAX)).collect();
            // Some are killed while they start, some in the middle of their work.
            std::thread::sleep(Duration::from_micros(dice.below(30_000)));
            peers.iter_mut().for_each(Peer::kill);
            eventually("the owner closed what its peers had", || Traces::now() == baseline);
            let now = owner.region.load(0).unwrap();
            assert!(now >= adds, "the word went back");
            adds = now;
            messages += std::iter::from_fn(|| owner.inbox.try_take()).count();
        }
        println!("{adds} additions and {messages} messages between {} kills", KILLS * 2);
        assert!(adds > 1000 && messages > 100, "the peers did too little: {adds} additions, {messages} messages");
        assert_eq!(owner.region.fetch_add(0, 1), Ok(adds));
    });
}

/// An owner that is killed while a peer adds: the peer is told, and keeps nothing of it.
#[test]
fn killed_owners_are_noticed_and_leave_nothing() {
    alone("killed_owners_are_noticed_and_leave_nothing", || {
        let mut dice = Dice::new();
        let caller = open(Incarnation::new(1, 1));
        let before = Traces::now();
        let mut adds = 0;
        let mut latest = Duration::ZERO;
        for round in 0..KILLS {
            let mut processes = Processes::default();
            let target = processes.start("shm_processes::target", Incarnation::new(2, round), 4096);
            let peer = caller.connect(target.incarnation, &target.address).unwrap();
            let remote = peer.open(&target.key, soon(&*caller)).unwrap();
            let killed = AtomicBool::new(false);
            let noticed = std::thread::scope(|scope| {
                let working = scope.spawn(|| {
                    let mut dead_since = None;
                    let error = loop {
                        match add(&remote, 1) {
                            Ok(_) => adds += 1,
                            Err(error) => break error,
                        }
                        if dead_since.is_none() && killed.load(Ordering::Acquire) {
                            dead_since = Some(Instant::now());
                        }
                        assert!(
                            dead_since.is_none_or(|since| since.elapsed() < PATIENCE),
                            "a dead owner goes on to answer"
                        );
                    };
                    (error, dead_since.map_or(Duration::ZERO, |since| since.elapsed()))
                });
                std::thread::sleep(Duration::from_micros(dice.below(10_000)));
                processes.kill(target.incarnation);
                killed.store(true, Ordering::Release);
                working.join().unwrap()
            });
            assert!(matches!(noticed.0, Error::Unreachable { .. }), "{}", noticed.0);
            latest = latest.max(noticed.1);
            let sent = peer.send(Class::Control, target.key.view, PORT, 0, &[]);
            assert!(matches!(sent, Err(Error::Unreachable { .. })), "{sent:?}");
            assert!(matches!(peer.open(&target.key, soon(&*caller)), Err(Error::Unreachable { .. })));
            drop((remote, peer, processes));
            assert!(!listens(&target.address), "a dead owner's socket is there");
            eventually("nothing of a dead owner is kept", || Traces::now() == before);
        }
        println!("{adds} additions between {KILLS} kills, noticed {latest:?} after the kill at the latest");
        assert!(adds > 1000, "too few additions: {adds}");
    });
}

/// Additions of four processes at the same time are all there.
#[test]
fn additions_of_four_processes_are_exact() {
    const EACH: u64 = 300_000;
    alone("additions_of_four_processes_are_exact", || {
        let owner = Owner::new();
        let mut peers: Vec<Peer> = (0..4).map(|n| Peer::start(&owner.target(), 2 + n, EACH)).collect();
        let mixed: Vec<u64> = peers.iter_mut().map(Peer::finish).collect();
        assert_eq!(owner.region.load(0), Ok(4 * EACH));
        println!("additions by others seen between a process's own: {mixed:?}");
        assert!(mixed.iter().any(|mixed| *mixed > 0), "they did not run at the same time");
    });
}

/// Regions, connections, ports and fabrics that are given up give back what they held.
#[test]
fn nothing_is_kept_of_what_was_given_up() {
    alone("nothing_is_kept_of_what_was_given_up", || {
        let before = Traces::now();
        let mut addresses = vec![];
        for round in 0..5 {
            let (one, two) = (open(Incarnation::new(1, round)), open(Incarnation::new(2, round)));
            addresses.extend([one.address(), two.address()]);
            assert!(listens(&addresses[addresses.len() - 1]));
            let inbox = two.listen(PORT, Views::Any).unwrap();
            let to = one.connect(two.identity(), &two.address()).unwrap();
            for class in Class::ALL {
                to.send(class, Target::VIEW, PORT, 1, b"here").unwrap();
                assert!(inbox.take(PATIENCE).is_some());
            }
            let kept = Traces::now();
            for _ in 0..20 {
                let region = two.register(8192, Target::VIEW).unwrap();
                for rights in [Rights::Read, Rights::Change] {
                    let remote = to.open(&region.key(rights), soon(&*one)).unwrap();
                    region.remake(Target::VIEW).unwrap();
                    assert!(matches!(post(&remote, Batch::read_words(&[0])), Err(Error::Revoked { .. })));
                    assert!(to.open(remote.key(), soon(&*one)).is_err());
                }
            }
            // The lifeline, at both its ends, and nothing of all those regions.
            eventually("what a region held is given back", || {
                let opened = Traces::now();
                (opened.descriptors, opened.mappings) == (kept.descriptors + 2, kept.mappings)
            });
            drop(to);
            eventually("connections end with who made them", || Traces::now().descriptors == kept.descriptors - 4);
        }
        // The threads of a fabric that was dropped end a moment later.
        eventually("nothing is kept", || Traces::now() == before);
        assert!(!addresses.iter().any(listens), "a closed fabric's socket is there");
    });
}

/// A process of another user gets in if that user is allowed, and only then, even with the address and a key.
#[test]
fn other_users_are_let_in_only_if_allowed() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can start a process of another user");
    }
    alone("other_users_are_let_in_only_if_allowed", || {
        for (allowed_users, expected) in [(vec![], "refused"), (vec![STRANGER], "0")] {
            let node =
                Shm::open(Settings { identity: Incarnation::new(1, 1), pool: Pool::new(1 << 20), allowed_users });
            let node = node.unwrap();
            let region = node.register(4096, Target::VIEW).unwrap();
            let key = region.key(Rights::Change);
            let target = Target { incarnation: node.identity(), address: node.address(), key };
            assert_eq!(Peer::start_as(&target, 2, 1, Some(STRANGER)).outcome(), expected);
        }
    });
}

/// Whatever a process sends, its own connection is all that it spoils.
#[test]
fn garbage_ends_its_own_connection_only() {
    alone("garbage_ends_its_own_connection_only", || {
        let owner = Owner::new();
        let before = Traces::now();
        let mut dice = Dice::new();
        let mut hung_up = 0;
        for _ in 0..200 {
            let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
            rustix::net::connect(
                &socket,
                &SocketAddrUnix::new_abstract_name(&socket_name(&owner.node.address())).unwrap(),
            )
            .unwrap();
            let mut packet: Vec<u8> = (0..dice.below(200)).map(|_| dice.below(256) as u8).collect();
            // Half of them have a head that can be read, so that what is behind it is looked at.
            if packet.len() > 10 && dice.below(2) == 0 {
                packet[..8].copy_from_slice(b"VSHF\x01\0\0\0");
                packet[8] = dice.below(9) as u8;
                packet.resize(64, 0);
            }
            rustix::net::send(&socket, &packet, SendFlags::NOSIGNAL).unwrap();
            let mut answer = [0; 64];
            // Perhaps a refusal, then the end.
            hung_up +=
                u32::from((0..2).any(|_| {
                    matches!(rustix::net::recv(&socket, &mut answer, RecvFlags::empty()), Ok((0, _)) | Err(_))
                }));
        }
        assert_eq!(hung_up, 200);
        eventually("the connections are closed", || Traces::now() == before);
        let to = owner.node.connect(owner.node.identity(), &owner.node.address()).unwrap();
        let remote = to.open(&owner.region.key(Rights::Change), soon(&*owner.node)).unwrap();
        assert_eq!(add(&remote, 1), Ok(0));
    });
}

/// What a process does that was started as an owner; nothing in an ordinary run.
#[test]
fn target() {
    serve_if_asked(open);
}

/// What a process does that was started as a [`Peer`]; nothing in an ordinary run.
#[test]
fn peer() {
    let Ok(asked) = std::env::var(Peer::ASKED) else { return };
    let [rank, count, target] = asked.splitn(3, ' ').collect::<Vec<_>>().try_into().unwrap();
    let target: Target = target.parse().unwrap();
    let identity = Incarnation::new(rank.parse().unwrap(), 1);
    let node = Shm::open(Settings { identity, pool: Pool::new(1 << 20), allowed_users: vec![0] }).unwrap();
    let owner = node.connect(target.incarnation, &target.address).unwrap();
    let Ok(remote) = owner.open(&target.key, soon(&*node)) else { return println!("\n{}refused", Peer::MARK) };
    let (mut expected, mut mixed) = (0, 0);
    for number in 0..count.parse().unwrap() {
        let before = add(&remote, 1).unwrap();
        assert!(before >= expected, "the word went back");
        // What was there before the first was not added between two of ours.
        mixed += if number > 0 { before - expected } else { 0 };
        expected = before + 1;
        if number % 64 == 0 {
            // An inbox that is full, or a queue, is not what this is about.
            let _ = owner.send(Class::ALL[number as usize / 64 % 2], target.key.view, PORT, number, &[1; 100]);
        }
    }
    println!("\n{}{mixed}", Peer::MARK);
}

fn open(identity: Incarnation) -> Arc<dyn Fabric> {
    Shm::open(Settings { identity, pool: Pool::new(1 << 20), allowed_users: vec![] }).unwrap()
}

fn soon(node: &dyn Fabric) -> Time {
    node.clock().now() + PATIENCE
}

fn add(remote: &SharedRemote, addend: u64) -> Result<u64, Error> {
    post(remote, Batch::one(Operation::FetchAdd { at: 0, addend }))
}

fn post(remote: &SharedRemote, batch: Batch) -> Result<u64, Error> {
    let mut posted = remote.post(batch, Class::Control, Time::FAR);
    posted.poll_now().expect("complete on return").map(|done| done[0].word().unwrap())
}

fn eventually(what: &str, so: impl Fn() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}; now {:?}", Traces::now());
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs a test in a process of its own, for these tests count what their process holds; and one after the other, for they count what the machine
/// holds too.
fn alone(test: &str, body: impl FnOnce()) {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    programs::alone(&format!("shm_processes::{test}"), body);
}

/// A node with a region, in this process.
struct Owner {
    node: Arc<dyn Fabric>,
    region: Box<dyn Region>,
    inbox: Inbox,
}

impl Owner {
    fn new() -> Self {
        let node = open(Incarnation::new(1, 1));
        let region = node.register(4096, Target::VIEW).unwrap();
        let inbox = node.listen(PORT, Views::Any).unwrap();
        Owner { node, region, inbox }
    }

    fn target(&self) -> Target {
        let (incarnation, address) = (self.node.identity(), self.node.address());
        Target { incarnation, address, key: self.region.key(Rights::Change) }
    }
}

/// A process that adds to an owner's first word and sends it messages.
struct Peer(Child);

impl Peer {
    const ASKED: &str = "VERBENA_SHM_PEER";
    const MARK: &str = "mixed: ";

    fn start(target: &Target, rank: u32, count: u64) -> Self {
        Peer::start_as(target, rank, count, None)
    }

    fn start_as(target: &Target, rank: u32, count: u64, user: Option<u32>) -> Self {
        let program = std::env::current_exe().unwrap();
        let start = |program: &Path| {
            let mut command = Command::new(program);
            command
                .args(["--exact", "shm_processes::peer", "--nocapture"])
                .env(Self::ASKED, format!("{rank} {count} {target}"));
            user.map(|user| command.uid(user).gid(user));
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()
        };
        match start(&program) {
            // Built below a directory that others may not enter, such as root's home.
            Err(error) if user.is_some() && error.kind() == std::io::ErrorKind::PermissionDenied => {
                let directory = tempfile::tempdir().unwrap();
                std::fs::set_permissions(&directory, Permissions::from_mode(0o755)).unwrap();
                let copy = directory.path().join("peer");
                std::fs::copy(program, &copy).unwrap();
                Peer(start(&copy).unwrap())
            }
            started => Peer(started.unwrap()),
        }
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
        drop(self.0.stdout.take());
    }

    /// Waits until it has done its work: additions that others had made between its own.
    fn finish(&mut self) -> u64 {
        self.outcome().parse().expect("a peer does its work")
    }

    fn outcome(&mut self) -> String {
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let outcome =
            output.lines().map_while(Result::ok).filter_map(|line| Some(line.strip_prefix(Self::MARK)?.to_owned()));
        let outcome = outcome.last();
        self.0.wait().unwrap();
        outcome.expect("a peer says what came of it")
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What this process holds of a fabric, and what could be seen of one on the machine.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    descriptors: usize,
    mappings: usize,
    files: usize,
}

impl Traces {
    fn now() -> Self {
        let names = |path| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
        let ours = |name: &std::ffi::OsString| name.to_string_lossy().contains("verbena-region");
        Traces {
            descriptors: names("/proc/self/fd").count(),
            mappings: std::fs::read_to_string("/proc/self/maps").unwrap().matches("memfd:verbena-region").count(),
            files: names("/dev/shm").filter(ours).count(),
        }
    }
}

/// Whether the kernel knows a socket of this address.
fn listens(address: &Address) -> bool {
    let name = format!("@{}", String::from_utf8(socket_name(address)).unwrap());
    std::fs::read_to_string("/proc/net/unix").unwrap().lines().any(|line| line.ends_with(&name))
}

fn socket_name(address: &Address) -> Vec<u8> {
    let (name, _) = address.rest().split_once('/').unwrap();
    format!("verbena-{name}").into_bytes()
}

/// Where in their work processes are killed; another seed in every run, said so that it can be set again.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("VERBENA_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
        println!("VERBENA_SEED={seed}");
        Dice(seed)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}
