//! What happens in the world in which a view ends.

use verbena_lock::{
    Action, Batch, LockRole, Message, Mode, ProtocolViolation, RecoveryHolder, Survivor, To, Token, in_order,
};
use verbena_terms::Rank;

use crate::every_order::across::views::{Across, Event, NEW, Node, OLD, Rule, State};
use crate::every_order::view::{Address, MemberMessage, Posted, View, rank};
use crate::every_order::world::{FIRST, STRANGE, TOO_SMALL, TWO_BATCHES};

/// Who is served in the new view, in this order.
pub(crate) type Order = Vec<(Rank, Survivor)>;

impl Across {
    /// All that can happen next.
    pub(crate) fn possible(&self, state: &State, events: &mut Vec<Event>) {
        for (at, node) in state.nodes.iter().enumerate() {
            if node.role.is_idle() && node.left > 0 && (state.is_open || !node.has_learnt) {
                events.extend(self.world.requests.iter().map(|&request| Event::Request(at, request)));
            }
            if let Some((mode, _)) = node.role.held() {
                events.push(Event::Release(at));
                if self.world.downgrades && mode == Mode::Exclusive {
                    events.push(Event::Downgrade(at));
                }
            } else if !node.role.is_idle() && !node.is_out && !node.is_unwanted && !state.has_failed {
                events.push(Event::Cancel(at));
            }
            if !node.has_learnt && !node.is_out {
                events.push(Event::Learns(at));
            }
        }
        for (at, view) in state.views.iter().enumerate() {
            events.extend(view.posters().map(|who| Event::Step(at, who)));
            if at == OLD || state.is_open {
                events.extend(view.messages().map(|member_message| Event::Deliver(at, member_message)));
            }
        }
        if !state.home_has_learnt {
            events.push(Event::Learns(self.home()));
        } else if !state.is_open {
            self.openings(state, None, events);
            if !state.has_failed {
                (0..state.nodes.len()).for_each(|at| self.openings(state, Some(at), events));
            }
        }
    }

    /// In the orders that can be, when all but this one have reported.
    fn openings(&self, state: &State, without: Option<usize>, events: &mut Vec<Event>) {
        let mut others = state.nodes.iter().enumerate().filter(|(at, _)| Some(*at) != without);
        if !self.keeps(Rule::AllReport) || others.all(|(_, node)| node.has_learnt) {
            let orders = self.orders(state, without).len();
            events.extend((0..orders).map(|order| Event::Opens { order, without }));
        }
    }

    /// Orders that the home may choose. Which of two comes first where nothing is known of them turns on their ranks, and here on any others as well: so
    /// participants may change places.
    pub(crate) fn orders(&self, state: &State, without: Option<usize>) -> Vec<Order> {
        let reports = |name: &[u32]| -> Vec<_> {
            let renamed = |rank: Rank| name.get(rank.0 as usize).map_or(rank, |&other| Rank(other));
            let reporting = state.nodes.iter().enumerate().filter(|(at, _)| Some(*at) != without);
            reporting.filter_map(|(at, node)| Some((renamed(rank(at)), node.report?, renamed(node.ahead)))).collect()
        };
        let mut orders: Vec<Order> = vec![];
        for name in permutations(state.nodes.len()) {
            let old = |rank: Rank| Rank(name.iter().position(|&other| other == rank.0).map_or(0, |at| at as u32));
            let order = in_order(reports(&name)).into_iter().map(|(rank, survivor)| (old(rank), survivor)).collect();
            if !orders.contains(&order) {
                orders.push(order);
            }
        }
        orders
    }

    pub(crate) fn happens(&self, state: &mut State, event: Event) {
        let mut out = vec![];
        match event {
            Event::Request(who, request) => {
                let node = &mut state.nodes[who];
                (node.left, node.ahead, node.is_unwanted) = (node.left - 1, Rank::NOBODY, false);
                let said = node.role.request(request, &mut out);
                self.node_acts(state, who, said, out);
            }
            Event::Release(who) => {
                let said = state.nodes[who].role.release(&mut out);
                self.node_acts(state, who, said, out);
            }
            Event::Downgrade(who) => {
                let said = state.nodes[who].role.downgrade(&mut out);
                self.node_acts(state, who, said, out);
            }
            Event::Cancel(who) => (state.nodes[who].is_unwanted, state.has_failed) = (true, true),
            Event::Deliver(view, at) => {
                let member_message = state.views[view].wire.remove(at);
                self.hears(state, view, member_message);
            }
            Event::Step(view, who) => self.steps(state, view, who),
            Event::Learns(who) if who == self.home() => {
                state.home_has_learnt = true;
                self.forgets_the_old(state, who);
            }
            Event::Learns(who) => {
                self.learns(state, who);
                self.forgets_the_old(state, who);
            }
            Event::Opens { order, without } => self.opens(state, order, without),
        }
    }

    fn hears(&self, state: &mut State, view: usize, (to, from, message): MemberMessage) {
        let mut out = vec![];
        let View { home, recovery_holder, .. } = &mut state.views[view];
        match (to, recovery_holder) {
            (Address::Home, _) => {
                let said = home.heard(from, message, &mut out);
                self.acts(state, view, self.home(), said, out);
            }
            (Address::Survivor(to), _) if !state.nodes[to.0 as usize - 1].is_survivor() => {
                state.wrong = Some("a server says something to who has nothing from an earlier view");
            }
            (Address::Participant(to) | Address::Survivor(to), _) if !is_recovery_holder(to) => {
                let who = to.0 as usize - 1;
                let said = state.nodes[who].role.heard(from, message, &mut out);
                self.node_acts(state, who, said, out);
            }
            (to, Some(recovery_holder)) => {
                let said = match to {
                    Address::Server => recovery_holder.heard_of_survivor(from, message, &mut out),
                    _ => recovery_holder.heard(from, message, &mut out),
                };
                self.acts(state, view, self.recovery_holder(), said, out);
            }
            (_, None) => state.wrong = Some("somebody writes to a recovery holder where there is none"),
        }
    }

    fn steps(&self, state: &mut State, view: usize, who: usize) {
        let is_executed = state.views[view].execute(who).is_some();
        if !self.is_in(state, view, who) {
            state.views[view].is_heard_by_nobody(who);
        }
        if is_executed {
            return;
        }
        let Some(Posted { outcome, .. }) = state.views[view].posted[who].take() else { return };
        let mut out = vec![];
        if who < self.home() {
            let said = state.nodes[who].role.completed(&outcome, &mut out);
            self.node_acts(state, who, said, out);
            return;
        }
        let View { home, recovery_holder, .. } = &mut state.views[view];
        let said = match recovery_holder {
            Some(recovery_holder) if who == self.recovery_holder() => recovery_holder.completed(&outcome, &mut out),
            _ => home.completed(&outcome, &mut out),
        };
        self.acts(state, view, who, said, out);
    }

    /// Whether it acts in this view.
    pub(crate) fn is_in(&self, state: &State, view: usize, who: usize) -> bool {
        let has_learnt = state.nodes.get(who).map_or(state.home_has_learnt, |node| node.has_learnt);
        has_learnt == (view == NEW)
    }

    /// The node takes what it has into the new view, and reports it.
    fn learns(&self, state: &mut State, who: usize) {
        let node = &mut state.nodes[who];
        let (was_held, was_survivor) = (node.role.held().is_some(), node.is_survivor());
        node.has_learnt = true;
        node.report = node.role.survives();
        if let Some(Survivor::Holds(mode, _)) = &mut node.report
            && !was_held
            && !self.keeps(Rule::SharingIsReading)
        {
            *mode = Mode::Exclusive;
        }
        // What was only tried is as good as refused, and may be tried again.
        node.role = node.report.map_or(self.world.participant(who), LockRole::of);
        node.is_unwanted &= node.report.is_some();
        // A writer that was becoming a reader is one. Those that read with a survivor may have tokens of the old view, which are larger.
        if let Some((mode, token)) = node.role.held().filter(|_| !was_held && !was_survivor) {
            self.node_acts(state, who, Ok(()), vec![Action::Granted(mode, token)]);
        }
    }

    /// Nobody takes any more what others say to it in the old view, and it does not hear what becomes of its batch.
    fn forgets_the_old(&self, state: &mut State, who: usize) {
        let mut wire = std::mem::take(&mut state.views[OLD].wire);
        wire.retain(|&(to, ..)| self.is_taken(state, to));
        state.views[OLD].wire = wire;
        state.views[OLD].is_heard_by_nobody(who);
    }

    /// Whether somebody acts in the old view who is written to there.
    fn is_taken(&self, state: &State, to: Address) -> bool {
        match to {
            Address::Participant(to) | Address::Survivor(to) if !is_recovery_holder(to) => {
                !state.nodes[to.0 as usize - 1].has_learnt || !self.keeps(Rule::OldIsDropped)
            }
            _ => !state.home_has_learnt,
        }
    }

    fn opens(&self, state: &mut State, order: usize, without: Option<usize>) {
        let order = self.orders(state, without).swap_remove(order);
        state.is_open = true;
        if !state.keep_order(&order) {
            state.wrong = Some("somebody is served before who it stood behind");
        }
        match without {
            Some(who) => self.is_left_behind(state, who),
            // Nobody acts in the old view any more.
            None if self.keeps(Rule::AllReport) => state.views[OLD] = self.world.view(FIRST),
            None => {}
        }
        self.inherits(state, NEW, order);
    }

    /// The home makes words for those who had the lock in the view before.
    pub(crate) fn inherits(&self, state: &mut State, view: usize, order: Order) {
        for node in &mut state.nodes {
            (node.report, node.ahead) = (None, Rank::NOBODY);
        }
        if view == NEW && !self.keeps(Rule::TokensOfTheView) {
            state.views[NEW].token = Token::first_of(FIRST);
        }
        if order.is_empty() {
            return;
        }
        if self.keeps(Rule::RecoveryHolderIsFirst) {
            state.views[view].word = RecoveryHolder::WORD;
        }
        let mut out = vec![];
        match RecoveryHolder::new(state.views[view].token, order, self.world.rules, &mut out) {
            Ok(recovery_holder) => state.views[view].recovery_holder = Some(recovery_holder),
            Err(_) => state.wrong = Some("survivors cannot all have what they say"),
        }
        self.acts(state, view, self.recovery_holder(), Ok(()), out);
    }

    /// Its lease has run out. It does nothing any more, or goes on in the old view and does not know.
    fn is_left_behind(&self, state: &mut State, who: usize) {
        state.has_failed = true;
        let goes_on = !self.world.is_reduced && !state.nodes[who].has_learnt;
        let node = &mut state.nodes[who];
        node.is_out = true;
        if !goes_on {
            *node = Node { left: 0, is_out: true, has_learnt: true, ..self.node(who) };
            state.views[OLD] = self.world.view(FIRST);
            // What it had said to the server arrives, or does not; nobody knows it there.
            state.views[NEW].wire.retain(|(_, from, _)| *from != rank(who));
        }
    }

    fn node_acts(&self, state: &mut State, who: usize, said: Result<(), ProtocolViolation>, actions: Vec<Action>) {
        let view = if state.nodes[who].has_learnt { NEW } else { OLD };
        self.acts(state, view, who, said, actions);
        let node = &mut state.nodes[who];
        if node.role.is_idle() {
            (node.ahead, node.is_unwanted) = (Rank::NOBODY, false);
            if node.is_survivor() {
                node.role = self.world.participant(who);
            }
        } else if node.is_unwanted && node.role.held().is_some() {
            node.is_unwanted = false;
            self.happens(state, Event::Release(who));
        }
    }

    fn acts(
        &self,
        state: &mut State,
        view: usize,
        who: usize,
        said: Result<(), ProtocolViolation>,
        actions: Vec<Action>,
    ) {
        if said.is_err() {
            state.wrong = Some(STRANGE);
        }
        for action in actions {
            match action {
                Action::Access(batch) => {
                    if !state.views[view].post(who, batch) {
                        state.wrong = Some(TWO_BATCHES);
                    }
                }
                Action::Send(to, message) => self.sends(state, view, who, to, message),
                Action::Granted(mode, token) => {
                    let Node { role, is_out, .. } = &state.nodes[who];
                    if !is_out && !state.grants.grow(role, mode, token) {
                        state.wrong = Some(TOO_SMALL);
                    }
                }
                Action::Refused(_) | Action::Left => {}
                Action::Moved | Action::Evicted(_) => state.wrong = Some(STRANGE),
            }
        }
    }

    fn sends(&self, state: &mut State, view: usize, who: usize, to: To, message: Message) {
        let from = if who == self.recovery_holder() { RecoveryHolder::RANK } else { rank(who) };
        let is_survivor = state.nodes.get(who).is_some_and(Node::is_survivor);
        let to = match Address::from(to) {
            Address::Home if is_survivor && self.keeps(Rule::ServerHasItsAddress) => Address::Server,
            to => to,
        };
        if let (Address::Participant(ahead), Message::Behind { .. } | Message::Join, Some(node)) =
            (to, message, state.nodes.get_mut(who).filter(|_| view == OLD))
        {
            node.ahead = ahead;
        }
        if view == NEW || self.is_taken(state, to) {
            state.views[view].send((to, from, message));
        }
    }
}

impl Node {
    /// It has the lock from the view before.
    fn is_survivor(&self) -> bool {
        matches!(self.role, LockRole::Srsl(_))
    }
}

impl View {
    /// What it posted may still be executed.
    fn is_heard_by_nobody(&mut self, who: usize) {
        if let Some(posted) = &mut self.posted[who] {
            posted.rest.read = false;
            if posted.rest == Batch::default() {
                self.posted[who] = None;
            }
        }
    }
}

pub(crate) fn is_recovery_holder(rank: Rank) -> bool {
    rank == RecoveryHolder::RANK
}

/// All names that so many ranks can have: the new name of rank `n` stands at `n`.
fn permutations(count: usize) -> Vec<Vec<u32>> {
    let mut all = vec![vec![0]];
    for next in 1..=count as u32 {
        let with_next = |name: &Vec<u32>| {
            (1..=name.len()).map(|at| [&name[..at], &[next], &name[at..]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with_next).collect();
    }
    all
}
