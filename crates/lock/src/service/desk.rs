//! What a node's locks do at their desk (`fabric::desk`), and who waits for what.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use verbena_fabric::contacts::{Opened, Opening};
use verbena_fabric::desk::Service;
use verbena_fabric::{Inbox, Message as Arrived};
use verbena_terms::{BootClock, Clock, Time};

use super::driver::{Answered, Driver};
use super::{Closed, Command, Metrics, Overloaded, Told};
use crate::{Answer, Refusal, RequestId};

/// Requests that may wait for whoever is at the desk. One more is refused.
const REQUESTS: usize = 8192;

/// Requests, as they are numbered and counted before they come to the desk.
#[derive(Default)]
pub(super) struct Queue {
    requests: AtomicU64,
    /// Those that nobody has looked at.
    waiting: AtomicUsize,
}

impl Queue {
    /// A request's number.
    pub(super) fn number(&self) -> Result<RequestId, Overloaded> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= REQUESTS {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Overloaded);
        }
        Ok(RequestId(self.requests.fetch_add(1, Ordering::Relaxed) + 1))
    }
}

pub(super) struct Desk {
    pub(super) driver: Driver,
    /// Requests that have not ended.
    asked: HashMap<RequestId, Asked>,
    /// Of these, how many are held.
    held: i64,
    metrics: Metrics,
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
    pub(super) fn new(driver: Driver, queue: Arc<Queue>, metrics: Metrics) -> Self {
        Desk { driver, asked: HashMap::new(), held: 0, metrics, is_closed: false, closing: None, queue }
    }
}

impl Service for Desk {
    type Command = Command;

    fn command(&mut self, command: Command) {
        match command {
            Command::View { view, prepared } => {
                self.driver.view(&view);
                prepared(view.number());
            }
            Command::Acquire { id, asker, name, request, told } => {
                self.queue.waiting.fetch_sub(1, Ordering::Relaxed);
                if self.is_closed {
                    let mut told = told;
                    return self.refuse(&mut told);
                }
                self.asked.insert(id, Asked { told, since: BootClock.now(), is_held: false });
                self.driver.acquire(id, asker, name, request);
            }
            Command::Release { id, done } => {
                let released = self.driver.release(id);
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
        // Before the lease is looked at again: what is granted and lost at once is told in this order.
        self.tell_all();
    }

    fn turn(&mut self, woken: Option<Arrived>) {
        self.driver.turn(woken);
        self.tell_all();
    }

    fn go_on(&mut self) {
        self.driver.go_on();
        self.tell_all();
    }

    fn has_posts(&self) -> bool {
        self.driver.has_posts()
    }

    fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.driver.poll_answered(context)
    }

    fn inbox(&mut self) -> Option<&mut Inbox> {
        self.driver.life.as_mut().map(|life| &mut life.inbox)
    }

    fn openings(&mut self) -> Vec<Opening> {
        self.driver.openings()
    }

    fn opened(&mut self, opened: Opened) {
        self.driver.opened(opened);
        self.tell_all();
    }

    fn next_deadline(&self) -> Time {
        self.driver.next_deadline()
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
    fn tell_all(&mut self) {
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

    /// Who waits is told, and who holds a lock may end what it does.
    fn close(&mut self, until: Time, closed: Closed) {
        (self.is_closed, self.closing) = (true, Some((until, closed)));
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
