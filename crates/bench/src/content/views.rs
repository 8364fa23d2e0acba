//! `content.views`: what a change of view costs. How long until it is in effect and until all pages hit again, and which pages were lost.
//!
//! No figure of the papers. One proxy has cached all pages of three homes. One of the homes leaves in order, joins, is killed, and joins again. A
//! few pages that are asked for all the while tell when hits are back; in the last cycle all others are asked for once after each
//! change, and what did not hit is held against the pages that the home had.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::machines::Cores;
use super::measured::{Said, axis, share};
use super::once::ask_once;
use super::stack::get;
use crate::child::{ON_CORE, Target};
use crate::error::BenchError;
use crate::report::{FabricFound, Findings, Line, Measurement, Panel, Point};
use crate::rounds::Progress;
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};
use crate::web::{self, Workload, once_path};
use cluster::{Answered, Cluster, GUEST, HOMES};

/// Bytes of a page's body.
const BODY: usize = 64;
/// Pages that are asked for all the while; behind all others.
const PROBES: u32 = 48;
/// Pages that are asked for in one order.
const AT_ONCE: u32 = 20_000;
/// How long a change may take until all hit again.
const RECOVERY: Duration = Duration::from_secs(60);
/// Times that all pages are asked for until all of them are stored.
const ATTEMPTS: u32 = 5;
/// A miss for this reason is of a page whose home is another one.
const MOVED_AWAY: &str = "other-home";

/// What happens to one home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Leaves,
    Joins,
    IsKilled,
    JoinsAfterCrash,
}

/// A cycle: it ends as it began.
const CYCLE: [Change; 4] = [Change::Leaves, Change::Joins, Change::IsKilled, Change::JoinsAfterCrash];

impl Change {
    const fn name(self) -> &'static str {
        match self {
            Change::Leaves => "a home leaves in order",
            Change::Joins => "a home joins",
            Change::IsKilled => "a home is killed",
            Change::JoinsAfterCrash => "a home joins after a crash",
        }
    }

    const fn takes_pages(self) -> bool {
        matches!(self, Change::Joins | Change::JoinsAfterCrash)
    }
}

/// What one change cost.
#[derive(Clone, Debug)]
struct Cost {
    /// Until the new view was in effect.
    in_effect_ms: f64,
    /// Until the last answer that was no hit.
    hits_ms: f64,
    /// Probes whose home was another one.
    lost: BTreeSet<u32>,
    /// Misses of the others, by reason: in passing, for they keep their copies.
    passing: BTreeMap<String, u32>,
}

/// Which pages one change lost.
struct Lost {
    /// Pages whose home left, or is the new one.
    whose_home_changed: f64,
    /// Pages that did not hit, probes included.
    lost: f64,
    /// Those of them that were lost for another reason.
    besides: Answered,
    passing: BTreeMap<String, u32>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let cores = Cores::choose(plan.name)?;
    let quick = plan.measuring < Duration::from_secs(60);
    // A quick run has to wait for many leases in a minute.
    let (pages, lease_s): (u32, u64) = if quick { (3_000, 1) } else { (1_000_000, 2) };
    let mut cluster = Cluster::start(verbena, &cores, (pages + PROBES) as usize, lease_s)?;
    cluster.ready()?;
    let mut client = Target::start(&[ON_CORE, &cores.proxies, web::CLOSED, "--seed", &plan.seed.to_string()])?;
    fill(&cluster, &mut client, pages)?;
    let memory = cluster.memory()?;

    let started = Instant::now();
    let steps = (plan.rounds + 1) * CYCLE.len() as u32;
    let mut done = 0;
    let mut costs: [Vec<Cost>; CYCLE.len()] = Default::default();
    let mut lost = Vec::new();
    for round in 0..=plan.rounds {
        let counts = round == plan.rounds;
        if counts {
            fill(&cluster, &mut client, pages)?;
        }
        for (change, costs) in CYCLE.into_iter().zip(&mut costs) {
            let (elapsed, doing) = (started.elapsed(), change.name().to_owned());
            let left = (done > 0).then(|| elapsed / done * (steps - done));
            (plan.progress)(&Progress { done, of: steps, doing, elapsed, left });
            let had = if change.takes_pages() { 0.0 } else { cluster.pages_of(GUEST)? };
            let cost = suffer(&mut cluster, change, pages)?;
            if counts {
                let answers = sweep(&cluster, &mut client, pages)?;
                let has = if change.takes_pages() { cluster.pages_of(GUEST)? } else { had };
                lost.push(Lost::of(has, answers, &cost));
            }
            if round > 0 {
                costs.push(cost);
            }
            done += 1;
        }
    }
    let mut findings = Findings { fabrics: vec![over_tcp()], ..Findings::default() };
    report(&mut findings, pages, &costs, &lost, (memory, lease_s));
    Ok(findings)
}

/// Lets the change happen, and looks at the proxy until all probes hit in the new view.
fn suffer(cluster: &mut Cluster, change: Change, pages: u32) -> Result<Cost, BenchError> {
    let before = cluster.view_in_effect()?;
    let began = Instant::now();
    match change {
        Change::Leaves => cluster.leave(GUEST)?,
        Change::IsKilled => cluster.end(GUEST, true)?,
        Change::Joins | Change::JoinsAfterCrash => cluster.start_home(GUEST)?,
    }
    let (mut lost, mut missed) = (BTreeSet::new(), Vec::new());
    let (mut in_effect_ms, mut hits_ms, mut hits) = (None, 0.0, 0);
    for probe in (0..PROBES).cycle() {
        if began.elapsed() > RECOVERY {
            let (what, happened) = ("the proxy".to_owned(), format!("did not recover within {RECOVERY:?}"));
            return Err(BenchError::Process { what, happened, said: change.name().to_owned() });
        }
        if in_effect_ms.is_none() && cluster.view_in_effect()? > before {
            in_effect_ms = Some(began.elapsed().as_secs_f64() * 1e3);
            hits = 0;
        }
        let answer = get(cluster.address, &path(pages + probe)).unwrap_or_default();
        if answer.contains("verbena; hit") {
            hits += 1;
        } else {
            let why = answer.split_once("detail=").and_then(|(_, rest)| rest.split(['\r', ';']).next());
            match why {
                Some(MOVED_AWAY) => drop(lost.insert(probe)),
                why => missed.push((probe, why.unwrap_or("no answer").to_owned())),
            }
            hits_ms = began.elapsed().as_secs_f64() * 1e3;
            hits = 0;
        }
        // Each of them twice: the first time it may have been stored under what goes away.
        if in_effect_ms.is_some() && hits >= 2 * PROBES {
            break;
        }
    }
    let mut passing = BTreeMap::new();
    for (_, why) in missed.into_iter().filter(|(probe, _)| !lost.contains(probe)) {
        *passing.entry(why).or_insert(0) += 1;
    }
    if change == Change::Leaves {
        cluster.end(GUEST, false)?;
    }
    if change.takes_pages() {
        cluster.ready()?;
    }
    Ok(Cost { in_effect_ms: in_effect_ms.unwrap_or(f64::NAN), hits_ms, lost, passing })
}

/// Asks for pages until all are stored.
fn fill(cluster: &Cluster, client: &mut Target, pages: u32) -> Result<(), BenchError> {
    for _ in 0..ATTEMPTS {
        let answers = sweep(cluster, client, pages)?;
        let mut probes = 0;
        for probe in 0..PROBES {
            let hit = get(cluster.address, &path(pages + probe)).is_ok_and(|answer| answer.contains("verbena; hit"));
            probes += u32::from(!hit);
        }
        if answers.misses.is_empty() && probes == 0 {
            return Ok(());
        }
    }
    let (what, said) = ("the proxy".to_owned(), String::new());
    Err(BenchError::Process { what, happened: format!("did not keep all of {pages} pages"), said })
}

/// Asks for all pages but the probes once.
fn sweep(cluster: &Cluster, client: &mut Target, pages: u32) -> Result<Answered, BenchError> {
    let before = cluster.answered()?;
    for first in (0..pages).step_by(AT_ONCE as usize) {
        let count = AT_ONCE.min(pages - first);
        ask_once(client, cluster.address, Workload::Once { bytes: BODY, first, count, dependencies: 1 })?;
    }
    Ok(cluster.answered()?.since(&before))
}

fn path(page: u32) -> String {
    once_path(BODY, page, 1)
}

impl Lost {
    fn of(whose_home_changed: f64, mut answers: Answered, cost: &Cost) -> Self {
        let lost = answers.misses.values().sum::<f64>() + cost.lost.len() as f64;
        answers.misses.remove(MOVED_AWAY);
        Lost { whose_home_changed, lost, besides: answers, passing: cost.passing.clone() }
    }
}

fn over_tcp() -> FabricFound {
    let because = "between nodes of the loopback interface".to_owned();
    FabricFound { name: "tcp".to_owned(), measured: true, because, capabilities: None }
}

fn report(findings: &mut Findings, pages: u32, costs: &[Vec<Cost>], lost: &[Lost], (memory, lease_s): (u64, u64)) {
    let x = f64::from(pages);
    let mut series: Vec<Line> = Vec::new();
    for (style, quantity) in ["until the view is in effect", "until all pages hit"].into_iter().enumerate() {
        let mut points = Vec::new();
        for (at, (change, costs)) in CYCLE.into_iter().zip(costs).enumerate() {
            let times = costs.iter().map(|cost| if style == 0 { cost.in_effect_ms } else { cost.hits_ms });
            let rounds: Vec<f64> = times.collect();
            let summaries = rounds.iter().map(|ms| RoundSummary::one(*ms, 1)).collect();
            findings.measurements.extend(Measurement::new(&[("change", change.name())], x, quantity, "ms", summaries));
            points.extend(Spread::of(&rounds).map(|y| Point { x: (at + 1) as f64, y }));
        }
        series.push(Line { name: quantity.to_owned(), style, points });
    }
    for (change, lost) in CYCLE.into_iter().zip(lost) {
        let counts = [("pages whose home changed", lost.whose_home_changed), ("pages lost", lost.lost)];
        for (quantity, count) in counts {
            let rounds = vec![RoundSummary::one(count, u64::from(pages))];
            findings.measurements.extend(Measurement::new(&[("change", change.name())], x, quantity, "pages", rounds));
        }
        let Lost { besides, passing, .. } = lost;
        let besides = format!("{:?}, {} hits; missed in passing: {passing:?}", besides.misses, besides.hits);
        let said = Said::AtMost(1.0, "only those whose home left or is new (at most 1)", besides.clone());
        let over = lost.lost / lost.whose_home_changed;
        findings.ratios.extend(share("pages lost over pages whose home changed", change.name(), &[over], said));
        if !lost.besides.misses.is_empty() || !passing.is_empty() {
            findings.notes.push(format!("{}: lost for other reasons: {besides}.", change.name()));
        }
    }
    let names: Vec<String> =
        CYCLE.iter().enumerate().map(|(at, change)| format!("{} {}", at + 1, change.name())).collect();
    let (x, y) = (axis(&names.join(", "), false), axis("time (ms)", true));
    findings.panels.push(Panel { title: format!("a change of view, {pages} pages cached"), x, y, series });
    findings.notes.extend([
        format!(
            "{pages} pages of {BODY} bytes with a dependency each, at {HOMES} homes, one proxy, over tcp; all nodes together took {} MiB when all were cached.",
            memory >> 20
        ),
        format!("Times are of {PROBES} pages that are asked for in turn all the while, from the fault (the signal, the start of the process) on."),
        "Which pages are lost is counted once, in the last cycle: which home a page has is no matter of luck. The times of that cycle count too.".to_owned(),
        format!("A home that joins after a crash waits for a lease and pages.longest_transaction, both {lease_s} s here."),
    ]);
}
