//! The regions of one incarnation of a node: its page table, and the words in which homes acknowledge its updates.

use std::sync::Arc;

use verbena_fabric::{Fabric, Region, Result, Rights};
use verbena_terms::{Incarnation, ViewNumber};

use super::introduction::Introduction;
use super::routes::{Access, Table};
use crate::home::Home;
use crate::table::{AcknowledgementWords, PageTable};

/// Acknowledgement words: one for each home that a view can have.
const WORDS: u32 = verbena_cluster::MAX_MEMBERS as u32;

/// The own regions. They are of no view, and last as long as the incarnation (rule C1).
pub(super) struct OwnRegions {
    me: Incarnation,
    layout: PageTable,
    table: Arc<dyn Region>,
    words: AcknowledgementWords,
    acknowledgements: Box<dyn Region>,
}

impl OwnRegions {
    /// New regions for this incarnation and its home.
    pub(super) fn new(home: &Home, me: Incarnation, fabric: &dyn Fabric) -> Result<Self> {
        let layout = *home.table();
        let table = fabric.register(layout.region_bytes(), ViewNumber(0))?;
        for (at, word) in (0..).step_by(8).zip(layout.header()).chain(home.words()) {
            table.store(at, word)?;
        }
        let words = AcknowledgementWords::new(me, WORDS);
        let acknowledgements = fabric.register(words.region_bytes(), ViewNumber(0))?;
        for (at, word) in (0..).step_by(8).zip(words.header()) {
            acknowledgements.store(at, word)?;
        }
        Ok(OwnRegions { me, layout, table: Arc::from(table), words, acknowledgements })
    }

    /// The page table, to read.
    pub(super) fn table(&self) -> Table {
        Table { layout: self.layout, access: Access::Own(self.table.clone()) }
    }

    /// Stores a word of the page table.
    pub(super) fn store(&self, offset: u64, word: u64) {
        // A word that cannot be stored would leave stale pages valid: better no node than such a one.
        self.table.store(offset, word).expect("invariant: the own page table is there as long as its home");
    }

    /// How far a home has handled the own messages, as it says; 0, which says nothing, if the word cannot be read.
    pub(super) fn acknowledgement(&self, word: u32) -> u64 {
        let offset = self.words.offset(word).expect("invariant: a view has no more homes than there are words");
        self.acknowledgements.load(offset).unwrap_or(0)
    }

    /// Where this word is in the acknowledgement words of any updater, if there is one of this number.
    pub(super) fn offset_of(&self, word: u32) -> Option<u64> {
        self.words.offset(word)
    }

    /// The own home acknowledges.
    pub(super) fn acknowledge(&self, at: u64, value: u64) {
        if let Err(error) = self.acknowledgements.store(at, value) {
            tracing::error!(%error, "the own acknowledgement words cannot be written");
        }
    }

    /// The keys for another member.
    pub(super) fn introduction(&self, is_home: bool, wants_answer: bool) -> Introduction {
        Introduction {
            from: self.me,
            table: is_home.then(|| self.table.key(Rights::Read)),
            acknowledgements: self.acknowledgements.key(Rights::Change),
            wants_answer,
        }
    }
}
