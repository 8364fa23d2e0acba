//! Where the office of the keeper moves: the register, and what each process does of what it says.

use verbena_cluster::{
    Answer, ClusterConfig, Keeper, KeeperEvent, Membership, OfficeAction, OfficeEvent, ParticipantEvent, Provider,
    Question, Role, Roles,
};
use verbena_terms::{Rank, Time};

use super::{FAULTS_END, GIVEN_UP, Happening, LEASE, STORE, World};
use crate::sim::node::{Input, Process};

impl World {
    pub(super) fn ask(&mut self, id: u64, number: u64, question: Question) {
        let node = self.processes[&id].node;
        self.say(format!("{node} asks {question:?}"));
        self.asked.insert((id, number), matches!(question, Question::Store { .. }));
        self.at(self.now + GIVEN_UP, Happening::Answered(id, number, None));
        let well = self.now >= FAULTS_END;
        if !well && (self.cut.contains(&(node, STORE)) || self.dice.chance(self.knobs.loss / 2)) {
            return;
        }
        // What waits in a member of the store that is stuck may be executed when everybody has forgotten it.
        let late = !well && self.dice.chance(self.knobs.late);
        let most = if late { 5 * LEASE / 2 } else { self.knobs.persist };
        let after = self.dice.between(1000, most);
        self.at(self.now + after, Happening::Asked(id, number, question));
    }

    pub(super) fn asked_at_store(&mut self, id: u64, number: u64, question: &Question) {
        let answer = self.store.execute(question);
        self.say(format!("the register: {question:?}: {answer:?}"));
        let well = self.now >= FAULTS_END;
        let node = self.processes.get(&id).map(|process| process.node);
        let cut = node.is_some_and(|node| self.cut.contains(&(STORE, node)));
        if well || !cut && !self.dice.chance(self.knobs.loss / 2) {
            let after = self.dice.between(1000, self.knobs.delay);
            self.at(self.now + after, Happening::Answered(id, number, Some(answer)));
        }
    }

    pub(super) fn answered(&mut self, id: u64, number: u64, answer: Option<Answer>) -> Result<(), String> {
        let Some(stores) = self.asked.remove(&(id, number)) else { return Ok(()) };
        self.counts.unanswered += u64::from(answer.is_none());
        if answer.is_none() && stores {
            self.checkers.record_unanswered(GIVEN_UP);
        }
        self.input(id, Input::Office(OfficeEvent::Answered(number, answer)))
    }

    pub(super) fn office_event(&mut self, id: u64, local: Time, event: OfficeEvent) -> Result<(), String> {
        let Some(office) = self.processes.get_mut(&id).and_then(|process| process.office.as_mut()) else {
            return Ok(());
        };
        for action in office.handle(local, event) {
            let Some(process) = self.processes.get_mut(&id) else { return Ok(()) };
            let who = process.participant.incarnation();
            match action {
                OfficeAction::Ask(number, question) => self.ask(id, number, question),
                OfficeAction::Enrolled(life) => {
                    let mut actions = process.participant.handle(local, ParticipantEvent::Enrolled(life));
                    let who = process.participant.incarnation();
                    actions.extend(process.participant.handle(local, ParticipantEvent::Persisted));
                    let address = format!("sim:{}", process.node);
                    self.office_event(id, local, OfficeEvent::Begun(who, address))?;
                    self.participant_actions(id, actions)?;
                }
                OfficeAction::Appoint(record, term) => {
                    let node = process.node;
                    let membership = self.membership(node);
                    let record = record.map(|record| *record);
                    let keeper = Keeper::appointed(membership, who, record, term, local, self.rules);
                    self.say(format!("{who} keeps until {}", term.until.since(local).as_millis()));
                    self.processes.get_mut(&id).expect("it just acted").keeper = Some(keeper);
                    self.checkers.keeper_disturbed(self.now);
                }
                OfficeAction::Authority(until) => {
                    let gap = process.keeper.as_ref().is_some_and(|keeper| !keeper.may_act_at(local));
                    if gap {
                        self.checkers.keeper_disturbed(self.now);
                    }
                    self.keeper_event(id, local, KeeperEvent::Authority(until))?;
                }
                OfficeAction::Stored => self.keeper_event(id, local, KeeperEvent::Persisted)?,
                OfficeAction::Dismiss => {
                    process.keeper = None;
                    self.say(format!("{who} keeps no longer"));
                    self.checkers.keeper_disturbed(self.now);
                }
                OfficeAction::Follow(holder) => {
                    let actions = process.participant.handle(local, ParticipantEvent::Keeper(holder.who));
                    self.participant_actions(id, actions)?;
                }
            }
        }
        Ok(())
    }

    /// The node whose process keeps, with authority.
    pub(super) fn keeper_node(&self) -> Option<Rank> {
        if self.config.provider == Provider::Static {
            return Some(Rank(1));
        }
        let keeps = |process: &&Process| {
            let local = self.nodes[&process.node].clock.local(self.now);
            process.keeper.as_ref().is_some_and(|keeper| keeper.may_act_at(local))
        };
        self.processes.values().find(keeps).map(|process| process.node)
    }

    /// Another process of the same node runs, or has been stopped.
    pub(super) fn is_twin(&self, id: u64) -> bool {
        let node = self.processes[&id].node;
        self.processes.iter().any(|(other, process)| *other != id && process.node == node)
    }

    pub(super) fn membership(&self, node: Rank) -> Membership {
        let name = Some(format!("n{node}"));
        let is_etcd = self.config.provider == Provider::Etcd;
        let address = is_etcd.then(|| format!("sim:{node}"));
        let roles = if is_etcd && node == Rank(2) { Roles::of(Role::Reader) } else { Roles::ALL };
        let config = ClusterConfig { name, address, roles, ..self.config.clone() };
        Membership::new(&config).expect("the configuration fits together")
    }
}
