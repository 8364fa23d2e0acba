//! The service without its thread, for a simulation: the same driver takes its turns when it is told to, on a clock that it is given.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::mpsc;
use verbena_cluster::LeaseWord;
use verbena_fabric::Fabric;
use verbena_terms::{Clock, Time};

use super::driver::{Driver, Woken};
use super::{Command, Content, Options};
use crate::rules::Rules;

/// A driver whose turns somebody else gives it.
pub struct Stepped {
    content: Content,
    driver: Driver,
    received: mpsc::UnboundedReceiver<Command>,
}

impl Stepped {
    /// A service on this clock, which must be that of its fabrics, with these rules.
    pub fn new(options: Options, rules: Rules, clock: Arc<dyn Clock>) -> Stepped {
        let (content, driver, received) = Content::with_driver(options, rules, clock);
        Stepped { content, driver, received }
    }

    /// The handle. Its [`life_begins`](Content::life_begins) and [`life_ends`](Content::life_ends) wait for a thread that is not there: use
    /// those of this.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Whether commands wait for a turn.
    pub fn is_wanted(&self) -> bool {
        !self.received.is_empty()
    }

    /// Takes as many turns as there is something to do. Gives when the next is due if nothing arrives before.
    pub fn turn(&mut self) -> Time {
        loop {
            let (woken, is_last) = match self.next() {
                Some(woken) => (woken, false),
                None => (Woken::Timer, true),
            };
            self.driver.turn(woken);
            for opening in self.driver.openings() {
                self.driver.shared.waiting.fetch_add(1, Ordering::Relaxed);
                self.driver.turn(Woken::Command(Command::Opened(opening.run())));
            }
            if is_last {
                return self.content.now() + self.driver.patience();
            }
        }
    }

    /// As [`Content::life_begins`].
    ///
    /// # Errors
    /// If the regions cannot be made.
    pub fn life_begins(&mut self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.content.shared.lease.get_or_init(|| lease.clone());
        let (reply, begun) = std::sync::mpsc::sync_channel(1);
        let told = self.content.tell(Command::LifeBegins { fabric, reply });
        told.map_err(|_| verbena_fabric::Error::Closed)?;
        self.turn();
        begun.try_recv().map_err(|_| verbena_fabric::Error::Closed)?
    }

    /// As [`Content::life_ends`].
    pub fn life_ends(&mut self) {
        let (reply, _ended) = std::sync::mpsc::sync_channel(1);
        // It holds both ends of the channel.
        let _ = self.content.tell(Command::LifeEnds(reply));
        self.turn();
    }

    fn next(&mut self) -> Option<Woken> {
        if let Ok(command) = self.received.try_recv() {
            return Some(Woken::Command(command));
        }
        let life = self.driver.life.as_ref()?;
        let protocol = || life.protocol.try_take().map(Woken::Protocol);
        protocol().or_else(|| life.introductions.try_take().map(Woken::Introduction))
    }
}
