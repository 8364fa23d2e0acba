//! Which segment has a name: known to the name's registrar in the view, the home that draws the highest lot for it.
//!
//! A view has new registrars. Each learns the segments from the reports of all homes, and answers nothing before it has
//! them all: so a name in use is never given away again. What a registrar knew of a home that has gone is *lost*. It
//! reports that to the next registrar, as the homes report their segments, so that a member that asks for the name
//! hears "lost" instead of "unknown".
//!
//! A member that asks for a segment by its number asks the home that made it. Where that home has gone and a copy has
//! taken its place, a registrar for the number knows the copy's holder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use verbena_cluster::View;
use verbena_terms::Incarnation;

use crate::actions::Said;
use crate::layout::End;
use crate::recent::Recent;
use crate::segment::registrar_of;
use crate::wire::{MOST_SEGMENTS, Question, Reply};
use crate::{Refusal, Segment, SegmentId, SegmentName};

/// Names that are remembered whose segments were reclaimed; those of which that is longer ago are not found.
const RECLAIMED: usize = 4096;
/// Names of lost segments that a node tells the registrars of a view, each of which may know as many of every node; others are not found.
const LOST: usize = 65_536;

#[derive(Clone, Debug)]
pub(crate) struct Registrar {
    names: BTreeMap<SegmentName, Segment>,
    /// What the registrars of this view are to learn.
    lost: BTreeMap<SegmentName, Segment>,
    /// Names whose segment a home took back in this view, as long as the name is free.
    reclaimed: Recent<SegmentName, (SegmentId, Incarnation)>,
    /// Segments whose maker has gone, and the home that serves each now.
    moved: BTreeMap<SegmentId, Incarnation>,
    me: Incarnation,
    in_view: Option<Arc<View>>,
    homes: BTreeSet<Incarnation>,
    /// Homes that have not reported all their pages, and those that have come.
    awaited: BTreeMap<Incarnation, BTreeSet<u32>>,
}

impl Default for Registrar {
    fn default() -> Self {
        Registrar {
            names: BTreeMap::new(),
            lost: BTreeMap::new(),
            reclaimed: Recent::of_at_most(RECLAIMED),
            moved: BTreeMap::new(),
            me: Incarnation::default(),
            in_view: None,
            homes: BTreeSet::new(),
            awaited: BTreeMap::new(),
        }
    }
}

impl Registrar {
    /// Another view: nothing is known in it yet.
    pub(crate) fn view(&mut self, me: Incarnation, view: &Arc<View>) {
        (self.me, self.in_view) = (me, Some(view.clone()));
        self.homes = view.homes().map(|member| member.incarnation).collect();
        let known = std::mem::take(&mut self.names);
        let is_lost = |segment: &Segment| segment.places().all(|place| !self.homes.contains(&place.home));
        self.lost.extend(known.into_iter().filter(|(_, segment)| is_lost(segment)).take(LOST - self.lost.len()));
        self.moved.clear();
        self.reclaimed.clear();
        self.awaited = self.homes.iter().map(|home| (*home, BTreeSet::new())).collect();
    }

    /// Whether all members have reported.
    pub(crate) fn is_open(&self) -> bool {
        self.awaited.is_empty()
    }

    /// What this node reports to a registrar of the view: what stands here, and what it knows to be lost.
    pub(crate) fn reports(&self, to: Incarnation, view: &View, led: &[Segment]) -> Vec<Question> {
        let of_its = |segment: &&Segment| {
            let by_name = segment.wanted.name.as_ref().and_then(|name| name.registrar(view));
            by_name == Some(to) || has_moved(segment) && registrar_of(segment.id, view) == Some(to)
        };
        let all: Vec<Segment> = led.iter().chain(self.lost.values()).filter(of_its).cloned().collect();
        let pages = all.len().div_ceil(MOST_SEGMENTS).max(1);
        let mut chunks = all.chunks(MOST_SEGMENTS);
        let page = |page| {
            let segments = chunks.next().unwrap_or_default().to_vec();
            Question::Report { page: page as u32, pages: pages as u32, segments }
        };
        (0..pages).map(page).collect()
    }

    /// Another registrar knows now what was lost.
    pub(crate) fn was_told(&mut self, told: &[Segment]) {
        for segment in told {
            let is_it = |name: &SegmentName| self.lost.get(name).is_some_and(|lost| lost.id == segment.id);
            if let Some(name) = segment.wanted.name.as_ref().filter(|name| is_it(name)) {
                self.lost.remove(name);
            }
        }
    }

    /// A home reports a page.
    fn heard(&mut self, from: Incarnation, page: u32, pages: u32, segments: Vec<Segment>) {
        let Some(come) = self.awaited.get_mut(&from) else { return };
        if page < pages && come.insert(page) {
            let Some(view) = &self.in_view else { return };
            for segment in segments {
                let is_served = self.homes.contains(&segment.home);
                if has_moved(&segment) && is_served {
                    self.moved.insert(segment.id, segment.home);
                }
                let Some(name) = segment.wanted.name.clone() else { continue };
                if name.registrar(view) != Some(self.me) {
                    continue;
                }
                let stands = self.names.get(&name).is_some_and(|known| self.homes.contains(&known.home));
                // A segment that stands exists, even where another registrar reports it lost.
                if !stands {
                    self.names.insert(name, segment);
                }
            }
            if come.len() as u64 == u64::from(pages) {
                self.awaited.remove(&from);
            }
        }
    }

    /// A question of a member.
    pub(crate) fn on(&mut self, from: Incarnation, question: Question) -> Said {
        let done = |done: Result<(), Refusal>| Said::Kept(done.map_or_else(Reply::Refused, |()| Reply::Done));
        match question {
            Question::Report { page, pages, segments } => {
                self.heard(from, page, pages, segments);
                Said::Anew(Reply::Done)
            }
            Question::Find(name) => Said::Anew(self.find(&name).map_or_else(Reply::Refused, known)),
            Question::Holder(id) => {
                Said::Anew(self.holder(id).map_or_else(Reply::Refused, |by| Reply::Held { id, by }))
            }
            Question::Moved(id) => {
                self.has_moved(id, from);
                Said::Kept(Reply::Done)
            }
            Question::Register(segment) => done(self.register(segment)),
            Question::Unregister { name, id, end } => {
                self.unregister(&name, id, from, end);
                Said::Kept(Reply::Done)
            }
            Question::Bury { name, owner } => done(self.bury(&name, owner)),
            // Of other parts of a member.
            _ => Said::Nothing,
        }
    }

    /// Which segment has this name.
    fn find(&self, name: &SegmentName) -> Result<&Segment, Refusal> {
        match self.names.get(name) {
            Some(segment) if self.homes.contains(&segment.home) => Ok(segment),
            Some(segment) => Err(Refusal::Lost { id: segment.id }),
            None => Err(match self.reclaimed.get(name) {
                Some(&(id, home)) => Refusal::Reclaimed { id, home },
                None => Refusal::NotFound { name: name.clone() },
            }),
        }
    }

    /// The home that serves a segment whose maker has gone.
    fn holder(&self, id: SegmentId) -> Result<Incarnation, Refusal> {
        self.moved.get(&id).copied().ok_or(Refusal::Lost { id })
    }

    /// A home serves what it did not make.
    fn has_moved(&mut self, id: SegmentId, by: Incarnation) {
        self.moved.insert(id, by);
    }

    /// A new segment.
    fn register(&mut self, segment: Segment) -> Result<(), Refusal> {
        let Some(name) = segment.wanted.name.clone() else { return Ok(()) };
        match self.find(&name) {
            Ok(other) if other.id != segment.id => Err(Refusal::Exists { name }),
            Err(lost @ Refusal::Lost { .. }) => Err(lost),
            _ => {
                self.reclaimed.remove(&name);
                self.names.insert(name, segment);
                Ok(())
            }
        }
    }

    /// A segment is no more, says its home.
    fn unregister(&mut self, name: &SegmentName, id: SegmentId, home: Incarnation, end: End) {
        if self.names.get(name).is_none_or(|segment| segment.id != id) {
            return;
        }
        self.names.remove(name);
        if end == End::Reclaimed {
            self.reclaimed.put(name.clone(), (id, home));
        }
    }

    /// The name of a lost segment may be used again.
    fn bury(&mut self, name: &SegmentName, owner: u32) -> Result<(), Refusal> {
        match self.find(name) {
            Err(Refusal::Lost { id }) => {
                let its = self.names[name].wanted.owner;
                if its != owner {
                    return Err(Refusal::NotYours { id, owner: its });
                }
                self.names.remove(name);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(segment) => Err(Refusal::Exists { name: segment.wanted.name.clone().unwrap_or_else(|| name.clone()) }),
        }
    }
}

/// Where copies are its home alone can say.
fn known(segment: &Segment) -> Reply {
    match segment.has_copies() || has_moved(segment) {
        true => Reply::Held { id: segment.id, by: segment.home },
        false => Reply::Segment(segment.clone()),
    }
}

/// Whether another home serves it than the one that made it.
fn has_moved(segment: &Segment) -> bool {
    segment.home != segment.id.home
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Coherence, Wanted};
    use verbena_cluster::{Member, Roles};
    use verbena_terms::ViewNumber;

    fn view(number: u32, ranks: &[u32]) -> Arc<View> {
        let member = |rank: &u32| Member {
            incarnation: Incarnation::new(*rank, 1),
            name: format!("n{rank}"),
            address: String::new(),
            roles: Roles::ALL,
        };
        Arc::new(View::new(ViewNumber(number), ranks.iter().map(member).collect(), vec![]).unwrap())
    }

    fn segment(rank: u32, name: &str) -> Segment {
        let name = Some(SegmentName::new(name).unwrap());
        let wanted = Wanted::new(name, 8, Coherence::Strict, 7);
        let home = Incarnation::new(rank, 1);
        Segment { id: SegmentId { home, number: 1 }, wanted, home, control: 0, at: 0, backups: vec![] }
    }

    fn report_all(registrar: &mut Registrar, from: u32, segments: Vec<Segment>) {
        registrar.heard(Incarnation::new(from, 1), 0, 1, segments);
    }

    #[test]
    fn a_name_is_not_given_away_before_everybody_has_reported() {
        let (mut registrar, view) = (Registrar::default(), view(1, &[1, 2]));
        registrar.view(SegmentName::new("a").unwrap().registrar(&view).unwrap(), &view);
        report_all(&mut registrar, 1, vec![]);
        assert!(!registrar.is_open());
        registrar.heard(Incarnation::new(2, 1), 1, 2, vec![segment(2, "b")]);
        registrar.heard(Incarnation::new(2, 1), 1, 2, vec![segment(2, "b")]);
        assert!(!registrar.is_open(), "a page that comes twice is one page");
        registrar.heard(Incarnation::new(2, 1), 0, 2, vec![segment(2, "a")]);
        assert!(registrar.is_open());
        let exists = Refusal::Exists { name: SegmentName::new("a").unwrap() };
        assert_eq!(registrar.register(segment(1, "a")), Err(exists));
        assert_eq!(registrar.register(segment(2, "a")), Ok(()), "it is the same one");
    }

    #[test]
    fn no_more_names_of_lost_segments_are_kept_than_that() {
        let mut registrar = Registrar::default();
        let me = Incarnation::new(1, 1);
        for round in 0..3 {
            registrar.view(me, &view(2 * round + 1, &[1, 2]));
            for from in [1, 2] {
                report_all(&mut registrar, from, vec![]);
            }
            for number in 0..LOST / 2 {
                registrar.register(segment(2, &format!("{round}/{number}"))).unwrap();
            }
            registrar.view(me, &view(2 * round + 2, &[1]));
            assert_eq!(registrar.lost.len(), LOST.min((round as usize + 1) * (LOST / 2)));
        }
    }

    #[test]
    fn what_is_lost_is_said_to_be_until_it_is_buried() {
        let mut registrar = Registrar::default();
        registrar.view(Incarnation::new(1, 1), &view(1, &[1, 2]));
        for from in [1, 2] {
            report_all(&mut registrar, from, vec![]);
        }
        registrar.register(segment(2, "a")).unwrap();
        let next = view(2, &[1]);
        let me = Incarnation::new(1, 1);
        registrar.view(me, &next);
        let reports = registrar.reports(me, &next, &[]);
        let [Question::Report { page: 0, pages: 1, segments }] = &reports[..] else { panic!("{reports:?}") };
        registrar.heard(me, 0, 1, segments.clone());
        registrar.was_told(segments);
        let (name, id) = (SegmentName::new("a").unwrap(), segment(2, "a").id);
        assert_eq!(registrar.find(&name), Err(Refusal::Lost { id }));
        assert_eq!(registrar.register(segment(1, "a")), Err(Refusal::Lost { id }));
        assert_eq!(registrar.bury(&name, 8), Err(Refusal::NotYours { id, owner: 7 }));
        assert_eq!(registrar.bury(&name, 7), Ok(()));
        assert_eq!(registrar.bury(&name, 7), Err(Refusal::NotFound { name: name.clone() }));
        assert_eq!(registrar.register(segment(1, "a")), Ok(()));
        assert!(registrar.bury(&name, 7).is_err(), "it stands");
    }
}
