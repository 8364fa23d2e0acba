//! `content.memory`: what a cached page takes in memory, and how soon after its start a proxy answers from the cache.
//!
//! No figure of the papers. Pages are asked for once each, through a proxy with a home of its own, and the memory that
//! both processes take is looked at on the way. A page's key, the fields of its head that no other page has, and its
//! body are not counted: every cache must keep them.

use std::path::Path;
use std::time::{Duration, Instant};

use verbena_fabric::Provider;

use super::machines::{Cores, Running};
use super::measured::{Said, axis, share};
use super::once::{CONNECTIONS, ask_once};
use super::schemes::best_fabric;
use super::stack::{Application, Room, Setup, Stack, free_addresses, get};
use crate::child::{ON_CORE, Target};
use crate::error::BenchError;
use crate::report::{Findings, Line, Measurement, Panel, Point};
use crate::rounds::{Progress, ProgressSink, interleave};
use crate::run::Plan;
use crate::scale::number;
use crate::stats::{RoundSummary, Spread};
use crate::web::{self, Workload, once_path};

/// Bytes of a page's body: of a small page, for which what stands beside it weighs most.
const BODY: usize = 512;
/// Bytes of a page's key: a hash of all that makes a page.
const KEY: usize = 16;
/// Pages that are there before anything is counted: by then connections, threads and tables have what they begin with.
const BEFORE: u32 = 2_000;
/// At least this part of the requested pages must be kept. Of a few pages the store expects no further request.
const KEPT: f64 = 0.99;
/// For so long after its answer a page may be on its way into the store.
const STORING: Duration = Duration::from_secs(5);
/// How often memory is looked at while pages come.
const LOOKS: u32 = 20;
/// How long a proxy may take until its first hit.
const STARTING: Duration = Duration::from_secs(10);
/// From one request to a proxy that starts to the next.
const PAUSE: Duration = Duration::from_millis(1);

/// What is wanted without dependencies, in bytes, and from start to first hit, in milliseconds.
const WANTED: (f64, f64) = (200.0, 100.0);

/// One kind of page.
struct Variant {
    dependencies: u32,
    pages: u32,
    /// Memory beside key, fields and body for each page, by the number of pages.
    looks: Vec<(f64, f64)>,
    /// What the proxy itself says that it keeps for a page, when all were there.
    said: f64,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let cores = Cores::choose(plan.name)?;
    let (provider, fabric) = best_fabric(plan.name)?;
    // A home keeps 1,048,576 dependencies at most, which decides how many pages may have nine. Short runs are for
    // trials: with so few pages, the other memory of the processes is a good part.
    let quick = plan.measuring < Duration::from_secs(60);
    let counts =
        if quick { [(0, 40_000), (1, 20_000), (9, 20_000)] } else { [(0, 1_000_000), (1, 200_000), (9, 100_000)] };
    let mut variants =
        counts.map(|(dependencies, pages)| Variant { dependencies, pages, looks: Vec::new(), said: 0.0 });
    for variant in &mut variants {
        fill(variant, verbena, &cores, provider, plan.seed, plan.progress)?;
    }
    let starts = starts(verbena, &cores, plan.rounds, plan.progress)?;
    let mut findings = Findings { fabrics: vec![fabric], ..Findings::default() };
    report(&mut findings, &variants, &starts);
    Ok(findings)
}

/// Asks for all pages of a variant, and looks at the memory on the way.
fn fill(
    variant: &mut Variant,
    verbena: &Path,
    cores: &Cores,
    provider: Provider,
    seed: u64,
    progress: &mut ProgressSink,
) -> Result<(), BenchError> {
    let room = Room::Pages(variant.pages + BEFORE);
    let setup =
        Setup { verbena, cores, provider, network: None, application: Application::Files, database: None, room };
    let mut stack = setup.start()?;
    stack.ready()?;
    let mut client = Target::start(&[ON_CORE, &cores.servers, web::CLOSED, "--seed", &seed.to_string()])?;
    let mut ask = |first: u32, count: u32| -> Result<(), BenchError> {
        let workload = Workload::Once { bytes: BODY, first, count, dependencies: variant.dependencies };
        ask_once(&mut client, stack.address, workload)
    };
    ask(0, BEFORE)?;
    let fields = own_fields(&stack, variant.dependencies)?;
    let (memory, [kept]) = (stack.memory()?, stack.metrics(["verbena_proxy_pages"])?);
    let began = Instant::now();
    for look in 0..LOOKS {
        let doing = format!("pages with {} dependencies", variant.dependencies);
        let elapsed = began.elapsed();
        let left = (look > 0).then(|| elapsed / look * (LOOKS - look));
        progress(&Progress { done: look, of: LOOKS, doing, elapsed, left });
        let each = variant.pages / LOOKS;
        ask(BEFORE + look * each, each)?;
        let asked = f64::from((look + 1) * each);
        let asked_at = Instant::now();
        let pages = loop {
            let pages = stack.metrics(["verbena_proxy_pages"])?[0] - kept;
            if pages >= KEPT * asked {
                break pages;
            }
            if asked_at.elapsed() > STORING {
                let what = format!("kept {pages} of {asked} pages, and has room for them");
                return Err(BenchError::Process { what: "the proxy".to_owned(), happened: what, said: String::new() });
            }
            std::thread::sleep(PAUSE);
        };
        let more = stack.memory()? as f64 - memory as f64;
        variant.looks.push((asked, more / pages - (KEY + fields + BODY) as f64));
    }
    let [bytes, pages] = stack.metrics(["verbena_proxy_store_bytes", "verbena_proxy_pages"])?;
    variant.said = bytes / pages - (KEY + fields + BODY) as f64;
    Ok(())
}

/// Bytes of the fields of a stored head that are a page's own: when it was made, and what is not as it is in the first page of all.
fn own_fields(stack: &Stack, dependencies: u32) -> Result<usize, BenchError> {
    let head = |path: &str| -> Result<Vec<String>, BenchError> {
        let failed = |reason: String| BenchError::Target { doing: "asked for a page".to_owned(), reason };
        let answer = get(stack.address, path).map_err(|error| failed(error.to_string()))?;
        let (head, _) = answer.split_once("\r\n\r\n").ok_or_else(|| failed(format!("it said {answer:?}")))?;
        // What the proxy adds to an answer is not kept with a page.
        let kept = head.lines().filter(|line| !line.starts_with("cache-status: ") && !line.starts_with("age: "));
        Ok(kept.map(str::to_owned).collect())
    };
    let (first, one) = (head(stack.first())?, head(&once_path(BODY, 0, dependencies))?);
    let own = one.iter().filter(|line| line.starts_with("date: ") || !first.contains(line));
    Ok(own.filter_map(|line| Some(line.split_once(": ")?.1.len())).sum())
}

/// Milliseconds from the start of a proxy without configuration until it answers from its cache, round by round.
fn starts(verbena: &Path, cores: &Cores, rounds: u32, progress: &mut ProgressSink) -> Result<Vec<f64>, BenchError> {
    let folder = tempfile::tempdir().map_err(|error| BenchError::io(&std::env::temp_dir(), error))?;
    let [origin] = free_addresses()?;
    let words = [web::PAGES, "--listen", &origin.to_string()];
    let mut pages = Running::start("application", &cores.servers, &words, folder.path())?;
    pages.listens(origin)?;
    let mut number = 0;
    let mut start = |(): &mut ()| -> Result<f64, BenchError> {
        number += 1;
        let [address] = free_addresses()?;
        let place = folder.path().join(number.to_string());
        let text = |name: &str| place.join(name).display().to_string();
        let (program, listen, origin) =
            (verbena.display().to_string(), address.to_string(), format!("http://{origin}"));
        let (runtime, state) = (text("run"), text("state"));
        let words = [web::PROGRAM, &program, "proxy", "--listen", &listen, "--origin", &origin];
        let words = [&words[..], &["--node-runtime", &runtime, "--node-state", &state]].concat();
        std::fs::create_dir(&place).map_err(|error| BenchError::io(&place, error))?;
        let began = Instant::now();
        let mut proxy = Running::start("proxy", &cores.proxies, &words, folder.path())?;
        while !get(address, &once_path(BODY, 0, 0)).is_ok_and(|answer| answer.contains("verbena; hit")) {
            proxy.look()?;
            if began.elapsed() > STARTING {
                return Err(proxy.failed(&format!("gave no hit within {STARTING:?}")));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    let found = interleave(rounds, &mut [()], |()| "start to first hit".to_owned(), &mut start, progress)?;
    Ok(found.into_iter().flatten().collect())
}

fn report(findings: &mut Findings, variants: &[Variant], starts: &[f64]) {
    let quantity = "memory of a page beside key, own fields and body";
    let mut series = Vec::new();
    for (style, variant) in variants.iter().enumerate() {
        let name = match variant.dependencies {
            0 => "no dependencies".to_owned(),
            1 => "1 dependency".to_owned(),
            more => format!("{more} dependencies"),
        };
        let labels = [("variant", name.as_str())];
        let mut points = Vec::new();
        for (pages, bytes) in &variant.looks {
            let (x, rounds) = (*pages, vec![RoundSummary::one(*bytes, *pages as u64)]);
            findings.measurements.extend(Measurement::new(&labels, x, quantity, "B", rounds));
            points.extend(Spread::of(&[*bytes]).map(|y| Point { x, y }));
        }
        let said = vec![RoundSummary::one(variant.said, u64::from(variant.pages))];
        let quantity = "the same in the proxy's store, as it says";
        findings.measurements.extend(Measurement::new(&labels, f64::from(variant.pages), quantity, "B", said));
        series.push(Line { name, style, points });
    }
    let rounds = starts.iter().map(|start| RoundSummary::one(*start, 1)).collect();
    findings.measurements.extend(Measurement::new(&[], 0.0, "start to first hit", "ms", rounds));

    let last = |nth: usize| variants[nth].looks.last().map_or(f64::NAN, |(_, bytes)| *bytes);
    let pages = variants[0].pages;
    let reason = format!("{} bytes, of which the store says {}", number(last(0)), number(variants[0].said));
    let said = Said::AtMost(WANTED.0, "at most 200 wanted", reason);
    findings.ratios.extend(share("bytes of a page, without dependencies", &format!("{pages} pages"), &[last(0)], said));
    let first = last(1) - last(0);
    let each = (last(2) - last(1)) / f64::from(variants[2].dependencies - variants[1].dependencies);
    let parts = [("bytes of the first dependency", first, 1), ("bytes of each further dependency", each, 2)];
    for (what, bytes, variant) in parts {
        let under = format!("{} pages, no two with one in common", variants[variant].pages);
        findings.ratios.extend(share(what, &under, &[bytes], Said::Nothing));
    }
    let reason = "see the measurement's rounds".to_owned();
    let said = Said::AtMost(WANTED.1, "at most 100 wanted", reason);
    findings.ratios.extend(share("milliseconds from start to first hit", "a proxy alone", starts, said));

    let (x, y) = (axis("pages", false), axis("bytes of a page", false));
    findings.panels.push(Panel { title: format!("{quantity}, of {BODY} bytes each"), x, y, series });
    findings.notes.extend([
        format!(
            "Memory is that of proxy and home, each a process (PSS of what is not mapped from files), less what they had with {BEFORE} pages. The proxy keeps {KEY} bytes of a page's key. \
             A page's own fields are when it was made and those that are not as in the page that came first."
        ),
        format!("Pages of {BODY} bytes, asked for once each on {CONNECTIONS} connections; counted once, for memory is no matter of luck."),
        "A dependency is a name that no other page has. Its cost is at the home alone.".to_owned(),
        "A proxy that starts is asked again and again, on a new connection each time, until the answer is a hit; its home is in the same process."
            .to_owned(),
    ]);
}
