//! Measuring: turns of all variants of a row, with one client for all of them and one process that takes time.

use std::time::Duration;

use super::machines::Cores;
use super::measured::{Measured, Taken};
use super::stack::Stack;
use crate::child::{ON_CORE, Target};
use crate::error::BenchError;
use crate::primitives::READS;
use crate::rounds::{Budget, interleave};
use crate::run::Plan;
use crate::web::{self, Found, Order};

/// How long it may take until every page was asked for once.
const WARMING: Duration = Duration::from_secs(10);

/// One variant at one point.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// In which panel it is.
    pub(super) group: &'static str,
    pub(super) variant: String,
    /// Where on the panel's axis.
    pub(super) x: f64,
    /// Threads that take time on the servers' core.
    pub(super) busy: usize,
    pub(super) work: Work,
}

/// What a turn measures.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Pages, from whatever is at the order's address: how long is seen when it is given. Of a stack, by its number, with the time that its
    /// proxy says it took for a hit.
    Pages {
        order: Order,
        /// Ask for every page once in each turn, because there are updates. Of a turn at most half.
        sweep: bool,
        stack: Option<usize>,
    },
    /// Reads of a word, by the reader of this number.
    Reads(usize),
}

/// What measures.
pub(super) struct Lab {
    client: Target,
    busy: Target,
    /// Threads that take time now.
    level: usize,
    readers: Vec<Target>,
    stacks: Vec<Stack>,
}

impl Lab {
    /// With `stacks`, when all of them are ready, and a reader on each of the fabrics `readers`.
    pub(super) fn open(
        plan: &Plan,
        cores: &Cores,
        mut stacks: Vec<Stack>,
        readers: &[&str],
    ) -> Result<Self, BenchError> {
        stacks.iter_mut().try_for_each(Stack::ready)?;
        let (servers, proxies) = (cores.servers.as_str(), cores.proxies.as_str());
        let reader = |provider: &&str| Target::start(&[ON_CORE, proxies, READS, provider, servers]);
        Ok(Lab {
            client: Target::start(&[ON_CORE, proxies, web::CLOSED, "--seed", &plan.seed.to_string()])?,
            busy: Target::start(&[ON_CORE, servers, web::BUSY])?,
            level: 0,
            readers: readers.iter().map(reader).collect::<Result<_, _>>()?,
            stacks,
        })
    }

    /// What answers for [`Work::Reads`] of the next number, from 0 on.
    pub(super) fn add_reader(&mut self, reader: Target) {
        self.readers.push(reader);
    }

    /// Takes all turns of all rounds.
    pub(super) fn measure(mut self, plan: Plan, mut turns: Vec<Turn>) -> Result<Vec<Measured>, BenchError> {
        let steps = (plan.rounds + 1) * turns.len() as u32;
        self.warm(&turns)?;
        let mut budget = Budget::new(plan.measuring, steps);
        let rounds = interleave(
            plan.rounds,
            &mut turns,
            |turn| format!("{}: {}, {}", turn.group, turn.variant, turn.x),
            |turn| self.take(turn, budget.next()),
            plan.progress,
        )?;
        Ok(turns.into_iter().zip(rounds).map(|(turn, rounds)| Measured { turn, rounds }).collect())
    }

    /// Asks for every page that can be cached once, on an idle machine.
    fn warm(&mut self, turns: &[Turn]) -> Result<(), BenchError> {
        let mut warm = Vec::new();
        for turn in turns {
            let Work::Pages { order, .. } = &turn.work else { continue };
            if order.cached && !warm.contains(&(order.address, order.workload)) {
                warm.push((order.address, order.workload));
                let order = Order { sweep: WARMING, length: Duration::from_millis(10), updates: None, ..order.clone() };
                let _: Found = self.client.ask(&order, "ask for every page once")?;
            }
        }
        Ok(())
    }

    fn take(&mut self, turn: &Turn, length: Duration) -> Result<Taken, BenchError> {
        if self.level != turn.busy {
            let () = self.busy.ask(&turn.busy, "keep its core busy")?;
            self.level = turn.busy;
        }
        match &turn.work {
            Work::Reads(reader) => Ok(Taken::Reads(self.readers[*reader].ask(&length, "time reads")?)),
            Work::Pages { order, sweep, stack } => {
                let stack = stack.map(|stack| &self.stacks[stack]);
                let before = stack.map(Stack::hits).transpose()?;
                let sweep = if *sweep { length / 2 } else { Duration::ZERO };
                let found: Found = self.client.ask(&Order { length, sweep, ..order.clone() }, "ask for pages")?;
                let after = stack.map(Stack::hits).transpose()?;
                found.held.none_stale(&format!("{}, {}, at {}", turn.group, turn.variant, turn.x))?;
                let each = |((hits, us), (hits_after, us_after))| (us_after - us) / (hits_after - hits);
                let hit_us = before.zip(after).map(each).filter(|us: &f64| us.is_finite());
                Ok(Taken::Pages { found, hit_us })
            }
        }
    }
}
