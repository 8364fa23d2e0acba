//! A node of the simulation: its disc, its clock, and the processes that run or ran there.

use std::time::Duration;

use verbena_cluster::{
    EarlierLife, Keeper, KeeperEvent, KeeperRecord, Lease, Membership, Office, OfficeEvent, Participant,
    ParticipantAction, ParticipantEvent, Rules, StartRecord,
};
use verbena_terms::{Rank, Time};

use crate::sim::dice::Dice;
use crate::sim::faults::Knobs;

/// What survives a crash, as bytes.
#[derive(Default)]
pub struct Disc {
    pub start: Option<Vec<u8>>,
    pub keeper: Option<Vec<u8>>,
}

/// A clock that started some time ago and runs a little fast or slow.
#[derive(Clone, Copy)]
pub struct Skew {
    offset: u64,
    ppm: u64,
}

pub struct Node {
    pub disc: Disc,
    pub clock: Skew,
    /// The process that runs now; the id of a process is never used again.
    pub process: Option<u64>,
}

pub struct Process {
    /// Which node, whatever the rank of its life is.
    pub node: Rank,
    pub participant: Participant,
    pub keeper: Option<Keeper>,
    /// Where the keeper is not always the same.
    pub office: Option<Office>,
    /// When its timer fires, in true time; `u64::MAX` if it is not set.
    pub wakes_at: u64,
    /// What the hot paths of this process read.
    pub word: Lease,
    /// When it was stopped, and what has arrived since.
    pub inbox: Option<Vec<Input>>,
    /// Another process has its place: it cannot write to the disc any more.
    pub replaced: bool,
    /// The last record handed to the disc and not there yet.
    pub start_on_its_way: Option<StartRecord>,
    pub keeper_on_its_way: Option<KeeperRecord>,
}

#[derive(Clone, Debug)]
pub enum Input {
    Participant(ParticipantEvent),
    Keeper(KeeperEvent),
    Office(OfficeEvent),
    /// All machines look at the clock.
    Wake,
}

impl Skew {
    pub fn draw(dice: &mut Dice, knobs: &Knobs) -> Self {
        Skew {
            offset: dice.between(0, 10_000_000_000),
            ppm: 1_000_000 - knobs.drift_ppm + dice.between(0, 2 * knobs.drift_ppm),
        }
    }

    pub fn local(&self, truth: u64) -> Time {
        Time::from_nanos(self.offset + (truth as u128 * self.ppm as u128 / 1_000_000) as u64)
    }

    /// The first true moment at which the clock shows `local` or later.
    pub fn truth(&self, local: Time) -> u64 {
        let since = local.since(Time::ZERO + Duration::from_nanos(self.offset)).as_nanos();
        ((since * 1_000_000).div_ceil(self.ppm as u128) + 1).try_into().unwrap_or(u64::MAX)
    }
}

impl Process {
    /// A process from what is on the disc, and what it wants done first.
    pub fn start(
        node: Rank,
        membership: Membership,
        disc: &Disc,
        earlier: EarlierLife,
        now: Time,
        rules: Rules,
    ) -> (Self, Vec<ParticipantAction>) {
        let record = disc.start.as_ref().map(|bytes| StartRecord::decode(bytes).expect("the disc is sound"));
        let (participant, actions) =
            Participant::with_rules(&membership, format!("sim:{node}"), record, now, rules).expect("starts are left");
        let office = membership.rank().is_none().then(|| Office::with_rules(&membership, now, rules));
        let keeper = (Some(node) == membership.keeper()).then(|| {
            let record = disc.keeper.as_ref().map(|bytes| KeeperRecord::decode(bytes).expect("the disc is sound"));
            let life = participant.incarnation();
            Keeper::with_rules(membership, life, record, earlier, now, rules)
        });
        let process = Process {
            node,
            participant,
            keeper,
            office,
            wakes_at: u64::MAX,
            word: Lease::NONE,
            inbox: None,
            replaced: false,
            start_on_its_way: None,
            keeper_on_its_way: None,
        };
        (process, actions)
    }

    pub fn wake_at(&self) -> Time {
        let keeper = self.keeper.as_ref().map_or(Time::FAR, Keeper::wake_at);
        let office = self.office.as_ref().map_or(Time::FAR, Office::wake_at);
        keeper.min(office).min(self.participant.wake_at())
    }
}
