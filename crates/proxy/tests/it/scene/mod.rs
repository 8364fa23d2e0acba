//! A small language for dialogues: a client, an updater and an application speak in turn, with a real proxy between them.
//!
//! Each line of a test is one step of one of them, so that a race is written down in the order in which it happens. Nobody waits for
//! ever: a step that does not come within [`PATIENCE`] fails the test.

mod client;
mod multiplexer;
mod origin;
mod site;
pub mod visitor;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbena_caching::Keys;
use verbena_cluster::{Lease, Role, Roles};
use verbena_content::Scope;
use verbena_content::service::{Finish, Ticket};
use verbena_content::testing::{Node, assemble, assemble_in};
use verbena_metrics::Registry;
use verbena_proxy::{Proxy, ProxyConfig, Queries};
use verbena_terms::{Lapse, Size, Time, ViewNumber};

pub use client::{Answer, Client};
pub use multiplexer::Multiplexer;
pub use origin::{Asked, Origin, next_head};
pub use site::{Curl, Site};
pub use visitor::Visitor;

pub const PATIENCE: Duration = Duration::from_secs(10);

/// A node with a proxy on it, and one application.
pub struct Scene {
    pub node: Node,
    pub proxy: Proxy,
    pub origin: Origin,
    pub registry: Registry,
    pub runtime: tokio::runtime::Runtime,
    /// Nodes beside the proxy's.
    others: Vec<Node>,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut ProxyConfig)) -> Scene {
        Scene::before_a_database(None, change)
    }

    /// Where a relay sees what the application asks its database.
    pub fn before_a_database(queries: Option<Queries>, change: impl FnOnce(&mut ProxyConfig)) -> Scene {
        Scene::on(vec![Node::start(1, Roles::ALL)], queries, change)
    }

    /// The home is another node, which is reached by TCP: words are waited for.
    pub fn far_from_home(change: impl FnOnce(&mut ProxyConfig)) -> Scene {
        let nodes = vec![Node::over_tcp(1, Roles::ALL.without(Role::Home)), Node::over_tcp(2, Roles::of(Role::Home))];
        Scene::on(nodes, None, change)
    }

    fn on(mut nodes: Vec<Node>, queries: Option<Queries>, change: impl FnOnce(&mut ProxyConfig)) -> Scene {
        let origin = Origin::start();
        let registry = Registry::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            assemble(&nodes).await;
            // A home has all busy at first.
            nodes[0].fill_eventually(b"ready", nodes[0].only(b"ready")).await;
        });
        let others = nodes.split_off(1);
        let node = nodes.remove(0);
        let mut config = ProxyConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            origin: vec![origin.url()],
            threads: 2,
            memory: Size(16 << 20),
            largest: Size(256 << 10),
            connect_timeout: Lapse(Duration::from_secs(2)),
            origin_timeout: Lapse(Duration::from_secs(5)),
            client_timeout: Lapse(Duration::from_secs(5)),
            drain: Lapse(Duration::from_secs(5)),
            ..ProxyConfig::default()
        };
        change(&mut config);
        let loads = verbena_monitor::Loads::default();
        let proxy = Proxy::start(&config, node.content.clone(), &loads, (queries, None), &registry).unwrap();
        Scene { node, proxy, origin, registry, runtime, others }
    }

    pub fn client(&self) -> Client {
        Client::of(self.proxy.address())
    }

    /// An update of these dependencies, or of everything, begins at its home.
    pub fn begins(&self, dependency: Option<&str>) -> Ticket {
        let scope = dependency.map_or(Scope::Everything, |name| self.node.only(name.as_bytes()));
        self.runtime.block_on(self.node.content.begin(scope)).unwrap()
    }

    /// The update ends.
    pub fn ends(&self, ticket: Ticket) {
        assert_eq!(self.runtime.block_on(ticket.answered()), Finish::Answer);
    }

    pub fn loses_lease(&self) {
        self.node.lease.store(Lease { until: Time::ZERO, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) });
    }

    pub fn has_lease_again(&self) {
        self.node.lease.store(Lease { until: Time::FAR, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) });
    }

    /// The node was expelled, and joins again.
    pub fn lives_again(&mut self) {
        self.node.lives_again();
        self.runtime.block_on(async {
            assemble_in(ViewNumber(2), [&self.node]).await;
            self.node.fill_eventually(b"ready", self.node.only(b"ready")).await;
        });
    }

    /// A second home takes over some of the pages, in a view of its own.
    pub fn another_home_joins(&mut self) {
        let second = Node::start(2, Roles::ALL);
        self.runtime.block_on(async {
            assemble_in(ViewNumber(2), [&self.node, &second]).await;
            // It has all busy until it has heard of every updater; and the first must find it.
            for page in 0..32_u8 {
                self.node.fill_eventually(&[page], self.node.only(b"ready")).await;
            }
        });
        self.others.push(second);
    }

    /// The name by which homes know the page of a path.
    pub fn name_of(&self, path: &str) -> [u8; 16] {
        let keys = Keys::new(self.node.content.names().page_secret());
        keys.of_page("shop", path).unwrap().0.to_le_bytes()
    }

    /// Fills a page that depends on one thing, and sees it hit.
    pub fn fills(&self, path: &str, dependency: &str, body: &str) {
        let mut client = self.client();
        client.get(path);
        self.origin.asked(path).depends(dependency, body);
        client.answer().is(200, body).said("stored");
        self.hits(path, body);
    }

    /// Two ask for a page that is not in the cache: the first leads, and the application was asked; the other waits for it.
    #[track_caller]
    pub fn two_ask(&self, path: &str) -> (Client, Asked, Client) {
        let (mut leader, mut other) = (self.client(), self.client());
        leader.get(path);
        let asked = self.origin.asked(path);
        other.get(path);
        self.has_waiting(1);
        (leader, asked, other)
    }

    /// The page comes to be answered from the cache: it is stored a moment after its last byte went out.
    pub fn hits(&self, path: &str, body: &str) {
        self.hits_with(path, &[], body);
    }

    /// The same for who says these lines.
    pub fn hits_with(&self, path: &str, lines: &[&str], body: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut client = self.client();
            client.get_with(path, &[lines, &["Cache-Control: only-if-cached"]].concat());
            let answer = client.answer();
            if answer.status == 200 {
                answer.is(200, body);
                return;
            }
            assert!(Instant::now() < end, "{path} is not stored: {:?}", answer.field("cache-status"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The page is not in the cache, and does not come into it.
    pub fn misses(&self, path: &str) {
        for _ in 0..3 {
            let mut client = self.client();
            client.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\nCache-Control: only-if-cached\r\n\r\n"));
            let answer = client.answer();
            assert_eq!(answer.status, 504, "{path} is answered from the cache");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a counter of one label has come to.
    pub fn counted(&self, name: &str, label: (&str, &str)) -> u64 {
        self.registry.snapshot(Time::ZERO).counter(name, &[label]).unwrap_or(0)
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.registry.snapshot(Time::ZERO).counter(name, &[]).unwrap()
    }

    pub fn gauge(&self, name: &str) -> f64 {
        self.registry.snapshot(Time::ZERO).gauge(name, &[]).unwrap()
    }

    /// So many requests come to be at the proxy, unanswered.
    #[track_caller]
    pub fn has_in_flight(&self, requests: u32) {
        let what = format!("the moment of {requests} requests");
        self.comes(&what, |scene| scene.gauge("verbena_proxy_requests_in_flight") == f64::from(requests));
    }

    /// So many requests come to wait for what another one fetches.
    #[track_caller]
    pub fn has_waiting(&self, requests: u32) {
        let what = format!("the moment at which {requests} requests wait");
        self.comes(&what, |scene| scene.gauge("verbena_proxy_requests_waiting") == f64::from(requests));
    }

    /// Something comes to be so.
    #[track_caller]
    pub fn comes(&self, what: &str, mut is_so: impl FnMut(&Scene) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what} does not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
