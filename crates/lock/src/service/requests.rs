//! The request table of a node's locks: the requests that have not ended, and the callback of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbena_service::executor::{Admission, Service};
use verbena_terms::{BootClock, Clock, Time};

use super::driver::{Answered, Clients as _, Running};
use super::{Closed, Command, Metrics, OnAnswer};
use crate::{Answer, Refusal, RequestId};

/// Requests that may wait in the executor's queue. One more is refused.
pub(super) const REQUESTS: usize = 8192;

pub(super) struct RequestTable {
    pub(super) driver: Running,
    /// Requests that have not ended.
    open: HashMap<RequestId, OpenRequest>,
    /// Of these, how many are held.
    held: i64,
    metrics: Metrics,
    /// Whether the machine keeps a lock for its last client, readable without running the service.
    keeps: Arc<AtomicBool>,
    is_closed: bool,
    /// Callback once nothing is held any more, and when at the latest.
    closing: Option<(Time, Closed)>,
    admission: Arc<Admission>,
}

struct OpenRequest {
    /// Callback with what becomes of it.
    told: OnAnswer,
    since: Time,
    is_held: bool,
}

impl RequestTable {
    pub(super) fn new(driver: Running, admission: Arc<Admission>, keeps: Arc<AtomicBool>, metrics: Metrics) -> Self {
        RequestTable {
            driver,
            open: HashMap::new(),
            held: 0,
            metrics,
            keeps,
            is_closed: false,
            closing: None,
            admission,
        }
    }
}

impl Service for RequestTable {
    type Command = Command;
    type Driver = Running;

    fn driver(&mut self) -> &mut Running {
        &mut self.driver
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::View { view, prepared } => {
                self.driver.enter_view(&view);
                prepared(view.number());
            }
            Command::Acquire { id, asker, name, request, told } => {
                self.admission.started();
                if self.is_closed {
                    let mut told = told;
                    self.driver.settle();
                    return self.refuse(&mut told);
                }
                self.open.insert(id, OpenRequest { told, since: BootClock.now(), is_held: false });
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
                    // A client that waits for it gives up.
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
    fn is_slow(command: &Command) -> bool {
        matches!(command, Command::View { .. } | Command::Close { .. })
    }

    fn deliver_answers(&mut self) {
        self.keeps.store(self.driver.machine().keeps(), Ordering::Relaxed);
        for Answered { id, answer, losses } in self.driver.host_mut().answers() {
            let Some(asked) = self.open.get_mut(&id) else { continue };
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

    fn idle(&mut self) {
        let is_over = |(until, _): &mut (Time, Closed)| self.held == 0 || BootClock.now() >= *until;
        if let Some((_, closed)) = self.closing.take_if(is_over) {
            closed();
        }
        self.metrics.held.set(self.held);
        self.metrics.waiting.set(self.open.len() as i64 - self.held);
    }
}

impl RequestTable {
    /// Waiting clients are refused, and clients that hold a lock may finish what they do.
    fn close(&mut self, until: Time, closed: Closed) {
        (self.is_closed, self.closing) = (true, Some((until, closed)));
        self.driver.settle();
        let waiting = self.open.extract_if(|_, asked| !asked.is_held);
        for (id, mut asked) in waiting.collect::<Vec<_>>() {
            self.driver.forget(id);
            self.refuse(&mut asked.told);
        }
    }

    fn refuse(&self, told: &mut OnAnswer) {
        self.metrics.requests.refused.increment();
        told(Answer::Refused(Refusal::Leaving), 0);
    }

    /// Whether it was held.
    fn ended(&mut self, id: RequestId) -> Option<bool> {
        let asked = self.open.remove(&id)?;
        self.held -= i64::from(asked.is_held);
        Some(asked.is_held)
    }
}
