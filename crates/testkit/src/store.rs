//! The register of the simulation: one store, linearizable, whose answers and questions are lost and late.

use verbena_cluster::{Answer, Beat, Holder, KeeperRecord, Question, Revision, Sight};
use verbena_terms::Incarnation;

#[derive(Default)]
pub struct Store {
    revision: u64,
    rank: u32,
    /// Names by rank, from 1.
    pub names: Vec<String>,
    office: Option<(Revision, Holder)>,
    beat: (Revision, Beat),
    record: (Revision, Option<Vec<u8>>),
    pub counts: StoreCounts,
}

crate::counts! {
    pub struct StoreCounts {
        pub taken: u64,
        pub overtaken: u64,
        pub resigned: u64,
    }
}

impl Store {
    /// Executes a transaction, whole.
    pub fn execute(&mut self, question: &Question) -> Answer {
        self.revision += 1;
        let now = Revision(self.revision);
        let (term, beat) = (self.office.as_ref().map_or(Revision(0), |(term, _)| *term), self.beat.0);
        match question {
            Question::Enrol { name } => {
                self.rank += 1;
                self.names.push(name.clone());
                Answer::Enrolled(Incarnation::new(self.rank, 1))
            }
            Question::Look => Answer::Seen(self.office.as_ref().map(|(term, holder)| Sight {
                term: *term,
                holder: holder.clone(),
                beat,
                said: self.beat.1,
            })),
            Question::Take { term: seen, beat: last, holder, says } if (*seen, *last) == (term, beat) => {
                self.counts.taken += 1;
                self.office = Some((now, holder.clone()));
                self.beat = (now, *says);
                let (changed, bytes) = &self.record;
                let record = bytes.as_ref().map(|bytes| KeeperRecord::decode(bytes).expect("the store is sound"));
                Answer::Taken { term: now, record: record.map(Box::new), changed: *changed }
            }
            Question::Beat { term: own, says } if *own == term => {
                self.beat = (now, *says);
                if says.resigned {
                    self.counts.resigned += 1;
                    self.office.as_mut().expect("it has a term").0 = now;
                }
                Answer::Beaten
            }
            Question::Store { term: own, after, record } if *own == term => {
                let bytes = Some(record.encode());
                if self.record.1 != bytes && self.record.0 != *after {
                    self.counts.overtaken += 1;
                    return Answer::Overtaken;
                }
                if self.record.1 != bytes {
                    self.record = (now, bytes);
                }
                Answer::Stored(self.record.0)
            }
            Question::Take { .. } | Question::Beat { .. } | Question::Store { .. } => {
                self.counts.overtaken += 1;
                Answer::Overtaken
            }
        }
    }
}
