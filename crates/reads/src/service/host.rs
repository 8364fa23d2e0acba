//! What a node does with the actions of its [`Logs`]: the region of its relay, and what fills see.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::{Role, View};
use verbena_fabric::{Port, Region, RegionKey, Rights};
use verbena_service::driver::{Driver, Host};
use verbena_service::endpoint::{Endpoint, Ports};
use verbena_service::peers::RegionUse;
use verbena_terms::{BootClock, Complaints, HasFormat, Time, ViewNumber};

use super::header::{HeaderWords, ReadHeader};
use super::logs::{Action, Logs};
use super::watching::{Known, Log};
use super::{Settles, Shared};
use crate::layout::{Layout, RING_WORDS};

/// The driver of a node's logs.
pub(super) type Running = Driver<Logs, LogsHost>;

pub(super) struct LogsHost {
    shared: Arc<Shared>,
    /// The region of this process's relay, where one runs, in this incarnation.
    log: Option<Arc<dyn Region>>,
    /// Of the present view.
    pub settles: Option<Settles>,
    refused: Complaints,
}

/// A driver between two incarnations.
pub(super) fn driver(shared: Arc<Shared>) -> Running {
    let options = &shared.options;
    let logs = Logs::new(options.names, options.lease + options.patience * 9 / 8);
    let host = LogsHost { shared, log: None, settles: None, refused: Complaints::default() };
    Driver::new(logs, host, Arc::new(BootClock))
}

impl LogsHost {
    fn publish(&self, logs: &Logs, endpoint: &Endpoint<ReadHeader>) {
        let log = |owner, layout| {
            let remote = endpoint.region_of(owner, RegionUse::ONLY)?.clone();
            Some(Log { remote, layout, pool: endpoint.fabric().pool().clone() })
        };
        let known = Known {
            view: logs.view_number(),
            is_settled: logs.is_settled(),
            logs: logs.relays().map(|(who, layout)| (who, layout.and_then(|layout| log(who, layout)))).collect(),
        };
        self.shared.known.store(Arc::new(known));
    }
}

impl Host<Logs> for LogsHost {
    /// Messages about logs.
    const PORTS: Ports = Ports::of_no_view(Port(22));
    /// It acts by no lease: nothing is seen late.
    const IDLE: Duration = Duration::from_secs(10);

    fn act(
        &mut self,
        action: Action,
        logs: &mut Logs,
        endpoint: Option<&mut Endpoint<ReadHeader>>,
        now: Time,
        _: &mut VecDeque<Action>,
    ) {
        match (action, endpoint) {
            (Action::Send(to, message), Some(endpoint)) => {
                endpoint.send_of_no_view(to, logs.view_number(), || message.encode());
            }
            (Action::Open(key), Some(endpoint)) => endpoint.learn(key, now),
            (Action::Read(owner), Some(endpoint)) => endpoint.submit(ReadHeader::new(owner, HeaderWords), now),
            (Action::Publish, Some(endpoint)) => self.publish(logs, endpoint),
            (Action::Settle(who), _) => self.settles.iter().for_each(|settles| settles(who)),
            (Action::Refuse(who, why), _) => {
                self.shared.metrics.unusable.increment();
                if let Some(number) = self.refused.another(now) {
                    tracing::warn!(%who, number, why, "a log of reads cannot be used: pages depend on everything");
                }
            }
            // Between two incarnations no relay is reached.
            (_, None) => {}
        }
    }

    fn start_incarnation(&mut self, _: &Logs, endpoint: &Endpoint<ReadHeader>) -> verbena_fabric::Result<()> {
        let Some(relay) = &self.shared.options.relay else { return Ok(()) };
        let (owner, names) = (endpoint.me(), self.shared.options.names);
        let layout = Layout { owner, ring_words: RING_WORDS, names, is_complete: relay.is_complete };
        let region: Arc<dyn Region> = Arc::from(endpoint.fabric().register(layout.bytes(), ViewNumber(0))?);
        self.shared.recorder.begin(region.clone(), layout, self.shared.lease.get().cloned().unwrap_or_default());
        self.log = Some(region);
        Ok(())
    }

    /// Before the view is acknowledged: a proxy of the view finds the log open, or its page depends on everything.
    fn enter_view(&mut self, _: &Logs, view: &View, endpoint: &Endpoint<ReadHeader>) -> Option<RegionKey> {
        let others = view.members().iter().filter(|member| member.incarnation != endpoint.me());
        let is_read = others.map(|member| member.roles).any(|roles| roles.has(Role::Reader));
        self.shared.recorder.open(is_read);
        if !view.departed().is_empty() {
            self.shared.recorder.close_tags();
        }
        self.log.as_ref().map(|log| log.key(Rights::Change))
    }

    fn end_incarnation(&mut self) {
        self.shared.recorder.end();
        (self.log, self.settles) = (None, None);
        self.shared.known.store(Arc::default());
    }

    fn message_dropped(&mut self) {
        self.shared.metrics.unusable.increment();
    }
}
