//! Askers of the register, and what they say.

use std::time::Duration;

use verbena_cluster::{Answer, Beat, Holder, KeeperRecord, LeaseTerms, Member, Question, Revision, Roles, Sight, View};
use verbena_etcd::{Deadlines, Etcd, EtcdConfig};
use verbena_terms::{Incarnation, ViewNumber};

/// Longer than any answer takes that comes at all, however busy the machine is.
pub const PATIENT: Deadlines = Deadlines { attempt: Duration::from_secs(5), question: Duration::from_secs(20) };

pub const BEATS: Beat = Beat { resigned: false, unheard: false };

pub fn config(endpoints: Vec<String>) -> EtcdConfig {
    EtcdConfig { endpoints, ..EtcdConfig::default() }
}

pub fn asker(endpoints: Vec<String>) -> Etcd {
    Etcd::start(&config(endpoints), PATIENT).unwrap()
}

pub fn now(etcd: &Etcd, question: Question) -> Answer {
    etcd.ask_now(question, PATIENT.question).unwrap()
}

pub fn enrol(etcd: &Etcd, name: &str) -> Incarnation {
    match now(etcd, Question::Enrol { name: name.into() }) {
        Answer::Enrolled(life) => life,
        other => panic!("{other:?}"),
    }
}

pub fn holder(rank: u32) -> Holder {
    Holder {
        who: Incarnation::new(rank, 1),
        name: format!("app{rank}"),
        address: format!("tcp://10.0.0.{rank}:7001"),
        terms: LeaseTerms::DEFAULT,
    }
}

pub fn record(view: u32) -> KeeperRecord {
    let member = Member {
        incarnation: Incarnation::new(1, 1),
        name: "app1".into(),
        address: "tcp://10.0.0.1:7001".into(),
        roles: Roles::ALL,
    };
    let view = View::new(ViewNumber(view), vec![member], vec![]).unwrap();
    KeeperRecord { view: Some(view), out: vec![], starts: [].into(), terms: LeaseTerms::DEFAULT }
}

pub fn look(etcd: &Etcd) -> Option<Sight> {
    match now(etcd, Question::Look) {
        Answer::Seen(sight) => sight,
        other => panic!("{other:?}"),
    }
}

/// Takes the office as it is seen; the term, the record and when that was changed.
pub fn take(etcd: &Etcd, rank: u32) -> (Revision, Option<Box<KeeperRecord>>, Revision) {
    let (term, beat) = look(etcd).map_or(Default::default(), |sight| (sight.term, sight.beat));
    match now(etcd, Question::Take { term, beat, holder: holder(rank), says: BEATS }) {
        Answer::Taken { term, record, changed } => (term, record, changed),
        other => panic!("{other:?}"),
    }
}

pub fn store(term: Revision, after: Revision, view: u32) -> Question {
    Question::Store { term, after, record: Box::new(record(view)) }
}

pub fn stored(etcd: &Etcd, term: Revision, after: Revision, view: u32) -> Revision {
    match now(etcd, store(term, after, view)) {
        Answer::Stored(at) => at,
        other => panic!("{other:?}"),
    }
}
