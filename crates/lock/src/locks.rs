//! A node's part in all locks: those that its clients want, those that it is the home of, and what it says to the other members.
//!
//! ```text
//!   clients --> LocalQueue (one a lock) --> LockRole --+--> batches at the words of the lock's home
//!                                                       |
//!   members <-> Stream (one a member) <--- messages ----+
//!                                                       |
//!               Directory (as a home) --> Home, RecoveryHolder (one a lock, while they have something to remember)
//! ```
//!
//! It acts in the newest view that it has learnt of, and in no other: a view that ends takes its words, its streams and its slots with it (rules F4, F5), and
//! only what [`Survivor`](crate::Survivor) says is carried over.

mod deadlocks;
mod forgetting;
mod keeping;
mod listing;
mod messages;
mod views;

use std::collections::{BTreeMap, HashMap};

use hashlink::LruCache;
use verbena_cluster::Lease;
use verbena_fabric::RegionKey;
use verbena_terms::{Incarnation, Time};

use crate::action::ProtocolViolation;
use crate::askers::{Asker, Askers};
use crate::directory::{Directory, HomeWords, Owner};
use crate::listing::Page;
use crate::local_queue::{Answer, LocalAction, LocalQueue, RequestId};
use crate::members::Members;
use crate::name::Name;
use crate::wire::{Frame, MemberMessage, Slot};
use crate::{Batch, Change, LockRole, Outcome, RecoveryHolder, Removal, Request, Rules, Scheme, To};
use forgetting::Forgetting;

/// Unused locks whose words the node remembers, at most.
const KNOWN: usize = 1 << 16;

/// How a node's locks work.
#[derive(Clone, Copy, Debug)]
pub struct LocksOptions {
    /// How locks are passed on: the same at every node of a cluster.
    pub scheme: Scheme,
    /// Locks that a home has words for in one view.
    pub slots: u32,
    /// Which rules are kept.
    pub rules: Rules,
}

/// A batch that was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PostId(pub u64);

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum LocksAction {
    /// What clients held is lost from now on. To be said to them before anything that follows is done (rule L6).
    Lapsed,
    /// Answer the request.
    Answer(RequestId, Answer),
    /// Post this at the words of this slot, when its home's words are open, and say [`completed`](Locks::completed) when it is certain what came of it.
    Post(PostId, Slot, Batch),
    /// Store this word in the node's own region. No other node knows of that slot yet.
    Store {
        /// At which byte.
        at: u64,
        /// What.
        word: u64,
    },
    /// Open these words, a member's or the node's own.
    Open(RegionKey),
    /// Send this.
    Send(Frame),
    /// A member says what its clients have, for a list of this number.
    Listed {
        /// Of which list.
        number: u64,
        /// The sender.
        from: Incarnation,
        /// What.
        page: Page,
    },
    /// A home says what became of a lock that was to be removed.
    Removed {
        /// By which wish.
        number: u64,
        /// The sender.
        from: Incarnation,
        /// What.
        removal: Removal,
    },
    /// A member or a client breaks the protocol. Nothing was changed.
    ProtocolViolation(Incarnation, ProtocolViolation),
}

/// A node's part in all locks.
#[derive(Debug)]
pub struct Locks {
    options: LocksOptions,
    me: Incarnation,
    /// Of the newest view that was learnt of.
    members: Members,
    lease: Lease,
    /// When that was last looked at.
    now: Time,
    /// There is a lease, in this view: rule C5.
    may_grant: bool,
    /// What was held under the last lease has been given up.
    has_lapsed: bool,
    /// The locks that clients of this node want, or that have something to remember.
    here: BTreeMap<Name, Box<Here>>,
    /// What each client holds and waits for.
    askers: Askers,
    /// Of those whose words are known.
    names: HashMap<Slot, Name>,
    /// Where the words of others are.
    known: LruCache<Name, Slot>,
    posts: HashMap<PostId, (Slot, Poster)>,
    posted: u64,
    /// What its client has released, and may hold on.
    kept: Option<RequestId>,
    /// Words that this node is asked to forget.
    forgetting: Forgetting,
    /// As a home in earlier views: locks that were evicted, and words that were used again.
    before: (u64, u64),
    /// As a home.
    directory: Option<Directory>,
}

#[derive(Debug)]
struct Here {
    local: LocalQueue,
    words: Words,
    /// When the node got it last.
    got: Time,
}

/// What is known of a lock's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    Unknown,
    Asked,
    At(Slot),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Poster {
    LocalQueue,
    /// A client that looks whether others wait.
    Look,
    Directory(Owner),
}

impl Locks {
    /// A node between incarnations.
    pub fn new(options: LocksOptions) -> Self {
        Locks {
            options,
            me: Incarnation::default(),
            members: Members::default(),
            lease: Lease::NONE,
            now: Time::ZERO,
            may_grant: false,
            has_lapsed: true,
            here: BTreeMap::new(),
            askers: Askers::default(),
            names: HashMap::new(),
            known: LruCache::new(KNOWN),
            posts: HashMap::new(),
            posted: 0,
            kept: None,
            forgetting: Forgetting::new(),
            before: (0, 0),
            directory: None,
        }
    }

    /// Bytes that a home's words take.
    pub fn region_bytes(&self) -> u64 {
        u64::from(self.options.slots) * crate::LOCK_BYTES
    }

    // Clients.

    /// A client wants a lock. `id` is new, and will be answered: granted or refused, and when it was granted perhaps lost.
    /// Where the same client holds the lock it has it once more, in the mode in which it has it; a reader is refused to become a writer. Whether it holds on what was kept for it.
    pub fn acquire(
        &mut self,
        id: RequestId,
        asker: Asker,
        name: Name,
        request: Request,
        out: &mut Vec<LocksAction>,
    ) -> bool {
        if self.holds_on(id, asker, &name, request, out) {
            return true;
        }
        self.settle(out);
        let is_own = self.askers.holds(asker, &name);
        self.askers.wants(id, asker, name.clone(), self.now);
        if !self.here.contains_key(&name) {
            let words = self.known.remove(&name).map_or(Words::Unknown, Words::At);
            if let Words::At(slot) = words {
                self.names.insert(slot, name.clone());
            }
            self.here
                .insert(name.clone(), Box::new(Here { local: LocalQueue::new(self.fresh()), words, got: Time::ZERO }));
        }
        self.with(&name, out, |local, actions| match is_own {
            true => local.acquire_again(id, request, actions),
            false => local.acquire(id, request, actions),
        });
        self.hear_self(out);
        false
    }

    /// A client is done with a lock.
    ///
    /// # Errors
    /// When it does not hold it, or not any more.
    pub fn release(&mut self, id: RequestId, out: &mut Vec<LocksAction>) -> Result<(), ProtocolViolation> {
        self.settle(out);
        self.let_go(id, out)
    }

    fn let_go(&mut self, id: RequestId, out: &mut Vec<LocksAction>) -> Result<(), ProtocolViolation> {
        self.change(id, out, |local, actions| local.release(id, actions))?;
        self.askers.ended(id, self.now);
        Ok(())
    }

    /// Turns a client's exclusive hold into a shared one. It holds the lock exclusively until the answer says that it
    /// is a reader.
    ///
    /// # Errors
    /// When it does not hold it so.
    pub fn downgrade(&mut self, id: RequestId, out: &mut Vec<LocksAction>) -> Result<(), ProtocolViolation> {
        self.settle(out);
        self.change(id, out, |local, actions| local.downgrade(id, actions))
    }

    /// Asks the lock's home to evict it, if it is not used. The home answers by [`LocksAction::Removed`]. Returns the
    /// home; `None` where the node is in no view.
    pub fn remove(&mut self, number: u64, name: Name, out: &mut Vec<LocksAction>) -> Option<Incarnation> {
        self.settle(out);
        let home = self.members.view().and_then(|_| self.members.home_of(&name))?;
        self.members.say(home, MemberMessage::Remove { number, name });
        self.hear_self(out);
        Some(home)
    }

    /// A client does not want a lock any more, or has died. Whether it holds it or waits for it, it hears nothing more.
    pub fn forget(&mut self, id: RequestId, out: &mut Vec<LocksAction>) {
        self.settle(out);
        let Some(name) = self.askers.ended(id, self.now) else { return };
        self.with(&name, out, |local, actions| local.forget(id, actions));
        self.hear_self(out);
    }

    // What arrives.

    /// A member said this.
    pub fn heard(&mut self, frame: Frame, now: Time, out: &mut Vec<LocksAction>) {
        let from = frame.from;
        for member_message in self.members.heard(frame, now) {
            self.member_message(from, member_message, out);
        }
        self.hear_self(out);
    }

    /// It is certain what came of a batch.
    pub fn completed(&mut self, id: PostId, outcome: &Outcome, out: &mut Vec<LocksAction>) {
        // Of a view that is over nothing is remembered.
        let Some((slot, poster)) = self.posts.remove(&id) else { return };
        let name = self.names.get(&slot).cloned();
        match (poster, &mut self.directory) {
            (Poster::LocalQueue, _) => {
                let Some(name) = name else { return };
                let said = self.with(&name, out, |local, actions| local.completed(outcome, actions));
                note(self.me, said.unwrap_or(Ok(())), out);
            }
            (Poster::Look, _) => {
                if let Some(name) = name {
                    self.with(&name, out, |local, actions| local.looked(outcome, actions));
                }
            }
            (Poster::Directory(owner), Some(directory)) => {
                let mut actions = vec![];
                note(self.me, directory.completed(slot.number, owner, outcome, &mut actions), out);
                self.direct(actions, out);
            }
            (Poster::Directory(_), None) => {}
        }
        self.hear_self(out);
    }

    // What is sent.

    /// Messages to a member go through from now on. Earlier ones were lost.
    pub fn reached(&mut self, member: Incarnation) {
        self.members.reached(member);
    }

    /// What is to be sent now.
    pub fn flush(&mut self, now: Time, out: &mut Vec<LocksAction>) {
        self.probe(now, out);
        self.tend_words(out);
        out.extend(self.members.due(now).into_iter().map(LocksAction::Send));
    }

    /// When there is something to send if nothing happens before; [`Time::ZERO`] if at once.
    pub fn next_deadline(&self) -> Option<Time> {
        let home = self.directory.as_ref().and_then(Directory::next_deadline);
        [self.members.next_deadline(), self.askers.next_deadline(), home].into_iter().flatten().min()
    }

    /// Members that have not said what they have of locks from the last view: until they have, this home grants nothing. None where it has opened.
    pub fn awaited(&self) -> Vec<Incarnation> {
        self.directory.iter().flat_map(Directory::awaited).collect()
    }

    /// How the words of this home stand; all zero if this node is no home.
    pub fn home_words(&self) -> HomeWords {
        let words = self.directory.as_ref().map(Directory::words).unwrap_or_default();
        let (evictions, reused) = self.before;
        HomeWords { evictions: evictions + words.evictions, reused: reused + words.reused, ..words }
    }

    // Within.

    fn fresh(&self) -> LockRole {
        LockRole::new(self.options.scheme, self.me.rank, self.options.rules)
    }

    /// A client does something with what it holds.
    fn change(
        &mut self,
        id: RequestId,
        out: &mut Vec<LocksAction>,
        event: impl FnOnce(&mut LocalQueue, &mut Vec<LocalAction>) -> Result<(), ProtocolViolation>,
    ) -> Result<(), ProtocolViolation> {
        let name = self.askers.get(id).map(|asked| asked.name.clone());
        let said = name.and_then(|name| self.with(&name, out, event));
        self.hear_self(out);
        said.unwrap_or(Err(ProtocolViolation("a lock that is not held, or not any more")))
    }

    fn with<T>(
        &mut self,
        name: &Name,
        out: &mut Vec<LocksAction>,
        event: impl FnOnce(&mut LocalQueue, &mut Vec<LocalAction>) -> T,
    ) -> Option<T> {
        let here = self.here.get_mut(name)?;
        here.local.may_grant(self.may_grant);
        let (mut actions, had) = (vec![], here.local.held().is_some());
        let said = event(&mut here.local, &mut actions);
        if !had && here.local.held().is_some() {
            here.got = self.now;
        }
        self.act(name, actions, out);
        self.advance(name, out);
        Some(said)
    }

    /// Asks for the lock if a client wants it and the node does not stand in the queue.
    fn advance(&mut self, name: &Name, out: &mut Vec<LocksAction>) {
        let fresh = || LockRole::new(self.options.scheme, self.me.rank, self.options.rules);
        let Some(here) = self.here.get_mut(name) else { return };
        here.local.contend(fresh);
        here.local.may_grant(self.may_grant);
        if self.may_grant && here.local.wants() {
            match here.words {
                Words::At(_) => {
                    let mut actions = vec![];
                    here.local.ask(&mut actions);
                    self.act(name, actions, out);
                }
                Words::Unknown => {
                    if let Some(home) = self.members.home_of(name) {
                        here.words = Words::Asked;
                        self.members.say(home, MemberMessage::Resolve(name.clone()));
                    }
                }
                Words::Asked => {}
            }
        }
        self.drop_if_over(name);
    }

    fn drop_if_over(&mut self, name: &Name) {
        if let Some(here) = self.here.get(name)
            && here.local.is_over()
            // Its home is asked once, however often clients come and go before it answers.
            && here.words != Words::Asked
        {
            if let Words::At(slot) = here.words {
                self.names.remove(&slot);
                // What is to be forgotten is not remembered for the next time.
                if !self.is_forgetting(slot) {
                    self.known.insert(name.clone(), slot);
                }
            }
            self.here.remove(name);
        }
    }

    fn act(&mut self, name: &Name, actions: Vec<LocalAction>, out: &mut Vec<LocksAction>) {
        let Some(here) = self.here.get(name) else { return };
        let (is_survivor, words) = (here.local.is_survivor(), here.words);
        for action in actions {
            match (action, words) {
                (LocalAction::Answer(id, answer), _) => {
                    match answer {
                        Answer::Granted(..) => self.askers.granted(id, self.now),
                        _ => drop(self.askers.ended(id, self.now)),
                    }
                    out.push(LocksAction::Answer(id, answer));
                }
                (LocalAction::Access(batch), Words::At(slot)) => self.post(slot, Poster::LocalQueue, batch, out),
                (LocalAction::Look, Words::At(slot)) => {
                    let look = Batch { change: Some(Change::Look), ..Batch::default() };
                    self.post(slot, Poster::Look, look, out);
                }
                (LocalAction::Send(to, message), _) if is_survivor => {
                    if let Some(home) = self.members.home_of(name) {
                        self.members.say(home, MemberMessage::OfSurvivor { name: name.clone(), to, message });
                    }
                }
                (LocalAction::Send(to, message), Words::At(slot)) => {
                    let whom = match to {
                        To::Participant(rank) if rank != RecoveryHolder::RANK => self.members.of_rank(rank),
                        _ => Some(slot.home),
                    };
                    if let Some(whom) = whom {
                        self.members.say(whom, MemberMessage::About { slot, to, message });
                    }
                }
                (LocalAction::Moved, Words::At(slot)) => {
                    self.names.remove(&slot);
                    self.here.entry(name.clone()).and_modify(|here| here.words = Words::Unknown);
                }
                // It is in no queue before its words are known.
                (
                    LocalAction::Access(_) | LocalAction::Look | LocalAction::Send(..) | LocalAction::Moved,
                    Words::Unknown | Words::Asked,
                ) => {}
            }
        }
    }

    fn post(&mut self, slot: Slot, poster: Poster, batch: Batch, out: &mut Vec<LocksAction>) {
        self.posted += 1;
        let id = PostId(self.posted);
        self.posts.insert(id, (slot, poster));
        out.push(LocksAction::Post(id, slot, batch));
    }
}

fn note(from: Incarnation, said: Result<(), ProtocolViolation>, out: &mut Vec<LocksAction>) {
    if let Err(violation) = said {
        out.push(LocksAction::ProtocolViolation(from, violation));
    }
}
