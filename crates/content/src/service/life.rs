//! What belongs to one incarnation of a node, and ends with it: its regions, its home, and the members that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_fabric::{Address, Class, Fabric, Inbox, Peer, Port, Region, Rights, SharedRemote, Views};
use verbena_service::batches::Batches;
use verbena_terms::{Incarnation, Time, ViewNumber};

use super::Options;
use super::batches::AcknowledgementWrite;
use super::introduction::Introduction;
use super::opening::{Head, Opened, Opening};
use super::routes::{Access, Table};
use crate::home::Home;
use crate::rules::Rules;
use crate::table::AcknowledgementWords;

/// Messages of the page protocol.
pub(super) const PROTOCOL: Port = Port(16);
/// Introductions.
pub(super) const INTRODUCTIONS: Port = Port(17);
/// Acknowledgement words: one for each home that a view can have.
const WORDS: u32 = verbena_cluster::MAX_MEMBERS as u32;
/// When a member whose address could not be used is tried again.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);
/// How often an introduction is repeated while it is not answered.
const INTRODUCE_AGAIN: Duration = Duration::from_millis(50);

/// What belongs to one incarnation, and ends with it.
pub(super) struct Life {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) home: Home,
    pub(super) table: Arc<dyn Region>,
    pub(super) words: AcknowledgementWords,
    acknowledgements: Box<dyn Region>,
    pub(super) protocol: Inbox,
    pub(super) introductions: Inbox,
    pub(super) view: Option<Arc<View>>,
    pub(super) peers: BTreeMap<Incarnation, Known>,
    /// When those members that could not be connected to are tried again, if there are any.
    connect_at: Option<Time>,
    batches: Batches<AcknowledgementWrite>,
    /// Page tables that are open and whose heads are being read.
    heads: Vec<Head>,
}

/// Another member, as this one knows it.
pub(super) struct Known {
    pub(super) peer: Arc<dyn Peer>,
    pub(super) is_home: bool,
    pub(super) acknowledgements: Option<SharedRemote>,
    pub(super) opening: bool,
    /// When to introduce this node again, as long as the other has not.
    pub(super) introduce_at: Option<Time>,
}

impl Life {
    /// New regions and a new home for the incarnation that the fabric is (rule C1).
    pub(super) fn begin(fabric: Arc<dyn Fabric>, options: &Options, rules: Rules) -> verbena_fabric::Result<Life> {
        let me = fabric.identity();
        let home = Home::with_rules(me, options.names.fingerprint(), options.home, rules);
        let table = fabric.register(home.table().region_bytes(), ViewNumber(0))?;
        for (at, word) in (0..).step_by(8).zip(home.table().header()) {
            table.store(at, word)?;
        }
        for (at, word) in home.words() {
            table.store(at, word)?;
        }
        let words = AcknowledgementWords::new(me, WORDS);
        let acknowledgements = fabric.register(words.region_bytes(), ViewNumber(0))?;
        for (at, word) in (0..).step_by(8).zip(words.header()) {
            acknowledgements.store(at, word)?;
        }
        let protocol = fabric.listen(PROTOCOL, Views::CurrentAndLater)?;
        let introductions = fabric.listen(INTRODUCTIONS, Views::Any)?;
        let (table, peers, batches, heads) = (Arc::from(table), BTreeMap::new(), Batches::default(), Vec::new());
        Ok(Life {
            fabric,
            home,
            table,
            words,
            acknowledgements,
            protocol,
            introductions,
            view: None,
            peers,
            connect_at: None,
            batches,
            heads,
        })
    }

    pub(super) fn me(&self) -> Incarnation {
        self.fabric.identity()
    }

    pub(super) fn own_table(&self) -> Table {
        Table { layout: *self.home.table(), access: Access::Own(self.table.clone()) }
    }

    pub(super) fn store(&self, offset: u64, word: u64) {
        // A word that cannot be stored would leave stale pages valid: better no node than such a one.
        self.table.store(offset, word).expect("invariant: the own page table is there as long as its home");
    }

    /// How far a home has handled the own messages, as it says; 0, which says nothing, if the word cannot be read.
    pub(super) fn acknowledgement(&self, word: u32) -> u64 {
        let offset = self.words.offset(word).expect("invariant: a view has no more homes than there are words");
        self.acknowledgements.load(offset).unwrap_or(0)
    }

    /// Writes into this home's word at an updater.
    pub(super) fn acknowledge(&mut self, to: Incarnation, word: u32, value: u64, now: Time) {
        let Some(at) = self.words.offset(word) else { return };
        if to == self.me() {
            if let Err(error) = self.acknowledgements.store(at, value) {
                tracing::error!(%error, "the own acknowledgement words cannot be written");
            }
            return;
        }
        // Otherwise it is lost: the updater asks again.
        if self.peers.get(&to).is_some_and(|known| known.acknowledgements.is_some()) {
            self.batches.submit(AcknowledgementWrite::new(to, at, value), now);
        }
    }

    /// Posts the acknowledgements since the last call, and settles those whose answer was lost.
    pub(super) fn look_at_batches(&mut self, now: Time) {
        let peers = &self.peers;
        self.batches.poll(now, &*self.fabric, |member| peers.get(&member)?.acknowledgements.clone());
    }

    /// Gets to know the members of a view, and forgets nodes that are not members.
    pub(super) fn meet_members(&mut self, view: &Arc<View>, now: Time) {
        self.view = Some(view.clone());
        self.peers.retain(|peer, _| view.member(*peer).is_some());
        self.batches.end_view(|peer| view.member(peer).is_some());
        self.heads.retain(|head| view.member(head.peer).is_some());
        self.connect(now);
    }

    /// Connects to those members that it does not know yet, if they are to be tried now.
    pub(super) fn connect_again(&mut self, now: Time) {
        if self.connect_at.is_some_and(|at| at <= now) {
            self.connect(now);
        }
    }

    fn connect(&mut self, now: Time) {
        let (me, Some(view)) = (self.me(), self.view.clone()) else { return };
        self.connect_at = None;
        for member in view.members() {
            let (peer, address) = (member.incarnation, Address(member.address.clone()));
            if peer == me || self.peers.contains_key(&peer) {
                continue;
            }
            match self.fabric.connect(peer, &address) {
                Ok(connected) => {
                    let is_home = member.roles.has(Role::Home);
                    let introduce_at = Some(now);
                    let known =
                        Known { peer: connected, is_home, acknowledgements: None, opening: false, introduce_at };
                    self.peers.insert(peer, known);
                }
                Err(error) => {
                    tracing::warn!(%peer, %address, %error, "a member cannot be reached on this fabric");
                    self.connect_at = Some(now + CONNECT_AGAIN);
                }
            }
        }
    }

    /// When members are to be made acquaintance of: connected to, or introduced to.
    pub(super) fn next_acquaintance(&self) -> Option<Time> {
        self.peers.values().filter_map(|known| known.introduce_at).chain(self.connect_at).min()
    }

    /// To whom an introduction is due.
    pub(super) fn to_introduce(&self, now: Time) -> Vec<Incarnation> {
        let due = self.peers.iter().filter(|(_, known)| known.introduce_at.is_some_and(|at| at <= now));
        due.map(|(&peer, _)| peer).collect()
    }

    /// Sends an introduction; again later, unless the other has introduced itself.
    pub(super) fn introduce_to(&mut self, peer: Incarnation, view: ViewNumber, wants_answer: bool, now: Time) {
        let is_home = self.view.as_ref().is_some_and(|view| view.homes().any(|home| home.incarnation == self.me()));
        let introduction = Introduction {
            from: self.me(),
            table: is_home.then(|| self.table.key(Rights::Read)),
            acknowledgements: self.acknowledgements.key(Rights::Change),
            wants_answer,
        };
        // Of a view not learnt of yet: the other repeats itself.
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.introduce_at = known.introduce_at.map(|_| now + INTRODUCE_AGAIN);
        if let Err(error) = known.peer.send(Class::Control, view, INTRODUCTIONS, 0, &introduction.encode()) {
            tracing::debug!(%peer, %error, "an introduction was not sent");
        }
    }

    /// How to open a peer's regions, if they are to be opened: they are from now on being opened.
    pub(super) fn may_open(&mut self, introduction: Introduction, now: Time) -> Option<Opening> {
        let me = self.me();
        let known = self.peers.get_mut(&introduction.from)?;
        if known.acknowledgements.is_some() || std::mem::replace(&mut known.opening, true) {
            return None;
        }
        Some(Opening::new(me, known.peer.clone(), introduction, now))
    }

    /// A peer's regions are open, or cannot be opened. Of a home the head of the page table is still to be read.
    pub(super) fn opened(&mut self, opened: Opened, now: Time) -> Result<(), String> {
        let Some(known) = self.peers.get_mut(&opened.peer) else { return Ok(()) };
        let regions = opened.table.transpose().and_then(|table| Ok((table, opened.acknowledgements?)));
        match regions {
            Ok((Some(table), acknowledgements)) if known.is_home => {
                self.heads.push(Head::read(opened.peer, table, acknowledgements, now));
            }
            Ok((_, acknowledgements)) => known.open(acknowledgements),
            Err(reason) => {
                known.opening = false;
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Whether a page table's head is being read.
    pub(super) fn is_reading(&self) -> bool {
        !self.heads.is_empty()
    }

    /// The page tables whose heads have been read, or why they cannot be used.
    pub(super) fn tables(&mut self, names: u64) -> Vec<(Incarnation, Result<Table, String>)> {
        let mut read = Vec::new();
        for mut head in std::mem::take(&mut self.heads) {
            let Some(checked) = head.check(names) else {
                self.heads.push(head);
                continue;
            };
            let Some(known) = self.peers.get_mut(&head.peer) else { continue };
            match &checked {
                Ok(_) => known.open(head.acknowledgements),
                Err(_) => known.opening = false,
            }
            let table = checked.map(|layout| Table { layout, access: Access::Peer(head.table) });
            read.push((head.peer, table));
        }
        read
    }
}

impl Known {
    fn open(&mut self, acknowledgements: SharedRemote) {
        self.opening = false;
        self.acknowledgements = Some(acknowledgements);
        self.introduce_at = None;
    }
}
