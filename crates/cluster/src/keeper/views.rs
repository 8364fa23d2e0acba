//! From view to view: what the keeper makes, waits for and declares (rule C3).

use std::collections::{BTreeMap, BTreeSet};

use verbena_terms::{Incarnation, Rank, Time};

use super::{Keeper, KeeperAction, Phase};

use crate::seat::Seat;
use crate::{Body, Departed, KeeperRecord, MAX_DEPARTED, Member, RANKS_KEPT, Role, Standing, View};

impl Keeper {
    /// One move on the way from view to view; `false` when the keeper can only wait.
    pub(super) fn step(&mut self, now: Time, out: &mut Vec<KeeperAction>) -> bool {
        if self.record.terms.longer(self.membership.terms()) != self.record.terms {
            // Longer leases than the record knows are granted only when a keeper that restarts would wait for them.
            self.make(now, self.record.clone(), out);
            return true;
        }
        match self.phase {
            Phase::Proposed { .. } => {
                let mut marks = self.record.out.clone();
                marks
                    .extend(self.members().filter(|who| self.seats[who].lapsed(now) && !self.record.out.contains(who)));
                if marks.len() > self.record.out.len() {
                    if self.resigns_rather(now, out) {
                        return false;
                    }
                    let next = KeeperRecord { out: marks, ..self.record.clone() };
                    self.make(now, next, out);
                    return true;
                }
                let agreed = self.agreed(now);
                if agreed {
                    self.phase = Phase::InEffect;
                    self.resigns |= self.authority < Time::FAR && !self.hears_too_few(now);
                    self.tell_standing(out);
                    self.leavers.clear();
                }
                agreed
            }
            Phase::InEffect => {
                let view = &self.record.view;
                let member = |who: &Incarnation| view.as_ref().is_some_and(|view| view.member(*who).is_some());
                self.seats.retain(|who, seat| member(who) || !seat.lapsed(now));
                let Some(next) = self.next_view(now) else {
                    self.gather_until = None;
                    return false;
                };
                let all_in = Some(next.members().len()) == self.membership.size();
                let until = *self.gather_until.get_or_insert(now + self.terms().gather());
                if !all_in && self.membership.gathers() && now < until {
                    return false;
                }
                self.gather_until = None;
                let drops = |who: Incarnation| next.member(who).is_none() && self.seats[&who].lapsed(now);
                if self.members().any(drops) && self.resigns_rather(now, out) {
                    return false;
                }
                let starts = self.starts_with(&next);
                self.make(now, KeeperRecord { view: Some(next), out: vec![], starts, ..self.record.clone() }, out);
                true
            }
        }
    }

    /// The starts that are used once `next` is made.
    fn starts_with(&self, next: &View) -> BTreeMap<Rank, u32> {
        let mut starts = self.record.starts.clone();
        starts.extend(next.members().iter().map(|member| (member.incarnation.rank, member.incarnation.start)));
        if self.membership.size().is_none() {
            let last = starts.keys().next_back().map_or(0, |rank| rank.0);
            starts.retain(|rank, _| rank.0.saturating_add(RANKS_KEPT) > last);
        }
        starts
    }

    /// Gives the office up if most of the members have been silent, instead of taking them for gone.
    fn resigns_rather(&mut self, now: Time, out: &mut Vec<KeeperAction>) -> bool {
        self.has_resigned = self.resigns && self.hears_too_few(now);
        if self.has_resigned {
            out.push(KeeperAction::Resign);
        }
        self.has_resigned
    }

    /// Whether less than half of the members renewed within half a lease: two renewals of each were lost. Members that
    /// leave or have ended do not count.
    fn hears_too_few(&self, now: Time) -> bool {
        let terms = self.terms();
        let silent_since = now + terms.lease() / 2 + terms.drift();
        let seats = self.members().filter_map(|who| self.seats.get(&who)).filter(|seat| !seat.ended && !seat.leaving);
        let (all, heard) =
            seats.fold((0, 0), |(all, heard), seat| (all + 1, heard + usize::from(seat.lease_over >= silent_since)));
        2 * heard < all
    }

    /// Everyone who could act in an older view has acknowledged this one or is out of lease (rule C3).
    fn agreed(&self, now: Time) -> bool {
        self.members().all(|who| self.record.out.contains(&who) || self.seats[&who].acknowledged)
            && self.leavers.values().all(|over| now >= *over)
    }

    fn members(&self) -> impl Iterator<Item = Incarnation> {
        self.record.view.iter().flat_map(View::members).map(|member| member.incarnation)
    }

    /// The view that should follow the one in effect, if a node came or went.
    fn next_view(&self, now: Time) -> Option<View> {
        let out_is_final = self.rules.out_is_final;
        let goes = |who: &Incarnation, seat: &Seat| {
            seat.leaving || seat.lapsed(now) || self.record.out.contains(who) && out_is_final
        };
        let stays = |who: &Incarnation| self.seats.get(who).is_some_and(|seat| !goes(who, seat));
        let (mut members, gone): (Vec<Member>, Vec<Member>) =
            self.view().map_or(&[][..], View::members).iter().cloned().partition(|member| stays(&member.incarnation));
        let number = self.number().next()?;
        let settled = self.settled();
        // The newest view is in effect: an incarnation that left at rest had a lease until then, and has none now.
        let stays_listed = |gone: &&Departed| !gone.at_rest && !settled.contains(&gone.incarnation);
        let mut departed: Vec<Departed> =
            self.view().map_or(&[][..], View::departed).iter().filter(stays_listed).copied().collect();
        let at_rest = |who: &Incarnation| self.seats.get(who).is_some_and(|seat| seat.at_rest);
        let leaves = |gone: &Member| Departed {
            incarnation: gone.incarnation,
            since: number,
            at_rest: at_rest(&gone.incarnation),
            is_relay: gone.roles.has(Role::Relay),
        };
        departed.extend(gone.iter().map(leaves).filter(|gone| self.rules.rest_on_record || !gone.at_rest));
        departed.sort_by_key(|gone| gone.incarnation);
        let before = members.len();
        if departed.len() < MAX_DEPARTED {
            let taken: BTreeSet<String> = members.iter().map(|member| member.name.clone()).collect();
            let known = |who: &Incarnation| self.view().is_some_and(|view| view.member(*who).is_some());
            let seats = self.seats.iter().filter(|(who, _)| !known(who)).map(|(_, seat)| &seat.member);
            members.extend(seats.filter(|member| !taken.contains(&member.name)).cloned());
            members.sort_by_key(|member| member.incarnation.rank);
        }
        if gone.is_empty() && members.len() == before {
            return None;
        }
        Some(
            View::new(number, members, departed)
                .expect("invariant: one seat a node beside the members; limits kept above"),
        )
    }

    /// The departed that every home of the newest view has settled (rule P6). Without a home no departed is settled.
    fn settled(&self) -> BTreeSet<Incarnation> {
        let Some(view) = self.view().filter(|view| view.homes().next().is_some()) else { return BTreeSet::new() };
        let by_all = |who: &Incarnation| {
            view.homes().all(|home| self.seats.get(&home.incarnation).is_some_and(|seat| seat.settled.contains(who)))
        };
        view.departed().iter().map(|gone| gone.incarnation).filter(by_all).collect()
    }

    /// Makes `next` durable; no node learns of it before (rule C3).
    fn make(&mut self, now: Time, mut next: KeeperRecord, out: &mut Vec<KeeperAction>) {
        let terms = self.membership.terms();
        next.terms = if now < self.earlier_over { self.record.terms.longer(terms) } else { terms };
        out.push(KeeperAction::Persist(next.clone()));
        self.making = Some(next);
        if !self.rules.durable_view {
            self.persisted(now, out);
        }
    }

    pub(super) fn persisted(&mut self, now: Time, out: &mut Vec<KeeperAction>) {
        let Some(next) = self.making.take() else { return };
        let before = std::mem::replace(&mut self.record, next);
        if before.view == self.record.view {
            self.tell_standing(out);
            return;
        }
        let view = self.record.view.clone().expect("invariant: a record is made with a view");
        self.phase = Phase::Proposed { since: now };
        let mut partings = Vec::new();
        for dropped in before.view.iter().flat_map(View::members).map(|member| member.incarnation) {
            if view.member(dropped).is_some() {
                continue;
            }
            let Some(seat) = self.seats.remove(&dropped) else { continue };
            partings.push((dropped, seat.parting()));
            if !seat.lapsed(now) {
                self.leavers.insert(dropped, seat.lease_over);
            }
        }
        self.seats.values_mut().for_each(|seat| seat.acknowledged = false);
        let concerned = || view.members().iter().map(|member| member.incarnation).chain(self.leavers.keys().copied());
        out.extend(concerned().map(|who| self.to(who, 0, Body::Propose(view.clone()))));
        if !partings.is_empty() {
            out.extend(concerned().map(|who| self.to(who, 0, Body::Explain(partings.clone()))));
        }
    }

    pub(super) fn standing(&self) -> Standing {
        Standing {
            view: self.number(),
            in_effect: self.in_effect().is_some(),
            acknowledged: self.members().filter(|who| self.seats[who].acknowledged).collect(),
            out: self.record.out.clone(),
            settled: self.settled().into_iter().collect(),
        }
    }

    fn tell_standing(&self, out: &mut Vec<KeeperAction>) {
        let standing = self.standing();
        let concerned =
            self.members().chain(self.view().map_or(&[][..], View::departed).iter().map(|gone| gone.incarnation));
        out.extend(concerned.map(|who| self.to(who, 0, Body::Stand(standing.clone()))));
    }
}
