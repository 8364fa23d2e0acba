//! What the node does for its monitor beside deciding: the kernel's numbers, the own board, and reading the boards of the others.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use verbena_cluster::View;
use verbena_fabric::{Batch, Completed, Fabric, Port, Region, RegionKey, Rights};
use verbena_service::driver::{Driver, Host};
use verbena_service::endpoint::{Endpoint, Ports};
use verbena_service::read_once::{ReadOnce, Words};
use verbena_terms::{BootClock, HasFormat, LoadCounts, Time, ViewNumber};

use crate::board::{self, Answer, BOARD_BYTES};
use crate::{Action, Loads, Metrics, MonitorConfig, Reading, Source, Watch};

/// The driver of a node's monitor.
pub(crate) type Running = Driver<Watch, MonitorHost>;

/// What the node does with the actions of [`Watch`].
pub(crate) struct MonitorHost {
    /// Asks the thread that measures, which says [`measured`](Self::measured).
    ask: SyncSender<()>,
    loads: Loads,
    /// Shared with the reads in flight.
    metrics: Arc<Metrics>,
    /// This incarnation's board.
    board: Option<Box<dyn Region>>,
}

/// How the machine is, if the kernel says it, and what the node has done.
pub(crate) type Measured = (Result<Reading, String>, (LoadCounts, u32));

/// Reads how the machine is. May take long.
pub(crate) fn measure(proc: &Path, source: &Source) -> Measured {
    (Reading::of(proc).map_err(|error| error.to_string()), source())
}

/// A driver between two incarnations.
pub(crate) fn driver(config: &MonitorConfig, loads: Loads, metrics: Metrics, ask: SyncSender<()>) -> Running {
    let host = MonitorHost { ask, loads, metrics: Arc::new(metrics), board: None };
    Driver::new(Watch::new(config.every.0), host, Arc::new(BootClock))
}

impl MonitorHost {
    /// Tells the machine which loads are wanted.
    pub(crate) fn wants(&self, watch: &mut Watch, now: Time, out: &mut Vec<Action>) {
        watch.wants(self.loads.wanted_of(now), now, out);
    }

    /// Tells the machine what was measured.
    pub(crate) fn measured(&self, (reading, counts): Measured, watch: &mut Watch, now: Time, out: &mut Vec<Action>) {
        match reading {
            Ok(reading) => watch.measured(reading, counts, now, out),
            Err(error) => {
                tracing::debug!(%error, "how the machine is is not known");
                self.metrics.unread.increment();
            }
        }
        self.wants(watch, now, out);
    }
}

impl Host<Watch> for MonitorHost {
    /// Messages about boards.
    const PORTS: Ports = Ports::of_no_view(Port(3));
    /// It acts by no lease: nothing is seen late.
    const IDLE: Duration = Duration::from_secs(10);

    fn act(
        &mut self,
        action: Action,
        watch: &mut Watch,
        endpoint: Option<&mut Endpoint<ReadBoard>>,
        now: Time,
        _: &mut VecDeque<Action>,
    ) {
        match (action, endpoint) {
            (Action::Measure, _) => {
                if let Err(TrySendError::Disconnected(())) = self.ask.try_send(()) {
                    self.metrics.unread.increment();
                }
            }
            (Action::Publish(round, load), _) => {
                *self.metrics.load.lock() = load;
                let Some(board) = &self.board else { return };
                match board::publish(&**board, round, &load) {
                    Ok(()) => self.metrics.published.increment(),
                    Err(error) => tracing::debug!(%error, "this node's load was not published"),
                }
            }
            (Action::Show(seen), _) => self.loads.set(seen),
            // A member that cannot be reached yet asks again.
            (Action::Send(to, message), Some(endpoint)) => {
                endpoint.send_of_no_view(to, watch.view_number(), || message.encode());
            }
            (Action::Open(key), Some(endpoint)) => endpoint.learn(key, now),
            (Action::Read(owner), Some(endpoint)) => {
                let metrics = self.metrics.clone();
                endpoint.submit(ReadOnce::new(owner, Board { metrics }), now);
            }
            // Between two incarnations no member is reached.
            (_, None) => {}
        }
    }

    fn start_incarnation(&mut self, _: &Watch, endpoint: &Endpoint<ReadBoard>) -> verbena_fabric::Result<()> {
        let board = endpoint.fabric().register(BOARD_BYTES, ViewNumber(0))?;
        board::begin(&*board)?;
        self.board = Some(board);
        Ok(())
    }

    /// The board stays as it is.
    fn enter_view(&mut self, _: &Watch, _: &View, _: &Endpoint<ReadBoard>) -> Option<RegionKey> {
        self.board.as_ref().map(|board| board.key(Rights::Read))
    }

    fn end_incarnation(&mut self) {
        self.board = None;
        self.loads.set(vec![]);
    }

    fn message_dropped(&mut self) {
        self.metrics.unusable.increment();
    }
}

/// Reads a member's board, once. One that was not reached is not tried again: its owner is asked first, which may be gone.
pub type ReadBoard = ReadOnce<Board>;

/// A member's board, and what is counted of reading it.
pub struct Board {
    metrics: Arc<Metrics>,
}

impl Words for Board {
    type Found = Answer;
    const SUBJECT: &'static str = "a board";

    fn batch(&self, fabric: &dyn Fabric) -> Option<Batch> {
        board::question(fabric.pool()).ok()
    }

    fn found(&self, done: &Completed) -> Answer {
        board::answer(done)
    }

    fn ended(&self, found: Option<Answer>) {
        match found {
            Some(Answer::Load(..)) => self.metrics.fresh.increment(),
            Some(Answer::Torn) => self.metrics.torn.increment(),
            Some(Answer::Blank) | None => self.metrics.failed.increment(),
        }
    }
}

#[cfg(test)]
mod tests {
    use verbena_cluster::{LeaseWord, Member, Roles};
    use verbena_fabric::tcp::{TcpConfig, TcpFabric};
    use verbena_metrics::Registry;
    use verbena_terms::{Clock, Incarnation};

    use std::sync::mpsc::{Receiver, sync_channel};

    use super::*;
    use crate::{Seen, Whose};

    struct Node {
        driver: Running,
        loads: Loads,
        registry: Registry,
        fabric: Arc<dyn Fabric>,
        /// In place of the thread that measures.
        asked: Receiver<()>,
        source: Source,
    }

    impl Node {
        fn start(rank: u32) -> Node {
            let (loads, registry) = (Loads::default(), Registry::new());
            let config = MonitorConfig { every: verbena_terms::Lapse::millis(10), ..MonitorConfig::default() };
            let source: Source = Box::new(move || (LoadCounts::default(), rank));
            let (ask, asked) = sync_channel(1);
            let mut driver = driver(&config, loads.clone(), Metrics::new(&registry).unwrap(), ask);
            let fabric = TcpFabric::open(Incarnation::new(rank, 1), TcpConfig::default()).unwrap();
            let fabric: Arc<dyn Fabric> = Arc::new(fabric);
            driver.start_incarnation(fabric.clone(), &Arc::new(LeaseWord::new())).unwrap();
            Node { driver, loads, registry, fabric, asked, source }
        }

        fn step(&mut self) {
            self.driver.step();
            if self.asked.try_recv().is_ok() {
                let measured = measure(Path::new("/proc"), &self.source);
                self.driver.command(|watch, host, now, out| host.measured(measured, watch, now, out));
            }
        }

        fn member(&self) -> Member {
            let incarnation = self.fabric.identity();
            let name = format!("n{}", incarnation.rank.0);
            Member { incarnation, name, address: self.fabric.address().0, roles: Roles::ALL }
        }

        fn seen(&self, who: Incarnation) -> Option<Seen> {
            self.loads.all().iter().find(|seen| seen.who == who).cloned()
        }

        fn reads(&self, found: &str) -> u64 {
            let read = self.registry.snapshot_of(&["verbena_monitor_reads_total"], Time::ZERO);
            read.counter("verbena_monitor_reads_total", &[("found", found)]).unwrap_or(0)
        }
    }

    fn until(nodes: &mut [Node], what: &str, is_it: impl Fn(&[Node]) -> bool) {
        let latest = BootClock.now() + Duration::from_secs(30);
        while !is_it(nodes) {
            assert!(BootClock.now() < latest, "{what}");
            nodes.iter_mut().for_each(Node::step);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_load_is_read_when_it_is_wanted_until_its_node_has_gone() {
        let mut nodes = vec![Node::start(1), Node::start(2)];
        let enter = |nodes: &mut [Node], number| {
            let members = nodes.iter().map(Node::member).collect();
            let view = Arc::new(View::new(ViewNumber(number), members, vec![]).unwrap());
            nodes.iter_mut().for_each(|node| node.driver.enter_view(&view));
        };
        enter(&mut nodes, 1);
        let peer = nodes[1].fabric.identity();
        until(&mut nodes, "each publishes", |nodes| {
            nodes.iter().all(|node| node.seen(node.fabric.identity()).is_some())
        });
        assert_eq!((nodes[0].seen(peer), nodes[0].reads("load")), (None, 0), "it is not wanted");
        let watching = nodes[0].loads.watch(vec![Whose::Node("n2".into())]);
        until(&mut nodes, "it is read", |nodes| nodes[0].seen(peer).is_some_and(|seen| seen.load.programs == 2));
        enter(&mut nodes, 2);
        let before = nodes[0].reads("load");
        until(&mut nodes, "it is read in the next view", |nodes| nodes[0].reads("load") > before + 2);
        assert_eq!((nodes[0].reads("failed"), nodes[1].reads("load")), (0, 0), "the other one wants nothing");
        drop(nodes.pop());
        until(&mut nodes, "it has gone", |nodes| nodes[0].reads("failed") == 1);
        drop(watching);
        nodes[0].driver.end_incarnation();
        assert!(nodes[0].loads.all().is_empty());
    }
}
