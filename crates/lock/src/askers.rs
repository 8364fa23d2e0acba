//! What each client holds and waits for, and when to look for a deadlock that it is part of.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_terms::Time;

use crate::deadlock::Sighting;
use crate::local_queue::RequestId;
use crate::name::Name;

/// How long a client waits before the first probe (rule L3). Then twice as long, and so on.
const PROBE_AFTER: Duration = Duration::from_millis(100);
/// But not longer than this.
const PROBE_AT_LEAST: Duration = Duration::from_millis(800);
/// A cycle that was found is looked for once more after this.
const PROBE_AGAIN: Duration = Duration::from_millis(20);

/// One client of a node. It waits for one lock while it holds others, and may acquire again a lock that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asker {
    /// Unique. The driver of the locks assigns it and never reuses it.
    pub number: u64,
    /// Its process, for people. 0 if that is not known.
    pub pid: u32,
}

/// One request.
#[derive(Debug)]
pub(crate) struct ClientRequest {
    pub asker: Asker,
    pub name: Name,
    /// Since when it waits, or is held.
    pub since: Time,
    /// The cycle in which it was seen to wait.
    pub seen: Option<Box<Sighting>>,
    is_held: bool,
}

/// All requests that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Askers {
    requests: HashMap<RequestId, ClientRequest>,
    /// What each of them has.
    has: HashMap<Asker, Has>,
    /// When whom is to be looked after: those that hold something and wait for something.
    due: BTreeSet<(Time, Asker)>,
}

#[derive(Debug, Default)]
struct Has {
    /// How often each lock, and since when.
    holds: HashMap<Name, (u32, Time)>,
    waits: BTreeSet<RequestId>,
    due: Option<Time>,
    patience: Duration,
}

impl Askers {
    /// One more request, which waits.
    pub fn wants(&mut self, id: RequestId, asker: Asker, name: Name, now: Time) {
        self.requests.insert(id, ClientRequest { asker, name, since: now, seen: None, is_held: false });
        self.change(asker, now, |has| has.waits.extend([id]));
    }

    /// It was granted.
    pub fn granted(&mut self, id: RequestId, now: Time) {
        let Some(asked) = self.requests.get_mut(&id).filter(|asked| !asked.is_held) else { return };
        (asked.is_held, asked.since, asked.seen) = (true, now, None);
        let (asker, name) = (asked.asker, asked.name.clone());
        self.change(asker, now, |has| {
            has.waits.remove(&id);
            has.holds.entry(name).or_insert((0, now)).0 += 1;
        });
    }

    /// What was granted to one request is another's from now on, of the same client.
    pub fn goes_on(&mut self, was: RequestId, id: RequestId, now: Time) {
        if let Some(asked) = self.requests.remove(&was) {
            self.requests.insert(id, ClientRequest { since: now, ..asked });
        }
    }

    /// It has ended, in whatever way.
    pub fn ended(&mut self, id: RequestId, now: Time) -> Option<Name> {
        let ClientRequest { asker, name, is_held, .. } = self.requests.remove(&id)?;
        self.change(asker, now, |has| {
            has.waits.remove(&id);
            if let Some((times, _)) = has.holds.get_mut(&name).filter(|_| is_held) {
                *times -= 1;
                if *times == 0 {
                    has.holds.remove(&name);
                }
            }
        });
        Some(name)
    }

    pub fn get(&self, id: RequestId) -> Option<&ClientRequest> {
        self.requests.get(&id)
    }

    /// Whether it holds this lock.
    pub fn holds(&self, asker: Asker, name: &Name) -> bool {
        self.holds_since(asker, name).is_some()
    }

    /// Since when it has held this lock, by one request or another.
    pub fn holds_since(&self, asker: Asker, name: &Name) -> Option<Time> {
        self.has.get(&asker).and_then(|has| has.holds.get(name)).map(|(_, since)| *since)
    }

    /// What it waits for.
    pub fn waits(&self, asker: Asker) -> impl Iterator<Item = (RequestId, &ClientRequest)> {
        let waits = self.has.get(&asker).into_iter().flat_map(|has| &has.waits);
        waits.filter_map(|id| Some((*id, self.requests.get(id)?)))
    }

    /// A request was seen to wait in a cycle, perhaps: it is looked for again soon.
    pub fn seen(&mut self, id: RequestId, seen: Sighting, now: Time) {
        let Some(asked) = self.requests.get_mut(&id).filter(|asked| !asked.is_held) else { return };
        asked.seen = Some(Box::new(seen));
        let asker = asked.asker;
        self.look_after(asker, Some(now + PROBE_AGAIN));
    }

    /// The clients that have waited long enough for a deadlock probe. Each is due again later.
    pub fn take_due(&mut self, now: Time) -> Vec<Asker> {
        let due: Vec<Asker> = self.due.iter().take_while(|(at, _)| *at <= now).map(|(_, asker)| *asker).collect();
        for &asker in &due {
            let Some(has) = self.has.get_mut(&asker) else { continue };
            has.patience = (2 * has.patience).min(PROBE_AT_LEAST);
            let again = now + has.patience;
            self.look_after(asker, Some(again));
        }
        due
    }

    /// When the next is due.
    pub fn next_deadline(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    fn change(&mut self, asker: Asker, now: Time, change: impl FnOnce(&mut Has)) {
        let has = self.has.entry(asker).or_default();
        change(has);
        if has.holds.is_empty() && has.waits.is_empty() {
            self.look_after(asker, None);
            self.has.remove(&asker);
        } else if has.holds.is_empty() || has.waits.is_empty() {
            self.look_after(asker, None);
        } else if has.due.is_none() {
            has.patience = PROBE_AFTER;
            self.look_after(asker, Some(now + PROBE_AFTER));
        }
    }

    fn look_after(&mut self, asker: Asker, at: Option<Time>) {
        let Some(has) = self.has.get_mut(&asker) else { return };
        if let Some(before) = std::mem::replace(&mut has.due, at) {
            self.due.remove(&(before, asker));
        }
        self.due.extend(at.map(|at| (at, asker)));
    }
}
