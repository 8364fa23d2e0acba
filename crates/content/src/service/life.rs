//! What belongs to one incarnation of a node, and ends with it: its regions, its home, and the members that it knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_fabric::{
    Address, Batch, Class, Error, Fabric, Inbox, Operation, Peer, Port, Region, RegionKey, Rights, SharedRemote, Views,
};
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::Options;
use super::introduction::Introduction;
use super::routes::{Access, Table};
use crate::home::Home;
use crate::table::{AcknowledgementWords, PAGE_TABLE_HEADER_WORDS, PageTable};

/// Messages of the page protocol.
pub(super) const PROTOCOL: Port = Port(16);
/// Introductions.
pub(super) const INTRODUCTIONS: Port = Port(17);
/// Acknowledgement words: one for each home that a view can have.
const WORDS: u32 = verbena_cluster::MAX_MEMBERS as u32;
/// How often an introduction is repeated while it is not answered.
const INTRODUCE_AGAIN: Duration = Duration::from_millis(50);
/// How long a one-sided write of an acknowledgement may take.
const WRITE_DEADLINE: Duration = Duration::from_millis(100);
/// How long opening a peer's region may take.
pub(super) const OPEN_DEADLINE: Duration = Duration::from_secs(1);

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

/// A peer's regions, opened away from the thread, because opening may block.
pub(super) struct Opened {
    /// Whose life it was.
    pub(super) me: Incarnation,
    pub(super) peer: Incarnation,
    pub(super) table: Option<Result<Table, String>>,
    pub(super) acknowledgements: Result<SharedRemote, String>,
}

impl Life {
    /// New regions and a new home for the incarnation that the fabric is (rule C1).
    pub(super) fn begin(fabric: Arc<dyn Fabric>, options: &Options) -> verbena_fabric::Result<Life> {
        let me = fabric.identity();
        let home = Home::new(me, options.names.fingerprint(), options.home);
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
        let (table, peers) = (Arc::from(table), BTreeMap::new());
        Ok(Life { fabric, home, table, words, acknowledgements, protocol, introductions, view: None, peers })
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
    pub(super) fn acknowledge(&self, to: Incarnation, word: u32, value: u64) {
        let Some(at) = self.words.offset(word) else { return };
        if to == self.me() {
            if let Err(error) = self.acknowledgements.store(at, value) {
                tracing::error!(%error, "the own acknowledgement words cannot be written");
            }
            return;
        }
        let Some(remote) = self.peers.get(&to).and_then(|known| known.acknowledgements.clone()) else { return };
        let batch = Batch::one(Operation::WriteWord { at, value });
        let mut written = remote.post(batch, Class::Control, BootClock.now() + WRITE_DEADLINE);
        match written.poll_now() {
            Some(Ok(_)) => {}
            Some(Err(error)) => tracing::debug!(%to, %error, "an acknowledgement was not written"),
            None => {
                tokio::spawn(async move {
                    // What may still be executed must be settled before so many others follow that nobody would know (rule F2).
                    if let Err(Error::Unknown { first: Some(first), .. }) = written.await {
                        let deadline = BootClock.now() + OPEN_DEADLINE;
                        let _ = remote.settle(first, Class::Control, deadline).await;
                    }
                });
            }
        }
    }

    /// Gets to know the members of a view, and forgets who is none.
    pub(super) fn meet_members(&mut self, view: &Arc<View>) {
        let me = self.me();
        self.view = Some(view.clone());
        self.peers.retain(|peer, _| view.member(*peer).is_some());
        for member in view.members() {
            let (peer, address) = (member.incarnation, Address(member.address.clone()));
            if peer == me || self.peers.contains_key(&peer) {
                continue;
            }
            match self.fabric.connect(peer, &address) {
                Ok(connected) => {
                    let is_home = member.roles.has(Role::Home);
                    let introduce_at = Some(BootClock.now());
                    let known =
                        Known { peer: connected, is_home, acknowledgements: None, opening: false, introduce_at };
                    self.peers.insert(peer, known);
                }
                Err(error) => tracing::warn!(%peer, %address, %error, "a member cannot be reached on this fabric"),
            }
        }
    }

    /// To whom an introduction is due.
    pub(super) fn to_introduce(&self, now: Time) -> Vec<Incarnation> {
        let due = self.peers.iter().filter(|(_, known)| known.introduce_at.is_some_and(|at| at <= now));
        due.map(|(&peer, _)| peer).collect()
    }

    /// Sends an introduction; again later, unless the other has introduced itself.
    pub(super) fn introduce_to(&mut self, peer: Incarnation, view: ViewNumber, wants_answer: bool) {
        let is_home = self.view.as_ref().is_some_and(|view| view.homes().any(|home| home.incarnation == self.me()));
        let introduction = Introduction {
            from: self.me(),
            table: is_home.then(|| self.table.key(Rights::Read)),
            acknowledgements: self.acknowledgements.key(Rights::Change),
            wants_answer,
        };
        // Of a view not learnt of yet: the other repeats itself.
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.introduce_at = known.introduce_at.map(|_| BootClock.now() + INTRODUCE_AGAIN);
        if let Err(error) = known.peer.send(Class::Control, view, INTRODUCTIONS, 0, &introduction.encode()) {
            tracing::debug!(%peer, %error, "an introduction was not sent");
        }
    }

    /// The peer, if its regions are to be opened: they are from now on being opened.
    pub(super) fn may_open(&mut self, peer: Incarnation) -> Option<Arc<dyn Peer>> {
        let known = self.peers.get_mut(&peer)?;
        if known.acknowledgements.is_some() || std::mem::replace(&mut known.opening, true) {
            return None;
        }
        Some(known.peer.clone())
    }

    /// A peer's regions are open, or cannot be opened. Gives its page table, if it is a home.
    pub(super) fn opened(&mut self, opened: Opened) -> Result<Option<Table>, String> {
        let Some(known) = self.peers.get_mut(&opened.peer) else { return Ok(None) };
        known.opening = false;
        let table = opened.table.transpose()?;
        known.acknowledgements = Some(opened.acknowledgements?);
        known.introduce_at = None;
        Ok(table.filter(|_| known.is_home))
    }
}

/// Opens a peer's regions, and reads the head of its page table.
pub(super) fn open(me: Incarnation, peer: &dyn Peer, introduction: Introduction, names: u64) -> Opened {
    let deadline = BootClock.now() + OPEN_DEADLINE;
    let open_table = |key: &RegionKey| {
        let remote = peer.open(key, deadline).map_err(|error| error.to_string())?;
        let at: Vec<u64> = (0..PAGE_TABLE_HEADER_WORDS as u64).map(|word| 8 * word).collect();
        let read = remote.post(Batch::read_words(&at), Class::Control, deadline).wait();
        let read = read.map_err(|error| error.to_string())?;
        let mut header = [0; PAGE_TABLE_HEADER_WORDS];
        for (word, done) in header.iter_mut().zip(&read) {
            *word = done.word().unwrap_or(0);
        }
        let layout = PageTable::check(peer.incarnation(), header, names).map_err(|error| error.to_string())?;
        if layout.region_bytes() > key.bytes {
            return Err(format!("its page table of {} slots does not fit {} bytes", layout.slots(), key.bytes));
        }
        Ok(Table { layout, access: Access::Peer(remote) })
    };
    Opened {
        me,
        peer: peer.incarnation(),
        table: introduction.table.as_ref().map(open_table),
        acknowledgements: peer.open(&introduction.acknowledgements, deadline).map_err(|error| error.to_string()),
    }
}
