//! Feeds what arrives to a state machine and carries out the machine's actions on a fabric. It never blocks: its caller, the
//! [executor](crate::executor) or a simulation, decides when it runs.

use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, View};
use verbena_fabric::{Error, Fabric, Message, RegionKey, Result};
use verbena_terms::{Clock, Complaints, Incarnation, Time, ViewNumber};

use crate::batches::Request;
use crate::endpoint::{Endpoint, Ports};
use crate::executor;
use crate::peers::{OpenResult, OpenTask, Opened};

/// How often a stepped driver looks for answers, since nothing wakes it.
#[cfg(feature = "testing")]
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// The shortest pause between two turns of a stepped driver: its clock has to go on.
#[cfg(feature = "testing")]
const PACE: Duration = Duration::from_micros(20);

/// A service's protocol as a state machine: it takes events and the time, and gives actions. It performs no input or output, so that a node, a simulation and a
/// model checker run the same one.
///
/// A caller's commands are not in this trait, because each has a result of its own: [`Driver::act`] gives the machine to the service's request table.
pub trait Machine: Send + Sized + 'static {
    /// What it wants done.
    type Action: Send;
    /// A message between nodes.
    type Frame: Frame;
    /// One-sided operations on one member's region.
    type Batch: Request + Send;

    /// Starts anew as this incarnation (rule C1); [`Incarnation::default`] between two incarnations.
    fn start_incarnation(&mut self, me: Incarnation, out: &mut Vec<Self::Action>);
    /// The node's lease, each time before anything that depends on it.
    fn lease(&mut self, lease: Lease, now: Time, out: &mut Vec<Self::Action>);
    /// A newer view, and the key of the node's own region in it if [`Host::enter_view`] made one. When this returns the machine does nothing more in older views
    /// (rule C3).
    fn view(&mut self, view: &Arc<View>, region: Option<RegionKey>, now: Time, out: &mut Vec<Self::Action>);
    /// A message: its sender and view are those of the connection it came by. It may be late, or come twice.
    fn frame(&mut self, frame: Self::Frame, now: Time, out: &mut Vec<Self::Action>);
    /// The outcome of a batch, once it is certain (rule F2). None comes for batches of an earlier view.
    fn completed(
        &mut self,
        id: <Self::Batch as Request>::Id,
        outcome: <Self::Batch as Request>::Outcome,
        now: Time,
        out: &mut Vec<Self::Action>,
    );
    /// Messages to this member go through from now on.
    fn connected(&mut self, _member: Incarnation, _now: Time, _out: &mut Vec<Self::Action>) {}
    /// Called in each turn before completed batches are taken: deadlines.
    fn tick(&mut self, _now: Time, _out: &mut Vec<Self::Action>) {}
    /// Called in each turn after completed batches were taken: what is sent together.
    fn flush(&mut self, _now: Time, _out: &mut Vec<Self::Action>) {}
    /// When there is work even if nothing arrives.
    fn next_deadline(&self) -> Option<Time>;
}

/// A message between nodes, as bytes and decoded.
pub trait Frame: Sized {
    /// Why bytes are no such message.
    type Error: Display;

    /// Decodes the whole of its body. A message that names no sender has that of the connection.
    ///
    /// # Errors
    /// If the body is no such message.
    fn decode(message: &Message) -> std::result::Result<Self, Self::Error>;
    /// The sender that it names.
    fn sender(&self) -> Incarnation;
    /// The view that it names; `None` if it belongs to none and comes by [`Ports::of_no_view`].
    fn view(&self) -> Option<ViewNumber>;
}

/// What one service does with its machine's actions, and the input and output that it has beside the fabric: its own region, answers to callers, metrics.
pub trait Host<M: Machine>: Send + 'static {
    /// The ports of its messages.
    const PORTS: Ports;
    /// The longest pause between two turns. A service that acts by a lease must not see late that it has run out, or that a view is in effect.
    const IDLE: Duration = Duration::from_millis(20);

    /// Carries out one action. `endpoint` is `None` between two incarnations: then there is no fabric to act on. Actions that the machine gives in return are
    /// appended to `more` and carried out after those given before.
    fn act(
        &mut self,
        action: M::Action,
        machine: &mut M,
        endpoint: Option<&mut Endpoint<M::Batch>>,
        now: Time,
        more: &mut VecDeque<M::Action>,
    );
    /// Called after each event and before its actions are carried out.
    fn before_actions(&mut self, _machine: &M) {}
    /// An incarnation starts, and the machine with it. Makes the regions that last as long as the incarnation.
    ///
    /// # Errors
    /// If they cannot be made. Then the incarnation does not start.
    fn start_incarnation(&mut self, _machine: &M, _endpoint: &Endpoint<M::Batch>) -> Result<()> {
        Ok(())
    }
    /// Makes the node's own region of this view, if it has one, and gives its key.
    fn enter_view(&mut self, _machine: &M, _view: &View, _endpoint: &Endpoint<M::Batch>) -> Option<RegionKey> {
        None
    }
    /// The incarnation is over, or could not start: drops its regions.
    fn end_incarnation(&mut self) {}
    /// A message has arrived.
    fn message_arrived(&mut self, _now: Time) {}
    /// A message was dropped: it could not be decoded, or named another sender or view.
    fn message_dropped(&mut self) {}
    /// A member's region could not be opened; it is tried again.
    fn open_failed(&mut self, _owner: Incarnation, _error: &Error, _now: Time) {}
    /// Whether the machine waits for words that members write in the node's own region. Nothing announces them, so each turn [looks](Self::look), and
    /// [`next_deadline`](Self::next_deadline) says how soon the next one does.
    fn is_looking(&self, _machine: &M) -> bool {
        false
    }
    /// Gives the machine the words that it waits for. The machine has heard of the lease before: what is seen counts if the lease holds (rule C5).
    fn look(&mut self, _machine: &mut M, _now: Time, _out: &mut Vec<M::Action>) {}
    /// Called at the end of each turn, with whether batches had completed in it.
    fn turn_ended(&mut self, _machine: &M, _has_completed: bool, _now: Time) {}
    /// Called when no work is left until something arrives: metrics.
    fn idle(&mut self, _machine: &M) {}
    /// When there is work of its own.
    fn next_deadline(&self, _now: Time) -> Option<Time> {
        None
    }
    /// Whether the next turn may be slow: it allocates memory or copies values. Then no thread of a fabric runs it.
    fn may_be_slow(&self, _machine: &M, _lease: Lease, _now: Time) -> bool {
        true
    }
}

/// Runs a [`Machine`] with its [`Host`] on the fabric of the node's incarnation.
pub struct Driver<M: Machine, H: Host<M>> {
    clock: Arc<dyn Clock>,
    /// Known from the first incarnation on.
    lease: Option<Arc<LeaseWord>>,
    machine: M,
    host: H,
    /// `None` between two incarnations.
    endpoint: Option<Endpoint<M::Batch>>,
    dropped: Complaints,
}

impl<M: Machine, H: Host<M>> Driver<M, H> {
    /// Between two incarnations. The clock must be that of its fabrics.
    pub fn new(machine: M, host: H, clock: Arc<dyn Clock>) -> Self {
        Driver { clock, lease: None, machine, host, endpoint: None, dropped: Complaints::default() }
    }

    /// The machine, to read.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The host, to read.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The host, to take what it has.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// The node's lease; [`Lease::NONE`] before the first incarnation.
    pub fn lease(&self) -> Lease {
        self.lease.as_ref().map_or(Lease::NONE, |lease| lease.load())
    }

    /// The time on its clock.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Messages that were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.counted()
    }

    /// An incarnation of this node starts on this fabric and acts by this lease.
    ///
    /// # Errors
    /// If a port is taken, or the host cannot make its regions.
    pub fn start_incarnation(&mut self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> Result<()> {
        self.lease = Some(lease.clone());
        let endpoint = Endpoint::listen(fabric, H::PORTS)?;
        let me = endpoint.me();
        self.act(|machine, _, _, out| machine.start_incarnation(me, out));
        if let Err(error) = self.host.start_incarnation(&self.machine, &endpoint) {
            self.end_incarnation();
            return Err(error);
        }
        self.endpoint = Some(endpoint);
        Ok(())
    }

    /// The incarnation is over: drops all that belongs to it, its region and its fabric too.
    pub fn end_incarnation(&mut self) {
        self.act(|machine, _, _, out| machine.start_incarnation(Incarnation::default(), out));
        self.host.end_incarnation();
        self.endpoint = None;
    }

    /// The cluster has a newer view. When this returns, the work of older views has ended (rule C3).
    pub fn enter_view(&mut self, view: &Arc<View>) {
        executor::Driver::check_lease(self);
        let Some(endpoint) = &mut self.endpoint else { return };
        endpoint.enter_view(view, self.clock.now());
        let region = self.host.enter_view(&self.machine, view, endpoint);
        // Making memory takes its time.
        self.act(|machine, _, now, out| machine.view(view, region, now, out));
        executor::Driver::advance(self);
    }

    /// Gives an event to the machine and carries out what it wants done. The host is there for what must be known before that.
    pub fn act<T>(&mut self, event: impl FnOnce(&mut M, &mut H, Time, &mut Vec<M::Action>) -> T) -> T {
        self.act_at(self.clock.now(), event)
    }

    /// The same, at a time that was read just now.
    fn act_at<T>(&mut self, now: Time, event: impl FnOnce(&mut M, &mut H, Time, &mut Vec<M::Action>) -> T) -> T {
        let mut actions = vec![];
        let result = event(&mut self.machine, &mut self.host, now, &mut actions);
        self.host.before_actions(&self.machine);
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            self.host.act(action, &mut self.machine, self.endpoint.as_mut(), now, &mut actions);
        }
        result
    }

    /// A caller's command: as [`act`](Self::act), under the lease as it is now, and then what follows from it.
    pub fn command<T>(&mut self, event: impl FnOnce(&mut M, &mut H, Time, &mut Vec<M::Action>) -> T) -> T {
        executor::Driver::check_lease(self);
        let result = self.act(event);
        executor::Driver::advance(self);
        result
    }

    /// One turn without a thread, for a simulation: does what there is to do. Gives when the next turn is due if nothing arrives before.
    #[cfg(feature = "testing")]
    pub fn step(&mut self) -> Time {
        use executor::Driver as _;
        self.turn(None);
        for task in self.open_tasks() {
            self.opened(task.run());
        }
        let is_awaiting = self.endpoint.as_ref().is_some_and(Endpoint::is_awaiting);
        let now = self.clock.now();
        let again = if is_awaiting { now + LOOK_AGAIN } else { Time::FAR };
        executor::Driver::next_deadline(self).min(again).max(now + PACE)
    }

    /// Called when no work is left until something arrives.
    pub fn idle(&mut self) {
        self.host.idle(&self.machine);
    }

    fn drop_message(&mut self, from: Incarnation, reason: &dyn Display) {
        self.host.message_dropped();
        if let Some(number) = self.dropped.another(self.clock.now()) {
            tracing::warn!(%from, number, "dropped {reason}");
        }
    }
}

impl<M: Machine, H: Host<M>> executor::Driver for Driver<M, H> {
    fn may_be_slow(&self) -> bool {
        self.host.may_be_slow(&self.machine, self.lease(), self.clock.now())
    }

    fn check_lease(&mut self) {
        let lease = self.lease();
        self.act(|machine, _, now, out| machine.lease(lease, now, out));
    }

    fn message(&mut self, message: &Message) {
        self.host.message_arrived(self.clock.now());
        let view = (Some(message.port) == H::PORTS.of_view).then_some(message.view);
        match M::Frame::decode(message) {
            Ok(frame) if frame.sender() == message.from && frame.view() == view => {
                self.act(|machine, _, now, out| machine.frame(frame, now, out));
            }
            Ok(frame) => {
                let view = frame.view().map_or("no view".to_owned(), |view| view.to_string());
                let named = format!("a frame of {} in {view}", frame.sender());
                self.drop_message(message.from, &named);
            }
            Err(error) => self.drop_message(message.from, &error),
        }
    }

    fn advance(&mut self) {
        let (mut now, mut has_completed) = (self.clock.now(), false);
        self.act_at(now, |machine, _, now, out| machine.tick(now, out));
        if self.host.is_looking(&self.machine) {
            self.check_lease();
            now = self.clock.now();
            self.act_at(now, |machine, host, now, out| host.look(machine, now, out));
        }
        while let Some(endpoint) = &mut self.endpoint {
            let ended = endpoint.poll(now);
            if ended.is_empty() {
                break;
            }
            has_completed = true;
            // An outcome counts if the lease holds after it came (rule C5).
            self.check_lease();
            for (id, outcome) in ended {
                self.act(|machine, _, now, out| machine.completed(id, outcome, now, out));
            }
            now = self.clock.now();
        }
        self.act_at(now, |machine, _, now, out| machine.flush(now, out));
        self.host.turn_ended(&self.machine, has_completed, now);
    }

    fn has_batches(&self) -> bool {
        self.endpoint.as_ref().is_some_and(Endpoint::has_batches)
    }

    fn poll_completed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.endpoint.as_mut().map_or(Poll::Pending, |endpoint| endpoint.poll_completed(context))
    }

    fn take_message(&mut self) -> Option<Message> {
        self.endpoint.as_mut().and_then(Endpoint::take_message)
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Message> {
        self.endpoint.as_mut().map_or(Poll::Pending, |endpoint| endpoint.poll_message(context))
    }

    fn open_tasks(&mut self) -> Vec<OpenTask> {
        let now = self.clock.now();
        self.endpoint.as_mut().map(|endpoint| endpoint.open_tasks(now)).unwrap_or_default()
    }

    fn opened(&mut self, result: OpenResult) {
        let now = self.clock.now();
        match self.endpoint.as_mut().map_or(Opened::Nothing, |endpoint| endpoint.opened(result, now)) {
            Opened::Peer(member) => self.act(|machine, _, now, out| machine.connected(member, now, out)),
            Opened::Failure(owner, error) => self.host.open_failed(owner, &error, now),
            Opened::Nothing => {}
        }
        self.advance();
    }

    fn next_deadline(&self) -> Time {
        let now = self.clock.now();
        let batches = self.endpoint.as_ref().and_then(Endpoint::next_deadline);
        let next = [batches, self.machine.next_deadline(), self.host.next_deadline(now)].into_iter().flatten().min();
        next.unwrap_or(Time::FAR).min(now + H::IDLE)
    }
}
