//! The page protocol at work over a real fabric, between nodes of one process that share nothing else. Membership is a script here.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, Member, Role, Roles, View};
use verbena_content::service::{Content, Counts, Finish, Membership, Options, Refused};
use verbena_content::{
    HomeLimits, Names, Reader, ReaderLimits, Scope, Stamp, Start, UpdaterLimits, Verdict, Words, look,
};
use verbena_fabric::shm::{Settings, Shm};
use verbena_fabric::{Fabric, Pool};
use verbena_terms::{Incarnation, Time, ViewNumber};

const PATIENCE: Duration = Duration::from_secs(10);

/// A node: what its helper would hold.
struct Node {
    fabric: Arc<dyn Fabric>,
    lease: Arc<LeaseWord>,
    content: Content,
    prepared: Arc<AtomicU32>,
    roles: Roles,
}

struct Script(Arc<AtomicU32>);

impl Membership for Script {
    fn prepared(&self, view: ViewNumber) {
        self.0.store(view.0, Ordering::SeqCst);
    }

    fn settled(&self, _: Incarnation) {}
}

impl Node {
    fn start(rank: u32, roles: Roles) -> Node {
        let settings =
            Settings { identity: Incarnation::new(rank, 1), pool: Pool::new(1 << 20), allowed_users: vec![] };
        let fabric: Arc<dyn Fabric> = Shm::open(settings).unwrap();
        let lease = Arc::new(LeaseWord::new());
        let updater = UpdaterLimits { begin_deadline: Duration::from_millis(500), ..UpdaterLimits::default() };
        let options = Options { names: Names::new([3; 16]), home: HomeLimits::default(), updater };
        let content = Content::start(options).unwrap();
        content.life_begins(fabric.clone(), &lease).unwrap();
        Node { fabric, lease, content, prepared: Arc::default(), roles }
    }

    fn member(&self) -> Member {
        let incarnation = self.fabric.identity();
        Member { incarnation, name: format!("n{incarnation}"), address: self.fabric.address().0, roles: self.roles }
    }

    fn only(&self, name: &[u8]) -> Scope {
        Scope::of([self.content.names().dependency(name)])
    }

    /// Reads the page's words, again until the node can: keys are still being exchanged at first.
    async fn words(&self, page: &[u8]) -> (ViewNumber, Words) {
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
    async fn counts_are(&self, expected: impl Fn(Counts) -> bool) {
        for _ in 0..200 {
            if expected(self.content.counts()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", self.content.counts());
    }

    async fn verdict(&self, page: &[u8], stamp: &Stamp) -> Verdict {
        let (posted, words) = self.words(page).await;
        let now = self.content.now();
        look(stamp, &words, posted, &self.content.lease(), now)
    }

    /// Makes a page and registers it, as a proxy does.
    async fn fill(&self, page: &[u8], scope: Scope) -> Option<Stamp> {
        let mut reader = Reader::new(self.fabric.identity(), ReaderLimits::default());
        let words = self.words(page).await;
        let (lease, now) = (self.content.lease(), self.content.now());
        let id = self.content.names().page(page);
        let Start::Lead(fill) = reader.start(&page.to_vec(), id, 0, Some(words), &lease, now) else { return None };
        let register = reader.answered(fill, scope, now).unwrap();
        let registered = self.content.register(register).await?;
        reader.registered(&registered, &self.content.lease(), self.content.now())?.stored.ok()
    }

    /// Fills until the home takes it: a home that begins has all busy until it has heard of every updater.
    async fn fill_eventually(&self, page: &[u8], scope: Scope) -> Stamp {
        for _ in 0..1000 {
            if let Some(stamp) = self.fill(page, scope.clone()).await {
                return stamp;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the home takes no page");
    }
}

/// Takes all nodes into the first view.
async fn assemble(nodes: &[Node]) {
    let view = View::new(ViewNumber(1), nodes.iter().map(Node::member).collect(), vec![]).unwrap();
    let view = Arc::new(view);
    for node in nodes {
        node.content.view_learnt(view.clone(), Script(node.prepared.clone())).unwrap();
    }
    for node in nodes {
        for _ in 0..1000 {
            if node.prepared.load(Ordering::SeqCst) == 1 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(node.prepared.load(Ordering::SeqCst), 1, "{} did not prepare the view", node.fabric.identity());
        node.lease.store(Lease { until: Time::FAR, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) });
    }
}

fn bounded<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() })
}

#[test]
fn a_node_alone_stores_hits_and_updates() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL)];
        assemble(&nodes).await;
        let [node] = &nodes;
        let page = node.fill_eventually(b"/7", node.only(b"seven")).await;
        let other = node.fill_eventually(b"/8", node.only(b"eight")).await;
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Fresh);

        let ticket = node.content.begin(node.only(b"seven")).await.unwrap();
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Busy);
        assert_eq!(node.verdict(b"/8", &other).await, Verdict::Fresh);
        assert_eq!(node.fill(b"/7", node.only(b"seven")).await, None, "a page whose update is open is not stored");
        assert_eq!(ticket.answered().await, Finish::Answer);
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Moved);

        let again = node.fill_eventually(b"/7", node.only(b"seven")).await;
        node.content.begin(Scope::Everything).await.unwrap().not_sent();
        for (page, stamp) in [(b"/7", &again), (b"/8", &other)] {
            assert_ne!(node.verdict(page, stamp).await, Verdict::Fresh, "an update of everything spared a page");
        }
    });
}

#[test]
fn a_proxy_reads_at_homes_that_are_elsewhere() {
    bounded(async {
        let home = Roles::of(Role::Home).and(Role::Updater);
        let proxy = Roles::of(Role::Reader).and(Role::Updater);
        let nodes = [Node::start(1, home), Node::start(2, home), Node::start(3, proxy), Node::start(4, proxy)];
        assemble(&nodes).await;
        let [_, _, one, other] = &nodes;
        let pages: Vec<Vec<u8>> = (0..20).map(|page| format!("/{page}").into_bytes()).collect();
        let mut homes = std::collections::BTreeSet::new();
        let mut stamps = vec![];
        for page in &pages {
            let stamp = one.fill_eventually(page, one.only(page)).await;
            homes.insert(stamp.home());
            stamps.push(stamp);
        }
        assert_eq!(homes.len(), 2, "the pages have homes at both");
        for (page, stamp) in pages.iter().zip(&stamps) {
            assert_eq!(one.verdict(page, stamp).await, Verdict::Fresh);
        }
        // What the other proxy writes, this one sees before it is acknowledged.
        for (page, stamp) in pages.iter().zip(&stamps) {
            let ticket = other.content.begin(other.only(page)).await.unwrap();
            assert_eq!(one.verdict(page, stamp).await, Verdict::Busy);
            assert_eq!(ticket.answered().await, Finish::Answer);
        }
        for (page, stamp) in pages.iter().zip(&stamps) {
            assert_ne!(one.verdict(page, stamp).await, Verdict::Fresh);
        }
        other.counts_are(|counts| counts.updater.forwarded + counts.updater.beginning == 0).await;
    });
}

#[test]
fn a_ticket_that_is_dropped_leaves_the_update_open() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL)];
        assemble(&nodes).await;
        let [node] = &nodes;
        let page = node.fill_eventually(b"/7", node.only(b"seven")).await;
        drop(node.content.begin(node.only(b"seven")).await.unwrap());
        node.counts_are(|counts| counts.updater.unknown == 1).await;
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::Busy);
    });
}

#[test]
fn without_a_lease_nothing_is_updated_and_nothing_is_fresh() {
    bounded(async {
        let nodes = [Node::start(1, Roles::ALL)];
        assemble(&nodes).await;
        let [node] = &nodes;
        let page = node.fill_eventually(b"/7", node.only(b"seven")).await;
        node.lease.store(Lease { until: Time::ZERO, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) });
        assert_eq!(node.verdict(b"/7", &page).await, Verdict::NoLease);
        assert_eq!(node.content.begin(node.only(b"seven")).await.map(|_| ()), Err(Refused::NotBegun));
    });
}
