//! Opening a peer's regions. That may block a thread, so it happens away from the driver; reading the head of a page table does not, so
//! the driver waits for it as for everything else.

use std::sync::Arc;
use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Peer, Pending, RegionKey, SharedRemote};
use verbena_terms::{Incarnation, Time};

use super::READ_DEADLINE;
use super::introduction::Introduction;
use crate::table::{PAGE_TABLE_HEADER_WORDS, PageTable};

/// How long opening a peer's regions may take.
const OPEN_DEADLINE: Duration = Duration::from_secs(1);

/// What is to be opened.
pub(super) struct Opening {
    me: Incarnation,
    peer: Arc<dyn Peer>,
    introduction: Introduction,
    deadline: Time,
}

/// A peer's regions, or why they cannot be opened.
pub(super) struct Opened {
    /// The incarnation that wanted them opened.
    pub(super) me: Incarnation,
    pub(super) peer: Incarnation,
    pub(super) table: Option<Result<SharedRemote, String>>,
    pub(super) acknowledgements: Result<SharedRemote, String>,
}

/// The head of a peer's page table, being read.
pub(super) struct Head {
    pub(super) peer: Incarnation,
    pub(super) table: SharedRemote,
    pub(super) acknowledgements: SharedRemote,
    words: Pending<Completed>,
}

impl Opening {
    pub(super) fn new(me: Incarnation, peer: Arc<dyn Peer>, introduction: Introduction, now: Time) -> Self {
        Opening { me, peer, introduction, deadline: now + OPEN_DEADLINE }
    }

    /// Opens. May block.
    pub(super) fn run(self) -> Opened {
        let open = |key: &RegionKey| self.peer.open(key, self.deadline).map_err(|error| error.to_string());
        Opened {
            me: self.me,
            peer: self.peer.incarnation(),
            table: self.introduction.table.as_ref().map(open),
            acknowledgements: open(&self.introduction.acknowledgements),
        }
    }
}

impl Head {
    pub(super) fn read(peer: Incarnation, table: SharedRemote, acknowledgements: SharedRemote, now: Time) -> Self {
        let at: Vec<u64> = (0..PAGE_TABLE_HEADER_WORDS as u64).map(|word| 8 * word).collect();
        let words = table.post(Batch::read_words(&at), Class::Control, now + READ_DEADLINE);
        Head { peer, table, acknowledgements, words }
    }

    /// The layout that it describes, once it has been read; or why its table cannot be used.
    pub(super) fn check(&mut self, names: u64) -> Option<Result<PageTable, String>> {
        let read = self.words.poll_now()?;
        Some(read.map_err(|error| error.to_string()).and_then(|read| {
            let mut header = [0; PAGE_TABLE_HEADER_WORDS];
            for (word, done) in header.iter_mut().zip(&read) {
                *word = done.word().unwrap_or(0);
            }
            let layout = PageTable::check(self.peer, header, names).map_err(|error| error.to_string())?;
            let bytes = self.table.key().bytes;
            if layout.region_bytes() > bytes {
                return Err(format!("its page table of {} slots does not fit {bytes} bytes", layout.slots()));
            }
            Ok(layout)
        }))
    }
}
