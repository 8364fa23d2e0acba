//! Fills of proxies in other processes: what statements do is recorded in the log of reads for them (rules Q1, Q2).

use std::collections::BTreeSet;
use std::sync::Arc;

use verbena_content::service::Content;
use verbena_reads::{Group, Recorder, Seen};
use verbena_statements::{Elsewhere, Name, Names, Tag, What, Why};

/// The log of this node's relay.
pub(crate) struct Recorded {
    pub recorder: Recorder,
    pub content: Content,
    /// The identity of the database, in front of each name.
    pub identity: Arc<[u8]>,
}

impl Recorded {
    fn hash(&self, table: &[u8], name: &Name) -> u64 {
        let spelled = [&self.identity[..], &name.bytes(table)].concat();
        self.content.names().dependency(&spelled).0
    }

    fn group(&self, (table, names): (&Vec<u8>, &BTreeSet<Name>)) -> Group {
        let hash = |name: &Name| self.hash(table, name);
        Group { table: hash(&Name::Table), any: hash(&Name::Any), names: names.iter().map(hash).collect() }
    }
}

impl Elsewhere for Recorded {
    fn moment(&mut self) -> u64 {
        self.recorder.moment()
    }

    fn is_there(&self) -> bool {
        self.recorder.is_read()
    }

    fn is_open(&self, tag: Tag) -> bool {
        self.recorder.is_open_elsewhere(tag)
    }

    fn seen(&mut self, tag: Option<Tag>, since: Option<u64>, what: What<'_>) {
        let seen = match what {
            What::Read(Names::Of(tables)) => Seen::Names(tables.iter().map(|table| self.group(table)).collect()),
            What::Read(Names::Everything) => Seen::Everything(Why::NotUnderstood.code()),
            What::Everything(why) => Seen::Everything(why.code()),
            What::Unstorable(why) => Seen::Unstorable(why.code()),
            What::Wrote => Seen::Wrote,
        };
        self.recorder.record(tag, since, seen);
    }
}
