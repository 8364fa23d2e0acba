//! How loaded this node is, published for the others: membership's notices on one side, [`Monitor`] on the other.

use std::sync::Arc;

use verbena_cluster::Notice;
use verbena_metrics::Registry;
use verbena_monitor::{Loads, Metrics, Monitor, MonitorConfig};
use verbena_terms::{LoadCounts, Time};

use crate::error::{Error, Result};
use crate::membership::life::Life;
use crate::membership::service::{Replies, Service};

/// What the proxy beside a node has answered.
pub(crate) const ANSWERS: &str = "verbena_proxy_answers_total";
const UPDATES: &str = "verbena_content_updates_total";
const LOCKS: &str = "verbena_lock_requests_total";
const MEMORY: &str = "verbena_memory_requests_total";
const REQUESTS: &str = "verbena_ipc_requests_total";
const PROGRAMS: &str = "verbena_ipc_clients";

/// The board of this node, and what reads those of the others.
pub(crate) struct Board(Monitor);

impl Board {
    /// The service, which puts what it finds into `loads`.
    ///
    /// # Errors
    /// If the machine does not say how it is, or the metrics are registered already.
    pub(crate) fn start(config: &MonitorConfig, loads: Loads, registry: &Arc<Registry>) -> Result<Board> {
        let metrics = Metrics::new(registry)?;
        let counts = registry.clone();
        let monitor = Monitor::start(config, loads, metrics, Box::new(move || work(&counts)));
        let refused = |source| Error::System { doing: "watch how loaded the machine is", source };
        Ok(Board(monitor.map_err(refused)?))
    }
}

/// What the node has done, by its metrics, and the programs that are connected.
fn work(registry: &Registry) -> (LoadCounts, u32) {
    let read = registry.snapshot_of(&[ANSWERS, UPDATES, LOCKS, MEMORY, REQUESTS, PROGRAMS], Time::ZERO);
    let count = |name| read.counter(name, &[]).unwrap_or(0);
    let counts = LoadCounts {
        answers: count(ANSWERS),
        hits: read.counter(ANSWERS, &[("result", "hit")]).unwrap_or(0),
        updates: count(UPDATES),
        locks: count(LOCKS),
        memory: count(MEMORY),
        requests: count(REQUESTS),
    };
    (counts, read.gauge(PROGRAMS, &[]).unwrap_or(0.0) as u32)
}

impl Service for Board {
    fn name(&self) -> &'static str {
        "monitor"
    }

    fn begin(&mut self, life: &Life) -> std::result::Result<(), String> {
        self.0.life_begins(life.fabric.clone()).map_err(|error| error.to_string())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => {
                self.0.view_learnt(view);
                // Nothing is held in any view, and nothing of the departed.
                view.departed().iter().for_each(|gone| replies.settled(gone.incarnation));
                replies.prepared(view.number());
            }
            Notice::Expelled(_) | Notice::Superseded(_) => self.0.life_ends(),
            _ => {}
        }
    }

    fn close(&mut self, replies: &Replies) {
        replies.closed(true);
    }

    fn end(&mut self) {
        self.0.life_ends();
    }
}
