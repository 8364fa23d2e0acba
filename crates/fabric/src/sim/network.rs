//! The way from node to node: links that are cut, healed, clogged, and frames that travel, wait or are lost on them.
//! And the messages, which need nothing more.

use verbena_terms::{Incarnation, Rank, ViewNumber};

use crate::error::{Error, Result};
use crate::message::{Class, Message, Port};
use crate::provider::Address;

use super::dice::nanos;
use super::node::Line;
use super::state::{Event, Flying, Outgoing, State, Step};
use super::trace::What;

/// Messages of one sender, receiver and class that may be under way.
const MESSAGES_UNDER_WAY: usize = 1024;

/// The way from one machine to another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    outage: Option<Outage>,
    clogged_until: u64,
    /// What keeps its order arrives after this: frames that were held come before what was sent later.
    floor: u64,
}

/// What a link that is cut does with the frames that are sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// They are lost.
    Loses,
    /// They come when it is healed, as from a transport that repeats what is lost.
    Holds,
    /// The seed decides on each.
    Either,
}

/// What became of a frame that was sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It will arrive, now or when the link heals.
    UnderWay,
    /// It will not.
    Lost,
}

impl State {
    /// Sends an event on its way. Between the processes of one node nothing is lost.
    pub(super) fn launch(
        &mut self,
        from: Incarnation,
        to: Incarnation,
        loss: u32,
        order: Option<Line>,
        event: Event,
    ) -> Fate {
        let way = (self.machine(from.rank), self.machine(to.rank));
        if way.0 == way.1 {
            let at = self.now + 1 + self.dice.below(nanos(self.faults.travel_min));
            let at = self.in_order(from, order, 0, at);
            self.schedule(at, event);
            return Fate::UnderWay;
        }
        let mut link = self.links.get(&way).copied().unwrap_or_default();
        if let Some(outage) = link.outage {
            if outage == Outage::Holds || outage == Outage::Either && self.dice.happens(500) {
                self.record(What::Held, from, to, 0, 0);
                self.held.push((way.0, way.1, event));
                return Fate::UnderWay;
            }
            self.record(What::Lost, from, to, 0, 0);
            return Fate::Lost;
        }
        if self.dice.happens(loss) {
            self.record(What::Lost, from, to, 0, 0);
            return Fate::Lost;
        }
        if self.dice.happens(self.faults.clog_per_mille) {
            let length = 1 + self.dice.below(nanos(self.faults.clog_max));
            self.clog(way.0, way.1, length);
            link = self.links[&way];
        }
        let at = self.now.max(link.clogged_until) + self.travel();
        let at = self.in_order(from, order, link.floor, at);
        self.schedule(at, event);
        Fate::UnderWay
    }

    /// One way of a frame, in nanoseconds.
    pub(super) fn travel(&mut self) -> u64 {
        let least = nanos(self.faults.travel_min).max(1);
        let mut length = least + self.dice.below(nanos(self.faults.travel_max).saturating_sub(least) + 1);
        if self.dice.happens(self.faults.tail_per_mille) {
            length += self.dice.below(nanos(self.faults.tail_max) + 1);
        }
        length
    }

    fn in_order(&mut self, from: Incarnation, order: Option<Line>, floor: u64, at: u64) -> u64 {
        let Some(line) = order else { return at };
        let Some(sender) = self.newest_at(from.rank) else { return at };
        let state = self.nodes[sender].lines.entry(line).or_default();
        state.last_arrival = at.max(state.last_arrival + 1).max(floor + 1);
        state.last_arrival
    }

    pub(super) fn clog(&mut self, from: Rank, to: Rank, length: u64) {
        let until = self.now.saturating_add(length);
        let link = self.links.entry((from, to)).or_default();
        link.clogged_until = link.clogged_until.max(until);
        self.record_link(What::Clog, from, to, until);
    }

    pub(super) fn is_cut(&self, from: Rank, to: Rank) -> bool {
        self.links.get(&(from, to)).is_some_and(|link| link.outage.is_some())
    }

    pub(super) fn cut(&mut self, from: Rank, to: Rank, outage: Outage) {
        self.links.entry((from, to)).or_default().outage = Some(outage);
        self.record_link(What::Cut, from, to, 0);
    }

    /// Heals a link: what was held comes now, in its order, and before what is sent later in the same line.
    pub(super) fn heal(&mut self, from: Rank, to: Rank) {
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        if link.outage.take().is_none() {
            return;
        }
        self.record_link(What::Heal, from, to, 0);
        let mut at = self.now;
        let (released, held): (Vec<_>, _) =
            std::mem::take(&mut self.held).into_iter().partition(|held| (held.0, held.1) == (from, to));
        self.held = held;
        for (_, _, event) in released {
            at = (at + 1).max(self.now + self.travel());
            self.schedule(at, event);
        }
        self.links.entry((from, to)).or_default().floor = at;
    }

    pub(super) fn heal_all(&mut self) {
        let cut: Vec<_> = self.links.iter().filter(|(_, link)| link.outage.is_some()).map(|(&way, _)| way).collect();
        for (from, to) in cut {
            self.heal(from, to);
        }
    }

    /// Sends a message from a node to an incarnation (F5).
    pub(super) fn send(
        &mut self,
        sender: usize,
        to: Incarnation,
        (class, view, port, number): (Class, ViewNumber, Port, u64),
        body: &[u8],
    ) -> Result<()> {
        let most = self.capabilities.largest_message;
        if body.len() as u64 > u64::from(most) {
            return Err(Error::TooLarge { what: "a message", asked: body.len() as u64, most: most.into() });
        }
        if !self.nodes[sender].alive {
            return Err(Error::Closed);
        }
        let line = Line::Messages { to, class: class as u8 };
        if self.nodes[sender].lines.entry(line).or_default().under_way >= MESSAGES_UNDER_WAY {
            return Err(Error::Full { what: "the queue of messages", most: MESSAGES_UNDER_WAY });
        }
        let from = self.nodes[sender].incarnation;
        self.record(What::Send, from, to, port.0.into(), number);
        let message = Message { from, view, number, class, port, body: body.to_vec() };
        if self.dice.happens(self.faults.message_copy_per_mille) {
            // Repeated after a reconnection: behind others, or before them.
            self.launch_message(Flying { sender, to, message: message.clone() }, line, None);
        }
        let order = if self.dice.happens(self.faults.message_overtake_per_mille) { None } else { Some(line) };
        self.launch_message(Flying { sender, to, message }, line, order);
        Ok(())
    }

    fn launch_message(&mut self, flying: Flying, line: Line, order: Option<Line>) {
        let (from, to, sender) = (flying.message.from, flying.to, flying.sender);
        let flying = self.flying.insert(flying);
        match self.launch(from, to, self.faults.message_loss_per_mille, order, Event::Message(flying)) {
            Fate::UnderWay => self.nodes[sender].lines.entry(line).or_default().under_way += 1,
            Fate::Lost => drop(self.flying.remove(flying)),
        }
    }

    pub(super) fn deliver(&mut self, flying: usize) -> Step {
        let to = self.flying[flying].to;
        let home = self.newest_at(to.rank);
        if let Some(node) = home
            && self.nodes[node].incarnation == to
            && self.wait_for(node, Event::Message(flying))
        {
            return Step::Inside;
        }
        let Flying { sender, to, message } = self.flying.remove(flying);
        let line = Line::Messages { to, class: message.class as u8 };
        self.nodes[sender].lines.entry(line).or_default().under_way -= 1;
        match home {
            Some(node) if self.nodes[node].incarnation == to && self.nodes[node].alive => {
                let port = message.port;
                self.record(What::Deliver, to, message.from, port.0.into(), message.number);
                self.outgoing.push(Outgoing::Message(self.nodes[node].inboxes.clone(), message));
                Step::Message { node: to, port }
            }
            _ => {
                self.record(What::Misaddressed, Incarnation { rank: to.rank, start: 0 }, to, 0, 0);
                Step::Inside
            }
        }
    }

    /// The address of the incarnations of this rank.
    pub(super) fn address(&self, rank: Rank) -> Address {
        Address(format!("sim://{}", self.machine(rank)))
    }

    fn record_link(&mut self, what: What, from: Rank, to: Rank, a: u64) {
        self.record(what, Incarnation { rank: from, start: 0 }, Incarnation { rank: to, start: 0 }, a, 0);
    }
}
