//! What is done to a system of nodes in networks of their own, one thing after the other: drawn from a seed.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use rand_core::SeedableRng;
use rand_pcg::Pcg64;

use crate::faults::{KINDS, Kind, below, between};
use crate::network::Cut;

/// One of them. Processes are meant by their number in the town, members of the network by theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// To a process.
    Process(Kind, usize),
    /// A restart, one of a row in which every node has its turn.
    Roll(usize),
    /// Between members.
    Cut(Cut),
    /// To etcd.
    Etcd(Ill),
}

/// What can happen to etcd's members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ill {
    LeaderKilled,
    LeaderPaused,
    /// From the other members of etcd; nodes still reach it.
    LeaderCut,
    /// Whether it leads or not.
    MemberKilled(usize),
    /// Two of three are paused.
    NoQuorum,
}

impl Deed {
    /// What it is called where it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Deed::Process(kind, _) => kind.name(),
            Deed::Roll(_) => "rolling",
            Deed::Cut(Cut::Off(_)) => "cut",
            Deed::Cut(Cut::Deaf(_)) => "deaf",
            Deed::Cut(Cut::Mute(_)) => "mute",
            Deed::Cut(Cut::Pair(..)) => "pair",
            Deed::Etcd(Ill::LeaderKilled) => "etcd-leader-kill",
            Deed::Etcd(Ill::LeaderPaused) => "etcd-leader-pause",
            Deed::Etcd(Ill::LeaderCut) => "etcd-leader-cut",
            Deed::Etcd(Ill::MemberKilled(_)) => "etcd-kill",
            Deed::Etcd(Ill::NoQuorum) => "etcd-quorum",
        }
    }
}

/// All that can be done.
pub struct All {
    /// Every process that is killed, paused and restarted.
    pub processes: Vec<usize>,
    /// Every node, as process and as member.
    pub nodes: Vec<(usize, u8)>,
    /// Members between which a cut leaves both with a keeper.
    pub pairs: Vec<(u8, u8)>,
    /// etcd's members.
    pub etcd: Vec<usize>,
}

impl All {
    fn once(&self) -> Vec<Deed> {
        let mut all: Vec<Deed> =
            self.processes.iter().flat_map(|&process| KINDS.map(|kind| Deed::Process(kind, process))).collect();
        for &(_, number) in &self.nodes {
            all.extend([Cut::Off(number), Cut::Deaf(number), Cut::Mute(number)].map(Deed::Cut));
        }
        all.extend(self.pairs.iter().map(|&(one, other)| Deed::Cut(Cut::Pair(one, other))));
        if !self.etcd.is_empty() {
            // The leader is one process of three, and is meant as often as each of them.
            let leader = [Ill::LeaderKilled, Ill::LeaderPaused, Ill::LeaderCut, Ill::NoQuorum];
            all.extend(leader.iter().cycle().take(leader.len() * 3).map(|&ill| Deed::Etcd(ill)));
            all.extend(self.etcd.iter().map(|&process| Deed::Etcd(Ill::MemberKilled(process))));
        }
        all
    }
}

/// The order in which they are done: everything once, then every node is restarted in turn, then everything again. For ever.
pub struct Order {
    random: Pcg64,
    all: All,
    bag: Vec<Deed>,
    row: VecDeque<Deed>,
    lease: Duration,
}

impl Order {
    /// As the seed says; how long each lasts is a matter of leases.
    pub fn new(seed: u64, all: All, lease: Duration) -> Self {
        let bag = all.once();
        Order { random: Pcg64::seed_from_u64(seed), all, bag, row: VecDeque::new(), lease }
    }

    /// The next one, and how long it lasts. One in four comes together with another.
    pub fn next_few(&mut self) -> Vec<(Deed, Duration)> {
        if let Some(next) = self.row.pop_front() {
            return vec![(next, Duration::ZERO)];
        }
        let first = self.draw();
        let mut next = vec![first];
        if below(&mut self.random, 4) == 0 && !self.bag.is_empty() {
            let second = self.draw();
            if Self::go_together(first, second) { next.push(second) } else { self.bag.push(second) }
        }
        if self.bag.is_empty() {
            self.bag = self.all.once();
            self.row = self.all.nodes.iter().map(|&(process, _)| Deed::Roll(process)).collect();
        }
        next.into_iter().map(|deed| (deed, self.lasts(deed))).collect()
    }

    fn draw(&mut self) -> Deed {
        let at = below(&mut self.random, self.bag.len() as u64) as usize;
        self.bag.swap_remove(at)
    }

    /// Nobody is killed and paused at once, and of etcd one thing is enough.
    fn go_together(one: Deed, other: Deed) -> bool {
        match (one, other) {
            (Deed::Process(_, one), Deed::Process(_, other)) => one != other,
            (Deed::Etcd(_), Deed::Etcd(_)) => false,
            _ => true,
        }
    }

    fn lasts(&mut self, deed: Deed) -> Duration {
        // In hundredths of a lease.
        let hundredths: Range<u32> = match deed {
            Deed::Process(Kind::Restart, _) | Deed::Roll(_) => return Duration::ZERO,
            Deed::Process(Kind::Kill, _) => 0..150,
            // Shorter than the longest transaction, on which rule P6 rests.
            Deed::Process(Kind::Pause, _) => 110..160,
            Deed::Cut(_) | Deed::Etcd(_) if deed != Deed::Etcd(Ill::NoQuorum) => 33..250,
            Deed::Cut(_) | Deed::Etcd(_) => 200..300,
        };
        let of = |hundredths| self.lease * hundredths / 100;
        between(&mut self.random, &(of(hundredths.start)..of(hundredths.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_done_and_then_every_node_has_its_turn() {
        let all = || All {
            processes: (3..8).collect(),
            nodes: vec![(3, 1), (4, 2), (5, 3)],
            pairs: vec![(2, 3)],
            etcd: vec![0, 1, 2],
        };
        let lease = Duration::from_secs(1);
        let (once, mut order, mut again) = (all().once(), Order::new(5, all(), lease), Order::new(5, all(), lease));
        let mut done = Vec::new();
        let mut together = 0;
        while !done.contains(&Deed::Roll(5)) {
            let next = order.next_few();
            assert_eq!(next, again.next_few());
            together += usize::from(next.len() == 2);
            assert!(next.iter().all(|(_, lasts)| *lasts <= lease * 3));
            done.extend(next.into_iter().map(|(deed, _)| deed));
        }
        assert!(once.iter().all(|deed| done.contains(deed)), "{done:?}");
        assert_eq!(done.len(), once.len() + 3);
        assert_eq!(done[once.len()..], [Deed::Roll(3), Deed::Roll(4), Deed::Roll(5)]);
        assert!(together > 2);
        assert_ne!(order.next_few(), Order::new(6, all(), lease).next_few());
    }
}
