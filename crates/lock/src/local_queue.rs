//! What the clients of one node have of one lock: those who hold it, those who wait, and the node's own place in the lock's queue (rule L1).
//!
//! The node stands in the queue once, for the first of its clients that wait. When a client is done, another client of
//! the same node may go on with the node's hold, without a message. Where other nodes wait or could wait, that happens
//! a bounded number of times (readers behind a writer do not show).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use verbena_terms::Rank;

use crate::action::{ProtocolViolation, Refusal};
use crate::deadlock::Cycle;
use crate::{Action, Batch, LockRole, Message, Mode, Outcome, Request, Survivor, To, Token};

/// Clients of a node that get its hold one after the other, or join it as readers, while others may wait.
const AT_MOST: u32 = 16;

/// One client's request for one lock. The driver of the locks assigns it and never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The lock is the client's, for as long as the node's lease lasts. Said again, in the other mode, after a downgrade.
    Granted(Mode, Token),
    /// The client does not get it.
    Refused(Refusal),
    /// The node's lease has run out, and with it the hold. What is done from now on is not done under the lock.
    Lost,
    /// The client would wait for ever, for clients that wait for it. Those get on when it releases what it holds.
    Deadlock(Cycle),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalAction {
    /// Post this to the words.
    Access(Batch),
    /// Read the lock word.
    Look,
    /// Send a message.
    Send(To, Message),
    /// Tell a client what becomes of its request.
    Answer(RequestId, Answer),
    /// The words that the node knows belong to no lock any longer.
    Moved,
}

/// One lock at one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LocalQueue {
    role: LockRole,
    is_survivor: bool,
    holders: Vec<RequestId>,
    waiting: VecDeque<(RequestId, Request)>,
    /// For whom the node asked.
    asked: Option<RequestId>,
    /// Clients that took over the node's hold or joined it since the node last knew that no other node waits.
    joined: u32,
    /// How many those may be, where others wait or could.
    pub(crate) at_most: u32,
    /// The lock word is read to know that, or a writer stood in it.
    has_looked: bool,
    /// The writer that the node found at the tail.
    ahead: Rank,
    /// The node has a lease: rule C5.
    may_grant: bool,
}

impl LocalQueue {
    /// Of a node that has this side of the lock, and no clients.
    pub fn new(role: LockRole) -> Self {
        let (holders, waiting) = (vec![], VecDeque::new());
        LocalQueue {
            role,
            is_survivor: false,
            holders,
            waiting,
            asked: None,
            joined: 0,
            at_most: AT_MOST,
            has_looked: false,
            ahead: Rank::NOBODY,
            may_grant: false,
        }
    }

    /// Whether the node may grant what it holds.
    pub fn may_grant(&mut self, may_grant: bool) {
        self.may_grant = may_grant;
    }

    /// The node has no part in the lock.
    pub fn is_over(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty() && self.role.is_at_rest()
    }

    /// The node has it from an earlier view: what it says goes to the server of those.
    pub fn is_survivor(&self) -> bool {
        self.is_survivor
    }

    /// A client wants the lock.
    pub fn acquire(&mut self, id: RequestId, request: Request, out: &mut Vec<LocalAction>) {
        let is_queued = matches!(self.role.survives(), Some(Survivor::Waits(_)));
        let is_free_here = self.holders.is_empty() && self.waiting.is_empty() && !is_queued;
        match self.role.held() {
            Some((Mode::Shared, token)) if request.mode == Mode::Shared && self.may_join() => {
                self.joined += 1;
                self.give(id, Mode::Shared, token, out);
            }
            _ if request.is_try && !is_free_here => {
                out.push(LocalAction::Answer(id, Answer::Refused(Refusal::Busy)));
            }
            _ => {
                self.waiting.push_back((id, request));
                self.look(out);
            }
        }
    }

    /// A client wants the lock that it holds: it has it once more, as it has it. It would wait for itself otherwise.
    pub fn acquire_again(&mut self, id: RequestId, request: Request, out: &mut Vec<LocalAction>) {
        match self.role.held() {
            Some((mode, token)) if mode >= request.mode => self.give(id, mode, token, out),
            // The node is becoming a reader: all holders get their answer then.
            None if request.mode == Mode::Shared => self.holders.push(id),
            _ => out.push(LocalAction::Answer(id, Answer::Refused(Refusal::Upgrade))),
        }
    }

    /// Clients that have it.
    pub fn holders(&self) -> &[RequestId] {
        &self.holders
    }

    /// Clients that wait, the first one first.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = (RequestId, Request)> {
        self.waiting.iter().copied()
    }

    /// How the node has it.
    pub fn held(&self) -> Option<(Mode, Token)> {
        self.role.held()
    }

    /// The writer that the node found at the tail.
    pub fn ahead(&self) -> Rank {
        self.ahead
    }

    /// Removes a waiting client, which gets this answer.
    pub fn give_up(&mut self, id: RequestId, answer: Answer, out: &mut Vec<LocalAction>) {
        if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == id) {
            self.waiting.remove(at);
            out.push(LocalAction::Answer(id, answer));
        }
    }

    /// A client is done with it.
    ///
    /// # Errors
    /// When it does not hold it.
    pub fn release(&mut self, id: RequestId, out: &mut Vec<LocalAction>) -> Result<(), ProtocolViolation> {
        let at = self.holders.iter().position(|holder| *holder == id);
        self.holders.remove(at.ok_or(ProtocolViolation("a release of what is not held"))?);
        if self.holders.is_empty() {
            self.pass_on(out);
        }
        Ok(())
    }

    /// A client that has released the lock, before the release had any effect, acquires it again exclusively. It goes
    /// on with the node's hold by its new request, with a token of its own. Returns whether it does; where it cannot,
    /// nothing has changed.
    pub fn hold_on(&mut self, was: RequestId, id: RequestId, out: &mut Vec<LocalAction>) -> bool {
        let token = if self.may_hold_on(was) { self.role.again() } else { None };
        let Some(token) = token else { return false };
        self.holders.clear();
        self.give(id, Mode::Exclusive, token, out);
        true
    }

    /// Whether this one has it alone, and may go on as another.
    pub(crate) fn may_hold_on(&self, id: RequestId) -> bool {
        self.may_grant && self.holders == [id] && self.role.may_go_again()
    }

    /// Whether other nodes are known to wait for it.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.role.is_waited_for()
    }

    /// A client does not want it any more, or has died: it is released, or not waited for. The node stays where it is in the queue.
    pub fn forget(&mut self, id: RequestId, out: &mut Vec<LocalAction>) {
        self.waiting.retain(|(waiting, _)| *waiting != id);
        // It holds it, or it does not.
        let _ = self.release(id, out);
    }

    /// Others may read with the client from now on.
    ///
    /// # Errors
    /// When it does not hold the lock exclusively.
    pub fn downgrade(&mut self, id: RequestId, out: &mut Vec<LocalAction>) -> Result<(), ProtocolViolation> {
        if !self.holders.contains(&id) {
            return Err(ProtocolViolation("a downgrade of what is not held"));
        }
        if self.holders.len() > 1 {
            return Err(ProtocolViolation("a downgrade of what its client holds more than once"));
        }
        let mut actions = vec![];
        self.role.downgrade(&mut actions)?;
        self.follow(actions, out);
        Ok(())
    }

    /// Whether the node should ask for it now.
    pub fn wants(&self) -> bool {
        self.role.is_idle() && !self.waiting.is_empty()
    }

    /// The node asks for it, where it knows the words.
    pub fn ask(&mut self, out: &mut Vec<LocalAction>) {
        let Some(&(id, request)) = self.waiting.front() else { return };
        let mut actions = vec![];
        self.ahead = Rank::NOBODY;
        if self.role.request(request, &mut actions).is_ok() {
            self.asked = Some(id);
            self.follow(actions, out);
        }
    }

    /// The words that the node knows were evicted. Returns whether the node has no part in them now.
    pub fn forget_words(&mut self) -> bool {
        self.role.forget()
    }

    /// There are no words for it.
    pub fn refuse(&mut self, out: &mut Vec<LocalAction>) {
        let refused = self.waiting.drain(..).map(|(id, _)| id);
        out.extend(refused.map(|id| LocalAction::Answer(id, Answer::Refused(Refusal::NoRoom))));
    }

    /// A message about the lock.
    ///
    /// # Errors
    /// If the message breaks the protocol.
    pub fn heard(&mut self, from: Rank, message: Message, out: &mut Vec<LocalAction>) -> Result<(), ProtocolViolation> {
        let mut actions = vec![];
        let said = self.role.heard(from, message, &mut actions);
        self.follow(actions, out);
        said
    }

    /// The server of those that had the lock in an earlier view says something.
    ///
    /// # Errors
    /// As [`heard`](Self::heard).
    pub fn heard_of_recovery_holder(
        &mut self,
        from: Rank,
        message: Message,
        out: &mut Vec<LocalAction>,
    ) -> Result<(), ProtocolViolation> {
        if self.is_survivor {
            self.heard(from, message, out)
        } else {
            Err(ProtocolViolation("a lock without clients here"))
        }
    }

    /// What was posted is done.
    ///
    /// # Errors
    /// If nothing was.
    pub fn completed(&mut self, outcome: &Outcome, out: &mut Vec<LocalAction>) -> Result<(), ProtocolViolation> {
        let mut actions = vec![];
        let said = self.role.completed(outcome, &mut actions);
        self.follow(actions, out);
        said
    }

    /// Readers do not see whether a writer waits. When the number of joined readers is at its bound, the node looks at
    /// the word.
    fn look(&mut self, out: &mut Vec<LocalAction>) {
        let wants_to_join = self.waiting.front().is_some_and(|(_, request)| request.mode == Mode::Shared);
        if wants_to_join && self.reads_together().is_some() && self.joined >= self.at_most && !self.has_looked {
            self.has_looked = true;
            out.push(LocalAction::Look);
        }
    }

    /// The token, if clients hold the lock as readers and the lock's word shows readers and waiting writers.
    fn reads_together(&self) -> Option<Token> {
        match self.role.held() {
            Some((Mode::Shared, token)) if !self.holders.is_empty() && self.role.is_in_word() => Some(token),
            _ => None,
        }
    }

    /// This stood in the lock word a moment ago.
    pub fn looked(&mut self, outcome: &Outcome, out: &mut Vec<LocalAction>) {
        if let Some(token) = self.reads_together()
            && self.may_grant
            && self.has_looked
            && outcome.before.tail == Rank::NOBODY
        {
            (self.joined, self.has_looked) = (0, false);
            self.hand_out(Mode::Shared, token, out);
        }
    }

    /// The lease has run out: the node's clients hold nothing any longer (rule L6).
    pub fn lapse(&mut self, out: &mut Vec<LocalAction>) {
        self.may_grant = false;
        let lost = std::mem::take(&mut self.holders);
        if !lost.is_empty() {
            out.extend(lost.into_iter().map(|id| LocalAction::Answer(id, Answer::Lost)));
            self.let_go(out);
        }
    }

    /// The view has ended, and the node is this one in the next. Gives what it has to report to the lock's home there, and what it says
    /// after that.
    pub fn view_ends(&mut self, fresh: LockRole, out: &mut Vec<LocalAction>) -> Option<(Survivor, Rank)> {
        let front = self.waiting.front();
        let survivor = self.role.survives().filter(|survivor| match survivor {
            Survivor::Holds(..) => !self.holders.is_empty(),
            // A try is made again.
            Survivor::Waits(mode) => front.is_some_and(|(_, want)| want.mode == *mode && !want.is_try),
        });
        let was_downgrading = !self.holders.is_empty() && self.role.held().is_none();
        let ahead = std::mem::replace(&mut self.ahead, Rank::NOBODY);
        self.asked = front.map(|(id, _)| *id).filter(|_| matches!(survivor, Some(Survivor::Waits(_))));
        (self.is_survivor, self.has_looked) = (survivor.is_some(), false);
        self.role = survivor.map_or(fresh, LockRole::of);
        if was_downgrading && let Some((mode, token)) = self.role.held() {
            self.granted(mode, token, out);
        }
        survivor.map(|survivor| (survivor, ahead))
    }

    /// The incarnation ends: the node's holds are lost, and its waiters keep waiting.
    pub fn end_incarnation(&mut self, fresh: LockRole, out: &mut Vec<LocalAction>) {
        out.extend(self.holders.drain(..).map(|id| LocalAction::Answer(id, Answer::Lost)));
        *self = LocalQueue { waiting: std::mem::take(&mut self.waiting), ..LocalQueue::new(fresh) };
    }

    /// A survivor that has released is a participant like others from now on.
    pub fn contend(&mut self, fresh: impl FnOnce() -> LockRole) {
        if self.is_survivor && self.role.is_idle() {
            (self.is_survivor, self.role) = (false, fresh());
        }
    }

    fn may_join(&self) -> bool {
        self.may_grant && !self.holders.is_empty() && self.waiting.is_empty() && self.joined < self.at_most
    }

    fn give(&mut self, id: RequestId, mode: Mode, token: Token, out: &mut Vec<LocalAction>) {
        self.holders.push(id);
        out.push(LocalAction::Answer(id, Answer::Granted(mode, token)));
    }

    /// The last client of this node has released: the next one waiting goes on with the hold, or the node lets go.
    fn pass_on(&mut self, out: &mut Vec<LocalAction>) {
        let next = self.waiting.front().map(|(_, request)| request.mode);
        let is_fair = self.joined < self.at_most || !self.role.is_waited_for();
        match (self.role.held(), next) {
            (Some((Mode::Exclusive, _)), Some(next)) if self.may_grant && is_fair => {
                self.joined += 1;
                match next {
                    Mode::Exclusive => match self.role.again() {
                        Some(token) => self.hand_out(Mode::Exclusive, token, out),
                        None => self.let_go(out),
                    },
                    Mode::Shared => {
                        let mut actions = vec![];
                        match self.role.downgrade(&mut actions) {
                            Ok(()) => self.follow(actions, out),
                            // There is no token left for it.
                            Err(_) => self.let_go(out),
                        }
                    }
                }
            }
            _ => self.let_go(out),
        }
    }

    /// The node holds the lock in this mode. Grants it to the waiting clients that can share it.
    fn hand_out(&mut self, mode: Mode, token: Token, out: &mut Vec<LocalAction>) {
        while let Some(&(id, request)) = self.waiting.front()
            && request.mode == mode
            && (mode == Mode::Shared || self.holders.is_empty())
        {
            self.waiting.pop_front();
            self.give(id, mode, token, out);
        }
        if self.holders.is_empty() {
            // The client that wanted it has given up.
            self.let_go(out);
        }
    }

    fn let_go(&mut self, out: &mut Vec<LocalAction>) {
        let mut actions = vec![];
        // A node that is becoming a reader has no client left to hold the lock then.
        if self.role.held().is_some() && self.role.release(&mut actions).is_ok() {
            self.follow(actions, out);
        }
    }

    fn follow(&mut self, actions: Vec<Action>, out: &mut Vec<LocalAction>) {
        for action in actions {
            match action {
                Action::Access(batch) => out.push(LocalAction::Access(batch)),
                Action::Send(to, message) => {
                    if let (To::Participant(ahead), Message::Join | Message::Behind { .. }) = (to, message) {
                        self.ahead = ahead;
                    }
                    out.push(LocalAction::Send(to, message));
                }
                Action::Granted(mode, token) => self.granted(mode, token, out),
                Action::Refused(why) => self.refused(why, out),
                // Waiting clients keep waiting.
                Action::Moved => {
                    self.asked = None;
                    out.push(LocalAction::Moved);
                }
                Action::Left | Action::Evicted(_) => {}
            }
        }
    }

    fn granted(&mut self, mode: Mode, token: Token, out: &mut Vec<LocalAction>) {
        // A writer that has become a reader.
        out.extend(self.holders.iter().map(|&id| LocalAction::Answer(id, Answer::Granted(mode, token))));
        if self.holders.is_empty() {
            (self.joined, self.has_looked) = (0, false);
        }
        if self.may_grant {
            self.hand_out(mode, token, out);
        } else if self.holders.is_empty() {
            // Without a lease the node may grant nothing: it asks for the lock again when it has one.
            self.let_go(out);
        }
    }

    fn refused(&mut self, why: Refusal, out: &mut Vec<LocalAction>) {
        if let Some(asked) = self.asked.take()
            && let Some(&(id, _)) = self.waiting.front()
            && id == asked
        {
            self.waiting.pop_front();
            out.push(LocalAction::Answer(id, Answer::Refused(why)));
        }
    }
}
