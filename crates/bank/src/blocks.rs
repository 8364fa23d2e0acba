//! Blocks into a bank and out of it, proven and counted.

use std::sync::Arc;

use crate::{
    Answer, BlockKey, BlockSize, Counters, Envelope, Fault, Memcached, Name, Near, Placement, Request, Rules, Secret,
    SharedMemory, Store,
};

/// The bank of one volume.
#[derive(Debug)]
pub struct Blocks {
    secret: Secret,
    bank: Bank,
    near: Option<Near>,
    rules: Rules,
    counters: Counters,
    /// Of blocks of listings.
    listings: Counters,
}

/// A block that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// Whether no bank was asked for it.
    pub is_near: bool,
}

/// Where the items are.
#[derive(Debug)]
pub enum Bank {
    /// In daemons, spread over them so.
    Memcached(Memcached, Placement),
    /// In memory of the helper.
    Memory(SharedMemory),
}

/// Why the bank did not give a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Miss {
    /// It has none of this version: it was never stored, or gave way to others.
    Absent,
    /// The daemon, or the helper, rests, died or did not answer in time.
    Down,
    /// What it has does not prove itself.
    Fault(Fault),
}

/// What became of blocks that were to be taken out of the bank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Blocks that the bank had.
    pub blocks: u64,
    /// Blocks whose daemon, or the helper, did not answer: it may have them still.
    pub unreached: u64,
}

/// What a daemon says when a client of the volume introduces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Introduction {
    /// The daemon knows this volume, with this secret and this list; or it learnt them now.
    Agreed,
    /// The daemon does not answer. Its blocks are misses.
    Down,
    /// Another client of the volume has another secret: neither finds the other's blocks.
    OtherSecret,
    /// Another client of the volume lists the daemons otherwise: they look for the same block at different daemons.
    OtherList,
    /// The daemon takes no item as large as a block in its envelope.
    TooSmall,
}

impl Blocks {
    /// Longest key of a block that fits an item of a mebibyte and some; longer ones are refused by the daemon, and miss.
    const KEY_ROOM: usize = 1024;

    /// The bank of the volume that `secret` belongs to.
    pub fn new(secret: Secret, bank: Bank, rules: Rules) -> Self {
        Blocks { secret, bank, near: None, rules, counters: Counters::default(), listings: Counters::default() }
    }

    /// The same, with blocks in memory of this process before it.
    pub fn with_near(self, near: Option<Near>) -> Self {
        Blocks { near, ..self }
    }

    /// The blocks in memory of this process.
    pub fn near(&self) -> Option<&Near> {
        self.near.as_ref()
    }

    /// What was counted of blocks of files since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was counted of blocks of listings since the start.
    pub fn listing_counters(&self) -> &Counters {
        &self.listings
    }

    fn counters_of(&self, key: &BlockKey) -> &Counters {
        if key.is_listing() { &self.listings } else { &self.counters }
    }

    /// Where its items are.
    pub fn bank(&self) -> &Bank {
        &self.bank
    }

    /// The blocks that the bank has, each in the place of its key. All are asked for together.
    pub fn fetch(&self, keys: &[BlockKey]) -> Vec<Option<Vec<u8>>> {
        let bytes = |found: Found| Arc::unwrap_or_clone(found.bytes);
        self.look(keys).into_iter().map(|found| found.ok().map(bytes)).collect()
    }

    /// The same, with the cause of each miss.
    pub fn look(&self, keys: &[BlockKey]) -> Vec<Result<Found, Miss>> {
        let names: Vec<Name> = keys.iter().map(|key| key.name(&self.secret)).collect();
        let near = |name: &Name| Some(Found { bytes: self.near.as_ref()?.get(name)?, is_near: true });
        let mut found: Vec<Option<Result<Found, Miss>>> = names.iter().map(|name| near(name).map(Ok)).collect();
        let places: Vec<usize> = (0..keys.len()).filter(|place| found[*place].is_none()).collect();
        if !places.is_empty() {
            for (place, answer) in places.iter().zip(self.ask(keys, &names, &places)) {
                let bytes = self.proven(&keys[*place], answer).map(Arc::new);
                if let (Some(near), Ok(bytes)) = (&self.near, &bytes) {
                    near.put(names[*place], bytes.clone());
                }
                found[*place] = Some(bytes.map(|bytes| Found { bytes, is_near: false }));
            }
        }
        // Each place was filled by the one or the other.
        found.into_iter().map(|found| found.unwrap_or(Err(Miss::Down))).collect()
    }

    /// What the bank answers for the keys in these places.
    fn ask(&self, keys: &[BlockKey], names: &[Name], places: &[usize]) -> Vec<Option<Answer>> {
        match &self.bank {
            Bank::Memory(memory) => memory.fetch(&places.iter().map(|place| names[*place]).collect::<Vec<_>>()),
            Bank::Memcached(memcached, placement) => {
                let get = |place: &usize| {
                    let (key, name) = (&keys[*place], &names[*place]);
                    let daemon = placement.of(memcached.daemons(), name, key.block());
                    (daemon, Request::Get { name: name.bytes().to_vec() })
                };
                memcached.exchange(&places.iter().map(get).collect::<Vec<_>>())
            }
        }
    }

    /// Keeps a block near, where there is such memory, until the bank has it and longer.
    pub fn keep_near(&self, key: &BlockKey, bytes: &Arc<Vec<u8>>) {
        if let Some(near) = &self.near {
            near.put(key.name(&self.secret), bytes.clone());
        }
    }

    /// Takes a block out of memory of this process, so that the bank is asked for it again.
    pub fn drop_near(&self, key: &BlockKey) {
        if let Some(near) = &self.near {
            near.remove(&key.name(&self.secret));
        }
    }

    /// Stores blocks. One that does not get there is counted, and is a miss later.
    pub fn store<B: AsRef<Vec<u8>>>(&self, blocks: &[(BlockKey, B)]) {
        let mut items: Vec<(&BlockKey, Name, Vec<u8>)> = Vec::with_capacity(blocks.len());
        for (key, bytes) in blocks {
            match Envelope::seal(&self.secret, key, bytes.as_ref()) {
                Ok(item) => items.push((key, key.name(&self.secret), item)),
                Err(_) => Counters::add(&self.counters_of(key).not_stored, 1),
            }
        }
        let keys: Vec<&BlockKey> = items.iter().map(|(key, ..)| *key).collect();
        let items = items.into_iter();
        let stored: Vec<bool> = match &self.bank {
            Bank::Memory(memory) => memory.store(&items.map(|(_, name, item)| (name, item)).collect::<Vec<_>>()),
            Bank::Memcached(memcached, placement) => {
                let set = |(key, name, item): (&BlockKey, Name, Vec<u8>)| {
                    let request = Request::Set { name: name.bytes().to_vec(), item, store: Store::Replace, seconds: 0 };
                    (placement.of(memcached.daemons(), &name, key.block()), request)
                };
                let answers = memcached.exchange(&items.map(set).collect::<Vec<_>>());
                answers.into_iter().map(|answer| answer == Some(Answer::Done)).collect()
            }
        };
        for (key, is_stored) in keys.into_iter().zip(stored) {
            let counters = self.counters_of(key);
            Counters::add(if is_stored { &counters.stored } else { &counters.not_stored }, 1);
        }
    }

    /// Takes blocks out, for all clients of the volume. It spares memory and spares others old bytes; no promise rests on it (rule B2).
    pub fn remove(&self, keys: &[BlockKey]) -> Removed {
        let names = keys.iter().map(|key| key.name(&self.secret));
        if let Some(near) = &self.near {
            names.clone().for_each(|name| near.remove(&name));
        }
        let removed: Vec<Option<bool>> = match &self.bank {
            Bank::Memory(memory) => memory.remove(&names.collect::<Vec<_>>()),
            Bank::Memcached(memcached, placement) => {
                let delete = |(key, name): (&BlockKey, Name)| {
                    let daemon = placement.of(memcached.daemons(), &name, key.block());
                    (daemon, Request::Delete { name: name.bytes().to_vec() })
                };
                let answers = memcached.exchange(&keys.iter().zip(names).map(delete).collect::<Vec<_>>());
                answers.into_iter().map(|answer| answer.map(|answer| answer == Answer::Done)).collect()
            }
        };
        let count = |what: Option<bool>| removed.iter().filter(|removed| **removed == what).count() as u64;
        Removed { blocks: count(Some(true)), unreached: count(None) }
    }

    /// The name of a block in this bank.
    pub fn name(&self, key: &BlockKey) -> Name {
        key.name(&self.secret)
    }

    /// Introduces a client of `volume` to each daemon, so that a second one with another secret or list is told before it serves anything.
    /// Nothing of a bank in memory: there clients of all volumes have the same segments.
    pub fn introduce(&self, volume: &str, size: BlockSize) -> Vec<Introduction> {
        let Bank::Memcached(memcached, placement) = &self.bank else { return vec![] };
        let list = memcached.daemons().fingerprint(*placement);
        let ours = format!("{} {list}", self.secret.fingerprint());
        // A volume may have clients of both kinds, which share nothing and need not agree.
        let kind = if self.secret.seal().is_some() { "\0encrypted" } else { "" };
        let known = Secret::new([0; 32]).name(format!("{volume}{kind}").as_bytes());
        let known = format!("verbena:{}", crate::secret::hex(&known));
        let name = |suffix: &str| format!("{known}{suffix}").into_bytes();
        let add = |name, item, seconds| Request::Set { name, item, store: Store::Add, seconds };
        let probe = vec![0; size.bytes() as usize + Envelope::overhead(Self::KEY_ROOM)];
        let requests = [
            add(name(""), ours.clone().into_bytes(), 0),
            Request::Get { name: name("") },
            Request::Delete { name: name(":probe") },
            add(name(":probe"), probe, 1),
        ];
        let daemon = |at: usize| {
            let answers = memcached.exchange(&requests.clone().map(|request| (at, request)));
            match &answers[..] {
                [_, Some(Answer::Item(found)), _, probe] => match String::from_utf8_lossy(found).split_once(' ') {
                    Some((secret, _)) if secret != self.secret.fingerprint() => Introduction::OtherSecret,
                    Some((_, found)) if found != list => Introduction::OtherList,
                    _ if matches!(probe, Some(Answer::Refused(_))) => Introduction::TooSmall,
                    _ => Introduction::Agreed,
                },
                _ => Introduction::Down,
            }
        };
        (0..memcached.daemons().list().len()).map(daemon).collect()
    }

    fn proven(&self, key: &BlockKey, answer: Option<Answer>) -> Result<Vec<u8>, Miss> {
        let found = match answer {
            Some(Answer::Item(item)) => Envelope::open(&self.secret, key, item, self.rules).map_err(Miss::Fault),
            Some(_) => Err(Miss::Absent),
            None => Err(Miss::Down),
        };
        let counters = self.counters_of(key);
        match &found {
            Ok(_) => Counters::add(&counters.hits, 1),
            Err(Miss::Absent) => Counters::add(&counters.absent, 1),
            Err(Miss::Down) => Counters::add(&counters.daemon_down, 1),
            Err(Miss::Fault(fault)) => counters.fault(*fault),
        }
        found
    }
}
