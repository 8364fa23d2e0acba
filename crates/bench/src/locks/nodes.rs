//! Nodes in one view, each a process, with a station for each way that is compared.

use serde::de::DeserializeOwned;
use verbena_cluster::{Member, Role, Roles, View};
use verbena_terms::Incarnation;

use super::node::{Order, ROLE};
use super::station::{Met, VIEW, Way};
use crate::child::{ON_CORE, Target};
use crate::error::BenchError;
use crate::report::FabricFound;

/// All of them. The orders of one station are its own; stations of one way are a cluster.
pub(super) struct Nodes {
    targets: Vec<Target>,
    pub(super) found: FabricFound,
}

impl Nodes {
    /// Starts `count` nodes at the place of this name, of which the first is the home of all locks; or each is a home.
    pub(super) fn start(place: &str, count: usize, all_home: bool, ways: &[Way]) -> Result<Self, BenchError> {
        Nodes::start_on(&[], place, count, all_home, ways)
    }

    /// The same, where the first node stays on the first of these cores, and so on.
    pub(super) fn start_on(
        cores: &[usize],
        place: &str,
        count: usize,
        all_home: bool,
        ways: &[Way],
    ) -> Result<Self, BenchError> {
        let numbers: Vec<String> = ways.iter().map(|way| way.number().to_string()).collect();
        let start = |at: usize| {
            let rank = (at + 1).to_string();
            let core = cores.get(at).map(usize::to_string);
            let before = core.iter().flat_map(|core| [ON_CORE, core.as_str()]);
            let words = before.chain([ROLE, place, &rank]).chain(numbers.iter().map(String::as_str));
            Target::start(&words.collect::<Vec<_>>())
        };
        let mut targets: Vec<Target> = (0..count).map(start).collect::<Result<_, _>>()?;
        let met: Vec<Vec<Met>> =
            targets.iter_mut().map(|target| target.answer("begin")).collect::<Result<_, BenchError>>()?;
        let found = met[0][0].found.clone();
        for way in 0..ways.len() {
            let member = |(at, met): (usize, &Vec<Met>)| Member {
                incarnation: incarnation(at),
                name: format!("n{at}"),
                address: met[way].address.0.clone(),
                roles: if at == 0 || all_home { Roles::ALL } else { Roles::of(Role::Reader) },
            };
            let members = met.iter().enumerate().map(member).collect();
            let view = View::new(VIEW, members, vec![]).map_err(|error| BenchError::Target {
                doing: "be in a view".to_owned(),
                reason: format!("{error:?}"),
            })?;
            let order = (way, Order::Meet { view, words: met[0][way].key.clone() });
            for target in &mut targets {
                let () = target.ask(&order, "be in a view")?;
            }
        }
        Ok(Nodes { targets, found })
    }

    /// Has the station `way` of node `at` do something, and waits for its answer.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, at: usize, way: usize, order: &Order) -> Result<T, BenchError> {
        self.targets[at].ask(&(way, order), "see to locks")
    }

    /// The same of these nodes, all of which begin before any answers.
    pub(super) fn ask_all<T: DeserializeOwned>(
        &mut self,
        nodes: &[usize],
        way: usize,
        order: impl Fn(usize) -> Order,
    ) -> Result<Vec<T>, BenchError> {
        self.tell_all(nodes, way, order)?;
        nodes.iter().map(|&at| self.answer(at)).collect()
    }

    /// The same, without waiting for their answers.
    pub(super) fn tell_all(
        &mut self,
        nodes: &[usize],
        way: usize,
        order: impl Fn(usize) -> Order,
    ) -> Result<(), BenchError> {
        nodes.iter().try_for_each(|&at| self.targets[at].tell(&(way, order(at)), "see to locks"))
    }

    pub(super) fn answer<T: DeserializeOwned>(&mut self, at: usize) -> Result<T, BenchError> {
        self.targets[at].answer("see to locks")
    }

    /// Processor time of all of them, in seconds.
    pub(super) fn cpu_s(&self) -> Result<f64, BenchError> {
        let each = self.targets.iter().map(Target::cpu_ns);
        Ok(each.sum::<Result<u64, _>>()? as f64 / 1e9)
    }
}

fn incarnation(at: usize) -> Incarnation {
    Incarnation::new(at as u32 + 1, 1)
}
