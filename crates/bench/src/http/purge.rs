//! `http.purge`: pages are changed past the caches and purged, while caches are killed and stopped.
//!
//! No figure of the papers. Three caches stand before one application. A purge that was acknowledged has to hold: no later request, at whichever of
//! the three, may get a page of before. Beside the proxies of one cluster stand three instances of Varnish, which a loop purges one after the other.
//! All arms run at once; a round is a stretch of that time.

mod caches;
mod crowd;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use self::caches::{CACHES, Caches, Fault, Kind};
use self::crowd::{CLIENTS, Counts, PURGERS, Scene};
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::{Axis, Claim, FabricFound, Findings, Measurement, Panel, Ratio};
use crate::rounds::{Progress, ProgressSink};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

/// From one fault of an arm to the next.
const FAULT_EVERY: Duration = Duration::from_secs(4);
/// From a look whether all is well to the next.
const LOOK: Duration = Duration::from_millis(20);
/// What is wanted of the proxies: of their answers, hits; of purges beside no fault, acknowledged ones.
const HITS: f64 = 0.3;
const ACKNOWLEDGED: f64 = 0.95;
const QUANTITIES: [&str; 4] =
    ["answers no older than acknowledged purges", "hits", "acknowledged purges beside no fault", "acknowledged purges"];

/// The place among them of what is told of the whole run alone.
const UNDISTURBED: usize = 2;

/// What was counted until some moment, or between two.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    answers: u64,
    hits: u64,
    old: u64,
    purged: u64,
    undisturbed: u64,
    undisturbed_purged: u64,
}

impl Found {
    fn now(counts: &Counts) -> Self {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Found {
            answers: count(&counts.answers),
            hits: count(&counts.hits),
            old: count(&counts.old),
            purged: count(&counts.purged),
            undisturbed: count(&counts.undisturbed),
            undisturbed_purged: count(&counts.undisturbed_purged),
        }
    }

    fn since(self, before: Found) -> Self {
        Found {
            answers: self.answers - before.answers,
            hits: self.hits - before.hits,
            old: self.old - before.old,
            purged: self.purged - before.purged,
            undisturbed: self.undisturbed.saturating_sub(before.undisturbed),
            undisturbed_purged: self.undisturbed_purged.saturating_sub(before.undisturbed_purged),
        }
    }

    /// In the order of [`QUANTITIES`], shares but for the last one; `None` where nothing was that could have been one.
    fn all(&self) -> [Option<f64>; 4] {
        let of = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let no_older = of(self.answers - self.old, self.answers);
        let undisturbed = of(self.undisturbed_purged, self.undisturbed);
        [no_older, of(self.hits, self.answers), undisturbed, Some(self.purged as f64)]
    }
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let verbena = plan.verbena.ok_or(BenchError::NoProgram { name: plan.name })?;
    let folder = crate::run::directory()?;
    let varnish = in_path("varnishd");
    let program = |kind: Kind| if kind.is_ours() { Some(verbena) } else { varnish.as_deref() };
    let mut arms = vec![];
    for kind in Kind::ALL {
        if let Some(program) = program(kind) {
            arms.push(Arm::start(kind, program, folder.path(), plan.seed)?);
        }
    }
    let rounds = play(&mut arms, plan.rounds, plan.measuring, plan.progress)?;
    let mut findings = Findings::default();
    for kind in Kind::ALL {
        let because = match program(kind) {
            Some(_) if kind.is_ours() => "three proxies, two of them homes",
            Some(_) => "three instances, each purged in turn: PURGE of a page, else a ban",
            None => "there is no varnishd (Debian: varnish)",
        };
        let (name, measured) = (kind.name().to_owned(), program(kind).is_some());
        findings.fabrics.push(FabricFound { name, measured, because: because.to_owned(), capabilities: None });
    }
    summarise(&arms, &rounds, &mut findings)?;
    Ok(findings)
}

struct Arm {
    kind: Kind,
    caches: Caches,
    scene: Scene,
    kills: u64,
    pauses: u64,
}

impl Arm {
    fn start(kind: Kind, program: &Path, place: &Path, seed: u64) -> Result<Self, BenchError> {
        let caches = Caches::start(kind, program, place)?;
        let scene = Scene::new(kind, caches.at, seed);
        Ok(Arm { kind, caches, scene, kills: 0, pauses: 0 })
    }
}

/// Runs all arms at once. What each stretch of the time brought to each arm, without the first stretch.
fn play(
    arms: &mut [Arm],
    rounds: u32,
    length: Duration,
    progress: &mut ProgressSink,
) -> Result<Vec<Vec<Found>>, BenchError> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let (mut scenes, mut threads) = (vec![], vec![]);
        for Arm { caches, scene, kills, pauses, .. } in arms {
            let scene: &Scene = scene;
            scenes.push(scene);
            threads.extend((0..CLIENTS).map(|nth| scope.spawn(move || scene.ask(nth))));
            threads.extend((0..PURGERS).map(|host| scope.spawn(move || scene.purge(host))));
            threads.push(scope.spawn(move || disturb(caches, scene, kills, pauses)));
        }
        let mut moments = vec![];
        let of = rounds + 1;
        for done in 0..of {
            let (elapsed, doing) =
                (began.elapsed(), "pages are purged at all caches, and caches killed and stopped".to_owned());
            progress(&Progress { done, of, doing, elapsed, left: Some(length.saturating_sub(elapsed)) });
            // A thread that has ended has an error to tell.
            while began.elapsed() < length * (done + 1) / of && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::sleep(LOOK);
            }
            moments.push(scenes.iter().map(|scene| Found::now(&scene.counts)).collect::<Vec<_>>());
        }
        scenes.iter().for_each(|scene| scene.stop.store(true, Ordering::Relaxed));
        for thread in threads {
            thread.join().expect("invariant: threads of the row do not panic")?;
        }
        let of_arm = |arm: usize| moments.windows(2).map(|two| two[1][arm].since(two[0][arm])).collect();
        Ok((0..scenes.len()).map(of_arm).collect())
    })
}

/// Kills and stops caches in turn, until the scene is to stop.
fn disturb(caches: &mut Caches, scene: &Scene, kills: &mut u64, pauses: &mut u64) -> Result<(), BenchError> {
    let mut due = Instant::now();
    for nth in 0.. {
        due += FAULT_EVERY;
        while Instant::now() < due {
            if scene.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        let (fault, counter) = if nth % 2 == 0 { (Fault::Kill, &mut *kills) } else { (Fault::Pause, &mut *pauses) };
        scene.faults.fetch_add(1, Ordering::SeqCst);
        // Each cache has both.
        caches.suffer(nth / 2 % CACHES, fault)?;
        scene.faults.fetch_add(1, Ordering::SeqCst);
        *counter += 1;
        due = due.max(Instant::now());
    }
    Ok(())
}

fn summarise(arms: &[Arm], rounds: &[Vec<Found>], findings: &mut Findings) -> Result<(), BenchError> {
    for (arm, found) in arms.iter().zip(rounds) {
        let name = arm.kind.name();
        // Of an answer that is too old none is forgotten: the first stretch counts here too.
        let all = Found::now(&arm.scene.counts);
        let x = Kind::ALL.iter().position(|kind| *kind == arm.kind).unwrap_or(0) as f64 + 1.0;
        for (nth, quantity) in QUANTITIES.into_iter().enumerate() {
            let one = |found: &Found| Some(RoundSummary::one(found.all()[nth]?, found.answers));
            let labels = [("cache", name), ("counted", quantity)];
            // A stretch may have a fault all the time.
            if nth != UNDISTURBED {
                findings.measurements.extend(Measurement::new(
                    &labels,
                    x,
                    quantity,
                    "",
                    found.iter().filter_map(one).collect(),
                ));
            }
            // A row that did nothing has no answer that is too old either.
            let nothing = || BenchError::Target {
                doing: format!("be purged ({name})"),
                reason: format!("there were no {quantity}"),
            };
            let value = all.all()[nth].filter(|value| *value > 0.0).ok_or_else(nothing)?;
            let spread = Spread { median: value, min: value, max: value };
            let least = [1.0, HITS, ACKNOWLEDGED].get(nth).copied();
            let Some(least) = least else { continue };
            let claim = || {
                Claim::at_least(least, &format!("at least {least}, our own"), &spread, format!("{value:.6} of them"))
            };
            let claim = arm.kind.is_ours().then(claim);
            let under = format!("in the whole run, {} kills and {} pauses", arm.kills, arm.pauses);
            findings.ratios.push(Ratio { what: format!("{quantity}, {name}"), under, spread, claim });
        }
        findings.notes.push(format!(
            "{name}: {} kills, {} pauses, {} acknowledged purges, {} answers, {} of them older than a purge that was acknowledged before they were asked for.",
            arm.kills, arm.pauses, all.purged, all.answers, all.old
        ));
    }
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    for quantity in (0..).zip(QUANTITIES).filter(|(nth, _)| *nth != UNDISTURBED).map(|(_, quantity)| quantity) {
        let series = findings.lines(Kind::ALL.map(|kind| kind.name().to_owned()), Some(quantity));
        let (x, y) = (axis("1 shm, 2 tcp, 3 varnish"), axis(quantity));
        findings.panels.push(Panel { title: quantity.to_owned(), x, y, series });
    }
    findings.notes.push("All arms run at once and share the cores with their clients and applications.".into());
    Ok(())
}
