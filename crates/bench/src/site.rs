//! `database.site`: MediaWiki and WordPress, as Debian packages them, read while pages are edited.
//!
//! No figure of the papers. Each arm has the application once more, with a database of its own at one MariaDB, so that an edit in one arm changes nothing in another, and a proxy before
//! it. Edits are made by the application's own interface, and each answer is held against those that were confirmed. The sites are measured one after the other.

mod arms;
mod crowd;

use std::time::Duration;

use self::arms::{Arm, Site, Stack};
use self::crowd::{EDITORS, Found, Scene};
use crate::error::BenchError;
use crate::report::{Axis, Claim, FabricFound, Findings, Measurement, Panel, Ratio};
use crate::rounds::{Budget, ProgressSink, interleave};
use crate::run::Plan;
use crate::stats::{RoundSummary, Spread};

/// Edits a second.
const RATES: [u32; 3] = [1, 5, 20];
/// A run that may measure for so long has turns that many edits come into.
const LONG: Duration = Duration::from_secs(60);
/// The shortest turn, and that of a quick run.
const TURN: Duration = Duration::from_secs(2);
const TURN_QUICK: Duration = Duration::from_millis(200);
/// Of an arm with one rate: with less the row has not measured it.
const FEWEST_ANSWERS: u64 = 20;
const FEWEST_EDITS: u64 = 2;
/// What part of an edit is due when the first turn begins: an edit falls into the middle of its time.
const DUE: f64 = 0.5;
const QUANTITIES: [(&str, &str); 4] = [("requests", "1/s"), ("hits", ""), ("stale answers", ""), ("edits", "1/s")];

/// One arm with one rate.
struct Turn<'a> {
    scene: &'a Scene,
    rate: u32,
    due: f64,
    /// Of all turns, the first one too.
    all: Found,
}

/// What the turns of an arm with one rate gave.
struct Measured {
    site: Site,
    arm: Arm,
    rate: u32,
    all: Found,
    rounds: Vec<Found>,
}

/// Measures the row.
pub(crate) fn measure(plan: Plan) -> Result<Findings, BenchError> {
    let Plan { name, rounds, seed, verbena, measuring, progress, .. } = plan;
    let verbena = verbena.ok_or(BenchError::NoProgram { name })?;
    let folder = crate::run::directory()?;
    let mut findings = Findings::default();
    let mut measured = vec![];
    let mut reasons = vec![];
    for site in Site::ALL {
        let length = measuring / Site::ALL.len() as u32;
        match Stack::start(site, verbena, folder.path())? {
            Ok(stack) => {
                found_arms(site, &stack, &mut findings);
                measured.extend(play(site, stack, rounds, length, seed, progress)?);
            }
            Err(reason) => {
                let (name, because) = (site.to_string(), reason.clone());
                findings.fabrics.push(FabricFound { name, measured: false, because, capabilities: None });
                reasons.push(reason);
            }
        }
    }
    if measured.is_empty() {
        return Err(BenchError::NothingToMeasure { name, reason: reasons.join("; ") });
    }
    measured.iter().try_for_each(enough)?;
    summarise(&measured, &mut findings);
    Ok(findings)
}

fn found_arms(site: Site, stack: &Stack, findings: &mut Findings) {
    for (arm, at) in &stack.arms {
        let because = at.as_ref().map_or_else(String::clone, |_| arm.explained().to_owned());
        let (name, measured) = (format!("{site}, {}", arm.name()), at.is_ok());
        findings.fabrics.push(FabricFound { name, measured, because, capabilities: None });
    }
}

fn play(
    site: Site,
    mut stack: Stack,
    rounds: u32,
    measuring: Duration,
    seed: u64,
    progress: &mut ProgressSink,
) -> Result<Vec<Measured>, BenchError> {
    let there = stack.arms.iter().filter_map(|(arm, at)| Some((*arm, *at.as_ref().ok()?)));
    let scenes: Vec<Scene> = there.map(|(arm, at)| Scene::new(site, arm, at, &stack.posts)).collect();
    scenes.iter().try_for_each(Scene::ready)?;
    let turn = |rate, scene| Turn { scene, rate, due: DUE, all: Found::default() };
    let mut turns: Vec<Turn> =
        RATES.into_iter().flat_map(|rate| scenes.iter().map(move |scene| turn(rate, scene))).collect();
    let shortest = if measuring * Site::ALL.len() as u32 >= LONG { TURN } else { TURN_QUICK };
    let mut budget = Budget::new(measuring, (rounds + 1) * turns.len() as u32);
    let found = interleave(
        rounds,
        &mut turns,
        |turn| format!("{}, {} edits a second", turn.scene.name(), turn.rate),
        |turn| {
            stack.look()?;
            let found = turn.scene.play(turn.rate, budget.next().max(shortest), &mut turn.due, seed)?;
            turn.all.add(found);
            Ok(found)
        },
        progress,
    )?;
    let measured = turns.iter().zip(found).map(|(turn, rounds)| Measured {
        site,
        arm: turn.scene.arm,
        rate: turn.rate,
        all: turn.all,
        rounds,
    });
    Ok(measured.collect())
}

/// A row that did too little has no stale answer either.
fn enough(measured: &Measured) -> Result<(), BenchError> {
    let Found { answers, edits, refused, .. } = measured.all;
    if answers >= FEWEST_ANSWERS && edits >= FEWEST_EDITS {
        return Ok(());
    }
    Err(BenchError::Target {
        doing: format!("be read and edited ({}, {} edits a second)", measured.name(), measured.rate),
        reason: format!(
            "there were {answers} answers, {edits} edits and {refused} edits that were refused, and wanted are {FEWEST_ANSWERS} answers and {FEWEST_EDITS} edits at least"
        ),
    })
}

impl Measured {
    fn name(&self) -> String {
        format!("{}, {}", self.site, self.arm.name())
    }

    fn requests(&self) -> Vec<f64> {
        self.rounds.iter().map(|found| per_second(found.answers, found)).collect()
    }
}

fn per_second(count: u64, found: &Found) -> f64 {
    count as f64 / found.seconds
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn summarise(measured: &[Measured], findings: &mut Findings) {
    for one in measured {
        for (nth, (quantity, unit)) in QUANTITIES.into_iter().enumerate() {
            let value = |found: &Found| match nth {
                0 => per_second(found.answers, found),
                1 => share(found.hits, found.answers),
                2 => found.stale as f64,
                _ => per_second(found.edits, found),
            };
            let rounds = one.rounds.iter().map(|found| RoundSummary::one(value(found), found.answers)).collect();
            let (name, rate) = (one.name(), f64::from(one.rate));
            let labels = [("arm", name.as_str()), ("counted", quantity)];
            findings.measurements.extend(Measurement::new(&labels, rate, quantity, unit, rounds));
        }
    }
    for site in Site::ALL {
        of_site(site, measured, findings);
    }
    findings.notes.extend([
        format!("Edits are made by the application's own interface, by {EDITORS} editors at the most at once: where edits take longer than their rate has time for, fewer are made."),
        "The proxy, PHP-FPM, MariaDB and the clients share the cores of this machine. Arms without a relay reach MariaDB by its socket.".to_owned(),
        "Jobs and cron do not run meanwhile.".to_owned(),
    ]);
}

fn of_site(site: Site, measured: &[Measured], findings: &mut Findings) {
    let its = || measured.iter().filter(|one| one.site == site);
    if its().next().is_none() {
        return;
    }
    let at = |arm: Arm, rate: u32| its().find(|one| one.arm == arm && one.rate == rate);
    for rate in RATES {
        for (above, below) in [
            (Arm::Own, Arm::None),
            (Arm::All, Arm::None),
            (Arm::Proofs, Arm::None),
            (Arm::Relay, Arm::All),
            (Arm::Tags, Arm::All),
            (Arm::Proofs, Arm::All),
        ] {
            let Some((above, below)) = at(above, rate).zip(at(below, rate)) else { continue };
            let Some(spread) = Spread::ratio(&above.requests(), &below.requests()) else { continue };
            let what = format!("{site}: requests a second, {} over {}", above.arm.name(), below.arm.name());
            findings.ratios.push(Ratio { what, under: format!("{rate} edits a second"), spread, claim: None });
        }
    }
    for arm in Arm::ALL {
        let mut all = Found::default();
        its().filter(|one| one.arm == arm).for_each(|one| all.add(one.all));
        if all.answers == 0 {
            continue;
        }
        // Of an answer that is stale none is forgotten: the first round counts here too.
        let fresh = share(all.answers - all.stale, all.answers);
        let spread = Spread { median: fresh, min: fresh, max: fresh };
        let reason = format!("{} of {} answers were stale", all.stale, all.answers);
        let claim = arm.is_ours().then(|| Claim::at_least(1.0, "all of them, our own", &spread, reason));
        let what = format!("{site}: answers that are not stale, {}", arm.name());
        findings.ratios.push(Ratio { what, under: "in the whole run".to_owned(), spread, claim });
        findings.notes.push(format!(
            "{site}, {}: {} answers, {} hits, {} stale answers, {} answers without the page, {} edits, {} edits that the application refused.",
            arm.name(),
            all.answers,
            all.hits,
            all.stale,
            all.broken,
            all.edits,
            all.refused,
        ));
    }
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: false, bytes: false };
    for (quantity, label) in [
        ("requests", "requests a second"),
        ("hits", "hits, of all answers"),
        ("stale answers", "stale answers in a round"),
        ("edits", "edits a second that were made"),
    ] {
        let series = findings.lines(Arm::ALL.map(|arm| format!("{site}, {}", arm.name())), Some(quantity));
        let title = format!("{site}: {label}");
        findings.panels.push(Panel { title, x: axis("edits a second"), y: axis(label), series });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_is_an_error() {
        let one = |answers, edits| Measured {
            site: Site::WordPress,
            arm: Arm::Proofs,
            rate: 5,
            all: Found { answers, edits, ..Found::default() },
            rounds: vec![],
        };
        assert!(enough(&one(FEWEST_ANSWERS, FEWEST_EDITS)).is_ok());
        for few in [one(FEWEST_ANSWERS - 1, FEWEST_EDITS), one(FEWEST_ANSWERS, FEWEST_EDITS - 1)] {
            assert!(enough(&few).unwrap_err().to_string().contains("wordpress, relay, proofs, 5 edits a second"));
        }
    }
}
