//! The service without a thread, for a simulation: the caller gives the same driver its turns and its clock. What is asked of the handle waits for the next turn.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_cluster::LeaseWord;
use verbena_fabric::Fabric;
use verbena_service::executor::Service as _;
use verbena_terms::{Clock, Time};

use super::requests::{Command, RequestTable};
use super::{Content, Options, Runner, request_table};
use crate::record::{NoRecords, Records};
use crate::rules::Rules;

/// Commands that wait for a turn. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Queue(Arc<Mutex<VecDeque<Command>>>);

impl Queue {
    pub(super) fn push(&self, command: Command) {
        self.0.lock().push_back(command);
    }

    fn pop(&self) -> Option<Command> {
        self.0.lock().pop_front()
    }
}

/// A driver that the caller polls.
pub struct Stepped {
    content: Content,
    table: RequestTable,
    queue: Queue,
}

impl Stepped {
    /// A service on this clock, which must be that of its fabrics, with these rules.
    pub fn new(options: Options, rules: Rules, clock: Arc<dyn Clock>) -> Stepped {
        Stepped::with_records(options, rules, clock, Box::new(NoRecords))
    }

    /// The same, with records of open updates.
    pub fn with_records(options: Options, rules: Rules, clock: Arc<dyn Clock>, records: Box<dyn Records>) -> Stepped {
        let (shared, table) = request_table(options, rules, clock, records);
        let queue = Queue::default();
        Stepped { content: Content { shared, runner: Arc::new(Runner::Queue(queue.clone())) }, table, queue }
    }

    /// The handle. Its [`life_begins`](Content::life_begins) and [`life_ends`](Content::life_ends) are those of this.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Whether commands wait for a turn.
    pub fn is_wanted(&self) -> bool {
        !self.queue.0.lock().is_empty()
    }

    /// Does what there is to do. Gives when the next turn is due if nothing arrives before.
    pub fn turn(&mut self) -> Time {
        loop {
            while let Some(command) = self.queue.pop() {
                self.table.command(command);
            }
            let next = self.table.driver.step();
            if !self.is_wanted() {
                return next;
            }
        }
    }

    /// As [`Content::life_begins`].
    ///
    /// # Errors
    /// If the regions cannot be made.
    pub fn life_begins(&mut self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.content.shared.lease.get_or_init(|| lease.clone());
        // As the executor does it: what was asked before is done before.
        self.turn();
        self.table.driver.start_incarnation(fabric, lease)
    }

    /// As [`Content::life_ends`].
    pub fn life_ends(&mut self) {
        self.turn();
        self.table.driver.end_incarnation();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use verbena_cluster::{Departed, Lease, Member, Roles, View};
    use verbena_fabric::sim::{Faults, World};
    use verbena_fabric::{Address, Error, Layer, Peer, Port, Result, Views};
    use verbena_terms::{Incarnation, Rank, ViewNumber};

    use super::super::{Membership, Ticket};
    use super::*;
    use crate::{HomeLimits, Names, Scope, UpdaterLimits, Words};

    const ME: Incarnation = Incarnation::new(1, 1);
    const DEAD: Incarnation = Incarnation::new(2, 1);
    const FIRST: ViewNumber = ViewNumber(1);

    struct Nobody;

    impl Membership for Nobody {
        fn prepared(&self, _: ViewNumber) {}

        fn settled(&self, _: Incarnation) {}

        fn closed(&self, _: bool) {}
    }

    /// What the future comes to when the node has taken its turn in between.
    fn turned<T>(node: &mut Stepped, future: impl Future<Output = T>) -> T {
        let (mut future, mut context) = (std::pin::pin!(future), Context::from_waker(Waker::noop()));
        for _ in 0..10 {
            if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
                return done;
            }
            node.turn();
        }
        panic!("it has not come to anything");
    }

    fn stepped(world: &World) -> Stepped {
        let options = Options {
            names: Names::new([3; 16]),
            home: HomeLimits { slots: 4, ..HomeLimits::default() },
            updater: UpdaterLimits::default(),
        };
        Stepped::new(options, Rules::ALL, world.clock(Rank(1)))
    }

    /// A node alone in its first view, which these have departed without a word.
    fn alone(world: &World, departed: &[Incarnation]) -> Stepped {
        let mut node = stepped(world);
        let lease = Arc::new(LeaseWord::new());
        let fabric = world.node(ME);
        let (name, address) = ("n1".to_owned(), fabric.address().0);
        node.life_begins(fabric, &lease).unwrap();
        let departed =
            departed.iter().map(|&incarnation| Departed { incarnation, since: FIRST, at_rest: false, is_relay: false });
        let member = Member { incarnation: ME, name, address, roles: Roles::ALL };
        let view = View::new(FIRST, vec![member], departed.collect()).unwrap();
        node.content().view_learnt(Arc::new(view), Nobody);
        node.turn();
        lease.store(Lease { until: Time::FAR, acknowledged: FIRST, in_effect: FIRST });
        node
    }

    fn begun(node: &mut Stepped) -> Ticket {
        let content = node.content().clone();
        turned(node, content.begin(Scope::Everything)).unwrap()
    }

    fn words(node: &mut Stepped) -> Words {
        let reading = node.content().read(node.content().names().page(b"/7")).unwrap();
        turned(node, reading.words()).unwrap().1
    }

    /// What the home does by the clock and what the own updater tells it is one order, in the region too: otherwise the word that keeps
    /// everything busy would stay there after the one that frees it.
    #[test]
    fn who_is_settled_in_the_turn_in_which_an_own_update_ends_leaves_nothing_busy() {
        let world = World::new(1, Faults::none());
        let mut node = alone(&world, &[DEAD]);
        let ticket = begun(&mut node);
        assert!(words(&mut node).everything.is_busy());
        // Its outcome is unknown: it is open for as long as the dead member may have something at the database.
        drop(ticket);
        node.turn();
        world.run_until(Time::ZERO + Duration::from_secs(100));
        node.turn();
        let everything = words(&mut node).everything;
        let home = node.table.driver.machine().home().unwrap().counts();
        assert_eq!((home.awaiting, home.leaving, home.open), (0, 0, 0));
        assert!(!everything.is_busy(), "{everything:?}");
    }

    /// Whoever asked for an update may go after it has begun and before it hears so.
    #[test]
    fn an_update_that_nobody_has_heard_of_is_over() {
        let world = World::new(1, Faults::none());
        let mut node = alone(&world, &[]);
        let content = node.content().clone();
        let mut begins = Box::pin(content.begin(Scope::Everything));
        assert!(begins.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        for _ in 0..3 {
            node.turn();
        }
        assert!(words(&mut node).everything.is_busy(), "it has begun");
        drop(begins);
        node.turn();
        assert!(!words(&mut node).everything.is_busy());
    }

    /// An address that cannot be used now can be later: the name that stands there may not be known for a moment.
    #[test]
    fn a_member_that_could_not_be_connected_to_is_tried_again() {
        struct Lost(Arc<dyn Fabric>, AtomicBool);

        impl Layer for Lost {
            fn inner(&self) -> &dyn Fabric {
                &*self.0
            }

            fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
                if peer != ME && self.1.swap(false, Ordering::Relaxed) {
                    return Err(Error::Closed);
                }
                self.0.connect(peer, address)
            }
        }

        let world = World::new(1, Faults::none());
        let (other, mut node) = (world.node(Incarnation::new(3, 1)), stepped(&world));
        let introductions = other.listen(Port(17), Views::Any).unwrap();
        let lost = Arc::new(Lost(world.node(ME), AtomicBool::new(true)));
        let members = [lost.clone() as Arc<dyn Fabric>, other.clone()].map(|fabric| Member {
            incarnation: fabric.identity(),
            name: format!("n{}", fabric.identity().rank),
            address: fabric.address().0,
            roles: Roles::ALL,
        });
        node.life_begins(lost, &Arc::new(LeaseWord::new())).unwrap();
        node.content().view_learnt(Arc::new(View::new(FIRST, members.into(), vec![]).unwrap()), Nobody);
        let mut is_introduced_in = |time: Duration| {
            node.turn();
            world.run_until(world.now() + time);
            node.turn();
            world.run_until(world.now() + time);
            introductions.try_take().is_some()
        };
        assert!(!is_introduced_in(Duration::from_millis(100)));
        assert!(is_introduced_in(Duration::from_secs(2)));
    }
}
