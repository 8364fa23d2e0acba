//! What a node's locks do at their desk (`fabric::desk`), and who waits for what.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbena_fabric::desk::{Queue, Service};
use verbena_terms::{BootClock, Clock, Time};

use super::driver::{Answered, Driver};
use super::{Closed, Command, Metrics, Told};
use crate::{Answer, Refusal, RequestId};

/// Requests that may wait for whoever is at the desk. One more is refused.
pub(super) const REQUESTS: usize = 8192;

pub(super) struct Desk {
    pub(super) driver: Driver,
    /// Requests that have not ended.
    asked: HashMap<RequestId, Asked>,
    /// Of these, how many are held.
    held: i64,
    metrics: Metrics,
    /// Whether the machine keeps something, for who must not come to the desk to know it.
    keeps: Arc<AtomicBool>,
    is_closed: bool,
    /// Who is told when nothing is held any more, and when at the latest.
    closing: Option<(Time, Closed)>,
    queue: Arc<Queue>,
}

struct Asked {
    /// Whom to tell what becomes of it.
    told: Told,
    since: Time,
    is_held: bool,
}

impl Desk {
    pub(super) fn new(driver: Driver, queue: Arc<Queue>, keeps: Arc<AtomicBool>, metrics: Metrics) -> Self {
        Desk { driver, asked: HashMap::new(), held: 0, metrics, keeps, is_closed: false, closing: None, queue }
    }
}

impl Service for Desk {
    type Command = Command;
    type Driver = Driver;

    fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View { view, prepared } => {
                self.driver.view(&view);
                prepared(view.number());
            }
            Command::Acquire { id, asker, name, request, told } => {
                self.queue.taken();
                if self.is_closed {
                    let mut told = told;
                    self.driver.settle();
                    return self.refuse(&mut told);
                }
                self.asked.insert(id, Asked { told, since: BootClock.now(), is_held: false });
                if self.driver.acquire(id, asker, name, request) {
                    self.metrics.held_on.increment();
                }
            }
            Command::Settle => self.driver.settle(),
            Command::Release { id, is_asked_again, done } => {
                let released = match is_asked_again && !self.is_closed {
                    true => self.driver.release_soon(id),
                    false => self.driver.release(id),
                };
                if released.is_err() {
                    // Whoever waits for it does not any more.
                    self.driver.forget(id);
                }
                self.ended(id);
                done(released);
            }
            Command::Downgrade { id, done } => done(self.driver.downgrade(id)),
            Command::Forget(id) => {
                self.driver.forget(id);
                if self.ended(id) == Some(false) {
                    self.metrics.requests.cancelled.increment();
                }
            }
            Command::List { after, prefix, shown } => self.driver.list(after, prefix, shown),
            Command::Remove { name, removed } => self.driver.remove(name, removed),
            Command::Close { patience, closed } => self.close(BootClock.now() + patience, closed),
        }
    }

    /// Memory for words, and all locks that are held.
    fn is_long(command: &Command) -> bool {
        matches!(command, Command::View { .. } | Command::Close { .. })
    }

    fn tell_all(&mut self) {
        self.keeps.store(self.driver.keeps(), Ordering::Relaxed);
        for Answered { id, answer, losses } in self.driver.answers() {
            let Some(asked) = self.asked.get_mut(&id) else { continue };
            let requests = &self.metrics.requests;
            let is_over = match &answer {
                Answer::Granted(..) => {
                    if !std::mem::replace(&mut asked.is_held, true) {
                        self.held += 1;
                        requests.granted.increment();
                        self.metrics.wait.record(BootClock.now().since(asked.since));
                    }
                    false
                }
                Answer::Refused(Refusal::Busy) => {
                    requests.not_free.increment();
                    true
                }
                Answer::Refused(_) => {
                    requests.refused.increment();
                    true
                }
                Answer::Deadlock(_) => {
                    requests.deadlock.increment();
                    true
                }
                Answer::Lost => true,
            };
            (asked.told)(answer, losses);
            if is_over {
                self.ended(id);
            }
        }
    }

    fn rests(&mut self) {
        let is_over = |(until, _): &mut (Time, Closed)| self.held == 0 || BootClock.now() >= *until;
        if let Some((_, closed)) = self.closing.take_if(is_over) {
            closed();
        }
        self.metrics.held.set(self.held);
        self.metrics.waiting.set(self.asked.len() as i64 - self.held);
    }
}

impl Desk {
    /// Who waits is told, and who holds a lock may end what it does.
    fn close(&mut self, until: Time, closed: Closed) {
        (self.is_closed, self.closing) = (true, Some((until, closed)));
        self.driver.settle();
        let waiting = self.asked.extract_if(|_, asked| !asked.is_held);
        for (id, mut asked) in waiting.collect::<Vec<_>>() {
            self.driver.forget(id);
            self.refuse(&mut asked.told);
        }
    }

    fn refuse(&self, told: &mut Told) {
        self.metrics.requests.refused.increment();
        told(Answer::Refused(Refusal::Leaving), 0);
    }

    /// Whether it was held.
    fn ended(&mut self, id: RequestId) -> Option<bool> {
        let asked = self.asked.remove(&id)?;
        self.held -= i64::from(asked.is_held);
        Some(asked.is_held)
    }
}
