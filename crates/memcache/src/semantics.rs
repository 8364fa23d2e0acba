//! What a request answers and what becomes of its item: the whole of memcached's behaviour on one key, as a function.
//!
//! [`execute`] has the item as it stands and gives the answer with the change. The caller makes the change only if the item still
//! stands as it was given: under a lock, or by comparing a version. So it holds over a map as over a key's home in a cluster.
//!
//! An item carries three marks for caches that many clients fill at once. A *stub*, made by `mg N` on a miss, has no value and
//! was won by the client that made it. An item that `md I` marked is *stale*: it is still read, and the next reader wins the right to make it
//! anew. *Won* says that a client has that right; others are told so and wait or take what is there. A storage command ends all
//! three, since it makes a new item.

use crate::limits::Limits;
use crate::number;
use crate::request::{Arithmetic, Direction, Mode, Operation, Read, Remove, Store};

/// An item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// All but the value.
    pub head: Head,
    /// The value.
    pub value: Vec<u8>,
}

/// What an item is beside its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The client's flags.
    pub flags: u32,
    /// The second of the Unix clock from which it is gone; 0 if it stays.
    pub expires: u64,
    /// Another for each value of a key.
    pub cas: u64,
    /// It was invalidated and is still read.
    pub is_stale: bool,
    /// A client is about to make it anew.
    pub is_won: bool,
    /// It was read since it was stored.
    pub is_fetched: bool,
    /// The second of the last access.
    pub accessed: u64,
}

/// The answer to a request, whatever its form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The item as the reader sees it. Its value is that of the item given, or empty for a stub.
    Hit(Seen),
    /// No item to read.
    Miss,
    /// The value stands.
    Stored {
        /// Its cas value.
        cas: u64,
        /// Bytes of the whole value.
        size: usize,
    },
    /// The condition on there being an item did not hold, or the whole value would be too large.
    NotStored,
    /// The cas value is another.
    Exists,
    /// No item to change.
    NotFound,
    /// The item is gone, or stale if that was asked for.
    Deleted,
    /// The item has the new time.
    Touched,
    /// The item counts this now.
    Number {
        /// The number.
        number: u64,
        /// The item that holds it.
        seen: Seen,
    },
    /// The item's value is no number.
    NonNumeric,
    /// The value is beyond the limit.
    TooLarge,
}

/// What of an item an answer can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Bytes of its value.
    pub size: usize,
    /// Its head before the request. For an item that the request made: its first head, with no expiry.
    pub head: Head,
    /// The request made the item.
    pub is_created: bool,
    /// This client is to make the item anew.
    pub wins: bool,
    /// When the request was executed, in seconds of the Unix clock.
    pub now: u64,
}

/// What becomes of the item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    Keep,
    /// Only what is known of its use: may be lost.
    Trace(Head),
    /// Another head, the same value.
    Head(Head),
    /// Another item.
    Put(Item),
    /// None.
    Remove,
}

/// An answer and its change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the client is told, once the change is made.
    pub answer: Answer,
    /// What is to be done first.
    pub change: Change,
}

impl Head {
    /// Whether it is gone at `now`.
    pub fn is_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }
}

/// What `operation` does at `now`, in seconds of the Unix clock, to an item as it stands. `fresh` becomes the cas value if one is needed: larger
/// than any that the key had.
pub fn execute(operation: &Operation<'_>, item: Option<&Item>, now: u64, fresh: u64, limits: &Limits) -> Outcome {
    let item = item.filter(|item| !item.head.is_expired(now));
    match operation {
        Operation::Read(how) => read(how, item, now, fresh),
        Operation::Store(how) => store(how, item, now, fresh, limits),
        Operation::Remove(how) => remove(how, item, now, fresh),
        Operation::Arithmetic(how) => arithmetic(how, item, now, fresh),
        Operation::Touch(exptime) => match item {
            None => Outcome { answer: Answer::NotFound, change: Change::Keep },
            Some(item) => {
                let head = Head { expires: exptime.moment(now), is_fetched: true, accessed: now, ..item.head };
                Outcome { answer: Answer::Touched, change: Change::Head(head) }
            }
        },
        Operation::TooLarge => Outcome { answer: Answer::TooLarge, change: Change::Remove },
    }
}

fn read(how: &Read, item: Option<&Item>, now: u64, fresh: u64) -> Outcome {
    let Some(item) = item else {
        let Some(exptime) = how.vivify else { return Outcome { answer: Answer::Miss, change: Change::Keep } };
        let stub = Head { cas: how.new_cas.unwrap_or(fresh), accessed: now, ..Head::default() };
        let expires = exptime.moment(now);
        let answer = Answer::Hit(Seen { size: 0, head: stub, is_created: true, wins: true, now });
        let head = Head { expires, is_won: true, is_fetched: !how.is_silent, ..stub };
        return Outcome { answer, change: Change::Put(Item { head, value: vec![] }) };
    };
    let before = item.head;
    let expires = how.touch.map_or(before.expires, |exptime| exptime.moment(now));
    let is_due = how.recache.is_some_and(|recache| {
        let compared = if recache.is_after_touch { expires } else { before.expires };
        compared != 0 && compared < recache.remaining.moment(now)
    });
    let wins = how.may_win && !before.is_won && (is_due || before.is_stale);
    let mut head = Head { expires, is_won: before.is_won || wins, ..before };
    let is_changed = head != before;
    if !how.is_silent {
        (head.is_fetched, head.accessed) = (true, now);
    }
    let change = match (is_changed || how.touch.is_some(), how.is_silent) {
        (true, _) => Change::Head(head),
        (false, false) => Change::Trace(head),
        (false, true) => Change::Keep,
    };
    let seen = Seen { size: item.value.len(), head: before, is_created: false, wins, now };
    Outcome { answer: Answer::Hit(seen), change }
}

fn store(how: &Store<'_>, item: Option<&Item>, now: u64, fresh: u64, limits: &Limits) -> Outcome {
    let refused = |answer| Outcome { answer, change: Change::Keep };
    let mut head = Head {
        flags: how.flags,
        expires: how.exptime.moment(now),
        cas: how.new_cas.unwrap_or(fresh),
        accessed: now,
        ..Head::default()
    };
    let value = match (how.mode, item) {
        (Mode::Set, _) | (Mode::Add, None) | (Mode::Replace, Some(_)) => how.value.to_vec(),
        (Mode::Add, Some(_)) | (Mode::Replace, None) => return refused(Answer::NotStored),
        (Mode::Cas, None) => return refused(Answer::NotFound),
        (Mode::Cas, Some(item)) => {
            match how.compare {
                Some(cas) if cas != 0 && cas == item.head.cas => {}
                Some(cas) if cas != 0 && how.is_stale_allowed && cas < item.head.cas => {
                    (head.expires, head.is_stale, head.is_won) = (item.head.expires, true, item.head.is_won);
                }
                _ => return refused(Answer::Exists),
            }
            how.value.to_vec()
        }
        (Mode::Append | Mode::Prepend, None) => {
            let Some(exptime) = how.vivify else { return refused(Answer::NotStored) };
            head.expires = exptime.moment(now);
            how.value.to_vec()
        }
        (Mode::Append | Mode::Prepend, Some(item)) => {
            if how.compare.is_some_and(|cas| cas != 0 && cas != item.head.cas) {
                return refused(Answer::Exists);
            }
            if item.value.len() + how.value.len() > limits.value_bytes {
                return refused(Answer::NotStored);
            }
            (head.flags, head.expires) = (item.head.flags, item.head.expires);
            match how.mode {
                Mode::Append => [&item.value, how.value].concat(),
                _ => [how.value, &item.value].concat(),
            }
        }
    };
    Outcome { answer: Answer::Stored { cas: head.cas, size: value.len() }, change: Change::Put(Item { head, value }) }
}

fn remove(how: &Remove, item: Option<&Item>, now: u64, fresh: u64) -> Outcome {
    let Some(item) = item else { return Outcome { answer: Answer::NotFound, change: Change::Keep } };
    if how.compare.is_some_and(|cas| cas != item.head.cas) {
        return Outcome { answer: Answer::Exists, change: Change::Keep };
    }
    let mut head = item.head;
    if how.drops_value {
        let expires = how.exptime.map_or(0, |exptime| exptime.moment(now));
        let cas = how.new_cas.unwrap_or(item.head.cas);
        head = Head { flags: how.flags, expires, cas, accessed: now, ..Head::default() };
    }
    if how.is_invalidation {
        if let Some(exptime) = how.exptime {
            head.expires = exptime.moment(now);
        }
        head.cas = how.new_cas.unwrap_or(fresh);
        (head.is_stale, head.is_won) = (true, false);
    }
    let change = match (how.drops_value, how.is_invalidation) {
        (true, _) => Change::Put(Item { head, value: vec![] }),
        (false, true) => Change::Head(head),
        (false, false) => Change::Remove,
    };
    Outcome { answer: Answer::Deleted, change }
}

fn arithmetic(how: &Arithmetic, item: Option<&Item>, now: u64, fresh: u64) -> Outcome {
    let refused = |answer| Outcome { answer, change: Change::Keep };
    let cas = how.new_cas.unwrap_or(fresh);
    let Some(item) = item else {
        let Some(exptime) = how.vivify else { return refused(Answer::NotFound) };
        let value = how.initial.to_string().into_bytes();
        let first = Head { cas, accessed: now, ..Head::default() };
        let head = Head { expires: exptime.moment(now), ..first };
        let seen = Seen { size: value.len(), head: first, is_created: true, wins: false, now };
        let answer = Answer::Number { number: how.initial, seen };
        return Outcome { answer, change: Change::Put(Item { head, value }) };
    };
    if item.value.is_empty() {
        return refused(Answer::NonNumeric);
    }
    if how.compare != 0 && how.compare != item.head.cas {
        return refused(Answer::Exists);
    }
    let Some(old) = number::of_value(&item.value) else { return refused(Answer::NonNumeric) };
    let number = match how.direction {
        Direction::Up => old.wrapping_add(how.delta),
        Direction::Down => old.saturating_sub(how.delta),
    };
    let mut value = number.to_string().into_bytes();
    let expires = how.touch.map_or(item.head.expires, |exptime| exptime.moment(now));
    let mut head = Head { cas, expires, accessed: now, ..item.head };
    if value.len() > item.value.len() {
        (head.is_stale, head.is_won, head.is_fetched) = (false, false, false);
    } else {
        // A number that lost digits keeps its length, as memcached writes it in place.
        value.resize(item.value.len(), b' ');
    }
    let shown = Head { cas, ..item.head };
    let seen = Seen { size: value.len(), head: shown, is_created: false, wins: false, now };
    Outcome { answer: Answer::Number { number, seen }, change: Change::Put(Item { head, value }) }
}
