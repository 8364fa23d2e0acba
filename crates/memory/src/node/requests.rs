//! How a request comes to its answer: its segment is found, and then its operation begun.

use std::collections::BTreeMap;
use std::time::Duration;

use verbena_terms::{Incarnation, Time};

use super::correspondence::Purpose;
use super::{Action, Doing, Memory, Origin};
use crate::access::{Outcome, Step};
use crate::layout::{End, FREE_AT};
use crate::request::{Answer, RequestId, Target, Wish};
use crate::segment::registrar_of;
use crate::wire::{MOST_HOMES, Question, Reply, Token};
use crate::{Placement, Refusal, Segment, SegmentId};

/// How long after its asker has given up an allocation is waited for, to be released.
const ORPHANS: Duration = Duration::from_secs(2);
/// Homes that send it on to the next one, before a request waits for another view.
const MOST_HOMES_IN_TURN: u8 = 64;

impl Memory {
    /// Requests that wait for a view or a lease go on, if it has come.
    pub(super) fn go_on_all(&mut self, out: &mut Vec<Action>) {
        let waits = |stage: &Doing| matches!(stage, Doing::Waiting(_));
        let waiting: Vec<RequestId> =
            self.requests.iter().filter(|(_, request)| waits(&request.stage)).map(|(id, _)| *id).collect();
        for id in waiting {
            self.go_on(id, out);
        }
    }

    pub(super) fn go_on(&mut self, id: RequestId, out: &mut Vec<Action>) {
        if !self.membership.acts() {
            return;
        }
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.sent_on = 0;
        match request.wish.clone() {
            Wish::Allocate { wanted, placement } => self.place(id, wanted, placement, out),
            Wish::List { prefix } => self.list(id, &prefix, out),
            // Answered where it is asked.
            Wish::Reclaim { .. } => {}
            wish => match wish.target() {
                Some((Target::Id(segment), _)) => self.go_on_at(id, *segment, &wish, out),
                Some((Target::Name(name), _)) => match self.handles.named(name) {
                    Some(segment) => self.go_on_at(id, segment, &wish, out),
                    None => {
                        let to = self.membership.view().and_then(|view| name.registrar(view));
                        let question = Question::Find(name.clone());
                        self.ask_for(id, to, question, "the registrar of the name", out);
                    }
                },
                None => {}
            },
        }
    }

    fn go_on_at(&mut self, id: RequestId, segment: SegmentId, wish: &Wish, out: &mut Vec<Action>) {
        let Some(handle) = self.handles.get(segment) else {
            let Some(view) = self.membership.view() else { return };
            let (maker, registrar) = (view.member(segment.home).map(|_| segment.home), registrar_of(segment, view));
            return match (maker, registrar) {
                (Some(_), _) => self.ask_for(id, maker, Question::Where(segment), "the segment's home", out),
                (None, Some(_)) => {
                    let question = Question::Holder(segment);
                    self.ask_for(id, registrar, question, "the registrar of the segment", out);
                }
                (None, None) => self.refuse(id, Refusal::Lost { id: segment }, out),
            };
        };
        if let Some(end) = handle.end() {
            let refusal = handle.segment().ended(end);
            return self.ended(id, end, refusal, out);
        }
        if let Err(refusal) = wish.check_for(handle.segment()) {
            return self.refuse(id, refusal, out);
        }
        match wish {
            Wish::Release { user, .. } => {
                let (home, question) = (handle.segment().home, Question::Release { id: segment, owner: *user });
                if let Some(request) = self.requests.get_mut(&id) {
                    request.asked_at = Some(home);
                }
                self.ask_for(id, Some(home), question, "the segment's home", out);
            }
            wish => self.operate(id, segment, wish, out),
        }
    }

    fn ask_for(
        &mut self,
        id: RequestId,
        to: Option<Incarnation>,
        question: Question,
        whom: &'static str,
        out: &mut Vec<Action>,
    ) {
        let Some(to) = to else { return self.no_home(id, "this view", out) };
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Doing::Asking(whom);
        let changes = matches!(question, Question::Release { .. } | Question::Allocate { .. });
        let until = request.until + if changes { ORPHANS } else { Duration::ZERO };
        self.ask(to, question, Purpose::Request(id), until, out);
    }

    fn no_home(&mut self, id: RequestId, who: &str, out: &mut Vec<Action>) {
        self.refuse(id, Refusal::NoHome { who: who.to_owned() }, out);
    }

    pub(super) fn refuse(&mut self, id: RequestId, refusal: Refusal, out: &mut Vec<Action>) {
        self.answer(id, Answer::Refused(refusal), out);
    }

    /// The answer to a question of this request. `order` is the question's number among all.
    pub(super) fn told(&mut self, id: RequestId, from: Incarnation, reply: Reply, order: u64, out: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        match (&request.wish, reply) {
            (Wish::List { .. }, Reply::Page { segments, is_last, going }) => {
                self.listed(id, from, (segments, going), is_last, out);
            }
            (Wish::Stat { .. }, Reply::Notice(goes_in)) => {
                if let Doing::Stating { segment, version, stamp_ns } = &request.stage {
                    let (segment, version, stamp_ns) = (segment.clone(), *version, *stamp_ns);
                    self.answer(id, Answer::Stat { segment, version, stamp_ns, goes_in }, out);
                }
            }
            (_, Reply::Segment(segment)) => {
                // Of one that has come to its end since it was asked for, nothing is believed.
                if let Some(end) = self.handles.end_since(segment.id, order) {
                    let refusal = segment.ended(end);
                    return if end == End::Moved { self.go_on(id, out) } else { self.refuse(id, refusal, out) };
                }
                let is_made = matches!(request.wish, Wish::Allocate { .. });
                self.handles.learn(segment.clone(), self.membership.now());
                if is_made {
                    self.answer(id, Answer::Allocated(segment), out);
                } else {
                    self.go_on(id, out);
                }
            }
            (_, Reply::Held { id: segment, by }) => {
                request.sent_on += 1;
                if request.sent_on > MOST_HOMES_IN_TURN {
                    request.stage = Doing::Waiting("homes that name each other as the segment's");
                    return;
                }
                self.ask_for(id, Some(by), Question::Where(segment), "the segment's home", out);
            }
            (_, Reply::Elsewhere(segment)) => {
                let registrar = self.membership.view().and_then(|view| registrar_of(segment, view));
                self.ask_for(id, registrar, Question::Holder(segment), "the registrar of the segment", out);
            }
            (Wish::Release { target, user }, Reply::Refused(Refusal::Lost { id: segment })) => match target {
                Target::Name(name) => {
                    let to = self.membership.view().and_then(|view| name.registrar(view));
                    let question = Question::Bury { name: name.clone(), owner: *user };
                    self.ask_for(id, to, question, "the registrar of the name", out);
                }
                Target::Id(_) => self.refuse(id, Refusal::Lost { id: segment }, out),
            },
            (Wish::Release { .. }, Reply::Refused(Refusal::Released { .. } | Refusal::NotFound { .. }))
                if request.was_asked =>
            {
                self.answer(id, Answer::Released, out);
            }
            (Wish::Release { .. }, Reply::Done) => self.answer(id, Answer::Released, out),
            (_, Reply::Refused(refusal)) => self.refuse(id, refusal, out),
            (
                _,
                Reply::Done | Reply::Key(_) | Reply::Page { .. } | Reply::Place(_) | Reply::Holds(_) | Reply::Notice(_),
            ) => {}
        }
    }

    // Allocation.

    fn place(&mut self, id: RequestId, wanted: crate::Wanted, placement: Placement, out: &mut Vec<Action>) {
        let homes = self.membership.homes();
        let is_home = |home: &Incarnation| homes.contains(home);
        let are_few = wanted.is_replicated() && (1..usize::from(wanted.copies)).contains(&homes.len());
        let Some(request) = self.requests.get_mut(&id) else { return };
        if wanted.is_replicated() && request.asked_at.is_some_and(|home| are_few || !is_home(&home)) {
            // A copy of what was made may be there.
            return self.refuse(id, Refusal::Unknown, out);
        }
        if are_few {
            return self.refuse(id, Refusal::FewHomes { asked: wanted.copies, homes: homes.len() }, out);
        }
        // Where it was asked before, it is asked again: it may have been made.
        let chosen = request.asked_at.filter(is_home).or_else(|| match placement {
            Placement::Local => Some(self.membership.me()).filter(is_home),
            Placement::Node(rank) => homes.iter().find(|home| home.rank == rank).copied(),
            Placement::Spread => {
                self.spread += 1;
                homes.get((self.spread - 1) as usize % homes.len().max(1)).copied()
            }
            Placement::MostFree => None,
        });
        match (chosen, placement) {
            (Some(home), _) => {
                let first = homes.iter().position(|other| *other == home).unwrap_or(0);
                let others = homes.iter().cycle().skip(first + 1).take(homes.len() - 1).copied().collect();
                self.allocate_at(id, home, wanted, others, out);
            }
            (None, Placement::MostFree) if !homes.is_empty() => {
                // Some may have no memory: those that have are to be asked in time.
                let until = self.membership.now() + request.until.since(self.membership.now()) / 2;
                self.look(id, homes, until, out);
            }
            (None, Placement::Node(rank)) => self.no_home(id, &format!("node {rank}"), out),
            (None, Placement::Local) => self.no_home(id, "this node", out),
            (None, _) => self.no_home(id, "this view", out),
        }
    }

    fn allocate_at(
        &mut self,
        id: RequestId,
        home: Incarnation,
        wanted: crate::Wanted,
        mut others: Vec<Incarnation>,
        out: &mut Vec<Action>,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.asked_at = Some(home);
        others.truncate(if wanted.is_replicated() { MOST_HOMES } else { 0 });
        let token = Token { asker: self.membership.me(), request: id.0 };
        self.ask_for(id, Some(home), Question::Allocate { token, wanted, others }, "the home", out);
    }

    /// How much is free at each home is read.
    fn look(&mut self, id: RequestId, homes: Vec<Incarnation>, until: Time, out: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        request.stage = Doing::Looking { until, found: vec![], left: homes.iter().copied().collect() };
        for home in homes {
            self.post(Origin::Look(id, home), home, vec![Step::ReadWord(FREE_AT)], until, out);
        }
    }

    /// How much is free at a home.
    pub(super) fn looked(&mut self, id: RequestId, home: Incarnation, outcome: Outcome, out: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Doing::Looking { until, found, left } = &mut request.stage else { return };
        if let Outcome::Done(given) = outcome {
            found.push((given.first().map_or(0, |given| given.word()), home));
        }
        left.remove(&home);
        if !left.is_empty() {
            return;
        }
        found.sort_by_key(|(free, home)| (std::cmp::Reverse(*free), *home));
        let found: Vec<Incarnation> = found.iter().map(|(_, home)| *home).collect();
        let (is_last, until, wish) = (*until >= request.until, request.until, request.wish.clone());
        let homes = self.membership.homes();
        match (found.split_first(), wish) {
            (Some((home, others)), Wish::Allocate { wanted, .. }) => {
                // Those that did not say may have room for a copy.
                let silent = homes.iter().filter(|home| !found.contains(home));
                self.allocate_at(id, *home, wanted, others.iter().chain(silent).copied().collect(), out);
            }
            _ if is_last => self.out_of_time(id, out),
            // None has memory yet.
            _ => self.look(id, homes, until, out),
        }
    }

    // Listing.

    fn list(&mut self, id: RequestId, prefix: &str, out: &mut Vec<Action>) {
        let homes = self.membership.homes();
        let Some(request) = self.requests.get_mut(&id) else { return };
        let left = homes.iter().copied().collect();
        request.stage = Doing::Listing { left, found: vec![], going: BTreeMap::new() };
        let until = request.until;
        if homes.is_empty() {
            return self.tell_list(id, out);
        }
        let after = SegmentId { home: Incarnation::default(), number: 0 };
        for home in homes {
            let question = Question::List { after, prefix: prefix.to_owned() };
            self.ask(home, question, Purpose::Request(id), until, out);
        }
    }

    fn listed(
        &mut self,
        id: RequestId,
        from: Incarnation,
        (segments, its_going): (Vec<Segment>, Vec<(SegmentId, Duration)>),
        is_last: bool,
        out: &mut Vec<Action>,
    ) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let (until, wish) = (request.until, request.wish.clone());
        let Doing::Listing { left, found, going } = &mut request.stage else { return };
        let last = segments.last().map(|segment| segment.id);
        found.extend(segments);
        going.extend(its_going);
        match (last, wish) {
            (Some(after), Wish::List { prefix }) if !is_last => {
                self.ask(from, Question::List { after, prefix }, Purpose::Request(id), until, out);
            }
            _ => {
                left.remove(&from);
                if left.is_empty() {
                    self.tell_list(id, out);
                }
            }
        }
    }

    fn tell_list(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let Doing::Listing { left, found, going } = &mut request.stage else { return };
        let (silent, mut segments): (Vec<_>, _) = (std::mem::take(left).into_iter().collect(), std::mem::take(found));
        let going = std::mem::take(going);
        segments.sort_by_key(|segment| segment.id);
        self.answer(id, Answer::Listed { segments, going, silent }, out);
    }

    // The end of patience.

    pub(super) fn out_of_time(&mut self, id: RequestId, out: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(&id) else { return };
        let why = match &mut request.stage {
            Doing::Listing { .. } => return self.tell_list(id, out),
            Doing::Putting(put) => {
                let refusal = if put.is_publishing() {
                    Refusal::Unknown
                } else {
                    Refusal::TimedOut { why: "the segment's home".into() }
                };
                // The request waits for what is in flight: then it is known which slots are free.
                request.is_over = true;
                out.push(Action::Answer(id, Answer::Refused(refusal)));
                return;
            }
            // Also where it was asked in an earlier view.
            stage
                if matches!(request.wish, Wish::Allocate { .. } | Wish::Release { .. })
                    && (request.was_asked || matches!(stage, Doing::Asking(_))) =>
            {
                return self.refuse(id, Refusal::Unknown, out);
            }
            Doing::Waiting(why) | Doing::Asking(why) => *why,
            Doing::Looking { .. } => "how much is free at the homes",
            Doing::Comparing | Doing::Getting { .. } | Doing::Stating { .. } => "the segment's home",
            Doing::Queued => "other puts of this node to the segment",
            Doing::Pausing(..) => "a slot of the segment that no other writer fills",
        };
        let queue = self.handles.queue_of(id);
        self.refuse(id, Refusal::TimedOut { why: why.into() }, out);
        if let Some(segment) = queue {
            self.put_ended(segment, id, out);
        }
    }

    /// Until when a request is waited for.
    pub(super) fn until(&self, id: RequestId) -> Time {
        self.requests.get(&id).map_or(Time::FAR, |request| request.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Given;
    use crate::dialogue::Node;
    use crate::dialogue::rank;
    use crate::wire::Message;
    use crate::{Coherence, Wanted};

    const PATIENCE: Duration = Duration::from_secs(8);

    /// Where most is free is looked for at homes 1 and 3, of which one may have no memory.
    fn looking() -> (Node, [crate::PostId; 2]) {
        let mut node = Node::of(1, &[1, 3]);
        let wish =
            Wish::Allocate { wanted: Wanted::new(None, 8, Coherence::Strict, 7), placement: Placement::MostFree };
        node.does(|memory, now, out| memory.request(RequestId(1), wish, now + PATIENCE, now, out));
        let looks = node.posts();
        assert!(looks.iter().all(|(_, until)| *until == node.now + PATIENCE / 2), "{looks:?}");
        node.messages();
        let Ok(ids) = looks.iter().map(|(post, _)| post.id).collect::<Vec<_>>().try_into() else { panic!("{looks:?}") };
        (node, ids)
    }

    #[test]
    fn a_home_that_does_not_say_how_much_is_free_is_not_asked() {
        let (mut node, [first, second]) = looking();
        node.ended(second, Outcome::Done(vec![Given::Word(1)]));
        assert!(node.messages().is_empty());
        node.passes(PATIENCE / 2);
        node.ended(first, Outcome::Late);
        let mut said = node.messages();
        said.retain(|(_, message)| matches!(message, Message::Ask { question: Question::Allocate { .. }, .. }));
        assert!(matches!(&said[..], [(to, _)] if *to == rank(3)), "{said:?}");
    }

    /// What is said of an allocation with two copies at home 1, which was asked before this.
    fn said_of_an_asked_allocation(then: impl FnOnce(&mut Node)) -> Vec<Answer> {
        let mut node = Node::of(1, &[1, 3]);
        let wanted = Wanted { copies: 2, ..Wanted::new(None, 8, Coherence::Strict, 7) };
        let wish = Wish::Allocate { wanted, placement: Placement::Local };
        node.does(|memory, now, out| memory.request(RequestId(1), wish, now + PATIENCE, now, out));
        assert_eq!(node.memory.requests[&RequestId(1)].asked_at, Some(rank(1)));
        then(&mut node);
        let answers = node.did().into_iter().filter_map(|action| match action {
            Action::Answer(_, answer) => Some(answer),
            _ => None,
        });
        answers.collect()
    }

    #[test]
    fn what_was_asked_in_an_earlier_view_may_have_been_done() {
        let unknown = [Answer::Refused(Refusal::Unknown)];
        let late = said_of_an_asked_allocation(|node| {
            // In the next view it has no lease yet.
            let next = std::sync::Arc::new(crate::dialogue::view(2, &[1, 3]));
            node.does(|memory, now, out| memory.view(&next, now, out));
            node.passes(PATIENCE);
        });
        assert_eq!(late, unknown);
        let alone = said_of_an_asked_allocation(|node| node.next_view(&[1]));
        assert_eq!(alone, unknown);
    }

    #[test]
    fn where_no_home_says_it_all_are_asked_once_more() {
        let (mut node, ids) = looking();
        node.passes(PATIENCE / 2);
        ids.into_iter().for_each(|id| node.ended(id, Outcome::Late));
        let looks = node.posts();
        assert!(looks.len() == 2 && looks.iter().all(|(_, until)| *until == node.now + PATIENCE / 2), "{looks:?}");
        node.passes(PATIENCE / 4);
        assert!(node.did().iter().all(|action| !matches!(action, Action::Answer(..))));
        looks.into_iter().for_each(|(look, _)| node.ended(look.id, Outcome::Late));
        let why = "how much is free at the homes".into();
        let answer = Action::Answer(RequestId(1), Answer::Refused(Refusal::TimedOut { why }));
        assert!(node.did().contains(&answer), "{answer:?}");
    }
}
