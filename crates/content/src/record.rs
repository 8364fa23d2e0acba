//! The record of open updates, by which the others know what a node had open when it died (rule P6).
//!
//! An updater writes each update into its record before the update begins, and takes it out when the update is over. A home
//! that has to settle a departed incarnation reads that incarnation's record, at the earliest when the incarnation can
//! forward nothing more: its process is gone, or its lease has ended. Then the record holds every update that can still
//! reach the database.
//!
//! A record outlives the process and not the boot. Each incarnation has its own, so a later incarnation of the node
//! overwrites nothing. Whatever is wrong with a record, or in the way of reading it, makes it [`Recorded::Unknown`].

use verbena_cluster::View;
use verbena_terms::Incarnation;

use crate::names::Scope;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// These updates, by number, were open, and no others.
    Open(Vec<(u64, Scope)>),
    /// The process that writes it runs, and its lease may hold: to be read later.
    InUse,
    /// Nothing can be said, and why.
    Unknown(&'static str),
}

/// The records that the nodes of one machine keep.
pub trait Records: Send + 'static {
    /// A new incarnation begins with these updates open: its record replaces none. That of the incarnation before is
    /// left as it is.
    fn begin(&mut self, me: Incarnation, names: u64, open: &[(u64, Scope)]);

    /// An update is about to begin.
    fn opened(&mut self, number: u64, scope: &Scope);

    /// An update is over.
    fn ended(&mut self, number: u64);

    /// Reads the record of another incarnation. `names` is the fingerprint of the key of names: hashes of another key mean
    /// nothing.
    fn read(&mut self, of: Incarnation, names: u64, lease_is_over: bool) -> Recorded;

    /// The records of incarnations that are dead and that this view does not name are needed no more.
    fn forget(&mut self, view: &View);
}

/// No records: every departed incarnation is settled in time.
pub struct NoRecords;

impl Records for NoRecords {
    fn begin(&mut self, _: Incarnation, _: u64, _: &[(u64, Scope)]) {}

    fn opened(&mut self, _: u64, _: &Scope) {}

    fn ended(&mut self, _: u64) {}

    fn read(&mut self, _: Incarnation, _: u64, _: bool) -> Recorded {
        Recorded::Unknown("this node keeps no records")
    }

    fn forget(&mut self, _: &View) {}
}
