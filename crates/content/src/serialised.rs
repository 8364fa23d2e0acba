//! The scheme `serialised`: readers and one writer of a document take turns (dissertation section 5.2, Table 5.1).
//!
//! This is the papers' application module: an application asks before it reads a document and says when it has read it;
//! an update waits until no client reads, and requests that come after the update wait until it is done. Off by
//! default: it makes readers wait for writers, which the page words never do.
//!
//! Two queues, RQ of the reads under way and UQ, which is empty or begins with the update and goes on with the reads
//! that came after it. If UQ is not empty and RQ is, the update is in progress. The table, with what is erroneous left
//! out:
//!
//! | event | RQ | UQ | rule |
//! |---|---|---|---|
//! | read request | any | empty | proceed, into RQ |
//! | read request | any | not empty | into UQ |
//! | read done | not empty | empty | out of RQ |
//! | read done | not empty | not empty | out of RQ; if it is empty now, the update proceeds |
//! | update request | empty | empty | into UQ, proceed |
//! | update request | not empty | empty | into UQ |
//! | update done | empty | not empty | out of UQ; every read in UQ proceeds, into RQ |
//!
//! The table assumes one update thread. A second update therefore queues before the table, and comes to it when the first
//! is done and the reads that waited for that have had their turn. What a client asked for vanishes with it.

use std::collections::VecDeque;

use thiserror::Error;

/// Most requests that wait for one document. One more is refused.
pub const MAX_SERIALISED_WAITING: usize = 4096;

/// A client of the application module, named by the caller.
pub type ClientId = u64;

/// One request of one client, named by the caller, used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SerialisedRequest {
    /// The client that asks.
    pub client: ClientId,
    /// Which of its requests.
    pub number: u64,
}

/// What happened to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SerialisedEvent {
    /// IRR: a client wants to read.
    ReadRequest(SerialisedRequest),
    /// IRD: a client has read.
    ReadDone(SerialisedRequest),
    /// IUR: a client wants to update.
    UpdateRequest(SerialisedRequest),
    /// IUD: the update is done.
    UpdateDone(SerialisedRequest),
}

/// A request that may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Proceed {
    /// IPC_READ_PROCEED.
    Read(SerialisedRequest),
    /// IPC_UPDATE_PROCEED.
    Update(SerialisedRequest),
}

/// Why an event was refused. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SerialisedError {
    /// The table calls this state erroneous: a client says done whose request never proceeded, or the caller is
    /// at fault.
    #[error("{event:?} cannot happen with {reading} reading and {updating} in the update queue")]
    Erroneous {
        /// The event.
        event: SerialisedEvent,
        /// Length of RQ.
        reading: usize,
        /// Length of UQ.
        updating: usize,
    },
    /// As many wait as may.
    #[error("{MAX_SERIALISED_WAITING} requests wait for this document; retry later")]
    Full,
}

/// One document's turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Serialised {
    table: Table,
    /// Updates that wait for the one update thread.
    before: VecDeque<SerialisedRequest>,
}

/// Table 5.1 and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Table {
    reading: Vec<SerialisedRequest>,
    /// The update, and the reads that came after it.
    updating: VecDeque<SerialisedRequest>,
}

impl Serialised {
    /// Whether no client reads, updates or waits: the caller may forget the document.
    pub fn is_idle(&self) -> bool {
        self.table.reading.is_empty() && self.table.updating.is_empty() && self.before.is_empty()
    }

    /// The update that has its turn, or waits for the reads before it.
    pub fn update(&self) -> Option<SerialisedRequest> {
        self.table.updating.front().copied()
    }

    /// Something happened; returns the requests that may go on because of it.
    pub fn handle(&mut self, event: SerialisedEvent) -> Result<Vec<Proceed>, SerialisedError> {
        let asks = matches!(event, SerialisedEvent::ReadRequest(_) | SerialisedEvent::UpdateRequest(_));
        if asks && self.table.updating.len() + self.before.len() >= MAX_SERIALISED_WAITING {
            return Err(SerialisedError::Full);
        }
        match event {
            SerialisedEvent::UpdateRequest(update) if !self.table.updating.is_empty() => {
                self.before.push_back(update);
                Ok(Vec::new())
            }
            SerialisedEvent::UpdateDone(_) => {
                let mut proceed = self.table.handle(event)?;
                proceed.extend(self.next_update());
                Ok(proceed)
            }
            _ => self.table.handle(event),
        }
    }

    /// A client is gone, and what it asked for with it. An update that was in progress counts as done.
    pub fn client_gone(&mut self, client: ClientId) -> Vec<Proceed> {
        self.before.retain(|update| update.client != client);
        let mut proceed = self.table.client_gone(client);
        proceed.extend(self.next_update());
        proceed
    }

    /// The update thread takes the next update, if it is free.
    fn next_update(&mut self) -> Vec<Proceed> {
        if !self.table.updating.is_empty() {
            return Vec::new();
        }
        let Some(update) = self.before.pop_front() else { return Vec::new() };
        self.table
            .handle(SerialisedEvent::UpdateRequest(update))
            .expect("invariant: an update request with an empty update queue is no erroneous state")
    }
}

impl Table {
    fn handle(&mut self, event: SerialisedEvent) -> Result<Vec<Proceed>, SerialisedError> {
        use SerialisedEvent::{ReadDone, ReadRequest, UpdateDone, UpdateRequest};
        match (event, self.reading.is_empty(), self.updating.is_empty()) {
            (ReadRequest(read), _, true) => {
                self.reading.push(read);
                Ok(vec![Proceed::Read(read)])
            }
            (ReadRequest(read), _, false) => {
                self.updating.push_back(read);
                Ok(Vec::new())
            }
            (ReadDone(read), false, _) => self.read_done(read).ok_or(self.erroneous(event)),
            (UpdateRequest(update), no_reader, true) => {
                self.updating.push_back(update);
                Ok(if no_reader { vec![Proceed::Update(update)] } else { Vec::new() })
            }
            (UpdateDone(update), true, false) if self.updating.front() == Some(&update) => Ok(self.update_done()),
            (ReadDone(_), true, _) | (UpdateRequest(_), _, false) | (UpdateDone(_), _, _) => Err(self.erroneous(event)),
        }
    }

    fn read_done(&mut self, read: SerialisedRequest) -> Option<Vec<Proceed>> {
        let at = self.reading.iter().position(|&reading| reading == read)?;
        self.reading.swap_remove(at);
        Some(self.update_if_unread())
    }

    fn update_if_unread(&self) -> Vec<Proceed> {
        let update = self.updating.front().filter(|_| self.reading.is_empty());
        update.map(|&update| Proceed::Update(update)).into_iter().collect()
    }

    fn update_done(&mut self) -> Vec<Proceed> {
        self.updating.pop_front();
        self.reading.extend(self.updating.drain(..));
        self.reading.iter().map(|&read| Proceed::Read(read)).collect()
    }

    fn client_gone(&mut self, client: ClientId) -> Vec<Proceed> {
        let has_update = self.updating.front().is_some_and(|update| update.client == client);
        let was_unread = self.reading.is_empty();
        self.reading.retain(|read| read.client != client);
        let update = self.updating.pop_front();
        self.updating.retain(|read| read.client != client);
        match update {
            Some(_) if has_update => {
                let waited: Vec<SerialisedRequest> = self.updating.drain(..).collect();
                self.reading.extend(waited.iter().copied());
                waited.into_iter().map(Proceed::Read).collect()
            }
            Some(update) => {
                self.updating.push_front(update);
                if was_unread { Vec::new() } else { self.update_if_unread() }
            }
            None => Vec::new(),
        }
    }

    fn erroneous(&self, event: SerialisedEvent) -> SerialisedError {
        SerialisedError::Erroneous { event, reading: self.reading.len(), updating: self.updating.len() }
    }
}

#[cfg(test)]
mod tests {
    use SerialisedEvent::{ReadDone, ReadRequest, UpdateDone, UpdateRequest};

    use super::*;

    const R1: SerialisedRequest = SerialisedRequest { client: 1, number: 1 };
    const R2: SerialisedRequest = SerialisedRequest { client: 2, number: 1 };
    const R3: SerialisedRequest = SerialisedRequest { client: 3, number: 1 };
    const U1: SerialisedRequest = SerialisedRequest { client: 8, number: 1 };
    const U2: SerialisedRequest = SerialisedRequest { client: 9, number: 1 };

    fn table(reading: &[SerialisedRequest], updating: &[SerialisedRequest]) -> Table {
        Table { reading: reading.to_vec(), updating: updating.iter().copied().collect() }
    }

    /// One row: from the queues, by the event, to the queues, and the requests that proceed.
    fn row(from: Table, event: SerialisedEvent, proceed: &[Proceed], to: Table) {
        let mut queues = from;
        assert_eq!(queues.handle(event).as_deref(), Ok(proceed));
        assert_eq!(queues, to);
    }

    /// One erroneous row: refused, and nothing changes.
    fn erroneous(from: Table, event: SerialisedEvent) {
        let mut queues = from.clone();
        let refused = queues.handle(event).unwrap_err();
        assert_eq!(
            refused,
            SerialisedError::Erroneous { event, reading: from.reading.len(), updating: from.updating.len() }
        );
        assert_eq!(queues, from);
    }

    #[test]
    fn irr_with_rq_empty_and_uq_empty() {
        row(table(&[], &[]), ReadRequest(R1), &[Proceed::Read(R1)], table(&[R1], &[]));
    }

    #[test]
    fn irr_with_rq_not_empty_and_uq_empty() {
        row(table(&[R1], &[]), ReadRequest(R2), &[Proceed::Read(R2)], table(&[R1, R2], &[]));
    }

    #[test]
    fn irr_with_rq_empty_and_uq_not_empty() {
        row(table(&[], &[U1]), ReadRequest(R1), &[], table(&[], &[U1, R1]));
    }

    #[test]
    fn irr_with_rq_not_empty_and_uq_not_empty() {
        row(table(&[R1], &[U1]), ReadRequest(R2), &[], table(&[R1], &[U1, R2]));
    }

    #[test]
    fn ird_with_rq_empty_and_uq_not_empty_is_erroneous() {
        erroneous(table(&[], &[U1, R1]), ReadDone(R1));
    }

    #[test]
    fn ird_with_rq_not_empty_and_uq_empty() {
        row(table(&[R1, R2], &[]), ReadDone(R1), &[], table(&[R2], &[]));
    }

    #[test]
    fn ird_with_rq_not_empty_and_uq_not_empty() {
        row(table(&[R1, R2], &[U1, R3]), ReadDone(R1), &[], table(&[R2], &[U1, R3]));
        row(table(&[R2], &[U1, R3]), ReadDone(R2), &[Proceed::Update(U1)], table(&[], &[U1, R3]));
    }

    #[test]
    fn iur_with_rq_empty_and_uq_empty() {
        row(table(&[], &[]), UpdateRequest(U1), &[Proceed::Update(U1)], table(&[], &[U1]));
    }

    #[test]
    fn iur_with_rq_empty_and_uq_not_empty_is_erroneous() {
        erroneous(table(&[], &[U1]), UpdateRequest(U2));
    }

    #[test]
    fn iur_with_rq_not_empty_and_uq_empty() {
        row(table(&[R1], &[]), UpdateRequest(U1), &[], table(&[R1], &[U1]));
    }

    #[test]
    fn iur_with_rq_not_empty_and_uq_not_empty_is_erroneous() {
        erroneous(table(&[R1], &[U1]), UpdateRequest(U2));
    }

    #[test]
    fn iud_with_rq_empty_and_uq_empty_is_erroneous() {
        erroneous(table(&[], &[]), UpdateDone(U1));
    }

    #[test]
    fn iud_with_rq_empty_and_uq_not_empty() {
        let proceed = [Proceed::Read(R1), Proceed::Read(R2)];
        row(table(&[], &[U1, R1, R2]), UpdateDone(U1), &proceed, table(&[R1, R2], &[]));
    }

    #[test]
    fn iud_with_rq_not_empty_and_uq_not_empty_is_erroneous() {
        erroneous(table(&[R1], &[U1]), UpdateDone(U1));
    }

    #[test]
    fn what_the_table_leaves_out_is_erroneous_too() {
        erroneous(table(&[], &[]), ReadDone(R1));
        erroneous(table(&[R1], &[]), UpdateDone(U1));
        erroneous(table(&[R1], &[]), ReadDone(R2));
        erroneous(table(&[], &[U1, R1]), UpdateDone(U2));
    }

    #[test]
    fn a_second_update_queues_before_the_table() {
        let mut turns = Serialised::default();
        assert_eq!(turns.handle(UpdateRequest(U1)), Ok(vec![Proceed::Update(U1)]));
        assert_eq!(turns.handle(UpdateRequest(U2)), Ok(vec![]));
        assert_eq!(turns.handle(ReadRequest(R1)), Ok(vec![]));
        // The read that came after the first update has its turn, and the second update waits for it.
        assert_eq!(turns.handle(UpdateDone(U1)), Ok(vec![Proceed::Read(R1)]));
        assert_eq!(turns.handle(ReadDone(R1)), Ok(vec![Proceed::Update(U2)]));
        assert_eq!(turns.handle(UpdateDone(U2)), Ok(vec![]));
        assert!(turns.is_idle());
    }

    #[test]
    fn what_a_client_asked_for_vanishes_with_it() {
        let mut turns = Serialised::default();
        turns.handle(ReadRequest(R1)).unwrap();
        turns.handle(UpdateRequest(U1)).unwrap();
        turns.handle(ReadRequest(R2)).unwrap();
        turns.handle(UpdateRequest(U2)).unwrap();
        assert_eq!(turns.client_gone(R1.client), [Proceed::Update(U1)]);
        assert_eq!(turns.client_gone(77), []);
        assert_eq!(turns.client_gone(U1.client), [Proceed::Read(R2)]);
        assert_eq!(turns.client_gone(R2.client), [Proceed::Update(U2)]);
        assert_eq!(turns.client_gone(U2.client), []);
        assert!(turns.is_idle());
    }

    #[test]
    fn no_more_wait_than_may() {
        let mut turns = Serialised::default();
        turns.handle(UpdateRequest(U1)).unwrap();
        for number in 1..MAX_SERIALISED_WAITING as u64 {
            turns.handle(ReadRequest(SerialisedRequest { client: 1, number })).unwrap();
        }
        assert_eq!(turns.handle(ReadRequest(R2)), Err(SerialisedError::Full));
        assert_eq!(turns.handle(UpdateRequest(U2)), Err(SerialisedError::Full));
    }
}
