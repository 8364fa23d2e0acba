//! `content.load`: hits while the core of their home is busy with other things.
//!
//! After Figures 5.6, 5.7 and 5.8 of the dissertation. A proxy validates each hit by reading words at the page's home; how well it does when the
//! home's core has up to 200 other threads to run depends on who executes that read.

use std::net::SocketAddr;
use std::time::Duration;

use verbena_fabric::{Capabilities, Executor, Provider};

use super::lab::{Lab, Turn, Work};
use super::machines::{Cores, Running};
use super::measured::{Measured, Quantity, Said, axis, measurements, median, panel, ratio, rounds, share, times};
use super::stack::{Application, Room, Setup, Stack};
use crate::error::BenchError;
use crate::primitives;
use crate::primitives::network::Network;
use crate::report::{FabricFound, Findings, Line, Panel, Ratio};
use crate::run::Plan;
use crate::web::{self, Order, Workload};

/// As in the dissertation: three client nodes with three threads each.
const CONNECTIONS: usize = 9;

/// Threads on the home's core where every level is measured, and where the most telling ones are.
const LEVELS: [usize; 4] = [0, 50, 100, 200];
const FEW_LEVELS: [usize; 3] = [0, 50, 200];
const MOST: f64 = 200.0;

const SINGLE: &str = "single 8 KB file";
const FILES: &str = "20 files, 200 B to 1 MB, Zipf";
const SITE: &str = "web trace";
const BREAKDOWN: &str = "breakdown";

const PASSED: &str = "no cache";
const BESIDE_PROXY: &str = "bare hyper loop, proxy's core";
const BESIDE_HOME: &str = "bare hyper loop, home's core";

/// A fabric that works here, with its stack.
struct Variant {
    name: String,
    provider: Provider,
    capabilities: Capabilities,
}

impl Variant {
    /// A kernel executes what comes in by an interface, and what stays in one network comes in by none.
    fn needs_link(&self) -> bool {
        self.capabilities.executor == Executor::Kernel
    }
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let (mut findings, mut variants) = (Findings::default(), Vec::new());
    for provider in Provider::ALL {
        let found = match primitives::capabilities(provider) {
            Err(why) => FabricFound::missing(provider, why),
            Ok(capabilities) => {
                let variant = Variant { name: name(&capabilities), provider, capabilities };
                let where_to = if variant.needs_link() { ", over a virtual link to another network" } else { "" };
                let works = format!("it works on this machine: {}{where_to}", sides(&variant.capabilities));
                let found = FabricFound::measured(&variant.capabilities, works);
                variants.push(variant);
                found
            }
        };
        findings.fabrics.push(found);
    }
    // Where there is a link, everything is at the client's end, but for what it is to be reached by.
    let network = variants.iter().any(Variant::needs_link).then(Network::new).transpose()?;
    match &network {
        None => measure_with(plan, findings, &variants, None),
        Some(network) => network.caller.visit(|| measure_with(plan, findings, &variants, Some(network)))?,
    }
}

fn measure_with(
    plan: Plan,
    mut findings: Findings,
    variants: &[Variant],
    network: Option<&Network>,
) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let cores = Cores::choose(plan.name)?;
    let start = |variant: &Variant| {
        let network = network.filter(|_| variant.needs_link());
        let (provider, application, cores) = (variant.provider, Application::Files, &cores);
        Setup { verbena, cores, provider, network, application, database: None, room: Room::Usual }.start()
    };
    let mut stacks = variants.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    // Pages that are passed on see nothing of the fabric: whichever is first.
    let Some(first) = stacks.first_mut() else {
        let why: Vec<String> = findings.fabrics.iter().map(|one| format!("{}: {}", one.name, one.because)).collect();
        return Err(BenchError::NothingToMeasure { name: plan.name, reason: why.join("; ") });
    };
    first.ready()?;
    let folder = tempfile::tempdir().map_err(|error| BenchError::io(&std::env::temp_dir(), error))?;
    let like = first.origin.to_string();
    let mut controls = Vec::new();
    for (name, core) in [(BESIDE_PROXY, &cores.proxies), (BESIDE_HOME, &cores.servers)] {
        let [address] = super::stack::free_addresses()?;
        let listen = address.to_string();
        let words = [web::BARE, "--listen", &listen, "--like", &like, "--path", "/8192/0", "--threads", "1"];
        let mut running = Running::start(name, core, &words, folder.path())?;
        running.listens(address)?;
        controls.push((name, address, running));
    }

    let turns = turns(variants, &stacks, &controls.iter().map(|(name, at, _)| (*name, *at)).collect::<Vec<_>>());
    let readers: Vec<&str> = variants.iter().map(|variant| variant.capabilities.provider).collect();
    let lab = Lab::open(&plan, &cores, stacks, &readers)?;
    let each = plan.measuring / ((plan.rounds + 1) * turns.len() as u32);
    let measured = lab.measure(plan, turns)?;

    findings.ratios = ratios(&measured, variants);
    findings.panels = panels(&measured, variants);
    findings.measurements = measurements(&measured);
    findings.notes = notes(each);
    Ok(findings)
}

fn sides(capabilities: &Capabilities) -> &'static str {
    if capabilities.target_cpu_free { "one-sided" } else { "two-sided" }
}

fn name(capabilities: &Capabilities) -> String {
    format!("{} ({})", sides(capabilities), capabilities.provider)
}

/// By level, then by workload: what is compared stands next to each other in time.
fn turns(variants: &[Variant], stacks: &[Stack], controls: &[(&'static str, SocketAddr)]) -> Vec<Turn> {
    let mut turns = Vec::new();
    for busy in LEVELS {
        let mut add = |group, variant: &str, work| {
            turns.push(Turn { group, variant: variant.to_owned(), x: busy as f64, busy, work });
        };
        let order = |address, workload| Order {
            address,
            workload,
            cached: true,
            connections: CONNECTIONS,
            sweep: Duration::ZERO,
            updates: None,
            length: Duration::ZERO,
        };
        let single = Workload::Single { bytes: 8 << 10 };
        let workloads = [(SINGLE, single), (FILES, Workload::Files), (SITE, Workload::Site)];
        let here = if FEW_LEVELS.contains(&busy) { &workloads[..] } else { &workloads[..1] };
        for (group, workload) in here.iter().copied() {
            let passed = Order { cached: false, ..order(stacks[0].address, workload) };
            add(group, PASSED, Work::Pages { order: passed, sweep: false, stack: None });
            for (variant, stack) in variants.iter().zip(stacks) {
                add(
                    group,
                    &variant.name,
                    Work::Pages { order: order(stack.address, workload), sweep: false, stack: None },
                );
            }
        }
        for (name, address) in controls.iter().copied() {
            add(SINGLE, name, Work::Pages { order: order(address, single), sweep: false, stack: None });
        }
        if busy == 0 || busy as f64 == MOST {
            for (at, variant) in variants.iter().enumerate() {
                let order = Order { connections: 1, ..order(stacks[at].address, single) };
                add(BREAKDOWN, &variant.name, Work::Pages { order, sweep: false, stack: Some(at) });
                add(BREAKDOWN, &reads(variant), Work::Reads(at));
            }
        }
    }
    turns
}

fn reads(variant: &Variant) -> String {
    format!("version check, {}", variant.capabilities.provider)
}

fn ratios(measured: &[Measured], variants: &[Variant]) -> Vec<Ratio> {
    let of = |group: &str, variant: &str, x: f64, quantity| rounds(measured, group, variant, x, quantity);
    let rate = |group: &str, variant: &str, x: f64| of(group, variant, x, Quantity::Throughput);
    let mut ratios = Vec::new();
    for variant in variants {
        let name = variant.name.as_str();
        let one_sided = variant.capabilities.target_cpu_free;
        let (slow, fast) = (of(SINGLE, PASSED, 0.0, Quantity::Response), of(SINGLE, name, 0.0, Quantity::Response));
        let reason = format!(
            "{} us without a cache, {} with it: the application does no work for a file",
            median(&slow),
            median(&fast)
        );
        ratios.push(ratio(
            &format!("response time, no cache over {name}"),
            &format!("{SINGLE}, no busy threads"),
            &slow,
            &fast,
            Said::AtLeast(1.5, "at least 1.5", reason.clone()),
        ));
        for x in [0.0, MOST] {
            let (fast, slow) = (rate(SINGLE, name, x), rate(SINGLE, PASSED, x));
            let reason = format!("{} requests a second against {}", median(&fast), median(&slow));
            let said = match (x == 0.0, one_sided) {
                (true, _) => Said::AtLeast(1.67, "at least 1.67", reason),
                (false, true) => Said::AtLeast(9.0, "nearly 10 (9)", reason),
                (false, false) => Said::Nothing,
            };
            let under = format!("{SINGLE}, {x} busy threads");
            ratios.push(ratio(&format!("throughput, {name} over no cache"), &under, &fast, &slow, said));
        }
        for group in [SINGLE, FILES, SITE] {
            let (loaded, idle) = (rate(group, name, MOST), rate(group, name, 0.0));
            let (bare_loaded, bare_idle) = (rate(SINGLE, BESIDE_PROXY, MOST), rate(SINGLE, BESIDE_PROXY, 0.0));
            let lost = ratio("", "", &bare_loaded, &bare_idle, Said::Nothing)
                .map_or_else(String::new, |kept| kept.spread.to_string());
            let said = if one_sided {
                let reason =
                    format!("a bare hyper loop in the proxy's place keeps {lost}: what it loses is the machine's");
                Said::AtLeast(0.95, "at least 0.95", reason)
            } else {
                Said::Nothing
            };
            let what = format!("throughput that {name} keeps under {MOST} busy threads");
            ratios.push(ratio(&what, group, &loaded, &idle, said));
            if group == SINGLE {
                let (above, below) = (times(&loaded, &bare_idle), times(&idle, &bare_loaded));
                ratios.push(ratio(
                    &format!("{what}, over what a bare loop keeps"),
                    group,
                    &above,
                    &below,
                    Said::Nothing,
                ));
            }
        }
        for x in [0.0, MOST] {
            let whole = of(BREAKDOWN, name, x, Quantity::Mean);
            let (hit, read) =
                (of(BREAKDOWN, name, x, Quantity::Hit), of(BREAKDOWN, &reads(variant), x, Quantity::Read));
            let reason = format!(
                "{} of {} us are the proxy's, {} the read of a word",
                median(&hit),
                median(&whole),
                median(&read)
            );
            let said = if one_sided || x == 0.0 { Said::AtMost(0.1, "below 0.1", reason) } else { Said::Nothing };
            let under = format!("{name}, one connection, {x} busy threads");
            let shares = of(BREAKDOWN, name, x, Quantity::HitShare);
            ratios.push(share("a hit's time in the proxy, of its response time", &under, &shares, said));
            ratios.push(ratio("version check, of a response time", &under, &read, &whole, Said::Nothing));
        }
    }
    ratios.push(over_a_link(measured, variants));
    for name in [BESIDE_PROXY, BESIDE_HOME] {
        let what = format!("throughput that the {name}, keeps under {MOST} busy threads");
        ratios.push(ratio(&what, SINGLE, &rate(SINGLE, name, MOST), &rate(SINGLE, name, 0.0), Said::Nothing));
    }
    ratios.into_iter().flatten().collect()
}

/// What is left of the rate over memory when a home is reached through its kernel. Our own claim: the papers have one fabric.
fn over_a_link(measured: &[Measured], variants: &[Variant]) -> Option<Ratio> {
    let linked = variants.iter().find(|variant| variant.needs_link())?;
    let memory = variants.iter().find(|variant| variant.capabilities.executor == Executor::Memory)?;
    let [far, near] = [linked, memory].map(|variant| {
        let rate = rounds(measured, SINGLE, &variant.name, 0.0, Quantity::Throughput);
        (rate, median(&rounds(measured, BREAKDOWN, &reads(variant), 0.0, Quantity::Read)))
    });
    let reason = format!("a version check takes {} us, over memory {}", far.1, near.1);
    let what = format!("throughput, {} over {}", linked.name, memory.name);
    let said = Said::AtLeast(0.7, "at least 0.7", reason);
    ratio(&what, &format!("{SINGLE}, no busy threads"), &far.0, &near.0, said)
}

/// Figures 5.6a and b, 5.7a and b, and one of 5.8 for each fabric.
fn panels(measured: &[Measured], variants: &[Variant]) -> Vec<Panel> {
    let threads = axis("compute threads on the home's core", false);
    let names: Vec<String> = [PASSED.to_owned()]
        .into_iter()
        .chain(variants.iter().map(|variant| variant.name.clone()))
        .chain([BESIDE_PROXY, BESIDE_HOME].map(str::to_owned))
        .collect();
    let response = axis("response time (microseconds)", true);
    let mut panels = vec![panel(
        measured,
        SINGLE,
        Quantity::Response,
        &format!("response time, {SINGLE}"),
        &threads,
        &response,
        &names,
    )];
    let rate = axis("throughput (requests/s)", true);
    panels.extend([SINGLE, FILES, SITE].map(|group| {
        panel(measured, group, Quantity::Throughput, &format!("throughput, {group}"), &threads, &rate, &names)
    }));
    let parts = |variant: &Variant| {
        let line = |style, name: &str, of: &str, quantity| {
            let line = panel(measured, BREAKDOWN, quantity, "", &threads, &response, &[of.to_owned()]).series.pop()?;
            Some(Line { name: name.to_owned(), style, ..line })
        };
        let series = [
            line(0, "response time", &variant.name, Quantity::Mean),
            line(1, "of it in the proxy", &variant.name, Quantity::Hit),
            line(2, "version check", &reads(variant), Quantity::Read),
        ];
        Panel {
            title: format!("parts of a hit's response time, {}", variant.name),
            x: threads.clone(),
            y: response.clone(),
            series: series.into_iter().flatten().collect(),
        }
    };
    panels.extend(variants.iter().map(parts));
    panels
}

fn notes(each: Duration) -> Vec<String> {
    vec![
        "Application, home and busy threads share one core, proxy and client another.".to_owned(),
        format!("Each point was measured for about {} ms in each round, after a fifth of that to get going.", each.as_millis()),
        format!("{CONNECTIONS} connections ask without a pause, for the breakdown one. Nothing is updated."),
        "The time of a hit in the proxy is its own, from a request's head to the answer's, and includes the version check; the version check \
         is a read of one word on the same fabric between the same cores, timed by itself."
            .to_owned(),
        "A bare hyper loop gives the same 8 KB and does nothing else: what it loses on the proxy's core is the machine's, and on the home's core \
         it is what anything loses that needs that core."
            .to_owned(),
        "Over xdp home and application are in a network of their own, behind a virtual link, on which the receiver's kernel works on the sender's \
         core: the proxy's core pays for a version check at both ends."
            .to_owned(),
    ]
}
