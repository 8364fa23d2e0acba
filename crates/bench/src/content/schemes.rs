//! The schemes of chapter 6 of the dissertation, over pages that a database makes.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;
use verbena_fabric::Provider;

use super::lab::{Lab, Turn, Work};
use super::machines::Cores;
use super::measured::{Measured, measurements};
use super::stack::{Application, Room, Setup, Stack};
use crate::error::BenchError;
use crate::primitives;
use crate::report::{FabricFound, Findings, Panel, Ratio};
use crate::run::Plan;
use crate::web::{self, Order, Stream, Workload};

/// Clients at once.
pub(super) const CONNECTIONS: usize = 16;

/// Objects of a page, where a row does not vary them.
pub(super) const DEPENDENCIES: u32 = 4;

pub(super) const NO_CACHE: &str = "no cache";
pub(super) const INVALIDATE_ALL: &str = "invalidate all";
pub(super) const LISTS: &str = "dependency lists";

/// A trace: how often something changes beside the reads, and how skewed both are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trace {
    pub(super) number: f64,
    /// Updates a second; 0 is reads only.
    pub(super) updates_per_s: f64,
    /// Of the Zipf law; 0 asks for all pages alike.
    pub(super) alpha: f64,
}

const fn trace(number: f64, updates_per_s: f64, alpha: f64) -> Trace {
    Trace { number, updates_per_s, alpha }
}

/// Trace 1 has reads only; from 2 to 5 an update comes every second to every 10 milliseconds; 6 is Zipf-like, with a medium rate.
pub(super) const TRACES: [Trace; 6] = [
    trace(1.0, 0.0, 0.0),
    trace(2.0, 1.0, 0.0),
    trace(3.0, 5.0, 0.0),
    trace(4.0, 20.0, 0.0),
    trace(5.0, 100.0, 0.0),
    trace(6.0, 20.0, 0.9),
];

/// Stacks of a row, each of a scheme.
pub(super) struct Schemes<'a> {
    verbena: &'a std::path::Path,
    cores: Cores,
    provider: Provider,
    found: FabricFound,
    /// A database that is copied for each.
    template: TempDir,
    stacks: Vec<Stack>,
}

impl<'a> Schemes<'a> {
    /// None of them, on the [best fabric](best_fabric).
    pub(super) fn new(plan: &Plan<'a>) -> Result<Self, BenchError> {
        let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
        let cores = Cores::choose(plan.name)?;
        let (provider, found) = best_fabric(plan.name)?;
        let template = tempfile::tempdir().map_err(|error| BenchError::io(&std::env::temp_dir(), error))?;
        web::fill_database(&template.path().join("database"))
            .map_err(|reason| BenchError::Target { doing: "fill a database".to_owned(), reason })?;
        Ok(Schemes { verbena, cores, provider, found, template, stacks: Vec::new() })
    }

    /// Starts one more: of `scheme`, with room in the proxy for a share `room` of the pages, or for all. Where it is.
    pub(super) fn start(&mut self, scheme: &str, room: Option<f64>) -> Result<SocketAddr, BenchError> {
        let application = match scheme {
            NO_CACHE => Application::Untold,
            INVALIDATE_ALL => Application::OfEverything,
            _ => Application::Announced,
        };
        let database = self.template.path().join("database");
        let setup = Setup {
            verbena: self.verbena,
            cores: &self.cores,
            provider: self.provider,
            network: None,
            application,
            database: Some(&database),
            room: room.map_or(Room::Usual, Room::Share),
        };
        let stack = setup.start()?;
        let address = stack.address;
        self.stacks.push(stack);
        Ok(address)
    }

    /// Takes all turns, and says of them what `ratios` and `panels` make of them.
    pub(super) fn measure(
        self,
        plan: Plan,
        turns: Vec<Turn>,
        ratios: fn(&[Measured]) -> Vec<Ratio>,
        panels: fn(&[Measured]) -> Vec<Panel>,
    ) -> Result<Findings, BenchError> {
        let each = plan.measuring / ((plan.rounds + 1) * turns.len() as u32);
        let lab = Lab::open(&plan, &self.cores, self.stacks, &[])?;
        let measured = lab.measure(plan, turns)?;
        let notes = vec![
            "Application with its database, home and busy threads share one core, proxy and client another; each variant has an application, a home \
             and a proxy of its own."
                .to_owned(),
            format!(
                "{CONNECTIONS} connections ask without a pause. Each point was measured for about {} ms in each round, after every page was asked \
                 for once (where there is room for all, or none) and after a fifth of the rest.",
                each.as_millis()
            ),
            "A page is made by SQL from 1,024 rows, however many objects they belong to; there are 200 pages and 200 objects.".to_owned(),
            format!(
                "{} answers were held against the updates that had been acknowledged when they were asked for; none was stale.",
                measured.iter().map(Measured::checked).sum::<u64>()
            ),
        ];
        Ok(Findings {
            fabrics: vec![self.found],
            ratios: ratios(&measured),
            panels: panels(&measured),
            measurements: measurements(&measured),
            notes,
        })
    }
}

/// The first fabric of this machine that leaves the home's processor alone, or else the first that works.
pub(super) fn best_fabric(row: &'static str) -> Result<(Provider, FabricFound), BenchError> {
    let working = Provider::ALL.into_iter().filter_map(|one| Some((one, primitives::capabilities(one).ok()?)));
    let (provider, capabilities) = working
        .min_by_key(|(_, capabilities)| !capabilities.target_cpu_free)
        .ok_or_else(|| BenchError::NothingToMeasure { name: row, reason: "no fabric works".to_owned() })?;
    let found = FabricFound::measured(&capabilities, "between the proxies and the homes".to_owned());
    Ok((provider, found))
}

/// A turn of `scheme` at `address` under `trace`.
pub(super) fn turn(
    group: &'static str,
    scheme: &str,
    x: f64,
    address: SocketAddr,
    trace: Trace,
    dependencies: u32,
) -> Turn {
    let order = Order {
        address,
        workload: Workload::Database { dependencies, alpha: trace.alpha },
        cached: scheme != NO_CACHE,
        connections: CONNECTIONS,
        sweep: Duration::ZERO,
        updates: (trace.updates_per_s > 0.0).then_some(Stream { per_s: trace.updates_per_s, alpha: trace.alpha }),
        length: Duration::ZERO,
    };
    Turn { group, variant: scheme.to_owned(), x, busy: 0, work: Work::Pages { order, sweep: true, stack: None } }
}
