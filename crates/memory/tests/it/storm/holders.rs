//! Who holds segments, as far as clients were told: what is released is gone, and what somebody holds is not lost.

use std::collections::{BTreeMap, BTreeSet};

use verbena_memory::{Coherence, Segment, SegmentId, SegmentName};
use verbena_terms::{Incarnation, Time};
use verbena_testkit::keeper::LEASE;

#[derive(Default)]
pub struct Holders {
    of: BTreeMap<SegmentId, BTreeSet<Incarnation>>,
    /// Somebody was told that it is allocated: whoever does not hear that in time gives it up.
    told: BTreeMap<SegmentId, SegmentName>,
    /// Somebody has asked for their end.
    doubted: BTreeSet<SegmentId>,
    /// Somebody has asked for the end of whatever has the name.
    doubted_names: BTreeSet<SegmentName>,
    /// When somebody was told of it.
    released: BTreeMap<SegmentId, Time>,
    /// When somebody was told that it is lost.
    lost: BTreeMap<SegmentId, Time>,
    /// Homes that took memory back: what is theirs may come to its end.
    reclaiming: BTreeSet<Incarnation>,
}

impl Holders {
    pub fn held(&mut self, segment: &Segment) {
        self.of.entry(segment.id).or_default().extend(segment.places().map(|place| place.home));
    }

    pub fn allocated(&mut self, segment: &Segment) {
        self.told.extend(segment.wanted.name.clone().map(|name| (segment.id, name)));
        self.held(segment);
    }

    /// By its name, whichever it was.
    pub fn name_was_released(&mut self, name: &SegmentName) {
        self.told.retain(|_, other| other != name);
    }

    pub fn name_may_be_released(&mut self, name: SegmentName) {
        self.doubted_names.insert(name);
    }

    pub fn may_be_released(&mut self, id: SegmentId) {
        self.doubted.insert(id);
    }

    /// Somebody hears that it was released, as far as is known where it was asked for.
    pub fn said_to_be_released(&self, id: SegmentId, broken: &mut Vec<String>) {
        let name = self.told.get(&id).filter(|name| !self.doubted_names.contains(name));
        if name.is_some() && !self.doubted.contains(&id) {
            broken.push(format!("{id} is said to be released, and nobody has asked for that"));
        }
    }

    pub fn takes_back(&mut self, home: Incarnation) {
        self.reclaiming.insert(home);
    }

    pub fn was_released(&mut self, id: SegmentId, now: Time) {
        self.released.entry(id).or_insert(now);
    }

    /// Those that were told to hold it, if nobody has asked for its end.
    pub fn left(&self, id: SegmentId) -> impl Iterator<Item = Incarnation> {
        let may_be_reclaimed =
            self.of.get(&id).is_some_and(|homes| homes.iter().any(|home| self.reclaiming.contains(home)));
        let is_wanted = self.told.contains_key(&id) && !self.doubted.contains(&id) && !may_be_reclaimed;
        self.of.get(&id).filter(|_| is_wanted).into_iter().flatten().copied()
    }

    pub fn is_lost(&mut self, id: SegmentId, now: Time) {
        self.lost.entry(id).or_insert(now);
    }

    /// What was begun then was done. Nodes serve copies of `temporal` for so long.
    pub fn still_there(&self, id: SegmentId, begun: Time, coherence: Coherence, broken: &mut Vec<String>) {
        let patience = coherence.patience().unwrap_or_default().mul_f64(1.01);
        if let Some(when) = self.released.get(&id).filter(|when| **when + patience < begun) {
            broken.push(format!("{id} was released until {when}, and is there for what was begun at {begun}"));
        }
        // Where a view has no home that is said before it is in effect: others may be in an older one as long as their leases are.
        if let Some(when) = self.lost.get(&id).filter(|when| **when + patience + 2 * LEASE < begun) {
            broken.push(format!("{id} was lost at {when}, and is there for what was begun at {begun}"));
        }
    }
}
