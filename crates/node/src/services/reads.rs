//! What relays have seen applications read: membership's notices on one side, [`ReadLogs`] on the other.

use verbena_cluster::Notice;
use verbena_content::service::Content;
use verbena_metrics::Registry;
use verbena_reads::service::Options;
use verbena_reads::{Metrics, ReadLogs};

use crate::config::Settings;
use crate::error::Result;
use crate::membership::life::Life;
use crate::membership::service::{Replies, Service};

/// The log of this node's relay, and what reads those of the others.
pub(crate) struct Reads(ReadLogs);

impl Reads {
    /// The service, and the handle by which the relay and the proxy of this process use it.
    ///
    /// # Errors
    /// If there can be no thread for it, or the metrics are registered already.
    pub(crate) fn start(settings: &Settings, content: &Content, registry: &Registry) -> Result<(Reads, ReadLogs)> {
        let options = Options {
            relay: settings.relay.clone(),
            names: content.names().fingerprint(),
            patience: settings.pages.longest_transaction.0,
            lease: settings.cluster.lease.0,
        };
        let logs = ReadLogs::start(options, Metrics::new(registry)?)?;
        Ok((Reads(logs.clone()), logs))
    }
}

impl Service for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }

    fn begin(&mut self, life: &Life) -> std::result::Result<(), String> {
        self.0.life_begins(life.fabric.clone(), &life.lease).map_err(|error| error.to_string())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => {
                let back = replies.clone();
                self.0.view_learnt(view, Box::new(move |gone| back.settled(gone)));
                replies.prepared(view.number());
            }
            Notice::ViewInEffect(view) => self.0.view_in_effect(*view),
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
