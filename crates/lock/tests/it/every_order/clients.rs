//! Every order of events where nodes have clients: the machine of a node is [`LocalQueue`] here, by which its clients take turns with the place that it has in the queue.
//!
//! Clients ask, give up, release and become readers at any moment; a node's lease runs out and comes again. What a client holds it holds from the moment on at which it is told so,
//! until it releases it or is told that it is lost.

use std::fmt;

use stateright::{Model, Property, Representative};
use verbena_lock::testing::{LocalAction, LocalQueue};
use verbena_lock::{
    Action, Answer, Batch, HomeRole, LockRole, LockWord, Mode, Outcome, ProtocolViolation, Request, RequestId, Rules,
    Scheme, Token,
};

use crate::every_order::ends::end_well;
use crate::every_order::view::{Address, Posted, View, rank};
use crate::every_order::world::{FIRST, STRANGE, TOO_SMALL, TWO_BATCHES};
use crate::every_order::{Explored, READ, TRY_READ, TRY_WRITE, WRITE, explore, is_long};

const NOT_ASKED: &str = "a client is told what it did not ask for";

struct Clients {
    nodes: usize,
    /// Clients of each node, each with one request.
    each: usize,
    /// What is asked for: any of these at any time.
    requests: Vec<Request>,
    /// Clients that get a node's hold from others, where others wait or could.
    passing_on_to: u32,
    /// A client that releases may ask again before anybody hears of it: so it seems to the others of its node, each of which asks once.
    holds_on: bool,
    /// Writers may become readers.
    downgrades: bool,
    /// Clients that give up, or die.
    forgets: u8,
    /// Leases that run out.
    lapses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Client {
    Idle,
    Waits(Request),
    Holds(Mode),
    /// It has asked to be a reader, and was not told that it is one.
    Becomes,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    view: View,
    nodes: Vec<LocalQueue>,
    has_lease: Vec<bool>,
    /// Reads of the word that nodes have posted, and what was there.
    looks: Vec<Option<Option<LockWord>>>,
    clients: Vec<Client>,
    forgets: u8,
    lapses: u8,
    /// The largest token, and the largest of a writer.
    highest: Token,
    highest_writer: Token,
    /// A client got the hold of its node from another one.
    was_passed_on: bool,
    /// A client held on.
    was_held_on: bool,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Request(usize, Request),
    Release(usize),
    /// The first is done, and the second is the same client.
    HoldOn(usize, usize),
    Downgrade(usize),
    Forget(usize),
    Lapse(usize),
    Renew(usize),
    Deliver(usize),
    Step(usize),
    Look(usize),
}

impl fmt::Display for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Clients { nodes, each, requests, passing_on_to, holds_on, downgrades, forgets, lapses } = self;
        let kinds = requests.len();
        write!(f, "{nodes} nodes with {each} clients each, requests of {kinds} kinds, {passing_on_to} passed on to")?;
        write!(f, "{}, {forgets} forgotten, {lapses} leases lost", if *downgrades { ", downgrades" } else { "" })?;
        f.write_str(if *holds_on { ", holding on" } else { "" })
    }
}

impl Clients {
    /// Whether somebody may have it in this mode.
    fn has(&self, mode: Mode) -> bool {
        self.requests.iter().any(|request| request.mode == mode)
    }
}

/// None is taken for another.
impl Representative for State {
    fn representative(&self) -> Self {
        self.clone()
    }
}

impl Explored for Clients {
    fn is_reduced(&self) -> bool {
        false
    }

    fn is_over(&self, state: &State) -> bool {
        let is_done = state.clients.iter().all(|client| *client == Client::Done);
        is_done && state.nodes.iter().all(LocalQueue::is_over) && state.view.is_over()
    }
}

impl State {
    fn holders(&self, mode: Mode) -> usize {
        self.clients.iter().filter(|client| **client == Client::Holds(mode)).count()
    }

    /// How many hold it, in whichever mode.
    fn hold(&self) -> usize {
        self.holders(Mode::Exclusive) + self.holders(Mode::Shared)
    }

    fn told(&mut self, client: usize, answer: &Answer) {
        let now = match (self.clients[client], answer) {
            (Client::Waits(asked), Answer::Granted(mode, token)) if asked.mode == *mode => {
                self.grows(*mode, *token);
                Client::Holds(*mode)
            }
            (Client::Becomes, Answer::Granted(Mode::Shared, token)) => {
                self.grows(Mode::Shared, *token);
                Client::Holds(Mode::Shared)
            }
            (Client::Waits(asked), Answer::Refused(_)) if asked.is_try => Client::Done,
            (Client::Holds(_) | Client::Becomes, Answer::Lost) => Client::Done,
            _ => {
                self.wrong = Some(NOT_ASKED);
                return;
            }
        };
        self.clients[client] = now;
    }

    /// Writers have larger tokens than all before, and readers than all writers before.
    fn grows(&mut self, mode: Mode, token: Token) {
        let than = if mode == Mode::Exclusive { self.highest } else { self.highest_writer };
        if token <= than {
            self.wrong = Some(TOO_SMALL);
        }
        self.highest = self.highest.max(token);
        if mode == Mode::Exclusive {
            self.highest_writer = token;
        }
    }

    /// Does with a node's machine as the node does: what it says is done, and then it asks if it wants the lock.
    fn at_node(
        &mut self,
        node: usize,
        event: impl FnOnce(&mut LocalQueue, &mut Vec<LocalAction>) -> Result<(), ProtocolViolation>,
    ) {
        let mut out = vec![];
        self.nodes[node].may_grant(self.has_lease[node]);
        if event(&mut self.nodes[node], &mut out).is_err() {
            self.wrong = Some(STRANGE);
        }
        self.act(node, out);
        if self.has_lease[node] && self.nodes[node].wants() {
            let mut out = vec![];
            self.nodes[node].ask(&mut out);
            self.act(node, out);
        }
    }

    fn post(&mut self, who: usize, batch: Batch) {
        if !self.view.post(who, batch) {
            self.wrong = Some(TWO_BATCHES);
        }
    }

    fn act(&mut self, node: usize, actions: Vec<LocalAction>) {
        for action in actions {
            match action {
                LocalAction::Access(batch) => self.post(node, batch),
                LocalAction::Look => {
                    if self.looks[node].replace(None).is_some() {
                        self.wrong = Some(TWO_BATCHES);
                    }
                }
                LocalAction::Send(to, message) => self.view.send((to.into(), rank(node), message)),
                LocalAction::Answer(RequestId(id), answer) => self.told(id as usize, &answer),
                LocalAction::Moved => self.wrong = Some(STRANGE),
            }
        }
    }

    fn at_home(&mut self, event: impl FnOnce(&mut HomeRole, &mut Vec<Action>) -> Result<(), ProtocolViolation>) {
        let (mut out, home) = (vec![], self.nodes.len());
        if event(&mut self.view.home, &mut out).is_err() {
            self.wrong = Some(STRANGE);
        }
        for action in out {
            match action {
                Action::Access(batch) => self.post(home, batch),
                Action::Send(to, message) => self.view.send((to.into(), rank(home), message)),
                _ => self.wrong = Some(STRANGE),
            }
        }
    }
}

impl Model for Clients {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let first = Token::first_of(FIRST);
        let node =
            |at| LocalQueue::new(LockRole::new(Scheme::Ncosed, rank(at), Rules::ALL)).passing_on_to(self.passing_on_to);
        vec![State {
            view: View::new(FIRST, HomeRole::new(Scheme::Ncosed, first, Rules::ALL), self.nodes),
            nodes: (0..self.nodes).map(node).collect(),
            has_lease: vec![true; self.nodes],
            looks: vec![None; self.nodes],
            clients: vec![Client::Idle; self.nodes * self.each],
            forgets: self.forgets,
            lapses: self.lapses,
            highest: first,
            highest_writer: first,
            was_passed_on: false,
            was_held_on: false,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        for (at, client) in state.clients.iter().enumerate() {
            match client {
                Client::Idle => events.extend(self.requests.iter().map(|&request| Event::Request(at, request))),
                Client::Holds(mode) => {
                    events.push(Event::Release(at));
                    let others = (at - at % self.each..).take(self.each);
                    let next = others.filter(|&other| state.clients[other] == Client::Idle && self.holds_on);
                    events.extend(next.map(|next| Event::HoldOn(at, next)));
                    if self.downgrades && *mode == Mode::Exclusive {
                        events.push(Event::Downgrade(at));
                    }
                }
                Client::Waits(_) | Client::Becomes | Client::Done => {}
            }
            if state.forgets > 0 && !matches!(client, Client::Idle | Client::Done) {
                events.push(Event::Forget(at));
            }
        }
        for (node, has_lease) in state.has_lease.iter().enumerate() {
            if !has_lease {
                events.push(Event::Renew(node));
            } else if state.lapses > 0 {
                events.push(Event::Lapse(node));
            }
        }
        events.extend((0..self.nodes).filter(|&node| state.looks[node].is_some()).map(Event::Look));
        events.extend(state.view.posters().map(Event::Step));
        events.extend(state.view.messages().map(Event::Deliver));
    }

    fn next_state(&self, last: &State, event: Event) -> Option<State> {
        let mut state = last.clone();
        let (node_of, id) = (|client: usize| client / self.each, |client: usize| RequestId(client as u64));
        match event {
            Event::Request(client, request) => {
                state.clients[client] = Client::Waits(request);
                state.at_node(node_of(client), |local, out| {
                    local.acquire(id(client), request, out);
                    Ok(())
                });
            }
            Event::Release(client) => {
                let was_alone = state.hold() == 1;
                state.clients[client] = Client::Done;
                state.at_node(node_of(client), |local, out| local.release(id(client), out));
                state.was_passed_on |= was_alone && state.hold() > 0;
            }
            Event::HoldOn(client, next) => {
                let mut holds_on = false;
                (state.clients[client], state.clients[next]) = (Client::Done, Client::Waits(WRITE));
                state.at_node(node_of(client), |local, out| {
                    holds_on = local.hold_on(id(client), id(next), out);
                    if holds_on {
                        return Ok(());
                    }
                    let released = local.release(id(client), out);
                    local.acquire(id(next), WRITE, out);
                    released
                });
                state.was_held_on |= holds_on;
            }
            Event::Downgrade(client) => {
                state.clients[client] = Client::Becomes;
                state.at_node(node_of(client), |local, out| local.downgrade(id(client), out));
            }
            Event::Forget(client) => {
                state.forgets -= 1;
                state.clients[client] = Client::Done;
                state.at_node(node_of(client), |local, out| {
                    local.forget(id(client), out);
                    Ok(())
                });
            }
            Event::Lapse(node) => {
                state.lapses -= 1;
                state.has_lease[node] = false;
                state.at_node(node, |local, out| {
                    local.lapse(out);
                    Ok(())
                });
            }
            Event::Renew(node) => {
                state.has_lease[node] = true;
                state.at_node(node, |_, _| Ok(()));
            }
            Event::Deliver(at) => match state.view.wire.remove(at) {
                (Address::Participant(to), from, message) => {
                    state.at_node(to.0 as usize - 1, |local, out| local.heard(from, message, out));
                }
                (_, from, message) => state.at_home(|home, out| home.heard(from, message, out)),
            },
            Event::Step(who) => {
                if state.view.execute(who).is_none() {
                    let Posted { outcome, .. } = state.view.posted[who].take()?;
                    if who < self.nodes {
                        state.at_node(who, |local, out| local.completed(&outcome, out));
                    } else {
                        state.at_home(|home, out| home.completed(&outcome, out));
                    }
                }
            }
            Event::Look(node) => match state.looks[node].take()? {
                None => state.looks[node] = Some(Some(state.view.word)),
                Some(before) => state.at_node(node, |local, out| {
                    local.looked(&Outcome { before, ..Outcome::default() }, out);
                    Ok(())
                }),
            },
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("writers are alone", |_, state: &State| {
                let (writers, readers) = (state.holders(Mode::Exclusive), state.holders(Mode::Shared));
                writers == 0 || (writers == 1 && readers == 0)
            }),
            Property::always("nothing is wrong", |_, state: &State| state.wrong.is_none()),
            // No request can be made and nothing is on its way: then everybody has had what they wanted, and the word says so.
            Property::always("nothing is stuck", |world: &Clients, state: &State| {
                let mut events = vec![];
                world.actions(state, &mut events);
                events.retain(|event| !matches!(event, Event::Lapse(_) | Event::Renew(_)));
                !events.is_empty() || state.has_lease.contains(&false) || world.is_over(state)
            }),
            Property::sometimes("clients of a node pass its hold on", |world: &Clients, state: &State| {
                state.was_passed_on || !world.has(Mode::Exclusive)
            }),
            Property::sometimes("clients hold on", |world: &Clients, state: &State| {
                state.was_held_on || !world.holds_on
            }),
            Property::sometimes("readers share", |world: &Clients, state: &State| {
                state.holders(Mode::Shared) > 1 || !world.has(Mode::Shared)
            }),
        ]
    }
}

fn clients(nodes: usize, each: usize, requests: &[Request]) -> Clients {
    let requests = requests.to_vec();
    Clients { nodes, each, requests, passing_on_to: 16, holds_on: false, downgrades: false, forgets: 0, lapses: 0 }
}

#[test]
fn clients_take_turns_with_what_their_node_has() {
    let any = [WRITE, READ];
    explore(Clients { passing_on_to: 1, ..clients(2, 2, &any) }, 300_000);
    explore(Clients { passing_on_to: 0, ..clients(2, 2, &[READ]) }, 300_000);
    explore(Clients { downgrades: true, ..clients(2, 2, &[WRITE]) }, 150_000);
    explore(Clients { holds_on: true, ..clients(2, 2, &any) }, 300_000);
    if is_long() {
        explore(Clients { holds_on: true, passing_on_to: 1, downgrades: true, ..clients(2, 2, &any) }, 1_000_000);
        explore(Clients { holds_on: true, ..clients(2, 3, &[WRITE]) }, 300_000);
        explore(clients(2, 2, &[WRITE, READ, TRY_WRITE, TRY_READ]), 900_000);
        explore(Clients { passing_on_to: 0, downgrades: true, ..clients(2, 2, &any) }, 1_000_000);
        explore(Clients { downgrades: true, ..clients(2, 2, &any) }, 1_000_000);
    }
}

#[test]
fn clients_that_give_up_and_nodes_whose_leases_run_out() {
    let any = [WRITE, READ];
    explore(Clients { forgets: 1, ..clients(2, 2, &[WRITE]) }, 60_000);
    explore(Clients { lapses: 1, ..clients(2, 2, &[WRITE]) }, 100_000);
    explore(Clients { lapses: 1, holds_on: true, ..clients(2, 2, &[WRITE]) }, 100_000);
    if is_long() {
        explore(Clients { forgets: 1, holds_on: true, ..clients(2, 2, &any) }, 1_000_000);
        explore(Clients { forgets: 1, downgrades: true, passing_on_to: 1, ..clients(2, 2, &any) }, 4_000_000);
        explore(Clients { lapses: 1, downgrades: true, ..clients(2, 2, &any) }, 8_000_000);
    }
}

#[test]
fn every_order_with_clients_ends_well() {
    let any = [WRITE, READ];
    end_well(Clients { forgets: 1, ..clients(2, 2, &[WRITE]) }, 60_000);
    end_well(Clients { lapses: 1, holds_on: true, ..clients(2, 2, &[WRITE]) }, 100_000);
    if is_long() {
        end_well(Clients { passing_on_to: 1, ..clients(2, 2, &any) }, 300_000);
        end_well(Clients { holds_on: true, ..clients(2, 2, &any) }, 300_000);
        end_well(Clients { forgets: 1, holds_on: true, ..clients(2, 2, &any) }, 1_000_000);
    }
}
