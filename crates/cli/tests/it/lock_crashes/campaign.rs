//! Faults one after the other, while clients at all nodes take locks: what is looked at before, during and after each of them.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::Signal;
use verbena_client::Error;
use verbena_client::wire::LockMode::{self, Exclusive, Shared};
use verbena_terms::{BootClock, Clock, Time};

use super::checker;
use super::client::{Client, Dice, TRAFFIC_LOCKS};
use super::history::History;
use super::pulse::Pulse;
use super::seen::Seen;
use super::session::{Held, Place, Session};
use super::stage::{Blow, KEEPER, NAMES, Stage};

/// The longest wait for a lock. Where all is emulated a minute of it is needed.
const AT_MOST: Duration = Duration::from_secs(90);
/// No call comes back later than so long after the moment until which it was to wait: twice the five seconds that a stopped helper is given, to cancel and to
/// answer, and what a busy machine adds.
const RETURNS_WITHIN: Duration = Duration::from_secs(15);
/// How long those who waited hold what they got.
const HOLDS: Duration = Duration::from_millis(10);
/// After so long who has asked stands in the queue.
const QUEUED: Duration = Duration::from_millis(30);

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process that holds a lock is killed; two, where they share it.
    Holder(LockMode),
    /// One that waits for a lock is killed.
    Waiter,
    /// One that holds a lock is stopped for longer than a lease, and its helper is not: it keeps it.
    Stopped,
    /// One that takes locks all the time is killed, whatever it has.
    Traffic,
    /// A node that grants no leases.
    Node(Blow),
    /// The one that grants them.
    Keeper(Blow),
}

pub struct Campaign {
    stage: Stage,
    place: Place,
    dice: Dice,
    /// At each node.
    kept: Vec<Option<(Session, Held)>>,
    traffic: Vec<Client>,
    /// Processes that were killed.
    killed: Vec<u32>,
    round: u64,
    pulse: Pulse,
    /// How late it was when the round began, and the disc.
    late: [Duration; 2],
    pub seen: Seen,
}

/// A thread that waits for a lock, and lets it go soon after.
struct Waiter(Receiver<Waited>);

struct Waited {
    /// When it has it, and with which token.
    got: Result<(Time, u64), Error>,
    returned: Time,
}

impl Waiter {
    fn waited(self) -> Waited {
        self.0.recv_timeout(AT_MOST + RETURNS_WITHIN).expect("no call hangs")
    }

    fn got(self) -> (Time, u64) {
        self.waited().got.expect("it gets the lock")
    }
}

impl Campaign {
    /// With two processes at each node that take locks all the time.
    pub fn new(stage: Stage, seed: u64) -> Campaign {
        let place = stage.place();
        let (dice, kept) = (Dice(seed), NAMES.map(|_| None).into());
        let seen = Seen::default();
        let (traffic, killed, pulse, late) = (vec![], vec![], Pulse::start(stage.cluster.path()), [Duration::ZERO; 2]);
        let mut campaign = Campaign { stage, place, dice, kept, traffic, killed, round: 0, pulse, late, seen };
        (0..2 * NAMES.len()).for_each(|nth| campaign.start_traffic(nth % NAMES.len()));
        (0..NAMES.len()).for_each(|node| campaign.keep(node));
        campaign
    }

    pub fn run(&mut self, faults: impl IntoIterator<Item = Fault>) {
        for fault in faults {
            self.round += 1;
            self.seen.faults += 1;
            self.late = [self.pulse.late(), self.pulse.disc()];
            let began = BootClock.now();
            match fault {
                Fault::Holder(mode) => self.kills_holders(mode),
                Fault::Waiter => self.kills_waiter(),
                Fault::Stopped => self.stops_holder(),
                Fault::Traffic => self.kills_traffic(),
                Fault::Node(blow) => {
                    let victim = 1 + self.below(NAMES.len() - 1);
                    self.strikes(victim, blow);
                }
                Fault::Keeper(blow) => self.strikes(KEEPER, blow),
            }
            self.keep_again(false);
            println!("{:3} {fault:?}: {:?}", self.round, BootClock.now().since(began));
        }
    }

    /// Ends all that goes on, and looks at what was written down.
    pub fn ends(&mut self) -> History {
        self.stage.is_used();
        self.traffic.iter_mut().for_each(Client::end);
        self.traffic.drain(..).for_each(Client::ended);
        for (mut session, held) in std::mem::take(&mut self.kept).into_iter().flatten() {
            let is_held = session.look(&held);
            let _ = session.release(held);
            self.is_right(is_held, "a hold at a node to which nothing had happened was lost");
        }
        for nth in 0..TRAFFIC_LOCKS {
            let mut session = self.connect(nth as usize % NAMES.len(), "last");
            let asked = BootClock.now();
            let held = session.acquire(&format!("traffic-{nth}"), Exclusive, Some(AT_MOST)).unwrap();
            self.is_free_in_time(asked, held.since, self.late(), "a lock that nobody has");
            let _ = session.release(held);
        }
        let history = History::read(&self.place.history);
        let broken = checker::broken(&history.holds);
        assert!(broken.is_empty(), "{} times; the first: {}", broken.len(), broken[0]);
        let was_killed = |who: &str| self.killed.iter().any(|pid| who.contains(&format!("-{pid}-")));
        let open: Vec<_> = history.open.iter().filter(|who| !was_killed(who)).collect();
        assert!(open.is_empty(), "never answered: {open:?}");
        let (late, call) = &history.latest;
        assert!(Duration::from_nanos(*late) < RETURNS_WITHIN, "late by {late} ns: {call}");
        history
    }

    fn below(&mut self, end: usize) -> usize {
        self.dice.below(end as u64) as usize
    }

    /// Three different nodes.
    fn three(&mut self) -> [usize; 3] {
        let first = self.below(NAMES.len());
        [0, 1, 2].map(|nth| (first + nth) % NAMES.len())
    }

    fn connect(&self, node: usize, who: &str) -> Session {
        Session::connect(&self.place, NAMES[node], who).unwrap()
    }

    fn start_traffic(&mut self, node: usize) {
        let seed = self.dice.below(1 << 30);
        self.traffic.push(Client::traffic(self.stage.cluster.path(), node, seed));
    }

    /// Something is held at the node from now on.
    fn keep(&mut self, node: usize) {
        let mut session = self.connect(node, "keeps");
        let held = session.acquire(&format!("kept-{node}"), Exclusive, Some(AT_MOST)).unwrap();
        self.kept[node] = Some((session, held));
    }

    fn takes(&self, node: usize, lock: &str, mode: LockMode) -> (Session, Held) {
        let mut session = self.connect(node, "holds");
        let held = session.acquire(lock, mode, Some(AT_MOST)).unwrap();
        (session, held)
    }

    /// When this returns it stands in the queue.
    fn waits(&self, node: usize, lock: &str, mode: LockMode) -> Waiter {
        let mut session = self.connect(node, "waits");
        let (tell, waited) = channel();
        let (asks, is_asking) = channel();
        let lock = lock.to_owned();
        std::thread::spawn(move || {
            // The test has failed where nobody listens.
            let _ = asks.send(());
            let got = session.acquire(&lock, mode, Some(AT_MOST));
            let returned = BootClock.now();
            let has = got.as_ref().map(|held| (held.since, held.hold.token())).ok();
            // Those behind it are granted when it has said so.
            let released = got.and_then(|held| {
                std::thread::sleep(HOLDS);
                session.look(&held);
                session.release(held)
            });
            let got = has.ok_or(()).map_err(|()| released.expect_err("it got nothing"));
            let _ = tell.send(Waited { got, returned });
        });
        is_asking.recv().unwrap();
        self.settles(node);
        Waiter(waited)
    }

    /// What was asked for at this node before this is in effect after it.
    fn settles(&self, node: usize) {
        let mut session = self.connect(node, "settles");
        for _ in 0..3 {
            let held = session.acquire(&format!("settles-{node}"), Exclusive, Some(AT_MOST)).unwrap();
            let _ = session.release(held);
        }
        std::thread::sleep(QUEUED);
    }

    /// A lease that is lost though nothing happened to the node is wrong, where the machine ran all the time.
    fn is_right(&mut self, is_held: bool, what: &str) {
        let late = self.late();
        assert!(is_held || late > self.stage.lease / 2, "{what}; the machine was late by {late:?}");
        self.seen.excused += u64::from(!is_held);
    }

    /// Since the round began.
    fn late(&self) -> Duration {
        self.pulse.late() - self.late[0]
    }

    /// The same, and the disc: nobody has a lock of a dead node before the keeper has written down who is in.
    fn late_and_disc(&self) -> Duration {
        self.late() + (self.pulse.disc() - self.late[1])
    }

    /// The promise: free again within three leases of the fault, on a machine that was late by so much.
    fn is_free_in_time(&mut self, struck: Time, got: Time, late: Duration, what: &str) -> Duration {
        let taken = got.since(struck);
        let within = 3 * self.stage.lease + late;
        assert!(taken < within, "{what}: free again after {taken:?}, of which the machine was late by {late:?}");
        self.seen.freed += 1;
        taken
    }

    fn kills_holders(&mut self, mode: LockMode) {
        let [here, there, elsewhere] = self.three();
        let lock = format!("held-{}", self.round);
        let nodes = if mode == Shared { &[here, elsewhere][..] } else { &[here] };
        let start = |&node: &usize| Client::holder(self.stage.cluster.path(), node, &lock, mode);
        let holders: Vec<Client> = nodes.iter().map(start).collect();
        for holder in &holders {
            assert_eq!([holder.hear(), holder.hear()], ["asks", "has"]);
        }
        let waiter = self.waits(there, &lock, Exclusive);
        let struck = BootClock.now();
        for holder in holders {
            self.killed.push(holder.kill());
            self.seen.killed.holders += 1;
        }
        let (got, _) = waiter.got();
        let taken = self.is_free_in_time(struck, got, self.late(), "a holder was killed");
        self.seen.free_after_client = self.seen.free_after_client.max(taken);
    }

    fn kills_waiter(&mut self) {
        let [here, there, elsewhere] = self.three();
        let lock = format!("waited-{}", self.round);
        let (mut session, held) = self.takes(here, &lock, Exclusive);
        let dies = Client::holder(self.stage.cluster.path(), there, &lock, Exclusive);
        assert_eq!(dies.hear(), "asks");
        self.settles(there);
        let waiter = self.waits(elsewhere, &lock, Exclusive);
        self.killed.push(dies.kill());
        self.seen.killed.waiters += 1;
        let let_go = BootClock.now();
        let is_held = session.release(held).is_ok();
        self.is_right(is_held, "a hold at a node to which nothing had happened was lost");
        let (got, _) = waiter.got();
        let taken = self.is_free_in_time(let_go, got, self.late(), "one that waited was killed");
        self.seen.free_after_client = self.seen.free_after_client.max(taken);
    }

    fn stops_holder(&mut self) {
        let [here, there, elsewhere] = self.three();
        let lock = format!("stopped-{}", self.round);
        let mut holder = Client::holder(self.stage.cluster.path(), here, &lock, Exclusive);
        assert_eq!([holder.hear(), holder.hear()], ["asks", "has"]);
        let waiter = self.waits(there, &lock, Exclusive);
        holder.signal(Signal::STOP);
        let refused = self.connect(elsewhere, "tries").acquire(&lock, Shared, Some(self.stage.lease * 3 / 2));
        let is_held = matches!(refused, Err(Error::NotInTime { .. }));
        self.is_right(is_held, "a client was stopped, and its lock was free though its node had a lease");
        holder.signal(Signal::CONT);
        holder.tell("release");
        let is_released = holder.hear() == "released";
        self.is_right(is_released, "a client was stopped, and its hold was lost though its node had a lease");
        waiter.got();
        holder.ended();
    }

    fn kills_traffic(&mut self) {
        let which = self.below(self.traffic.len());
        let client = self.traffic.swap_remove(which);
        let node = client.node;
        self.killed.push(client.kill());
        self.seen.killed.traffic += 1;
        self.start_traffic(node);
    }

    fn strikes(&mut self, victim: usize, blow: Blow) {
        let lease = self.stage.lease;
        let others: Vec<usize> = (0..NAMES.len()).filter(|node| *node != victim).collect();
        let mut scene = self.scene(victim, &others);
        self.stage.strike(victim, blow);
        // To cut a link or to stop a process takes a busy machine its time, and until then the lease is renewed.
        let struck = BootClock.now();
        // Without the keeper nobody has a lease: everybody has one soon after it is back.
        let is_keeper = victim == KEEPER;
        match blow {
            Blow::Kill => {
                self.seen.killed.helpers += 1;
                self.seen.killed.keepers += u64::from(is_keeper);
            }
            Blow::Stop => self.seen.helpers_stopped += 1,
            _ => self.seen.cuts += 1,
        }
        let mut counts_from = struck;
        if is_keeper && blow == Blow::Kill {
            self.stage.heal(victim, blow);
        }
        self.sees_the_loss(&mut scene.here, [&scene.alone, &scene.together], struck);
        if is_keeper && blow != Blow::Kill {
            sleep_until(struck + 3 * lease);
            counts_from = BootClock.now();
            self.stage.heal(victim, blow);
        }
        for waiter in scene.behind {
            let (got, _) = waiter.got();
            let taken = self.is_free_in_time(counts_from, got, self.late_and_disc(), &format!("{victim} {blow:?}"));
            self.seen.free_after_node = self.seen.free_after_node.max(taken);
        }
        if !is_keeper {
            self.stage.wait_until_in(&others);
            self.are_kept(&others);
        }
        let (mut session, held) = scene.first;
        session.look(&held);
        let was_held = session.release(held).is_ok();
        let [(_, second), (_, third)] = scene.queue.map(Waiter::got);
        if !is_keeper {
            // Who has lost its lease as well has lost its place; where all have what they had before, no busy machine is an excuse.
            let is_right = was_held && second < third;
            let what = format!("a queue out of order after {blow:?}: {second} and {third}");
            assert!(is_right || !self.have_kept(&others), "{what}");
            self.is_right(is_right, &what);
            self.seen.in_order.add(is_right);
            if blow != Blow::Kill {
                sleep_until(struck + 3 * lease);
            }
            self.stage.heal(victim, blow);
        }
        self.stage.wait_until_all_in();
        for held in [scene.alone, scene.together] {
            let is_held = scene.here.look(&held);
            assert!(!is_held && scene.here.release(held).is_err(), "what was lost was released");
        }
        let (mut session, held) = scene.elsewhere;
        if blow == Blow::Kill {
            let is_held = session.look(&held);
            self.is_told(scene.waits_here.waited(), struck, is_held);
            let _ = session.release(held);
        } else {
            let _ = session.release(held);
            // It has it, or was told why not.
            scene.waits_here.waited();
        }
        self.keep_again(true);
    }
}

/// What goes on at four nodes when something happens to one of them.
struct Scene {
    /// A client of the victim, which holds one lock alone and shares another. The home of the first goes too, that of the second does not.
    here: Session,
    alone: Held,
    together: Held,
    /// Who waits for these, at other nodes.
    behind: [Waiter; 2],
    /// A lock that is held at another node, and a client of the victim that waits for it.
    elsewhere: (Session, Held),
    waits_here: Waiter,
    /// One whose home goes, held by another node; and who waits for it, not in the order of ranks.
    first: (Session, Held),
    queue: [Waiter; 2],
}

impl Campaign {
    fn scene(&self, victim: usize, others: &[usize]) -> Scene {
        let round = self.round;
        let alone = self.stage.lock_of(victim, &format!("alone-{round}"));
        let together = self.stage.lock_of(others[1], &format!("together-{round}"));
        let mut here = self.connect(victim, "victim");
        let held = here.acquire(&alone, Exclusive, Some(AT_MOST)).unwrap();
        let shared = here.acquire(&together, Shared, Some(AT_MOST)).unwrap();
        let behind = [self.waits(others[2], &alone, Exclusive), self.waits(others[0], &together, Exclusive)];
        let lock = format!("elsewhere-{round}");
        let elsewhere = self.takes(others[0], &lock, Exclusive);
        let waits_here = self.waits(victim, &lock, Exclusive);
        let queue = self.stage.lock_of(victim, &format!("queue-{round}"));
        for node in others {
            // From now on they know where its words are.
            let (mut session, held) = self.takes(*node, &queue, Exclusive);
            let _ = session.release(held);
        }
        let first = self.takes(others[1], &queue, Exclusive);
        let queue = [self.waits(others[2], &queue, Exclusive), self.waits(others[0], &queue, Exclusive)];
        Scene { here, alone: held, together: shared, behind, elsewhere, waits_here, first, queue }
    }

    /// One that waited at a dead helper, for what another node held. It may have got it before that died, where that node had lost its lease by then.
    fn is_told(&mut self, waited: Waited, struck: Time, is_held: bool) {
        let is_in_vain = waited.got.is_err();
        assert!(is_in_vain || !is_held, "a helper that is dead has granted a lock that another has");
        self.is_right(is_in_vain, "a helper that is dead has granted a lock");
        let told = waited.returned.since(struck);
        let late = self.late();
        assert!(told < self.stage.lease + late, "one that waited at a dead helper was told after {told:?}");
    }

    /// A client of the victim sees within a lease that its holds are lost: not after the end of the lease, which it reads where its helper does
    /// not write any more.
    fn sees_the_loss(&mut self, session: &mut Session, held: [&Held; 2], struck: Time) {
        let mut still = [true; 2];
        while still != [false; 2] {
            let before = BootClock.now();
            still = held.map(|held| session.look(held));
            assert!(before < struck + self.stage.lease || still == [false; 2], "held for longer than a lease");
            assert!(before < session.held_until() || still == [false; 2], "held beyond the end of the lease");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What is held at these nodes is held, and nobody else gets it.
    fn are_kept(&mut self, nodes: &[usize]) {
        for (nth, &node) in nodes.iter().enumerate() {
            let other = nodes[(nth + 1) % nodes.len()];
            let tried = self.connect(other, "tries").acquire(&format!("kept-{node}"), Shared, None);
            let (session, held) = self.kept[node].as_mut().expect("something is kept at each node");
            let is_kept = session.look(held);
            // Held after that was tried, so held then.
            assert!(!is_kept || matches!(tried, Err(Error::NotFree)), "what {node} holds: {tried:?}");
            self.is_right(is_kept, &format!("{node} has lost what it held though nothing happened to it"));
            self.seen.kept.add(is_kept);
        }
    }

    /// Whether they have had their leases since they began to keep what they keep.
    fn have_kept(&mut self, nodes: &[usize]) -> bool {
        nodes.iter().all(|node| {
            let (session, held) = self.kept[*node].as_mut().expect("something is kept at each node");
            session.look(held)
        })
    }

    /// Where something was lost something is held again.
    fn keep_again(&mut self, may_be_lost: bool) {
        for node in 0..NAMES.len() {
            let (mut session, held) = self.kept[node].take().expect("something is kept at each node");
            if session.look(&held) {
                self.kept[node] = Some((session, held));
            } else {
                assert!(session.release(held).is_err(), "what was lost was released");
                self.is_right(may_be_lost, &format!("{node} has lost what it held though nothing happened to it"));
                self.keep(node);
            }
        }
    }
}

fn sleep_until(until: Time) {
    std::thread::sleep(until.since(BootClock.now()));
}
