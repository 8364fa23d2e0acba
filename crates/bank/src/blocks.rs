//! Blocks into a bank and out of it, proven and counted.

use crate::{
    Answer, BlockKey, BlockSize, Counters, Envelope, Memcached, Name, Placement, Request, Rules, Secret, Store,
};

/// The bank of one volume.
#[derive(Debug)]
pub struct Blocks {
    secret: Secret,
    placement: Placement,
    memcached: Memcached,
    rules: Rules,
    counters: Counters,
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
    pub fn new(secret: Secret, placement: Placement, memcached: Memcached, rules: Rules) -> Self {
        Blocks { secret, placement, memcached, rules, counters: Counters::default() }
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Its daemons.
    pub fn memcached(&self) -> &Memcached {
        &self.memcached
    }

    /// The blocks that the bank has, each in the place of its key. All are asked for together.
    pub fn fetch(&self, keys: &[BlockKey]) -> Vec<Option<Vec<u8>>> {
        let get = |name: Name| Request::Get { name: name.bytes().to_vec() };
        let requests: Vec<_> = keys.iter().map(|key| self.place(key)).map(|(at, name)| (at, get(name))).collect();
        let answers = self.memcached.exchange(&requests);
        keys.iter().zip(answers).map(|(key, answer)| self.proven(key, answer)).collect()
    }

    /// Stores blocks. One that does not get there is counted, and is a miss later.
    pub fn store(&self, blocks: &[(BlockKey, Vec<u8>)]) {
        let set = |name: Name, key: &BlockKey, bytes: &[u8]| Request::Set {
            name: name.bytes().to_vec(),
            item: Envelope::seal(&self.secret, key, bytes),
            store: Store::Replace,
            seconds: 0,
        };
        let request = |(key, bytes): &(BlockKey, Vec<u8>)| {
            let (at, name) = self.place(key);
            (at, set(name, key, bytes))
        };
        let requests: Vec<_> = blocks.iter().map(request).collect();
        for answer in self.memcached.exchange(&requests) {
            let is_stored = answer == Some(Answer::Done);
            Counters::add(if is_stored { &self.counters.stored } else { &self.counters.not_stored }, 1);
        }
    }

    /// Introduces a client of `volume` to each daemon, so that a second one with another secret or list is told before it serves anything.
    pub fn introduce(&self, volume: &str, size: BlockSize) -> Vec<Introduction> {
        let list = self.memcached.daemons().fingerprint(self.placement);
        let ours = format!("{} {list}", self.secret.fingerprint());
        let known = format!("verbena:{}", crate::secret::hex(&Secret::new([0; 32]).name(volume.as_bytes())));
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
            let answers = self.memcached.exchange(&requests.clone().map(|request| (at, request)));
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
        (0..self.memcached.daemons().list().len()).map(daemon).collect()
    }

    fn place(&self, key: &BlockKey) -> (usize, Name) {
        let name = key.name(&self.secret);
        (self.placement.of(self.memcached.daemons(), &name, key.block()), name)
    }

    fn proven(&self, key: &BlockKey, answer: Option<Answer>) -> Option<Vec<u8>> {
        let (bytes, counter) = match answer {
            Some(Answer::Item(item)) => match Envelope::open(&self.secret, key, item, self.rules) {
                Ok(bytes) => (Some(bytes), &self.counters.hits),
                Err(fault) => {
                    self.counters.fault(fault);
                    return None;
                }
            },
            Some(_) => (None, &self.counters.absent),
            None => (None, &self.counters.daemon_down),
        };
        Counters::add(counter, 1);
        bytes
    }
}
