//! The request table of a node's memory: the requests that have not ended, and the callback of each.

use std::collections::HashMap;
use std::sync::Arc;

use verbena_service::executor::{Admission, Driver as _, Service};
use verbena_terms::{BootClock, Clock, Time};

use super::driver::Running;
use super::metrics::Kind;
use super::{Closed, Command, Metrics, OnAnswer, Settled};
use crate::{Answer, Refusal, RequestId};

pub(super) struct RequestTable {
    pub(super) driver: Running,
    open: HashMap<RequestId, OpenRequest>,
    admission: Arc<Admission>,
    metrics: Metrics,
    is_closed: bool,
    /// Callbacks once nothing of these requests is in flight.
    settling: Vec<(Vec<RequestId>, Settled)>,
    /// Callback once nothing is open any more, and when at the latest.
    closing: Option<(Time, Closed)>,
}

struct OpenRequest {
    kind: Kind,
    since: Time,
    told: OnAnswer,
}

impl RequestTable {
    pub(super) fn new(driver: Running, admission: Arc<Admission>, metrics: Metrics) -> Self {
        RequestTable {
            driver,
            open: HashMap::new(),
            admission,
            metrics,
            is_closed: false,
            settling: vec![],
            closing: None,
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
            Command::Request { id, wish, patience, told } => {
                self.admission.started();
                let kind = Kind::of(&wish);
                if self.is_closed {
                    let answer = Answer::Refused(Refusal::Leaving);
                    self.metrics.ended(kind, std::time::Duration::ZERO, &answer);
                    told(answer);
                } else {
                    self.open.insert(id, OpenRequest { kind, since: BootClock.now(), told });
                    self.driver.command(|memory, _, now, out| memory.request(id, wish, now + patience, now, out));
                }
            }
            Command::Settle { puts, settled } => self.settling.push((puts, settled)),
            Command::Close { patience, closed } => {
                (self.is_closed, self.closing) = (true, Some((BootClock.now() + patience, closed)));
            }
        }
    }

    fn deliver_answers(&mut self) {
        for (id, answer) in self.driver.host_mut().answers() {
            let Some(OpenRequest { kind, since, told }) = self.open.remove(&id) else { continue };
            self.metrics.ended(kind, BootClock.now().since(since), &answer);
            told(answer);
        }
    }

    fn idle(&mut self) {
        let is_settled =
            |(puts, _): &mut (Vec<RequestId>, _)| !puts.iter().any(|put| self.driver.machine().has_request(*put));
        self.settling.extract_if(.., is_settled).for_each(|(_, settled)| settled());
        let is_idle = !self.driver.has_batches() && self.open.is_empty() && self.settling.is_empty();
        if let Some((_, closed)) = self.closing.take_if(|(until, _)| is_idle || BootClock.now() >= *until) {
            closed(is_idle);
        }
        self.driver.idle();
    }
}
