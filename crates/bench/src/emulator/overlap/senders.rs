//! Many at the near site that send to the far one without rest.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use verbena_fabric::{Batch, Class, Operation, Provider};

use super::super::channels::{Sent, stream};
use super::super::far::{Connections, Far, Pair};
use super::super::line::{ASIDE_AT, LARGEST_CONTROL};
use super::super::node::{Met, NEAR, Node, text};
use super::super::paths::Site;
use super::super::ways::{Way, Ways};
use crate::error::BenchError;

/// As many as in the paper.
pub(super) const SENDERS: usize = 40;
/// Bytes that either end of a connection has room for.
const WINDOW: usize = 64 << 10;
/// Their ranks begin here.
const FIRST: u32 = NEAR + 100;

/// All of them, by one way.
pub(super) enum Senders {
    Connections(Connections),
    /// Nodes, each with `each` writes under way.
    Nodes {
        nodes: Vec<(Node, Met)>,
        each: usize,
    },
}

impl Senders {
    pub(super) fn by_connections(far: &mut Far, sites: [Site<'_>; 2]) -> Result<Self, BenchError> {
        Ok(Senders::Connections(far.connect(SENDERS, Some(WINDOW), sites)?))
    }

    /// By what there is of this fabric.
    pub(super) fn of_fabric(
        provider: Provider,
        ways: &Ways,
        site: Site<'_>,
    ) -> Result<Option<(Way, Self)>, BenchError> {
        let pair = ways.pair(provider);
        pair.map(|pair| Ok((Way::OneSided(provider), Senders::by_writes(provider, pair, site)?))).transpose()
    }

    /// Over `tcp` each is a node, and so has a connection. A process has at most 16 nodes of `xdp`, which has no connections: one stands for all. Of `verbs` it has
    /// room for a few, for each keeps 16 TiB of addresses: four have a connection and ten writes under way each.
    fn by_writes(provider: Provider, pair: &Pair, site: Site<'_>) -> Result<Self, BenchError> {
        let count = match provider {
            Provider::Xdp => 1,
            Provider::Verbs => 4,
            Provider::Shm | Provider::Tcp => SENDERS,
        };
        let nodes = (0..count as u32).map(|number| pair.another(provider, FIRST + number, site));
        Ok(Senders::Nodes { nodes: nodes.collect::<Result<_, _>>()?, each: SENDERS / count })
    }

    /// Messages of `bytes` bytes, until `stop`. Nothing is under way when it returns.
    pub(super) fn send(&self, bytes: usize, stop: &AtomicBool) -> Result<Sent, String> {
        let go_on = || !stop.load(Ordering::Relaxed);
        match self {
            Senders::Connections(connections) => {
                stream(&connections.near, bytes, go_on).map_err(|error| error.to_string())
            }
            Senders::Nodes { nodes, each } => {
                let class = if bytes <= LARGEST_CONTROL { Class::Control } else { Class::Bulk };
                let post = |(node, met): &(Node, Met)| {
                    let from = node.fabric.pool().take(bytes).map_err(text)?;
                    Ok::<_, String>(met.remote.post(
                        Batch::one(Operation::Write { at: ASIDE_AT, from }),
                        class,
                        node.deadline(),
                    ))
                };
                // To post this many can take longer than anything else here.
                let (began, mut messages, mut under_way) = (Instant::now(), 0, VecDeque::new());
                for _ in 0..*each {
                    for node in nodes {
                        under_way.push_back((node, post(node)?));
                    }
                }
                while let Some((node, oldest)) = under_way.pop_front() {
                    oldest.wait().map_err(text)?;
                    messages += 1;
                    if go_on() {
                        under_way.push_back((node, post(node)?));
                    }
                }
                Ok(Sent { bytes: messages * bytes as u64, messages, took: began.elapsed() })
            }
        }
    }
}
