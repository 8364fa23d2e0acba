//! What becomes of a command once its key was read: where the new object goes, what the home is asked, what the program is told.

use std::time::Duration;

use verbena_memcache::semantics::{Answer, Change, Item, execute};

use super::{Action, Clocks, Coop};
use crate::holder::{Memory, Room};
use crate::message::{Ask, Expect, Frame, Offered, Verdict, Wanted};
use crate::object::{Object, units};
use crate::place::Place;
use crate::placement::Fetched;
use crate::table::Entry;
use crate::tenant::Tenant;
use crate::version::Version;
use crate::work::{Deciding, Failure, Found, Reply, Stage, Work};

/// How often a change is begun again because others changed the key meanwhile.
const MOST_ATTEMPTS: u32 = 16;
/// How often a change reads again what is valid and cannot be read, and when at first; then after twice as long each time, a third of a second in all. Its holder has the home's answer and does not
/// come to run, on a machine with much else to do, or has gone.
const MOST_REREADS: u32 = 6;
const READ_AGAIN: Duration = Duration::from_millis(5);
/// Places that a node remembers.
const MOST_REMEMBERED: usize = 4096;
/// Reads between two ticks of which holders are told.
const MOST_HITS: usize = 64;
/// What stands for the version that the home will give, where a cas value is asked for.
const FRESH: u64 = 0;

impl<M: Memory> Coop<M> {
    pub(super) fn found(&mut self, id: u64, work: Work, found: Found, clocks: Clocks, out: &mut Vec<Action>) {
        match found {
            Found::Object(object, entry) => {
                self.remember(work.hash, entry.place);
                let is_here = entry.place.is_at(self.me.rank);
                if work.is_read() {
                    let began = work.deadline - self.settings.patience;
                    self.measured.hit(work.hash, is_here, clocks.now.since(began));
                }
                let expired = object.item.head.is_expired(clocks.seconds) && self.settings.rules.compares_expiry;
                if is_here {
                    self.holder.hit(entry.place.offset, entry.version, 1);
                } else if self.hits.len() < MOST_HITS {
                    self.hits.push((entry.place, entry.version));
                }
                if !is_here && !expired {
                    self.fetched(&work, &object, entry, out);
                }
                let mut item = object.item;
                if !self.settings.rules.compares_expiry {
                    item.head.expires = 0;
                }
                self.decide(id, work, Some(item), Expect::Is(entry.version), clocks, out);
            }
            // Its version is valid before it stands in its head: so a change that rests on the value waits a moment, or the value would be forgotten.
            Found::Nothing(unreadable)
                if !unreadable.is_empty()
                    && !work.is_read()
                    && work.rereads < MOST_REREADS
                    && self.settings.rules.reads_again =>
            {
                self.remembered.remove(&work.hash);
                let stage = Stage::Again { at: clocks.now + READ_AGAIN * (1 << work.rereads) };
                self.works.insert(id, Work { rereads: work.rereads + 1, stage, ..work });
            }
            Found::Nothing(unreadable) => {
                self.remembered.remove(&work.hash);
                if work.is_read() {
                    self.measured.missed(work.hash, work.deadline - self.settings.patience);
                }
                self.decide(id, work, None, Expect::AbsentOr(unreadable), clocks, out);
            }
        }
    }

    pub(super) fn remember(&mut self, hash: u64, place: Place) {
        if self.remembered.len() >= MOST_REMEMBERED {
            self.remembered.pop_first();
        }
        self.remembered.insert(hash, place);
    }

    /// An object was read from another node: the scheme says what becomes of it.
    pub(super) fn fetched(&mut self, work: &Work, object: &Object, entry: Entry, out: &mut Vec<Action>) {
        let units = units(&object.key, &object.item.value) as u32;
        let from = self.holder_at(entry.place).map(|holder| holder.rank);
        let (hash, version, buffer) = (work.hash, entry.version, self.buffer());
        if self.dropped.contains_key(&version) && self.settings.rules.takes_no_copy_again {
            return;
        }
        let fetched = self.scheme.fetched(&self.situation(units, from));
        let (room, kept) = match fetched {
            Fetched::Stay => return,
            Fetched::Copy => (Room::Next, buffer),
            Fetched::CopyOver | Fetched::Move => (Room::Redundant, buffer),
            // In the buffer until what goes for it is gone.
            Fetched::Swap => (Room::Free, 0),
        };
        let Some(unit) = self.reserve(work.tenant, units, kept, room, out) else { return };
        self.holder.fill(unit, object);
        let is_copy = matches!(fetched, Fetched::Copy | Fetched::CopyOver);
        // Whole and under the same version: a copy that counts as long as that version does.
        self.holder.publish(unit, version, is_copy);
        let tally = &mut self.measured.tally;
        if is_copy {
            tally.copies += 1;
            let place = Place::new(hash, self.me.rank, unit, units);
            self.remember(hash, place);
            return self.to_home(hash, Frame::Copied { hash, version, place }, out);
        }
        tally.moves += 1;
        tally.swaps += u64::from(fetched == Fetched::Swap);
        self.now_here(hash, version, unit, units, out);
        if let Some(from) = from.filter(|_| fetched == Fetched::Swap) {
            self.give_in_exchange(work.tenant, from, out);
        }
    }

    /// Room for so many units, while `kept` of them stay free.
    pub(super) fn reserve(
        &mut self,
        tenant: Tenant,
        units: u32,
        kept: u32,
        room: Room,
        out: &mut Vec<Action>,
    ) -> Option<u32> {
        let mut evicted = vec![];
        let unit = self.holder.reserve_beside(tenant, units, kept, room, &mut evicted);
        let objects = self.holder.len();
        evicted.iter().for_each(|evicted| self.measured.evicted(evicted, objects));
        self.tell_gone(evicted, out);
        unit
    }

    /// The item is known: what the operation makes of it, and who decides that.
    pub(super) fn decide(
        &mut self,
        id: u64,
        work: Work,
        item: Option<Item>,
        expect: Expect,
        clocks: Clocks,
        out: &mut Vec<Action>,
    ) {
        let item = item.filter(|item| !item.head.is_expired(clocks.seconds));
        let outcome = execute(&work.operation(), item.as_ref(), clocks.seconds, FRESH, &self.settings.limits);
        let bytes = item.as_ref().map_or(vec![], |item| item.value.clone());
        let new = match outcome.change {
            Change::Keep | Change::Trace(_) => {
                let rests_on_absence = item.is_none() && outcome.answer != Answer::Miss;
                if rests_on_absence && self.settings.rules.asks_home_for_absence {
                    let deciding = Deciding::new(outcome.answer, vec![]);
                    return self.ask(id, work, deciding, expect, Wanted::Remove, out);
                }
                return out.push(Action::Answer { id, reply: Reply::Answer(outcome.answer, bytes) });
            }
            Change::Remove => {
                let deciding = Deciding::new(outcome.answer, bytes);
                return self.ask(id, work, deciding, expect, Wanted::Remove, out);
            }
            Change::Head(head) => Item { head, value: item.map_or(vec![], |item| item.value) },
            Change::Put(item) => item,
        };
        let cas_is_version = new.head.cas == FRESH;
        let object = Object { tenant: work.tenant, key: work.key.clone(), item: new, has_cas: !cas_is_version };
        let units = units(&object.key, &object.item.value) as u32;
        self.measured.stored(work.hash, clocks.now);
        let (unit, goes_to) = self.place(work.tenant, units, out);
        let Some(unit) = unit else {
            return self.remove(id, work, Some(Failure::NoRoom), out);
        };
        self.holder.fill(unit, &object);
        let wanted = Wanted::Install(Place::new(work.hash, self.me.rank, unit, units));
        let deciding = Deciding { unit: Some(unit), goes_to, cas_is_version, ..Deciding::new(outcome.answer, bytes) };
        self.ask(id, work, deciding, expect, wanted, out);
    }

    /// Removes the key, whatever its version; then tells what was there, or the failure (rule K6).
    pub(super) fn remove(&mut self, id: u64, work: Work, failure: Option<Failure>, out: &mut Vec<Action>) {
        let deciding = Deciding { failure, tells_presence: true, ..Deciding::new(Answer::NotFound, vec![]) };
        self.ask(id, work, deciding, Expect::Any, Wanted::Remove, out);
    }

    pub(super) fn ask(
        &mut self,
        id: u64,
        mut work: Work,
        mut deciding: Deciding,
        expect: Expect,
        wanted: Wanted,
        out: &mut Vec<Action>,
    ) {
        self.asks += 1;
        deciding.serial = self.asks;
        let ask = Ask { id, serial: self.asks, hash: work.hash, expect, wanted };
        self.to_home(work.hash, Frame::Ask(ask), out);
        work.stage = Stage::Deciding(deciding);
        self.works.insert(id, work);
    }

    /// The home did not hear of the request, because no connection leads to it: nothing was done.
    pub fn not_sent(&mut self, id: u64, serial: u64, clocks: Clocks, out: &mut Vec<Action>) {
        self.verdict(id, serial, Verdict::Refused, clocks, out);
    }

    pub(super) fn verdict(&mut self, id: u64, serial: u64, verdict: Verdict, clocks: Clocks, out: &mut Vec<Action>) {
        let Some(mut work) = self.works.remove(&id) else { return };
        let deciding = match &mut work.stage {
            Stage::Deciding(deciding) if deciding.serial == serial => deciding,
            _ => {
                self.works.insert(id, work);
                return;
            }
        };
        let Verdict::Done { version, was_there } = verdict else {
            if let Some(unit) = deciding.unit {
                self.holder.drop_object(unit);
            }
            work.attempts += 1;
            if verdict == Verdict::Refused || work.attempts >= MOST_ATTEMPTS {
                let failure = if verdict == Verdict::Refused { Failure::HomeAway } else { Failure::Contended };
                return out.push(Action::Answer { id, reply: Reply::Failed(failure) });
            }
            return self.begin(id, work, clocks, out);
        };
        let goes_to = deciding.goes_to;
        if let Some(unit) = deciding.unit {
            self.holder.publish(unit, version, false);
            if let (Some((to, takes)), Some(units)) = (goes_to, self.holder.units_at(unit)) {
                let place = Place::new(work.hash, self.me.rank, unit, units);
                self.offer(to, takes, Offered { hash: work.hash, version, place }, out);
            }
        }
        // Another home may decide already (rule K6).
        let is_valid = self.lease.valid_at(clocks.now) == Some(work.view) && work.view == self.number();
        if !is_valid && self.settings.rules.checks_lease_of_change {
            return out.push(Action::Answer { id, reply: Reply::Unknown });
        }
        let reply = match (deciding.failure, deciding.tells_presence) {
            (Some(failure), _) => Reply::Failed(failure),
            (None, true) if was_there => Reply::Answer(Answer::Deleted, vec![]),
            (None, true) => Reply::Answer(Answer::NotFound, vec![]),
            (None, false) => {
                let mut answer = deciding.answer.clone();
                if deciding.cas_is_version {
                    name_version(&mut answer, version);
                }
                Reply::Answer(answer, std::mem::take(&mut deciding.bytes))
            }
        };
        out.push(Action::Answer { id, reply });
    }
}

/// The cas value that the answer shows is the version that the home gave (rule K12).
fn name_version(answer: &mut Answer, version: Version) {
    match answer {
        Answer::Stored { cas, .. } => *cas = version.0,
        Answer::Hit(seen) if seen.is_created => seen.head.cas = version.0,
        Answer::Number { seen, .. } => seen.head.cas = version.0,
        _ => {}
    }
}
