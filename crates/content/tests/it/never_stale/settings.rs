//! What a run is made of: which faults, how often, and what is asked for. Everything from the seed.

use std::time::Duration;

use verbena_cluster::LeaseTerms;
use verbena_content::{Kind, Rules};
use verbena_fabric::sim::{self, Dice, Seed};
use verbena_fabric::{Capabilities, Ordering};

pub use verbena_testkit::world::{ms, us};

pub const LEASE: Duration = Duration::from_millis(LeaseTerms::SHORTEST_MS as u64);
pub const DRIFT: Duration = Duration::from_millis(5);
pub const MAX_TRANSACTION: Duration = Duration::from_millis(300);

/// What befalls nodes and links, and the application's answers. Rates are per thousand: of the chances that nature has every 5 to 60 ms,
/// or of the answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub pauses: u32,
    pub longest_pause: Duration,
    pub crashes: u32,
    pub cuts: u32,
    /// Nodes that leave in good order, and come back.
    pub leaves: u32,
    /// Clocks of proxies that jump: those that no lease and no settling is counted on (rules C2, P6).
    pub jumps: u32,
    /// Times that a node, or none, reaches the register, where the office moves.
    pub register_away: u32,
    /// Questions to it, and answers, that are lost or late.
    pub questions_lost: u32,
    /// Answers of the application that never come.
    pub outcome_unknown: u32,
    /// Crashes that are of a whole machine: its records of open updates are lost.
    pub records_lost: u32,
    /// Lives that end and leave their memory readable.
    pub memory_outlives: u32,
    /// Between two things that the page protocol's thread does others act: up to so long, or many times that where a process is slow.
    pub slowness: Duration,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    pub seed: Seed,
    pub rules: Rules,
    pub cluster_rules: verbena_cluster::Rules,
    /// Machines that the nodes are on, in turn; with none, no records of open updates are kept.
    pub machines: usize,
    /// The keeper is not always the same: whoever holds an office of a register, and each life has a rank of its own.
    pub office_moves: bool,
    /// P1: the lease is looked at before a copy is served.
    pub lease_looked_at: bool,
    pub faults: Faults,
    /// What befalls frames and clocks.
    pub network: sim::Faults,
    pub capabilities: Capabilities,
    /// Nothing of the nodes' and the application's own is left to chance: all takes its shortest time.
    pub shortest: bool,
    /// Writes that announce nothing, per thousand.
    pub writes_of_everything: u32,
    /// Pages that declare nothing, per thousand.
    pub pages_of_everything: u32,
    /// Half of the pages are standard ones (rule H1), and writes that announce nothing are purges of all.
    pub standard_pages: bool,
    pub duration: Duration,
    pub read_every: Duration,
    pub write_every: Duration,
    /// Dependency sets that a home keeps.
    pub pages_kept: usize,
    /// Dependencies that updates may have open at a home before it holds them as updates of everything.
    pub in_flight: usize,
    /// Some pages have one `PageId`.
    pub pages_share_ids: bool,
    /// Between the check and the first byte of a write.
    pub gap: Duration,
}

impl Settings {
    /// By what the copies of a page are found to be good.
    pub fn kind(&self, page: u64) -> Kind {
        if self.standard_pages && page % 2 == 1 { Kind::Standard } else { Kind::Coherent }
    }
}

/// Which faults a seed has, and how often, is chance too: a run in which all go wrong at once finds less.
pub fn settings(seed: Seed) -> Settings {
    let mut dice = Dice::new(seed.number() ^ 0xfa17);
    let mut sometimes = |most: u64| if dice.happens(600) { dice.below(most + 1) } else { 0 };
    let faults = Faults {
        pauses: sometimes(300) as u32,
        longest_pause: ms(5) + sometimes(300) as u32 * ms(1),
        crashes: sometimes(150) as u32,
        cuts: sometimes(300) as u32,
        leaves: sometimes(60) as u32,
        jumps: sometimes(100) as u32,
        register_away: 0,
        questions_lost: 0,
        outcome_unknown: sometimes(100) as u32,
        records_lost: 0,
        memory_outlives: sometimes(1000) as u32,
        slowness: us(sometimes(20)),
    };
    let mut dice = Dice::new(seed.number() ^ 0x0bed);
    let (machines, records_lost) = (dice.below(4) as usize, dice.below(500) as u32);
    let faults = Faults { records_lost, ..faults };
    let swarm = sim::Faults::swarm(seed, ms(80));
    let network = sim::Faults {
        // Two clocks differ by at most four per cent, and the drift allowance is five of each lease.
        clock_drift_ppm: sometimes(20_000) as u32,
        execution_max: swarm.execution_max + us(sometimes(280)),
        ..swarm
    };
    let capabilities = Capabilities {
        target_cpu_free: sometimes(1) == 0,
        ordering: if sometimes(1) == 0 { Ordering::None } else { Ordering::Posted },
        ..sim::capabilities()
    };
    Settings {
        seed,
        rules: Rules::ALL,
        cluster_rules: verbena_cluster::Rules::ALL,
        machines,
        office_moves: false,
        lease_looked_at: true,
        faults,
        network,
        capabilities,
        shortest: false,
        writes_of_everything: sometimes(300) as u32,
        pages_of_everything: sometimes(700) as u32,
        standard_pages: sometimes(1) == 1,
        duration: ms(1000),
        read_every: us(300),
        write_every: ms(4 + sometimes(80)),
        pages_kept: 2 + sometimes(20) as usize,
        in_flight: 6 + sometimes(20) as usize,
        pages_share_ids: sometimes(1) == 1,
        gap: us(sometimes(2000)),
    }
}

/// The same where the office moves, and where the register is away and loses questions besides.
pub fn with_office(seed: Seed) -> Settings {
    let mut settings = Settings { office_moves: true, ..settings(seed) };
    let mut dice = Dice::new(seed.number() ^ 0x0ff1ce);
    let mut sometimes = |most: u64| if dice.happens(600) { dice.below(most + 1) as u32 } else { 0 };
    (settings.faults.register_away, settings.faults.questions_lost) = (sometimes(200), sometimes(150));
    settings
}
