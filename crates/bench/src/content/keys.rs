//! `content.keys`: how many of the requests of a real key trace a cache answers, by its size and by what it replaces.
//!
//! A question of our own. The trace is one of Twitter's in-memory caches; each of its keys is a product of a shop, each
//! request one for the product's page, in the order of the trace. It holds reads only, so updates are synthesised:
//! after a fixed number of requests a product is changed, drawn from the trace's requests, and so as popular as they
//! make it. What is counted are hits; nothing is timed.

use super::machines::Cores;
use super::measured::{Said, axis, median, ratio};
use super::schemes::best_fabric;
use super::stack::{Application, Room, Setup, Stack};
use crate::child::{ON_CORE, Target};
use crate::error::BenchError;
use crate::report::{Findings, Line, Measurement, Panel, Ratio};
use crate::rounds::interleave;
use crate::run::Plan;
use crate::scale::number;
use crate::stats::RoundSummary;
use crate::web::{
    self, KeyTrace, LARGEST_PRODUCT, REPLAY_CONNECTIONS, Replayed, SMALLEST_PRODUCT, Stretch, fill_products,
};

const UPDATES: &str = "with updates";
const READS: &str = "reads only";

/// As the configuration calls them.
const POLICIES: [&str; 2] = ["s3-fifo", "lru"];
const KEPT: &str = "every page kept (computed)";

/// Of what all pages take, in percent, for how much there is room; without updates, at fewer of them.
const SIZES: [f64; 6] = [1.0, 3.0, 10.0, 30.0, 60.0, 100.0];
const READ_SIZES: [f64; 3] = [1.0, 10.0, 100.0];

/// Requests for an update.
const EVERY: usize = 50;

/// Requests of each variant for a second that may be measured: the whole of the trace when it is not a quick run.
const REQUESTS_PER_S: f64 = 1_000.0;

/// Pages that are asked for to learn what a page takes beside its body.
const WEIGHED: usize = 500;

/// Memory of a proxy that has room for all of these.
const AMPLE: u64 = 256 << 20;

/// Page words of a home for each page: few pages share one.
const WORDS: usize = 16;

/// A policy with room for a part of the pages.
struct Variant {
    group: &'static str,
    policy: &'static str,
    size: f64,
    stack: Stack,
    /// Which stretch of the trace is next.
    stretch: usize,
}

/// What a variant gave in all rounds.
struct Counted {
    group: &'static str,
    policy: &'static str,
    size: f64,
    rounds: Vec<RoundSummary>,
    replayed: Vec<Replayed>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let cores = Cores::choose(plan.name)?;
    let first = (plan.measuring.as_secs_f64() * REQUESTS_PER_S) as usize;
    let trace = KeyTrace::read(plan.trace, first)?;
    let stretches = plan.rounds as usize + 1;
    if trace.order.len() < stretches * EVERY {
        let least = stretches * EVERY;
        let reason = format!("{} has {} requests: {least} are needed", plan.trace.display(), trace.order.len());
        return Err(BenchError::NothingToMeasure { name: plan.name, reason });
    }
    let (provider, fabric) = best_fabric(plan.name)?;
    let template = tempfile::tempdir().map_err(|error| BenchError::io(&std::env::temp_dir(), error))?;
    let database = template.path().join("database");
    fill_products(&database, &trace.bytes)
        .map_err(|reason| BenchError::Target { doing: "fill a database".to_owned(), reason })?;
    let words = trace.bytes.len() * WORDS;
    let start = |memory, replacement| {
        let application = Application::Products;
        let room = Room::Replacing { memory, replacement, words };
        Setup { verbena, cores: &cores, provider, network: None, application, database: Some(&database), room }.start()
    };

    let (path, seed) = (plan.trace.display().to_string(), plan.seed.to_string());
    let (first, every) = (trace.order.len().to_string(), EVERY.to_string());
    let words = [web::REPLAY, "--trace", &path, "--first", &first, "--seed", &seed, "--every", &every];
    let mut client = Target::start(&[&[ON_CORE, cores.proxies.as_str()][..], &words].concat())?;
    let mut beside: f64 = 0.0;
    for policy in POLICIES {
        beside = beside.max(beside_body(start(AMPLE, policy)?, &trace, &mut client)?);
    }
    let whole = trace.bytes.iter().sum::<usize>() as f64 + beside * trace.bytes.len() as f64;

    let mut variants = Vec::new();
    for (group, sizes) in [(UPDATES, &SIZES[..]), (READS, &READ_SIZES)] {
        for size in sizes {
            for policy in POLICIES {
                let stack = start((whole * size / 100.0) as u64, policy)?;
                variants.push(Variant { group, policy, size: *size, stack, stretch: 0 });
            }
        }
    }
    variants.iter_mut().try_for_each(|variant| variant.stack.ready())?;
    let bounds = |stretch: usize| trace.order.len() * stretch / stretches;
    let replayed = interleave(
        plan.rounds,
        &mut variants,
        Variant::named,
        |variant| {
            variant.stretch += 1;
            let (from, until) = (bounds(variant.stretch - 1), bounds(variant.stretch));
            let updates = variant.group == UPDATES;
            let stretch = Stretch { address: variant.stack.address, from, until, updates };
            replay(&mut client, &stretch, &variant.named()).or_else(|error| {
                // If one of the programs has ended, that is why.
                variant.stack.look()?;
                Err(error)
            })
        },
        plan.progress,
    )?;

    let changed = trace.updates(plan.seed, EVERY);
    let mut counted: Vec<Counted> =
        variants.into_iter().zip(replayed).map(|(variant, replayed)| variant.counted(replayed)).collect();
    for (group, sizes, updates) in [(UPDATES, &SIZES[..], &changed[..]), (READS, &READ_SIZES, &[])] {
        let rounds: Vec<RoundSummary> = kept(&trace.order, updates, &(0..=stretches).map(bounds).collect::<Vec<_>>());
        let at =
            |size: &f64| Counted { group, policy: KEPT, size: *size, rounds: rounds.clone(), replayed: Vec::new() };
        counted.extend(sizes.iter().map(at));
    }
    Ok(Findings {
        fabrics: vec![fabric],
        measurements: counted.iter().flat_map(Counted::measurements).collect(),
        ratios: ratios(&counted),
        panels: panels(&counted),
        notes: notes(&plan.trace.display().to_string(), &trace, beside, whole, &counted),
    })
}

/// What a page takes in a proxy's store beside its body, as the proxy says itself.
fn beside_body(mut stack: Stack, trace: &KeyTrace, client: &mut Target) -> Result<f64, BenchError> {
    stack.ready()?;
    let until = WEIGHED.min(trace.order.len());
    let stretch = Stretch { address: stack.address, from: 0, until, updates: false };
    replay(client, &stretch, "room for all")?;
    let [pages, bytes] = stack.metrics(["verbena_proxy_pages", "verbena_proxy_store_bytes"])?;
    // In the order in which they are first asked for, so that the first are those that were.
    let bodies: usize = trace.bytes[..(pages as usize).min(trace.bytes.len())].iter().sum();
    Ok((bytes - bodies as f64) / pages)
}

fn replay(client: &mut Target, stretch: &Stretch, under: &str) -> Result<Replayed, BenchError> {
    let replayed: Replayed = client.ask(stretch, "replay a part of the trace")?;
    replayed.held.none_stale(under)?;
    Ok(replayed)
}

impl Variant {
    fn named(&self) -> String {
        format!("{}: {}, room for {}%", self.group, self.policy, self.size)
    }

    fn counted(self, replayed: Vec<Replayed>) -> Counted {
        let ratio = |one: &Replayed| percent(one.hits, one.answers);
        let rounds = replayed.iter().map(ratio).collect();
        Counted { group: self.group, policy: self.policy, size: self.size, rounds, replayed }
    }
}

/// The percentage of `part` in `of` samples.
fn percent(part: u64, of: u64) -> RoundSummary {
    RoundSummary::one(100.0 * part as f64 / of as f64, of)
}

impl Counted {
    fn hit_ratio(&self) -> Option<Measurement> {
        self.measurement("hit ratio", "%", self.rounds.clone())
    }

    fn measurements(&self) -> Vec<Measurement> {
        let each = |of: fn(&Replayed) -> f64| -> Vec<RoundSummary> {
            self.replayed.iter().map(|one| RoundSummary::one(of(one), one.held.checked)).collect()
        };
        let updates = self.measurement("acknowledged updates", "updates", each(|one| one.updates as f64));
        let stale = self.measurement("stale answers", "answers", each(|one| one.held.stale as f64));
        let beside = updates.into_iter().chain(stale).filter(|_| self.group == UPDATES);
        self.hit_ratio().into_iter().chain(beside).collect()
    }

    fn measurement(&self, quantity: &str, unit: &str, rounds: Vec<RoundSummary>) -> Option<Measurement> {
        Measurement::new(&[("workload", self.group), ("variant", self.policy)], self.size, quantity, unit, rounds)
    }
}

/// The hit ratio of a cache that never replaces and where nothing overtakes anything, in each stretch but the first.
fn kept(order: &[u32], updates: &[u32], bounds: &[usize]) -> Vec<RoundSummary> {
    let mut there = vec![false; order.iter().max().map_or(0, |most| *most as usize + 1)];
    let mut stretches = Vec::new();
    for stretch in bounds.windows(2) {
        let mut hits = 0;
        for at in stretch[0]..stretch[1] {
            if at > 0
                && at % EVERY == 0
                && let Some(product) = updates.get(at / EVERY - 1)
            {
                there[*product as usize] = false;
            }
            hits += u64::from(std::mem::replace(&mut there[order[at] as usize], true));
        }
        stretches.push(percent(hits, (stretch[1] - stretch[0]) as u64));
    }
    stretches.split_off(1)
}

fn rounds(counted: &[Counted], group: &str, policy: &str, size: f64) -> Vec<f64> {
    let one = counted.iter().find(|one| one.group == group && one.policy == policy && one.size == size);
    one.map_or_else(Vec::new, |one| one.rounds.iter().map(|round| round.median).collect())
}

fn ratios(counted: &[Counted]) -> Vec<Ratio> {
    let of = |group: &str, policy: &str, size| rounds(counted, group, policy, size);
    let mut ratios = Vec::new();
    for size in SIZES {
        let under = format!("room for {size}% of the pages, {UPDATES}");
        let [s3_fifo, lru] = POLICIES.map(|policy| of(UPDATES, policy, size));
        ratios.push(ratio("hit ratio, s3-fifo over lru", &under, &s3_fifo, &lru, Said::Nothing));
    }
    for policy in POLICIES {
        let under = format!("room for 100% of the pages, {UPDATES}");
        let (all, ideal) = (of(UPDATES, policy, 100.0), of(UPDATES, KEPT, 100.0));
        ratios.push(ratio(&format!("hit ratio, {policy} over every page kept"), &under, &all, &ideal, Said::Nothing));
        for size in READ_SIZES {
            let under = format!("room for {size}% of the pages");
            let (changed, read) = (of(UPDATES, policy, size), of(READS, policy, size));
            ratios.push(ratio(
                &format!("hit ratio, {policy}, {UPDATES} over {READS}"),
                &under,
                &changed,
                &read,
                Said::Nothing,
            ));
        }
    }
    ratios.into_iter().flatten().collect()
}

fn panels(counted: &[Counted]) -> Vec<Panel> {
    let panel = |group: &str| {
        let line = |(style, policy): (usize, &str)| {
            let points = counted.iter().filter(|one| one.group == group && one.policy == policy);
            let points = points.filter_map(|one| Some(one.hit_ratio()?.point())).collect();
            Line { name: policy.to_owned(), style, points }
        };
        Panel {
            title: format!("hit ratio by cache size, {group}"),
            x: axis("cache size (% of what all pages take)", true),
            y: axis("hit ratio (%)", false),
            series: POLICIES.into_iter().chain([KEPT]).enumerate().map(line).collect(),
        }
    };
    vec![panel(UPDATES), panel(READS)]
}

fn notes(path: &str, trace: &KeyTrace, beside: f64, whole: f64, counted: &[Counted]) -> Vec<String> {
    let sum = |of: fn(&Replayed) -> u64| -> u64 {
        counted.iter().filter(|one| one.group == UPDATES).flat_map(|one| &one.replayed).map(of).sum()
    };
    let ideal = |group| median(&rounds(counted, group, KEPT, 100.0));
    let mut notes = vec![
        format!(
            "The trace is {path}: its first {} requests, for {} objects of {} bytes in all. It holds reads only: the updates are SYNTHESISED, one after \
             every {EVERY} requests, of an object drawn from all requests alike.",
            trace.order.len(),
            trace.bytes.len(),
            trace.bytes.iter().sum::<usize>(),
        ),
        "Rounds are parts of the trace, in its order: the first part fills the caches and is not counted.".to_owned(),
        format!(
            "100% is what the pages of all these objects take in the store, by the policy that takes more: {} bytes, {} of them beside each body (key, \
             headers, bookkeeping). An object's size is its page's, from {SMALLEST_PRODUCT} to {LARGEST_PRODUCT} bytes; {} objects were fitted to that.",
            number(whole),
            number(beside),
            trace.fitted,
        ),
        format!(
            "A cache that keeps every page has {}% hits with updates and {}% without: the other requests are the first for an object, or the first after its \
             update.",
            ideal(UPDATES),
            ideal(READS)
        ),
        format!(
            "{REPLAY_CONNECTIONS} connections ask without a pause, and two change: a request can overtake the one that would have fetched its page."
        ),
        format!(
            "{} answers were held against the {} updates that had been acknowledged when they were asked for; none was stale.",
            sum(|one| one.held.checked),
            sum(|one| one.updates)
        ),
    ];
    if path.contains("twitter_cluster52") {
        notes.push(
            "Twitter's cluster 52: Juncheng Yang, Yao Yue, K. V. Rashmi, \"A large scale analysis of hundreds of in-memory cache clusters at Twitter\", \
             OSDI 2020; CC BY 4.0."
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_keeps_every_page_misses_what_is_new_or_changed() {
        // 0 to 9 five times over is one update's distance.
        let order: Vec<u32> = (0..4 * EVERY as u32).map(|at| at % 10).collect();
        let bounds = [0, EVERY, 2 * EVERY, 4 * EVERY];
        let hits = |updates: &[u32]| -> Vec<f64> {
            kept(&order, updates, &bounds).iter().map(|round| round.median * round.count as f64 / 100.0).collect()
        };
        assert_eq!(hits(&[]), [50.0, 100.0]);
        assert_eq!(hits(&[3, 3, 4]), [49.0, 98.0]);
        // Within the first stretch nothing is counted.
        assert_eq!(kept(&order, &[], &[0, 5, 10])[0].median, 0.0);
    }
}
