//! A service's endpoint on the fabric of one incarnation of its node: its port, its peers and its batches in flight. It ends with the incarnation.

use std::sync::Arc;
use std::task::{Context, Poll};

use verbena_cluster::View;
use verbena_fabric::{Address, Class, Fabric, Inbox, Message, Port, RegionKey, Result, SharedRemote, Views};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::batches::{Batches, Request};
use crate::peers::{OpenResult, OpenTask, Opened, Peers, RegionUse};

/// The ports of a service's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Of those that belong to a view, and count in it alone.
    pub of_view: Option<Port>,
    /// Of those that belong to none, and count in whichever view sender and receiver are.
    pub of_no_view: Option<Port>,
}

impl Ports {
    /// All messages belong to a view.
    pub const fn of_view(port: Port) -> Ports {
        Ports { of_view: Some(port), of_no_view: None }
    }

    /// None does.
    pub const fn of_no_view(port: Port) -> Ports {
        Ports { of_view: None, of_no_view: Some(port) }
    }
}

/// One service's endpoint; dropping it leaves the ports.
pub struct Endpoint<R> {
    fabric: Arc<dyn Fabric>,
    of_view: Option<(Port, Inbox)>,
    of_no_view: Option<(Port, Inbox)>,
    peers: Peers,
    batches: Batches<R>,
    sent: u64,
}

impl<R: Request> Endpoint<R> {
    /// Listens on the ports: for messages of the current view and of later ones, and for messages of no view.
    ///
    /// # Errors
    /// If a port is taken.
    pub fn listen(fabric: Arc<dyn Fabric>, ports: Ports) -> Result<Self> {
        let listen = |port: Option<Port>, views| port.map(|port| Ok((port, fabric.listen(port, views)?))).transpose();
        let (of_view, of_no_view) =
            (listen(ports.of_view, Views::CurrentAndLater)?, listen(ports.of_no_view, Views::Any)?);
        let peers = Peers::new(fabric.clone());
        Ok(Endpoint { fabric, of_view, of_no_view, peers, batches: Batches::default(), sent: 0 })
    }

    /// The incarnation.
    pub fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    /// The fabric, to register regions.
    pub fn fabric(&self) -> &dyn Fabric {
        &*self.fabric
    }

    /// The next message, if one has arrived. Those of no view come first: they are few, and a member whose introduction waited behind all others would not be heard.
    pub fn take_message(&mut self) -> Option<Message> {
        let inboxes = [&self.of_no_view, &self.of_view];
        inboxes.into_iter().flatten().find_map(|(_, inbox)| inbox.try_take())
    }

    /// The next message; if none has arrived, wakes the task when one does.
    pub fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Message> {
        let inboxes = [&mut self.of_no_view, &mut self.of_view];
        let mut polled = inboxes.into_iter().flatten().map(|(_, inbox)| inbox.poll_next(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    }

    /// A view begins: the work of older ones ends, and its members are the peers.
    pub fn enter_view(&mut self, view: &View, now: Time) {
        self.batches.end_view(|member| view.member(member).is_some());
        let members = view.members().iter().map(|member| (member.incarnation, Address(member.address.clone())));
        self.peers.view(members, now);
    }

    /// A member has told the key of its region.
    pub fn learn(&mut self, key: RegionKey, now: Time) {
        self.peers.learn(key, now);
    }

    /// A member has told the key of one of its regions.
    pub fn learn_of(&mut self, of: RegionUse, key: RegionKey, now: Time) {
        self.peers.learn_of(of, key, now);
    }

    /// One of a member's regions, once it is open.
    pub fn region_of(&self, owner: Incarnation, of: RegionUse) -> Option<&SharedRemote> {
        self.peers.region_of(owner, of)
    }

    /// Posts a request; [`poll`](Self::poll) gives its outcome.
    pub fn submit(&mut self, request: R, now: Time) {
        self.batches.submit(request, now);
    }

    /// Posts what can be posted and gives the outcomes of what has ended.
    pub fn poll(&mut self, now: Time) -> Vec<(R::Id, R::Outcome)> {
        let peers = &self.peers;
        self.batches.poll(now, &*self.fabric, |member, of| peers.region_of(member, of).cloned())
    }

    /// Sends a message, which may be lost: the protocol repeats it. False if there is no connection to the member; then nothing is encoded.
    pub fn send(&mut self, to: Incarnation, view: ViewNumber, encode: impl FnOnce() -> Vec<u8>) -> bool {
        self.of_view.as_ref().map(|(port, _)| *port).is_some_and(|port| self.send_by(port, to, view, encode))
    }

    /// Sends a message of no view, as [`send`](Self::send) does others. `view` is the one that this node is in.
    pub fn send_of_no_view(&mut self, to: Incarnation, view: ViewNumber, encode: impl FnOnce() -> Vec<u8>) -> bool {
        self.of_no_view.as_ref().map(|(port, _)| *port).is_some_and(|port| self.send_by(port, to, view, encode))
    }

    fn send_by(&mut self, port: Port, to: Incarnation, view: ViewNumber, encode: impl FnOnce() -> Vec<u8>) -> bool {
        let Some(peer) = self.peers.peer(to) else { return false };
        self.sent += 1;
        if let Err(error) = peer.send(Class::Control, view, port, self.sent, &encode()) {
            tracing::debug!(%to, %error, port = port.0, "a message was not sent");
        }
        true
    }

    /// What is due to be opened.
    pub fn open_tasks(&mut self, now: Time) -> Vec<OpenTask> {
        self.peers.open_tasks(now)
    }

    /// Takes the result of a task.
    pub fn opened(&mut self, result: OpenResult, now: Time) -> Opened {
        self.peers.opened(result, now)
    }

    /// Ready when a batch has completed that [`poll`](Self::poll) has not looked at; otherwise wakes the task when one does.
    pub fn poll_completed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.batches.poll_completed(context)
    }

    /// Whether a batch is in flight.
    pub fn has_batches(&self) -> bool {
        !self.batches.is_empty()
    }

    /// Whether the fabric owes an answer that a caller waits for.
    pub fn is_awaiting(&self) -> bool {
        self.batches.is_awaiting()
    }

    /// When there is something to do if nothing arrives.
    pub fn next_deadline(&self) -> Option<Time> {
        let batches = self.batches.next_deadline(|member, of| self.peers.region_of(member, of).is_some());
        self.peers.next_deadline().into_iter().chain(batches).min()
    }
}
