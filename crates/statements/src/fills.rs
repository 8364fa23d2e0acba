//! What the fills under way have read (rules Q1 to Q3, Q6, Q7).
//!
//! A fill is a request that a proxy has forwarded and may store. The relay says what each statement read before it passes
//! on the answer; a fill that ends is given all that can be its own. A read without a tag, or with a tag that no fill
//! has, counts for every fill that is open: attribution narrows, never widens. Requests that are forwarded and not stored have
//! tags too, so that their statements count for no fill.
//!
//! ```text
//!  proxy   begin ----------------------------------- finish     names, everything, or not stored
//!  relay            read  read       wrote  read                of this fill by its tag, or of all
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::{Name, Names, Rules, Side};

/// The tag of a fill: 64 random bits that the proxy sends along and the application's statements may carry.
pub type Tag = u64;

/// A fill that is open. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fill(u64);

/// A moment between begins of fills, by which a transaction is found to be older than a fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Among the fills of this process.
    here: u64,
    /// As the fills of other processes count it.
    elsewhere: u64,
}

/// Fills of other processes, which are told what statements do.
pub trait Elsewhere: Send {
    /// A statement comes that may begin a transaction: when, as they count it.
    fn moment(&mut self) -> u64;

    /// Whether there are any that may be open.
    fn is_there(&self) -> bool;

    /// Whether one of them is open and has this tag.
    fn is_open(&self, tag: Tag) -> bool;

    /// What a statement did: one of the fill with this tag, or of any that is open. It is recorded when this returns (rule Q1).
    fn seen(&mut self, tag: Option<Tag>, since: Option<u64>, what: What<'_>);
}

/// What a statement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// It read what these names stand for.
    Read(&'a Names),
    /// It read more than can be named.
    Everything(Why),
    /// It answered what must not be stored.
    Unstorable(Why),
    /// It wrote.
    Wrote,
}

/// Why the list of a page is not what its statements named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// A statement was not understood.
    NotUnderstood,
    /// There are more names than a page may have, in more tables than can be named whole.
    TooMany,
    /// The request wrote: its answer may show what is rolled back later (Q6).
    Wrote,
    /// A transaction or a cursor that is older than the request answered, and may show the past (Q7).
    OldSnapshot,
    /// The answer depends on the time, on chance, on the connection or on the user (Q18).
    Volatile,
    /// The relay was not there, or not sure, for a part of the time.
    Relay,
}

impl Why {
    const ALL: [Why; 6] = [Why::NotUnderstood, Why::TooMany, Why::Wrote, Why::OldSnapshot, Why::Volatile, Why::Relay];

    /// As a number, for other processes.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The inverse of [`code`](Self::code); of a number that is none the reason that says least.
    pub fn of_code(code: u8) -> Why {
        Why::ALL.into_iter().find(|why| why.code() == code).unwrap_or(Why::Relay)
    }

    /// In one word, for metrics and Cache-Status.
    pub const fn name(self) -> &'static str {
        match self {
            Why::NotUnderstood => "query-not-understood",
            Why::TooMany => "too-many-names",
            Why::Wrote => "own-write",
            Why::OldSnapshot => "old-snapshot",
            Why::Volatile => "volatile-query",
            Why::Relay => "relay",
        }
    }
}

/// What a fill has read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Charged {
    /// These names; none where it asked the database nothing.
    Names(Names),
    /// More than is known.
    Everything(Why),
    /// What must not be stored.
    NotStored(Why),
    /// What must not be stored this time, for a statement that may be another request's. It says nothing of the next answer.
    NotThisTime(Why),
}

/// Whose a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// It said no tag, or one that no fill has.
    Anybody,
    /// Of the fill with this tag, if that is open.
    Tagged(Tag),
}

/// The bytes of each name of a set, with the identity of the database before them; nothing if the set is everything.
pub fn spelled(names: &Names, identity: &[u8]) -> Option<Vec<Vec<u8>>> {
    let Names::Of(tables) = names else { return None };
    let all = tables.iter().flat_map(|(table, set)| set.iter().map(move |name| name.bytes(table)));
    Some(all.map(|name| [identity, &name].concat()).collect())
}

impl From<Option<Tag>> for Whose {
    fn from(tag: Option<Tag>) -> Whose {
        tag.map_or(Whose::Anybody, Whose::Tagged)
    }
}

#[derive(Debug)]
struct Open {
    tag: Option<Tag>,
    began: u64,
    /// False of a request whose answer is not stored.
    is_stored: bool,
    charged: Charged,
}

/// Which rules of this file hold. All do, except in tests that show what a rule protects.
#[derive(Clone, Copy, Debug)]
pub struct FillRules {
    /// Q3: a read without a tag counts for every fill.
    pub untagged: bool,
    /// Q6: a fill that wrote is not stored.
    pub own_writes: bool,
    /// Q7: a fill that read in a transaction older than itself is not stored.
    pub snapshots: bool,
}

impl Default for FillRules {
    fn default() -> Self {
        FillRules { untagged: true, own_writes: true, snapshots: true }
    }
}

/// The fills of one proxy.
pub struct Fills {
    rules: FillRules,
    next: u64,
    open: BTreeMap<Fill, Open>,
    tags: BTreeMap<Tag, Fill>,
    elsewhere: Option<Box<dyn Elsewhere>>,
}

impl Fills {
    /// None is open.
    pub fn new(rules: FillRules) -> Fills {
        Fills { rules, next: 0, open: BTreeMap::new(), tags: BTreeMap::new(), elsewhere: None }
    }

    /// The fills of other processes are told of statements from now on.
    pub fn tell(&mut self, elsewhere: Box<dyn Elsewhere>) {
        self.elsewhere = Some(elsewhere);
    }

    /// A fill begins: before it is forwarded, and before the words of its page are read.
    pub fn begin(&mut self, tag: Option<Tag>) -> Fill {
        self.open(tag, true)
    }

    /// A request is forwarded whose answer is not stored. Until it is [finished](Self::finish), statements with its tag count
    /// for no fill.
    pub fn pass(&mut self, tag: Tag) -> Fill {
        self.open(Some(tag), false)
    }

    fn open(&mut self, tag: Option<Tag>, is_stored: bool) -> Fill {
        self.next += 1;
        let fill = Fill(self.next);
        let charged = Charged::Names(Names::Of(BTreeMap::new()));
        self.open.insert(fill, Open { tag, began: fill.0, is_stored, charged });
        if let Some(tag) = tag {
            self.tags.insert(tag, fill);
        }
        fill
    }

    /// The moment of a transaction's beginning, to be given to [`read`](Self::read) with each of its reads.
    pub fn tick(&mut self) -> Moment {
        self.next += 1;
        Moment { here: self.next, elsewhere: self.elsewhere.as_mut().map_or(0, |elsewhere| elsewhere.moment()) }
    }

    /// A statement read what these names stand for, in a transaction that began at `since`, if it is in one.
    pub fn read(&mut self, whose: Whose, names: &Names, since: Option<Moment>) {
        let rules = self.rules;
        self.each(whose, What::Read(names), since, |open, is_own| match since {
            Some(since) if since.here < open.began && rules.snapshots => open.not_stored(Why::OldSnapshot, is_own),
            _ => open.add(names),
        });
    }

    /// A statement read more than can be named.
    pub fn read_everything(&mut self, whose: Whose, why: Why) {
        self.each(whose, What::Everything(why), None, |open, _| open.everything(why));
    }

    /// A statement answered what must not be stored.
    pub fn read_unstorable(&mut self, whose: Whose, why: Why) {
        self.each(whose, What::Unstorable(why), None, |open, is_own| open.not_stored(why, is_own));
    }

    /// A statement wrote.
    pub fn wrote(&mut self, whose: Whose) {
        if self.rules.own_writes {
            self.each(whose, What::Wrote, None, |open, is_own| open.not_stored(Why::Wrote, is_own));
        }
    }

    /// The fill's last byte is here: what it read. After this nothing counts for it.
    pub fn finish(&mut self, fill: Fill) -> Charged {
        let Some(open) = self.open.remove(&fill) else { return Charged::NotStored(Why::Relay) };
        if let Some(tag) = open.tag.filter(|tag| self.tags.get(tag) == Some(&fill)) {
            self.tags.remove(&tag);
        }
        open.charged
    }

    /// Fills that are open.
    pub fn len(&self) -> usize {
        self.open.values().filter(|open| open.is_stored).count()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Does it to the fills whose the statement may be, and says whether it is surely theirs: by its tag, or because no other
    /// request is under way.
    fn each(&mut self, whose: Whose, what: What<'_>, since: Option<Moment>, mut change: impl FnMut(&mut Open, bool)) {
        let tag = match whose {
            Whose::Tagged(tag) => Some(tag),
            Whose::Anybody => None,
        };
        if let Some(open) = tag.and_then(|tag| self.tags.get(&tag)).and_then(|fill| self.open.get_mut(fill)) {
            return change(open, true);
        }
        if !self.rules.untagged {
            return;
        }
        let mut is_alone = self.open.len() == 1;
        if let Some(elsewhere) = self.elsewhere.as_mut().filter(|elsewhere| elsewhere.is_there()) {
            let its = tag.filter(|tag| elsewhere.is_open(*tag));
            elsewhere.seen(its, since.map(|since| since.elsewhere), what);
            if its.is_some() {
                return;
            }
            is_alone = false;
        }
        self.open.values_mut().filter(|open| open.is_stored).for_each(|open| change(open, is_alone));
    }
}

impl Open {
    fn add(&mut self, more: &Names) {
        let Charged::Names(known) = &self.charged else { return };
        let (Names::Of(tables), Names::Of(others)) = (known, more) else { return self.everything(Why::NotUnderstood) };
        let is_new =
            |(table, names): (&Vec<u8>, &BTreeSet<Name>)| tables.get(table).is_none_or(|known| !names.is_subset(known));
        if !others.iter().any(is_new) {
            return;
        }
        self.charged = match Names::joined(Rules::default(), Side::Read, [known, more]) {
            Names::Everything => Charged::Everything(Why::TooMany),
            names => Charged::Names(names),
        };
    }

    fn everything(&mut self, why: Why) {
        if let Charged::Names(_) = self.charged {
            self.charged = Charged::Everything(why);
        }
    }

    fn not_stored(&mut self, why: Why, is_own: bool) {
        match self.charged {
            Charged::NotStored(_) => {}
            Charged::NotThisTime(_) if !is_own => {}
            _ if is_own => self.charged = Charged::NotStored(why),
            _ => self.charged = Charged::NotThisTime(why),
        }
    }
}
