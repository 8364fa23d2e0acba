//! One thing after the other is done to a network of nodes, and of each it is measured how long it takes until service is back.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::task::LocalSet;
use verbena_shoppers::{Probe, Seen};

use crate::back::{Reading, Said, Since, outages};
use crate::deeds::{Deed, Ill, Order};
use crate::faults::Kind;
use crate::judge::Happened;
use crate::network::Cut;
use crate::process::{PATIENCE, Part};
use crate::told::Told;
use crate::town::{Ground, Town};
use crate::{ask, etcd};

/// Between two looks at what is due.
const STEP: Duration = Duration::from_millis(5);
/// What a home holds: updates that are open at it, and members whose open updates it does not know yet.
const HOLDS: [&str; 2] = ["verbena_content_open_here", "verbena_content_awaiting"];

/// How long things take.
pub struct Times {
    pub lease: Duration,
    /// No new fault after this.
    pub shopping: Duration,
    /// Who is not back so long after a fault's end does not come back.
    pub at_most: Duration,
}

impl Times {
    /// A longer round is time without service.
    fn slow(&self) -> Duration {
        self.lease / 2
    }

    /// How long there must be service again. A member that is lost is noticed within a lease.
    fn steady(&self) -> Duration {
        self.lease * 5 / 4
    }
}

/// Does what is in order until the time is over or something is wrong, and adds each to what happened.
pub async fn run(
    town: &mut Town,
    mut order: Order,
    times: &Times,
    violated: &Cell<bool>,
    happened: &mut Happened,
) -> Result<(), String> {
    let local = LocalSet::new();
    let watch = Watch::start(&local, town, times);
    let mut told = Told::new()?;
    let doing = async {
        let began = Instant::now();
        watch.until_steady(town, times, began, &mut told).await?;
        while began.elapsed() < times.shopping && !violated.get() {
            let deeds = order.next_few();
            watch.forget();
            let from = Instant::now();
            for &(deed, lasts) in &deeds {
                let target = begin(town, deed, lasts).await?;
                let at = began.elapsed().as_secs_f64();
                eprintln!("{at:8.3} s  {} {target} {} ms", deed.name(), lasts.as_millis());
                happened.done.push((deed.name(), part(town, deed)));
            }
            let by = deeds.iter().map(|(_, lasts)| *lasts).max().unwrap_or_default() + PATIENCE;
            until(town, &mut told, from + by, "not everybody came back", Town::is_whole).await?;
            let ended = Instant::now();
            watch.until_steady(town, times, ended, &mut told).await?;
            for reading in watch.readings(town, &deeds, (from, ended), times) {
                eprintln!("{:8.3} s  {reading}", began.elapsed().as_secs_f64());
                happened.readings.push(reading);
            }
            happened.wrong.extend(watch.wrong());
        }
        Ok(())
    };
    local.run_until(doing).await
}

/// Tends to all until `done` says yes.
async fn until(
    town: &mut Town,
    told: &mut Told,
    by: Instant,
    otherwise: &str,
    mut done: impl FnMut(&Town) -> bool,
) -> Result<(), String> {
    loop {
        town.tend()?;
        if done(town) {
            return Ok(());
        }
        if Instant::now() > by {
            return Err(otherwise.into());
        }
        told.nothing_for(STEP).await?;
    }
}

/// Does it, and says to whom.
async fn begin(town: &mut Town, deed: Deed, lasts: Duration) -> Result<String, String> {
    let until = Instant::now() + lasts;
    let to_process = |town: &mut Town, kind, at: usize| {
        let process = &mut town.processes[at];
        let done = match kind {
            Kind::Kill => process.kill(lasts),
            Kind::Pause => process.pause(lasts),
            Kind::Restart => process.restart(),
        };
        done.map(|()| process.name.clone()).map_err(|error| format!("{}: {error}", process.name))
    };
    match deed {
        Deed::Process(kind, at) => to_process(town, kind, at),
        Deed::Roll(at) => to_process(town, Kind::Restart, at),
        Deed::Cut(cut) => close(town, &[cut], until).map(|()| format!("{cut:?}")),
        Deed::Etcd(Ill::MemberKilled(at)) => to_process(town, Kind::Kill, at),
        Deed::Etcd(ill) => {
            let (leader, others) = leader_and_others(town).await?;
            match ill {
                Ill::LeaderKilled => to_process(town, Kind::Kill, leader),
                Ill::LeaderPaused => to_process(town, Kind::Pause, leader),
                Ill::NoQuorum => {
                    let names = [leader, others[0]].map(|at| to_process(town, Kind::Pause, at));
                    names.into_iter().collect::<Result<Vec<_>, _>>().map(|names| names.join(" "))
                }
                Ill::LeaderCut | Ill::MemberKilled(_) => {
                    let number = |at: usize| etcd::number(&town.processes[at].name);
                    let own = number(leader);
                    let pairs = others.iter().filter_map(|&other| Some(Cut::Pair(own?, number(other)?)));
                    let pairs: Vec<_> = pairs.collect();
                    close(town, &pairs, until).map(|()| town.processes[leader].name.clone())
                }
            }
        }
    }
}

fn close(town: &mut Town, cuts: &[Cut], until: Instant) -> Result<(), String> {
    match &mut town.ground {
        Ground::Many(network) => network.cut(cuts, until).map_err(|error| error.to_string()),
        Ground::One | Ground::Devices(_) | Ground::Two(_) => Err("only networks of their own can be cut off".into()),
    }
}

/// The leader of etcd, and its other members, as processes.
async fn leader_and_others(town: &Town) -> Result<(usize, Vec<usize>), String> {
    let by = Instant::now() + PATIENCE;
    while Instant::now() < by {
        if let Some(name) = etcd::leader(PATIENCE / 20).await {
            let (leader, others): (Vec<_>, Vec<_>) =
                town.all_of(Part::Etcd).into_iter().partition(|&at| town.processes[at].name == name);
            return Ok((leader[0], others));
        }
        tokio::time::sleep(STEP).await;
    }
    Err("etcd has no leader".into())
}

/// The part that something is done to; of two, the first.
fn part(town: &Town, deed: Deed) -> Part {
    let of = |number: u8| town.nodes().into_iter().find(|(_, other)| *other == number).map(|(at, _)| at);
    let at = match deed {
        Deed::Process(_, at) | Deed::Roll(at) => Some(at),
        Deed::Cut(Cut::Off(one) | Cut::Deaf(one) | Cut::Mute(one) | Cut::Pair(one, _)) => of(one),
        Deed::Etcd(_) => None,
    };
    at.map_or(Part::Etcd, |at| town.processes[at].part)
}

/// Whether the service of this node can suffer from it by design: it is the node's own, or the only keeper's, or that of all of etcd.
fn touches(town: &Town, deed: Deed, (process, number): (usize, u8)) -> bool {
    let is_pair = match deed {
        Deed::Cut(Cut::Pair(one, other)) => return one == number || other == number,
        Deed::Cut(Cut::Off(one) | Cut::Deaf(one) | Cut::Mute(one)) => one == number,
        Deed::Process(_, at) | Deed::Roll(at) => at == process,
        Deed::Etcd(ill) => return ill == Ill::NoQuorum,
    };
    is_pair || part(town, deed) == Part::Keeper
}

/// A probe at each proxy, and somebody who asks each home what it holds.
struct Watch {
    probes: Vec<Rc<RefCell<Seen>>>,
    homes: Vec<Rc<RefCell<Said>>>,
}

impl Watch {
    fn start(local: &LocalSet, town: &Town, times: &Times) -> Self {
        let mut watch = Watch { probes: Vec::new(), homes: Vec::new() };
        for (number, &address) in (0..).zip(&town.proxies) {
            let (probe, seen) = Probe::new(number, address, times.lease);
            // Rare enough to be little beside the shoppers, often enough to miss nothing that is slow.
            local.spawn_local(probe.run(times.lease / 5));
            watch.probes.push(seen);
        }
        for home in &town.homes {
            let said = Rc::new(RefCell::new(Vec::new()));
            local.spawn_local(listen(home.clone(), said.clone(), times.lease / 20));
            watch.homes.push(said);
        }
        watch
    }

    fn forget(&self) {
        self.probes.iter().for_each(|seen| seen.borrow_mut().rounds.clear());
        self.homes.iter().for_each(|said| said.borrow_mut().clear());
    }

    fn wrong(&self) -> Vec<String> {
        self.probes.iter().flat_map(|seen| std::mem::take(&mut seen.borrow_mut().wrong)).collect()
    }

    /// Until there has been service for a while everywhere, since then.
    async fn until_steady(
        &self,
        town: &mut Town,
        times: &Times,
        since: Instant,
        told: &mut Told,
    ) -> Result<(), String> {
        let by = since + times.at_most;
        let otherwise = format!("service is not back {:.1} s after the fault's end", times.at_most.as_secs_f64());
        until(town, told, by, &otherwise, |_| {
            let now = Instant::now();
            self.probes.iter().all(|seen| {
                let seen = seen.borrow();
                let found = outages(&seen.rounds, (since, None), times.slow(), times.steady());
                let back = found.last().map(|outage| outage.last().done);
                let is_slow = seen.under_way.is_some_and(|began| now - began > times.slow());
                !is_slow && now - since >= times.steady() && back.is_some_and(|back| now - back >= times.steady())
            })
        })
        .await
    }

    /// What the probes say of a fault between these two moments.
    fn readings(
        &self,
        town: &Town,
        deeds: &[(Deed, Duration)],
        (from, ended): (Instant, Instant),
        times: &Times,
    ) -> Vec<Reading> {
        let together = deeds.len() > 1;
        let after = if together { "together" } else { deeds[0].0.name() };
        let mut readings = Vec::new();
        for (seen, node) in self.probes.iter().zip(town.proxies_as_nodes()) {
            let seen = seen.borrow();
            let mut read = |since, from: Instant, until| {
                for outage in outages(&seen.rounds, (from, until), times.slow(), times.steady()) {
                    let after = if outage.is_later { "later" } else { after };
                    let homes: Vec<_> = self.homes.iter().map(|said| said.borrow()).collect();
                    let held = outage.held(homes.iter().map(|said| &**said), times.slow());
                    let accepting = outage.accepting(times.slow());
                    let accepted = accepting.accepted.saturating_duration_since(outage.began);
                    let (back, refused) = (outage.last().done - outage.began, accepting.refused.clone());
                    readings.push(Reading { after, since, proxy: node.1, accepted, back, refused, held });
                }
            };
            if !together && !touches(town, deeds[0].0, node) {
                read(Since::Beginning, from, Some(ended));
            }
            read(Since::End, ended, None);
        }
        readings
    }
}

/// Asks a home again and again what it holds. Never ends.
async fn listen(home: PathBuf, said: Rc<RefCell<Said>>, pause: Duration) {
    loop {
        if let Some(sum) = ask::sum(UnixStream::connect(&home), &HOLDS, pause * 5).await {
            said.borrow_mut().push((Instant::now(), sum > 0.0));
        }
        tokio::time::sleep(pause).await;
    }
}
