//! The request table of a node's part in the pool: the commands that have not ended, and the callback of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::View;
use verbena_service::executor::{Admission, Service};
use verbena_terms::{BootClock, Clock, Time, ViewNumber};

use super::host::Running;
use super::metrics::Kind;
use super::{Metrics, OnReply};
use crate::Command;

/// How long a node waits for its hand-overs to arrive before it acknowledges a view without them.
const HAND_OVER_WITHIN: Duration = Duration::from_millis(300);

/// What callers submit to the executor.
pub(super) enum Item {
    View { view: Arc<View>, prepared: Box<dyn FnOnce(ViewNumber) + Send> },
    Command { id: u64, command: Command, told: OnReply },
}

/// A view that is not acknowledged yet, and when it is at the latest.
struct Preparing {
    view: ViewNumber,
    until: Time,
    prepared: Box<dyn FnOnce(ViewNumber) + Send>,
}

pub(super) struct RequestTable {
    pub(super) driver: Running,
    open: HashMap<u64, (Kind, Time, OnReply)>,
    admission: Arc<Admission>,
    metrics: Metrics,
    preparing: Option<Preparing>,
}

impl RequestTable {
    pub(super) fn new(driver: Running, admission: Arc<Admission>, metrics: Metrics) -> Self {
        RequestTable { driver, open: HashMap::new(), admission, metrics, preparing: None }
    }
}

impl Service for RequestTable {
    type Command = Item;
    type Driver = Running;

    fn driver(&mut self) -> &mut Running {
        &mut self.driver
    }

    fn command(&mut self, item: Item) {
        match item {
            Item::View { view, prepared } => {
                self.driver.enter_view(&view);
                let until = BootClock.now() + HAND_OVER_WITHIN;
                self.preparing = Some(Preparing { view: view.number(), until, prepared });
            }
            Item::Command { id, command, told } => {
                self.admission.started();
                self.open.insert(id, (Kind::of(&command), BootClock.now(), told));
                self.driver.command(|node, _, now, out| node.command(id, command, now, out));
            }
        }
    }

    fn is_slow(item: &Item) -> bool {
        matches!(item, Item::View { .. })
    }

    fn deliver_answers(&mut self) {
        for (id, reply) in self.driver.host_mut().answers() {
            let Some((kind, since, told)) = self.open.remove(&id) else { continue };
            self.metrics.ended(kind, BootClock.now().since(since), &reply);
            told(reply);
        }
    }

    fn idle(&mut self) {
        let is_over =
            |preparing: &mut Preparing| self.driver.machine().has_handed_over() || BootClock.now() >= preparing.until;
        if let Some(Preparing { view, prepared, .. }) = self.preparing.take_if(is_over) {
            prepared(view);
        }
        self.driver.idle();
    }
}
