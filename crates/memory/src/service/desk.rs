//! What a node's memory does at its desk (`fabric::desk`), and who waits for what.

use std::collections::HashMap;
use std::sync::Arc;

use verbena_fabric::desk::{Driver as _, Queue, Service};
use verbena_terms::{BootClock, Clock, Time};

use super::driver::Driver;
use super::metrics::Kind;
use super::{Closed, Command, Metrics, Settled, Told};
use crate::{Answer, Refusal, RequestId};

pub(super) struct Desk {
    pub(super) driver: Driver,
    asked: HashMap<RequestId, Asked>,
    queue: Arc<Queue>,
    metrics: Metrics,
    is_closed: bool,
    /// Who is told when nothing of these is on its way.
    settling: Vec<(Vec<RequestId>, Settled)>,
    /// Who is told when nothing is open any more, and when at the latest.
    closing: Option<(Time, Closed)>,
}

struct Asked {
    kind: Kind,
    since: Time,
    told: Told,
}

impl Desk {
    pub(super) fn new(driver: Driver, queue: Arc<Queue>, metrics: Metrics) -> Self {
        Desk { driver, asked: HashMap::new(), queue, metrics, is_closed: false, settling: vec![], closing: None }
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
            Command::Request { id, wish, patience, told } => {
                self.queue.taken();
                let kind = Kind::of(&wish);
                if self.is_closed {
                    let answer = Answer::Refused(Refusal::Leaving);
                    self.metrics.ended(kind, std::time::Duration::ZERO, &answer);
                    told(answer);
                } else {
                    self.asked.insert(id, Asked { kind, since: BootClock.now(), told });
                    self.driver.request(id, wish, patience);
                }
            }
            Command::Settle { puts, settled } => self.settling.push((puts, settled)),
            Command::Close { patience, closed } => {
                (self.is_closed, self.closing) = (true, Some((BootClock.now() + patience, closed)));
            }
        }
    }

    fn tell_all(&mut self) {
        for (id, answer) in self.driver.answers() {
            let Some(Asked { kind, since, told }) = self.asked.remove(&id) else { continue };
            self.metrics.ended(kind, BootClock.now().since(since), &answer);
            told(answer);
        }
    }

    fn rests(&mut self) {
        let is_settled = |(puts, _): &mut (Vec<RequestId>, _)| !puts.iter().any(|put| self.driver.has_request(*put));
        self.settling.extract_if(.., is_settled).for_each(|(_, settled)| settled());
        let is_idle = !self.driver.has_posts() && self.asked.is_empty() && self.settling.is_empty();
        if let Some((_, closed)) = self.closing.take_if(|(until, _)| is_idle || BootClock.now() >= *until) {
            closed(is_idle);
        }
        self.driver.publish();
    }
}
