//! The interface between the helper and the services that it hosts.

use std::sync::Arc;

use verbena_cluster::Notice;
use verbena_terms::{Incarnation, ViewNumber};

use crate::membership::life::Life;
use crate::membership::mailbox::Mailbox;

/// A service that a helper hosts. All calls come from the thread that keeps the node's place in the cluster, except the
/// first [`begin`](Self::begin), which comes from the thread that starts the helper. They must return within a small
/// part of a lease, and must never wait for a peer. What takes longer belongs on threads of the service's own.
///
/// ```text
///   begin --> notice(ViewLearnt) --> Replies::prepared --> notice(ViewInEffect) ...
///     ^              ... notice(LeaseLost) ... notice(LeaseExtended) ...
///     |                                              |
///     +---- notice(Expelled): the life is over ------+--> close --> ... --> end
/// ```
pub trait Service: Send {
    /// For logs. Each service of a helper has a name of its own.
    fn name(&self) -> &'static str;

    /// An incarnation begins: it has a fabric and no view yet. The service dropped everything of an earlier incarnation
    /// at [`Notice::Expelled`], the fabric and regions too; otherwise this incarnation's fabric could not be opened.
    ///
    /// # Errors
    /// Says what is missing; the helper ends, for it would be half a helper.
    fn begin(&mut self, life: &Life) -> Result<(), String>;

    /// What membership says. A [`Notice::ViewLearnt`] is answered by [`Replies::prepared`], at once or later, when what the
    /// service does in older views is at an end (rule P5): the view is acknowledged when all services have.
    fn notice(&mut self, notice: &Notice, replies: &Replies);

    /// The node is about to leave the cluster. From now on the service begins nothing that others would have to settle; it answers by
    /// [`Replies::closed`] when what it has open has ended, and is waited for one lease at most.
    fn close(&mut self, replies: &Replies);

    /// The helper ends. It has left the cluster, or could not.
    fn end(&mut self);
}

/// A service's replies to membership. Usable from any thread, and for as long as the service likes: a late reply is of
/// another view or incarnation and has no effect.
#[derive(Clone)]
pub struct Replies {
    mailbox: Arc<Mailbox>,
    service: usize,
}

impl Replies {
    pub(crate) fn new(mailbox: Arc<Mailbox>, service: usize) -> Self {
        Replies { mailbox, service }
    }

    /// The service is ready for this view: it has ended what it did in older ones.
    pub fn prepared(&self, view: ViewNumber) {
        self.mailbox.prepared(self.service, view);
    }

    /// The service of this home has settled a departed incarnation (rule P6).
    pub fn settled(&self, who: Incarnation) {
        self.mailbox.settled(self.service, who);
    }

    /// Nothing is left to be waited for, and nothing will begin. `at_rest`: nothing of the service is open anywhere, so that the others
    /// need not settle this node after it has left (rules C3, P6).
    pub fn closed(&self, at_rest: bool) {
        self.mailbox.closed(self.service, at_rest);
    }
}
