//! The node's durable records, stored by a thread of their own: a slow disk holds no renewal up.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use verbena_cluster::{KeeperRecord, StartRecord};

use crate::error::Result;
use crate::local::store::Store;
use crate::membership::mailbox::Mailbox;
use crate::thread;

const START: &str = "start";
const KEEPER: &str = "keeper";

/// The records and the thread that stores them. Ends with what it was given last.
pub(crate) struct Records {
    store: Arc<Store>,
    work: Option<SyncSender<Work>>,
    thread: Option<JoinHandle<()>>,
    /// The keeper's record that was last given to be stored, until it is known to be.
    keeper: Option<KeeperRecord>,
}

struct Work {
    name: &'static str,
    bytes: Vec<u8>,
    mailbox: Arc<Mailbox>,
}

impl Records {
    pub(crate) fn open(store: Store) -> Result<Self> {
        let store = Arc::new(store);
        // Each of the two machines has one record under way at a time.
        let (work, to_do) = sync_channel(2);
        let own = store.clone();
        let thread = thread::spawn("verbena-store", move || store_all(&own, &to_do))?;
        Ok(Records { store, work: Some(work), thread: Some(thread), keeper: None })
    }

    pub(crate) fn start(&self) -> Result<Option<StartRecord>> {
        Ok(self.store.read(START)?.map(|bytes| StartRecord::decode(&bytes)).transpose()?)
    }

    pub(crate) fn keeper(&self) -> Result<Option<KeeperRecord>> {
        Ok(self.store.read(KEEPER)?.map(|bytes| KeeperRecord::decode(&bytes)).transpose()?)
    }

    /// Stores it while the caller waits.
    pub(crate) fn store_start_now(&self, record: &StartRecord) -> Result<()> {
        self.store.replace(START, &record.encode())
    }

    /// Stores it; the outcome is put on the mailbox.
    pub(crate) fn store_start(&self, record: StartRecord, mailbox: &Arc<Mailbox>) {
        self.give(Work { name: START, bytes: record.encode(), mailbox: mailbox.clone() });
    }

    /// Stores it; the outcome is put on the mailbox.
    pub(crate) fn store_keeper(&mut self, record: KeeperRecord, mailbox: &Arc<Mailbox>) {
        self.give(Work { name: KEEPER, bytes: record.encode(), mailbox: mailbox.clone() });
        self.keeper = Some(record);
    }

    /// The keeper's record that is not known to be stored.
    pub(crate) fn keeper_under_way(&mut self) -> Option<KeeperRecord> {
        self.keeper.take()
    }

    pub(crate) fn forget_keeper(&mut self) {
        self.keeper = None;
    }

    fn give(&self, work: Work) {
        let sender = self.work.as_ref().expect("invariant: there until it is dropped");
        sender.send(work).expect("invariant: the thread ends after the sender, or with the process");
    }
}

impl Drop for Records {
    /// What was given is stored, and the state directory is free, when this returns.
    fn drop(&mut self) {
        drop(self.work.take());
        // If it panicked the process has ended.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn store_all(store: &Store, to_do: &Receiver<Work>) {
    for Work { name, bytes, mailbox } in to_do {
        let outcome = store.replace(name, &bytes).map_err(|error| error.to_string());
        if name == START { mailbox.start_stored(outcome) } else { mailbox.keeper_stored(outcome) }
    }
}
