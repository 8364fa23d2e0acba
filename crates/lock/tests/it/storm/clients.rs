//! What clients of a node do. Two of them are one program, which holds and waits for two locks at a time.

use std::time::Duration;

use verbena_lock::service::Stepped;
use verbena_lock::{Answer, Asker, Mode, Name, Refusal, Request, RequestId, Token};
use verbena_testkit::keeper::LEASE;
use verbena_testkit::world::{Run, ms};

use crate::storm::checker::Held;
use crate::storm::cluster::{Cluster, Event};
use crate::storm::store::{Became, Update};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    Idle,
    Waits { id: RequestId, name: u64, is_try: bool },
    Holds { id: RequestId, name: u64, mode: Mode, token: Token },
}

impl Client {
    fn name(&self) -> Option<u64> {
        match self {
            Client::Idle => None,
            Client::Waits { name, .. } | Client::Holds { name, .. } => Some(*name),
        }
    }
}

pub fn name(nth: u64) -> Name {
    Name::new(format!("lock {nth}").as_bytes()).unwrap()
}

/// Two clients are one program.
fn asker(nth: usize) -> Asker {
    Asker { number: nth as u64 / 2, pid: 1 }
}

impl Cluster {
    /// A client decides what to do next.
    pub fn client(&mut self, at: usize, nth: usize, run: u64) {
        let node = &self.world.nodes[at];
        if node.run != run {
            // A client of a process that is no more.
            return;
        }
        if node.service.is_none() || self.world.fabric.is_paused(node.me) {
            // Its helper does not hear it now.
            return self.world.later(ms(5), Event::Client { at, nth, run });
        }
        match node.clients[nth] {
            Client::Idle if self.world.is_calm => return,
            Client::Idle => self.wants(at, nth),
            Client::Waits { id, .. } => {
                if !self.world.is_calm && self.world.dice.below(3) == 0 {
                    self.checker.seen.cancelled += 1;
                    self.world.nodes[at].clients[nth] = Client::Idle;
                    self.with(at, |service| service.forget(id));
                }
            }
            Client::Holds { id, name, mode, token } => self.ends(at, nth, (id, name, mode, token)),
        }
        let pause = self.pause();
        self.world.later(pause, Event::Client { at, nth, run });
    }

    fn wants(&mut self, at: usize, nth: usize) {
        let which = self.world.dice.below(self.settings.names);
        let mode = if self.world.dice.below(2) == 0 { Mode::Exclusive } else { Mode::Shared };
        let is_try = self.world.dice.below(6) == 0;
        let request = Request { mode, is_try };
        // What one of a pair has the other would get once more.
        let pair = &self.world.nodes[at].clients[nth & !1..];
        if pair.iter().take(2).any(|client| client.name() == Some(which)) {
            return;
        }
        let Some(service) = &mut self.world.nodes[at].service else { return };
        let id = service.acquire_for(asker(nth), name(which), request);
        self.world.nodes[at].clients[nth] = Client::Waits { id, name: which, is_try };
        self.after(at);
        if matches!(self.world.nodes[at].clients[nth], Client::Waits { .. }) {
            self.checker.seen.waited += 1;
        }
    }

    fn ends(&mut self, at: usize, nth: usize, (id, name, mode, token): (RequestId, u64, Mode, Token)) {
        let run = self.world.nodes[at].run;
        let believed = self.checker.of(at, run).any(|held| held.id == id && self.checker.believes(held));
        // When the storm is over clients let go of what they have the first time that they look.
        let goes_on = mode == Mode::Exclusive && believed && !self.world.is_calm;
        match self.world.dice.below(8) {
            0 if goes_on => {
                // Others may read from now on, and it knows.
                self.checker.shares(at, run, id);
                self.with(at, |service| {
                    // The lease may have ended since.
                    let _ = service.downgrade(id);
                });
            }
            1..=3 if goes_on => self.update(name, token),
            4 => {
                self.checker.ended(at, run, id);
                self.world.nodes[at].clients[nth] = Client::Idle;
                self.with(at, |service| service.forget(id));
            }
            choice => {
                // It is expected to ask again at once. Its node may be struck meanwhile.
                let soon = (5..=6).contains(&choice);
                self.checker.ended(at, run, id);
                self.world.nodes[at].clients[nth] = Client::Idle;
                let mut released = Ok(());
                self.with(at, |service| {
                    released = if soon { service.release_soon(id).map(drop) } else { service.release(id) };
                });
                if released.is_err() && believed {
                    self.checker.broken.push(format!("node {at} did not hold {name}: {released:?}"));
                }
                if soon {
                    let (after, comes) =
                        (Duration::from_micros(self.world.dice.below(200)), self.world.dice.below(8) > 0);
                    self.world.later(after, Event::Again { at, nth, run, name, comes });
                }
            }
        }
    }

    /// The client asks for it again, or nobody does and the node settles it.
    pub fn again(&mut self, at: usize, nth: usize, run: u64, name: u64, comes: bool) {
        if self.world.nodes[at].run != run {
            return;
        }
        if self.world.nodes[at].service.is_none() || self.world.fabric.is_paused(self.world.nodes[at].me) {
            return self.world.later(ms(5), Event::Again { at, nth, run, name, comes });
        }
        let mut pair = self.world.nodes[at].clients[nth & !1..].iter().take(2);
        let is_taken = pair.any(|client| client.name() == Some(name));
        if !comes || self.world.is_calm || is_taken || self.world.nodes[at].clients[nth] != Client::Idle {
            return self.with(at, Stepped::settle);
        }
        let Some(service) = &mut self.world.nodes[at].service else { return };
        let request = Request { mode: Mode::Exclusive, is_try: false };
        let before = service.held_on();
        let id = service.acquire_for(asker(nth), self::name(name), request);
        self.checker.seen.held_on += service.held_on() - before;
        self.world.nodes[at].clients[nth] = Client::Waits { id, name, is_try: false };
        self.after(at);
    }

    /// Reads the store at once, and writes to it later: perhaps when it has long lost the lock. Once a hold: what it writes itself it knows of.
    fn update(&mut self, name: u64, token: Token) {
        if std::mem::replace(&mut self.updated[name as usize], token) == token {
            return;
        }
        self.updates += 1;
        let update = Update { token, read: self.stores[name as usize].read(token), writes: self.updates };
        let late = match self.world.dice.below(3) {
            0 => self.world.dice.between(ms(0), 3 * LEASE),
            _ => ms(0),
        };
        self.world.later(late, Event::Store { name, update });
    }

    pub fn stored(&mut self, name: u64, update: Update) {
        match self.stores[name as usize].write(update, self.settings.is_guarded) {
            Became::Stored => {}
            Became::Refused => self.checker.seen.refused += 1,
            Became::Overwrote => self.checker.seen.overwritten += 1,
        }
    }

    /// Clients hear what became of their requests.
    pub fn hears(&mut self, at: usize) {
        let Some(service) = &mut self.world.nodes[at].service else { return };
        for (id, answer) in service.answers() {
            let run = self.world.nodes[at].run;
            let clients = self.world.nodes[at].clients.iter();
            let client = clients.zip(0..).find_map(|(client, nth)| match *client {
                Client::Waits { id: other, name, is_try } if other == id => Some((nth, name, is_try)),
                Client::Holds { id: other, name, .. } if other == id => Some((nth, name, false)),
                _ => None,
            });
            // It has cancelled.
            let Some((nth, name, is_try)) = client else { continue };
            let before = self.checker.ended(at, run, id);
            self.world.nodes[at].clients[nth] = match answer {
                Answer::Granted(mode, token) => {
                    let node = &self.world.nodes[at];
                    let (lease, clock) = (node.lease.clone(), node.clock.clone());
                    self.checker.granted(Held { node: at, run, id, name, mode, token, lease, clock });
                    Client::Holds { id, name, mode, token }
                }
                Answer::Refused(why) => {
                    let may_be = match why {
                        Refusal::Busy => is_try,
                        Refusal::NoRoom => u64::from(self.settings.slots) < self.settings.names,
                        Refusal::TokensUsedUp | Refusal::Upgrade | Refusal::Leaving => false,
                    };
                    if !may_be {
                        self.checker.broken.push(format!("node {at} was refused {name}: {why}"));
                    }
                    Client::Idle
                }
                Answer::Deadlock(cycle) => {
                    if cycle.waiters().len() < 2 {
                        self.checker.broken.push(format!("node {at} waits for itself: {cycle}"));
                    }
                    self.checker.seen.deadlocks += 1;
                    Client::Idle
                }
                Answer::Lost => {
                    if self.settings.looks_at_lease && before.as_ref().is_some_and(|held| self.checker.believes(held)) {
                        self.checker.broken.push(format!("node {at} has lost {name} within its lease"));
                    }
                    self.checker.seen.lost += u64::from(before.is_some());
                    Client::Idle
                }
            };
        }
    }

    /// How long clients take their time: mostly a little, sometimes longer than a lease.
    fn pause(&mut self) -> std::time::Duration {
        let most = match self.world.dice.below(4) {
            0 => 2 * LEASE,
            1 => LEASE / 4,
            _ => ms(2),
        };
        self.world.dice.between(ms(0), most)
    }
}
