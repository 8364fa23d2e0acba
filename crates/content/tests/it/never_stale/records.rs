//! The records of open updates that the nodes of one machine keep: they outlive a process, and are lost with the machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_cluster::View;
use verbena_content::Scope;
use verbena_content::record::{Recorded, Records};
use verbena_terms::Incarnation;

/// What is on a machine's disk.
#[derive(Default)]
pub struct Machine {
    records: Mutex<BTreeMap<Incarnation, Record>>,
}

#[derive(Default)]
struct Record {
    open: BTreeMap<u64, Scope>,
    /// The process that writes it, or might, is there.
    in_use: bool,
}

impl Machine {
    /// It lost its power: what it kept is of another boot.
    pub fn loses_all(&self) {
        self.records.lock().retain(|_, record| record.in_use);
    }
}

/// One process's way to the records of its machine.
pub struct OfProcess {
    machine: Arc<Machine>,
    me: Option<Incarnation>,
}

impl OfProcess {
    pub fn new(machine: &Arc<Machine>) -> OfProcess {
        OfProcess { machine: machine.clone(), me: None }
    }

    fn change(&mut self, change: impl FnOnce(&mut Record)) {
        if let Some(me) = self.me {
            self.machine.records.lock().get_mut(&me).map(change);
        }
    }

    fn lets_go(&mut self) {
        self.change(|record| record.in_use = false);
        self.me = None;
    }
}

impl Records for OfProcess {
    fn begin(&mut self, me: Incarnation, _: u64, open: &[(u64, Scope)]) {
        let record = Record { open: open.iter().cloned().collect(), in_use: true };
        self.machine.records.lock().insert(me, record);
        self.lets_go();
        self.me = Some(me);
    }

    fn opened(&mut self, number: u64, scope: &Scope) {
        self.change(|record| drop(record.open.insert(number, scope.clone())));
    }

    fn ended(&mut self, number: u64) {
        self.change(|record| drop(record.open.remove(&number)));
    }

    fn read(&mut self, of: Incarnation, _: u64, lease_is_over: bool) -> Recorded {
        match self.machine.records.lock().get(&of) {
            None => Recorded::Unknown("missing"),
            Some(record) if record.in_use && !lease_is_over => Recorded::InUse,
            Some(record) => Recorded::Open(record.open.clone().into_iter().collect()),
        }
    }

    fn forget(&mut self, view: &View) {
        let is_needed = |who: &Incarnation| view.member(*who).is_some() || view.has_departed(*who);
        self.machine.records.lock().retain(|who, record| record.in_use || is_needed(who));
    }
}

impl Drop for OfProcess {
    fn drop(&mut self) {
        self.lets_go();
    }
}
