//! The proxy's side: what a fill has read, by two looks at a relay's region.
//!
//! The first look is before the request is forwarded, the second after the last byte of its answer. What was recorded in between is of that request, if it has its tag or none
//! (rule Q3). Whatever cannot be known (the ring came round, an entry is torn, the relay does not answer or stopped recording) makes the page depend on everything.

use std::collections::{BTreeMap, BTreeSet};

use crate::entry::{Entry, Group, MAX_NAMES, Seen};
use crate::layout::Layout;
use crate::rules::Rules;

/// Words of entries that are read with the second look, whether they are there or not.
const GUESSED: u64 = 500;
/// Words of entries that a fill reads at most; where more were recorded its page depends on everything.
const MOST: u64 = 64 << 10;

/// The first look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// In which reads are recorded.
    pub epoch: u64,
    /// Statements counted so far.
    pub moment: u64,
    /// Behind the last entry that was whole.
    pub written: u64,
}

/// What the second look found beside the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// In which reads are recorded.
    pub epoch: u64,
    /// Behind the last entry that was whole: read before the words.
    pub written: u64,
}

/// Why it is not known what a relay has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lost {
    /// The ring came round, or more was recorded than is read.
    Overrun,
    /// An entry was changed while it was read.
    Torn,
    /// The relay does not record, or did not for a time.
    Closed,
    /// Its region cannot be read.
    Gone,
    /// Which relays there are is not known, or changed.
    Relays,
}

impl Lost {
    /// All of them.
    pub const ALL: [Lost; 5] = [Lost::Overrun, Lost::Torn, Lost::Closed, Lost::Gone, Lost::Relays];

    /// In one word.
    pub const fn name(self) -> &'static str {
        match self {
            Lost::Overrun => "overrun",
            Lost::Torn => "torn",
            Lost::Closed => "closed",
            Lost::Gone => "gone",
            Lost::Relays => "relays",
        }
    }
}

/// What a fill has read, as all relays have seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// These names.
    Names(BTreeSet<u64>),
    /// More than can be named, for this reason.
    Everything(u8),
    /// There are more names than a page may have.
    TooMany,
    /// What must not be stored, for this reason. The flag: it is surely this request's own.
    NotStored(u8, bool),
    /// It wrote: its answer may show what is rolled back later. The flag likewise.
    Wrote(bool),
    /// It read in a transaction that is older than itself. The flag likewise.
    OldSnapshot(bool),
    /// It is not known what it has read.
    Lost(Lost),
}

/// What is known of a fill, or of a part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    rules: Rules,
    tables: BTreeMap<u64, (u64, BTreeSet<u64>)>,
    /// The worst that was seen; names are not kept then.
    worst: Option<Read>,
}

/// Words to be read: from a position, so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From here.
    pub from: u64,
    /// So many.
    pub words: u64,
}

impl Start {
    /// Whether the relay records.
    pub fn is_open(&self) -> bool {
        self.epoch % 2 == 1
    }

    /// What the second look reads of the ring: what is there is not known yet.
    pub fn guess(&self, layout: &Layout) -> Span {
        Span { from: self.written, words: GUESSED.min(layout.ring_words) }
    }

    /// What is to be read besides, by a look of its own. `None`: nothing.
    ///
    /// # Errors
    /// It is too much.
    pub fn rest(&self, layout: &Layout, written: u64) -> Result<Option<Span>, Lost> {
        let (guess, all) = (self.guess(layout), written.checked_sub(self.written).ok_or(Lost::Torn)?);
        if all > MOST.min(layout.ring_words) {
            return Err(Lost::Overrun);
        }
        let words = all.saturating_sub(guess.words);
        Ok((words > 0).then_some(Span { from: guess.from + guess.words, words }))
    }
}

impl Span {
    /// Byte offset and words of the one or two parts of the ring's memory that it has.
    pub fn parts(&self, layout: &Layout) -> impl Iterator<Item = (u64, u64)> + use<> {
        let first = self.words.min(layout.until_wrap(self.from));
        let parts = [(layout.at(self.from), first), (layout.at(self.from + first), self.words - first)];
        parts.into_iter().filter(|(_, words)| *words > 0)
    }
}

impl Reading {
    /// Of a fill of which nothing is known yet.
    pub fn with_rules(rules: Rules) -> Reading {
        Reading { rules, ..Reading::default() }
    }

    /// What is not known of a relay.
    pub fn lose(&mut self, why: Lost) {
        self.worse(Read::Lost(why));
    }

    /// Adds what one relay has recorded between two looks: `words` are those from the first look's position on.
    pub fn add(&mut self, tag: u64, layout: &Layout, start: &Start, end: &End, words: &[u64]) {
        if let Err(why) = self.entries(tag, layout, start, end, words) {
            self.lose(why);
        }
    }

    fn entries(&mut self, tag: u64, layout: &Layout, start: &Start, end: &End, words: &[u64]) -> Result<(), Lost> {
        if (!start.is_open() || end.epoch != start.epoch) && self.rules.epoch {
            return Err(Lost::Closed);
        }
        let all = end.written.checked_sub(start.written).ok_or(Lost::Torn)?;
        let is_there = usize::try_from(all).ok().filter(|_| all <= layout.ring_words);
        let mut left = is_there.and_then(|all| words.get(..all)).ok_or(Lost::Overrun)?;
        let mut position = start.written;
        while !left.is_empty() {
            let (entry, length) = Entry::parse_with(self.rules, left, position).ok_or(Lost::Torn)?;
            if entry.tag.is_none_or(|of| of == tag) {
                self.entry(&entry, start);
            }
            position += length as u64;
            left = &left[length..];
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, start: &Start) {
        let is_own = entry.tag.is_some();
        match &entry.seen {
            Seen::Names(_) if entry.since.is_some_and(|since| since <= start.moment && self.rules.moment) => {
                self.worse(Read::OldSnapshot(is_own));
            }
            Seen::Names(groups) => groups.iter().for_each(|group| self.names(group)),
            Seen::Everything(why) => self.worse(Read::Everything(*why)),
            Seen::Unstorable(why) => self.worse(Read::NotStored(*why, is_own)),
            Seen::Wrote => self.worse(Read::Wrote(is_own)),
        }
    }

    /// The table with the most names collapses first.
    fn names(&mut self, group: &Group) {
        if self.worst.is_some() {
            return;
        }
        let (_, names) = self.tables.entry(group.table).or_insert((group.any, BTreeSet::new()));
        names.extend(&group.names);
        while self.tables.values().map(|(_, names)| names.len()).sum::<usize>() > MAX_NAMES {
            let largest = self.tables.iter_mut().max_by_key(|(_, (_, names))| names.len());
            match largest {
                Some((table, (any, names))) if names.len() > 2 => *names = [*table, *any].into(),
                _ => return self.worse(Read::TooMany),
            }
        }
    }

    /// What must not be stored is worse than what depends on everything; of two of a kind the first stays, unless the later one is surely the request's own.
    fn worse(&mut self, read: Read) {
        let rank = |read: &Read| match read {
            Read::Names(_) => 0,
            Read::Everything(_) | Read::TooMany => 1,
            Read::Lost(_) => 2,
            Read::NotStored(_, false) | Read::Wrote(false) | Read::OldSnapshot(false) => 3,
            Read::NotStored(_, true) | Read::Wrote(true) | Read::OldSnapshot(true) => 4,
        };
        if self.worst.as_ref().is_none_or(|worst| rank(worst) < rank(&read)) {
            self.worst = Some(read);
        }
    }

    /// What the fill has read.
    pub fn read(self) -> Read {
        let names = |tables: BTreeMap<u64, (u64, BTreeSet<u64>)>| {
            Read::Names(tables.into_values().flat_map(|(_, names)| names).collect())
        };
        self.worst.unwrap_or_else(|| names(self.tables))
    }
}
