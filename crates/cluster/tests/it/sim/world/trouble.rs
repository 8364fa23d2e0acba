//! What goes wrong in the world: crashes, pauses, cuts, replacements and departures.

use verbena_cluster::{ParticipantEvent, Provider};
use verbena_terms::Rank;

use super::{FAULTS_END, Happening, LEASE, STORE, World};
use crate::sim::faults::{Fault, MS};
use crate::sim::node::Input;

impl World {
    pub(super) fn fault(&mut self) -> Result<(), String> {
        if self.now >= FAULTS_END {
            return Ok(());
        }
        let next = self.now + self.dice.between(self.knobs.every / 4, self.knobs.every);
        self.at(next, Happening::Fault);
        let fault = self.knobs.fault(&mut self.dice);
        let rank = Rank(self.dice.between(1, self.nodes.len() as u64) as u32);
        let short = self.dice.between(1, LEASE / 2);
        let long = self.dice.between(LEASE / 2, 5 * LEASE / 2);
        let lasts = if self.dice.chance(500) { short } else { long };
        if fault == Fault::Cut {
            let other = Rank(self.dice.between(1, self.nodes.len() as u64) as u32);
            let has_store = self.config.provider == Provider::Etcd;
            if has_store && self.dice.chance(300) {
                return self.cut_store(rank, lasts);
            }
            // Ways to and from the keeper are the ones in use.
            let keeper = self.keeper_node().unwrap_or(rank);
            let (rank, other) = match self.dice.between(0, 3) {
                0 => (keeper, rank),
                1 => (rank, keeper),
                // The keeper and the register, and nobody else.
                2 if has_store && self.dice.chance(300) => return self.cut_from_all(keeper, lasts),
                _ => (rank, other),
            };
            let lasts = if self.dice.chance(200) { FAULTS_END } else { lasts };
            self.say(format!("cut {rank} -> {other} for {} ms", lasts / MS));
            self.counts.cuts += 1;
            self.cut.push((rank, other));
            if self.dice.chance(300) {
                self.cut.push((other, rank));
                self.at(self.now + lasts, Happening::Mend(other, rank));
            }
            self.at(self.now + lasts, Happening::Mend(rank, other));
            return Ok(());
        }
        let Some(id) = self.nodes[&rank].process else { return Ok(()) };
        match fault {
            Fault::Crash => return self.crash(id, lasts),
            Fault::Pause => self.pause(id, lasts),
            // The keeper's disc is locked by its process as long as that lives.
            Fault::Replace if self.config.provider == Provider::Etcd || rank != Rank(1) => {
                self.counts.replaced += 1;
                self.pause(id, lasts);
                self.processes.get_mut(&id).expect("it runs").replaced = true;
                self.nodes.get_mut(&rank).expect("the node exists").process = None;
                let after = self.dice.between(0, LEASE);
                self.at(self.now + after, Happening::Start(rank));
            }
            Fault::Leave => {
                let at_rest = self.dice.chance(500);
                if let Some(keeper) = self.keeper_node().filter(|keeper| *keeper != rank && self.dice.chance(300)) {
                    self.leave_unheard(rank, keeper);
                }
                return self.input(id, Input::Participant(ParticipantEvent::Leave { at_rest }));
            }
            Fault::Replace | Fault::Cut => {}
        }
        Ok(())
    }

    /// The keeper hears that a node leaves, is not heard by it, and starts again in the meantime.
    fn leave_unheard(&mut self, rank: Rank, keeper: Rank) {
        self.cut.push((keeper, rank));
        self.at(self.now + LEASE, Happening::Mend(keeper, rank));
        if let Some(keeper) = self.nodes[&keeper].process {
            let soon = self.dice.between(0, 200 * MS);
            self.at(self.now + soon, Happening::Crash(keeper));
        }
    }

    /// A node and the register, one way or the other; or everybody and the register.
    fn cut_store(&mut self, rank: Rank, lasts: u64) -> Result<(), String> {
        let ways = match self.dice.between(0, 4) {
            0 | 1 => vec![(rank, STORE)],
            2 | 3 => vec![(STORE, rank)],
            _ => self.nodes.keys().map(|node| (*node, STORE)).collect(),
        };
        self.cut_ways(ways, lasts);
        Ok(())
    }

    /// A node and all others, both ways; the register is reached.
    fn cut_from_all(&mut self, rank: Rank, lasts: u64) -> Result<(), String> {
        let others = self.nodes.keys().filter(|other| **other != rank);
        let ways = others.flat_map(|other| [(rank, *other), (*other, rank)]).collect();
        self.cut_ways(ways, lasts);
        Ok(())
    }

    fn cut_ways(&mut self, ways: Vec<(Rank, Rank)>, lasts: u64) {
        self.counts.cuts += 1;
        for (from, to) in ways {
            self.say(format!("cut {from} -> {to} for {} ms", lasts / MS));
            self.cut.push((from, to));
            self.at(self.now + lasts, Happening::Mend(from, to));
        }
    }

    pub(super) fn pause(&mut self, id: u64, lasts: u64) {
        let process = self.processes.get_mut(&id).expect("it runs");
        if process.inbox.is_none() {
            process.inbox = Some(vec![]);
            self.counts.pauses += 1;
            self.say(format!("process {id} stops for {} ms", lasts / MS));
            self.at(self.now + lasts, Happening::Resume(id));
        }
    }

    pub(super) fn crash(&mut self, id: u64, down: u64) -> Result<(), String> {
        if self.now < FAULTS_END && self.processes.contains_key(&id) {
            let rank = self.processes[&id].node;
            self.counts.crashes += 1;
            self.counts.keeper_crashes += u64::from(self.processes[&id].keeper.is_some());
            self.kill(id, true);
            self.at(self.now + down, Happening::Start(rank));
        }
        Ok(())
    }

    /// A process is gone. What it had handed to the disc may have arrived there.
    pub(super) fn kill(&mut self, id: u64, suddenly: bool) {
        let Some(process) = self.processes.remove(&id) else { return };
        self.say(format!("process {id}, {}, ends", process.participant.incarnation()));
        let node = self.nodes.get_mut(&process.node).expect("the node exists");
        if node.process == Some(id) {
            node.process = None;
        }
        if process.replaced {
            return;
        }
        let arrived = !suddenly || self.dice.chance(500);
        if let Some(record) = process.start_on_its_way.filter(|_| arrived) {
            node.disc.start = Some(record.encode());
        }
        if let Some(record) = process.keeper_on_its_way.filter(|_| arrived) {
            node.disc.keeper = Some(record.encode());
        }
    }

    pub(super) fn faults_end(&mut self) -> Result<(), String> {
        self.say("the faults end".into());
        self.cut.clear();
        let ids: Vec<u64> = self.processes.keys().copied().collect();
        for id in ids {
            self.resume(id)?;
        }
        let ranks: Vec<Rank> = self.nodes.keys().copied().collect();
        for rank in ranks {
            self.start(rank)?;
        }
        Ok(())
    }
}
