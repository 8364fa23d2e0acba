//! Nodes for tests: the page protocol at work over shared memory, with a script in place of the cluster.
#![allow(clippy::unwrap_used, reason = "test code, kept out of programs")]

mod watched;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use verbena_cluster::{Departed, Lease, LeaseWord, Member, Roles, View};
use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::tcp::{TcpConfig, TcpFabric};
use verbena_fabric::{Fabric, Pool};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::service::{Content, Counts, Membership, Options};
use crate::{HomeLimits, Kind, Names, Reader, ReaderLimits, Scope, Stamp, Start, UpdaterLimits, Verdict, Words, look};

use watched::Watched;
pub use watched::{Gate, Held, Touch};

/// A node: what its helper would hold.
pub struct Node {
    /// Its fabric.
    pub fabric: Arc<dyn Fabric>,
    /// What it may do: a script stores here what it wants.
    pub lease: Arc<LeaseWord>,
    /// Its part in the protocol.
    pub content: Content,
    /// Where what is done to its regions can be held.
    pub gate: Arc<Gate>,
    prepared: Arc<AtomicU32>,
    roles: Roles,
}

struct Script(Arc<AtomicU32>);

impl Membership for Script {
    fn prepared(&self, view: ViewNumber) {
        self.0.store(view.0, Ordering::SeqCst);
    }

    fn settled(&self, _: Incarnation) {}

    fn closed(&self, _: bool) {}
}

impl Node {
    /// A node of its own life, in no view yet.
    pub fn start(rank: u32, roles: Roles) -> Node {
        Node::with_home(rank, roles, HomeLimits::default())
    }

    /// The same with bounds of its home.
    pub fn with_home(rank: u32, roles: Roles, home: HomeLimits) -> Node {
        let gate = Arc::default();
        let fabric = open(Incarnation::new(rank, 1), &gate);
        Node::on(fabric, gate, roles, home)
    }

    /// One that reaches others by TCP on loopback, so that reads at another home are waited for. Nothing of it can be held, and it has one life.
    pub fn over_tcp(rank: u32, roles: Roles) -> Node {
        let fabric = TcpFabric::open(Incarnation::new(rank, 1), TcpConfig::default()).unwrap();
        Node::on(Arc::new(fabric), Arc::default(), roles, HomeLimits::default())
    }

    fn on(fabric: Arc<dyn Fabric>, gate: Arc<Gate>, roles: Roles, home: HomeLimits) -> Node {
        let lease = Arc::new(LeaseWord::new());
        let updater = UpdaterLimits { begin_deadline: Duration::from_millis(500), ..UpdaterLimits::default() };
        let options = Options { names: Names::new([3; 16]), home, updater };
        let content = Content::start(options).unwrap();
        content.life_begins(fabric.clone(), &lease).unwrap();
        Node { fabric, lease, content, gate, prepared: Arc::default(), roles }
    }

    /// The node's next life, in no view yet: what its helper does when it was expelled.
    pub fn lives_again(&mut self) {
        let former = self.fabric.identity();
        self.lease.store(Lease::NONE);
        self.content.life_ends();
        self.fabric = open(Incarnation { start: former.start + 1, ..former }, &self.gate);
        self.content.life_begins(self.fabric.clone(), &self.lease).unwrap();
    }

    fn member(&self) -> Member {
        let incarnation = self.fabric.identity();
        Member {
            incarnation,
            name: format!("n{}", incarnation.rank),
            address: self.fabric.address().0,
            roles: self.roles,
        }
    }

    /// What depends on this name alone.
    pub fn only(&self, name: &[u8]) -> Scope {
        Scope::of([self.content.names().dependency(name)])
    }

    /// Reads the page's words, again until the node can: keys are still being exchanged at first.
    pub async fn words(&self, page: &[u8]) -> (ViewNumber, Words) {
        for _ in 0..1000 {
            if let Some(reading) = self.content.read(self.content.names().page(page))
                && let Some(words) = reading.words().await
            {
                return words;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the page's words cannot be read");
    }

    /// The counts come to what is expected; they are a moment old.
    pub async fn counts_are(&self, expected: impl Fn(Counts) -> bool) {
        for _ in 0..200 {
            if expected(self.content.counts()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", self.content.counts());
    }

    /// What a look at the page's words says.
    pub async fn verdict(&self, page: &[u8], stamp: &Stamp) -> Verdict {
        let (posted, words) = self.words(page).await;
        let now = self.content.now();
        look(stamp, &words, posted, &self.content.lease(), now)
    }

    /// Makes a page and registers it, as a proxy does.
    pub async fn fill(&self, page: &[u8], scope: Scope) -> Option<Stamp> {
        let mut reader = Reader::new(self.fabric.identity(), ReaderLimits::default());
        let words = self.words(page).await;
        let (lease, now) = (self.content.lease(), self.content.now());
        let id = self.content.names().page(page);
        let Start::Lead(fill) = reader.start(&page.to_vec(), (id, Kind::Coherent), 0, Some(words), &lease, now) else {
            return None;
        };
        let register = reader.answered(fill, scope, now).unwrap();
        let registered = self.content.register(register).await?;
        reader.registered(&registered, &self.content.lease(), self.content.now())?.stored.ok()
    }

    /// Fills until the home takes it: a home that begins has all busy until it has heard of every updater.
    pub async fn fill_eventually(&self, page: &[u8], scope: Scope) -> Stamp {
        for _ in 0..1000 {
            if let Some(stamp) = self.fill(page, scope.clone()).await {
                return stamp;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the home takes no page");
    }
}

fn open(identity: Incarnation, gate: &Arc<Gate>) -> Arc<dyn Fabric> {
    let fabric = Shm::open(Settings { identity, pool: Pool::new(1 << 20), allowed_users: vec![] }).unwrap();
    Arc::new(Watched { fabric, gate: gate.clone() })
}

/// Takes all nodes into the first view.
pub async fn assemble(nodes: &[Node]) {
    assemble_in(ViewNumber(1), nodes).await;
}

/// Takes all nodes into this view, in which nobody has departed.
pub async fn assemble_in(number: ViewNumber, nodes: impl IntoIterator<Item = &Node>) {
    assemble_beside(number, nodes, &[], &[]).await;
}

/// Takes all nodes into this view, of which `silent` are members that never hear of it, and `dead` have departed without a word.
pub async fn assemble_beside(
    number: ViewNumber,
    nodes: impl IntoIterator<Item = &Node>,
    silent: &[&Node],
    dead: &[&Node],
) {
    let nodes: Vec<&Node> = nodes.into_iter().collect();
    let mut members: Vec<Member> = nodes.iter().chain(silent).map(|node| node.member()).collect();
    members.sort_by_key(|member| member.incarnation);
    let departed =
        |node: &&Node| Departed { incarnation: node.fabric.identity(), since: number, at_rest: false, is_relay: false };
    let view = Arc::new(View::new(number, members, dead.iter().map(departed).collect()).unwrap());
    for node in &nodes {
        node.content.view_learnt(view.clone(), Script(node.prepared.clone()));
    }
    for node in nodes {
        for _ in 0..1000 {
            if node.prepared.load(Ordering::SeqCst) == number.0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(
            node.prepared.load(Ordering::SeqCst),
            number.0,
            "{} did not prepare the view",
            node.fabric.identity()
        );
        node.lease.store(Lease { until: Time::FAR, acknowledged: number, in_effect: number });
    }
}
