//! What a node does with the deeds of [`PoolNode`] beside the fabric: its region, and the answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use verbena_cluster::Lease;
use verbena_fabric::{Port, Region};
use verbena_service::driver::{self, Host, Machine as _};
use verbena_service::endpoint::{Endpoint, Ports};
use verbena_terms::{Clock, Time, ViewNumber};

use super::metrics::Metrics;
use super::node::{Deed, PoolNode};
use super::reads::{PoolRead, nothing};
use crate::{Completion, Reply, Settings};

/// How long a read waits for another node. A region that is not open by then is a miss.
const READ_WITHIN: Duration = Duration::from_millis(200);
/// Of the region, which is the same in all views of an incarnation (rule K1).
const ANY_VIEW: ViewNumber = ViewNumber(0);

/// The driver of a node's part in the pool.
pub(super) type Running = driver::Driver<PoolNode, PoolHost>;

/// What the node has beside the fabric.
pub struct PoolHost {
    clock: Arc<dyn Clock>,
    answers: Vec<(u64, Reply)>,
    metrics: Metrics,
    /// Whether the scheme is the pool's by now.
    has_scheme: bool,
}

/// A driver between two incarnations.
pub(super) fn new(settings: Settings, wall: fn() -> u64, clock: Arc<dyn Clock>, metrics: Metrics) -> Running {
    let host = PoolHost { clock: clock.clone(), answers: vec![], metrics, has_scheme: false };
    driver::Driver::new(PoolNode::new(settings, wall), host, clock)
}

impl PoolHost {
    /// What became of commands since the last call.
    pub(super) fn answers(&mut self) -> Vec<(u64, Reply)> {
        std::mem::take(&mut self.answers)
    }
}

impl Host<PoolNode> for PoolHost {
    /// Messages about the pool.
    const PORTS: Ports = Ports::of_view(Port(20));

    fn act(
        &mut self,
        deed: Deed,
        node: &mut PoolNode,
        endpoint: Option<&mut Endpoint<PoolRead>>,
        now: Time,
        more: &mut VecDeque<Deed>,
    ) {
        let mut out = vec![];
        match (deed, endpoint) {
            (Deed::Answer(request, reply), _) => self.answers.push((request, reply)),
            (Deed::Register(layout), Some(endpoint)) => match endpoint.fabric().register(layout.bytes(), ANY_VIEW) {
                Ok(region) => node.registered(Arc::<dyn Region>::from(region), now, &mut out),
                Err(error) => tracing::error!(%error, bytes = layout.bytes(), "there is no memory for the pool"),
            },
            (Deed::Open(key), Some(endpoint)) => endpoint.learn(key, now),
            (Deed::Send(to, letter), Some(endpoint)) => {
                if endpoint.send(to, letter.view, || letter.encode()) {
                    self.metrics.letters.increment();
                } else {
                    node.not_sent(letter.said, self.clock.now(), &mut out);
                }
            }
            // The clock is read behind what the node read of itself: it may have been paused in between (rules K5, K6).
            (Deed::Hear(view, frame), Some(_)) => node.hear(view, frame, self.clock.now(), &mut out),
            (Deed::ReadTable { id, home, hash, geometry }, Some(endpoint)) => {
                if home == endpoint.me() {
                    let completion = Completion::Table(node.look(hash, geometry));
                    node.completed(id, completion, self.clock.now(), &mut out);
                } else {
                    self.metrics.table_reads.increment();
                    endpoint.submit(PoolRead::table(id, home, hash, geometry, now + READ_WITHIN), now);
                }
            }
            (Deed::ReadObject { id, place, holder: Some(holder) }, Some(endpoint)) if holder == endpoint.me() => {
                let completion = Completion::Object(place, node.read(place));
                node.completed(id, completion, self.clock.now(), &mut out);
            }
            (Deed::ReadObject { id, place, holder }, Some(endpoint)) => {
                let read = holder.and_then(|holder| Some((holder, node.layout_of(holder)?)));
                let largest = endpoint.fabric().capabilities().largest_read;
                let until = now + READ_WITHIN;
                let read = read.and_then(|(of, layout)| PoolRead::object(id, of, place, layout, largest, until));
                match read {
                    Some(read) => {
                        self.metrics.object_reads.increment();
                        endpoint.submit(read, now);
                    }
                    None => node.completed(id, nothing(Some(place)), self.clock.now(), &mut out),
                }
            }
            // Between two incarnations there is no member to hear it.
            (_, None) => {}
        }
        more.extend(out);
    }

    fn message_dropped(&mut self) {
        self.metrics.unusable.increment();
    }

    fn idle(&mut self, node: &PoolNode) {
        self.metrics.show(node);
        let (chosen, configured) = (node.scheme(), node.configured_scheme());
        if !self.has_scheme && chosen.nth > 0 {
            self.has_scheme = true;
            if chosen.name != configured {
                tracing::warn!(
                    scheme = %chosen.name,
                    configured = %configured,
                    "the pool goes by another scheme than the one that is configured here, and so does this node: `verbena pool scheme NAME` changes it for all"
                );
            }
        }
    }

    /// What it does is short, but for views, which its own thread enters.
    fn may_be_slow(&self, _: &PoolNode, _: Lease, _: Time) -> bool {
        false
    }
}
