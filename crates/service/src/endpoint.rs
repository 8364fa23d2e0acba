//! A service's endpoint on the fabric of one incarnation of its node: its port, its peers and its batches in flight. It ends with the incarnation.

use std::sync::Arc;
use std::task::{Context, Poll};

use verbena_cluster::View;
use verbena_fabric::{Address, Class, Fabric, Inbox, Port, RegionKey, Result, Views};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::batches::{Batches, Request};
use crate::peers::{OpenResult, OpenTask, Peers};

/// One service's endpoint; dropping it leaves the port.
pub struct Endpoint<R> {
    fabric: Arc<dyn Fabric>,
    port: Port,
    inbox: Inbox,
    peers: Peers,
    batches: Batches<R>,
    sent: u64,
}

impl<R: Request> Endpoint<R> {
    /// Listens on the port, for messages of the current view and of later ones.
    ///
    /// # Errors
    /// If the port is taken.
    pub fn listen(fabric: Arc<dyn Fabric>, port: Port) -> Result<Self> {
        let inbox = fabric.listen(port, Views::CurrentAndLater)?;
        let peers = Peers::new(fabric.clone());
        Ok(Endpoint { fabric, port, inbox, peers, batches: Batches::default(), sent: 0 })
    }

    /// The incarnation.
    pub fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    /// The fabric, to register regions.
    pub fn fabric(&self) -> &dyn Fabric {
        &*self.fabric
    }

    /// Where messages arrive.
    pub fn inbox(&mut self) -> &mut Inbox {
        &mut self.inbox
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

    /// Posts a request; [`poll`](Self::poll) gives its outcome.
    pub fn submit(&mut self, request: R, now: Time) {
        self.batches.submit(request, now);
    }

    /// Posts what can be posted and gives the outcomes of what has ended.
    pub fn poll(&mut self, now: Time) -> Vec<(R::Id, R::Outcome)> {
        let peers = &self.peers;
        self.batches.poll(now, &*self.fabric, |member| peers.region(member).cloned())
    }

    /// Sends a message, which may be lost: the protocol repeats it. False if there is no connection to the member; then nothing is encoded.
    pub fn send(&mut self, to: Incarnation, view: ViewNumber, encode: impl FnOnce() -> Vec<u8>) -> bool {
        let Some(peer) = self.peers.peer(to) else { return false };
        self.sent += 1;
        if let Err(error) = peer.send(Class::Control, view, self.port, self.sent, &encode()) {
            tracing::debug!(%to, %error, port = self.port.0, "a message was not sent");
        }
        true
    }

    /// What is due to be opened.
    pub fn open_tasks(&mut self, now: Time) -> Vec<OpenTask> {
        self.peers.open_tasks(now)
    }

    /// Takes the result of a task. Gives the member that can be sent messages from now on.
    pub fn opened(&mut self, result: OpenResult, now: Time) -> Option<Incarnation> {
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
        let batches = self.batches.next_deadline(|member| self.peers.region(member).is_some());
        self.peers.next_deadline().into_iter().chain(batches).min()
    }
}
