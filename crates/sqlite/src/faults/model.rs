//! Segments and locks in this process, behind connections whose n-th call fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbena_client::wire::LockMode;
use verbena_client::{Error, Failure, NewSegment, Result, Value};

use crate::store::{Connect, Store};

/// What becomes of a call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is not done: the node is full.
    NoRoom,
    /// It is not done in time, as when the view changes.
    Late,
    /// The outcome is unknown. It was done.
    Done,
    /// The outcome is unknown. It was not done.
    NotDone,
    /// The outcome is unknown. It will be done before the connection's next lock goes to another (rule M3).
    DoneLater,
    /// The node has had no lease for a while: what this connection held others may hold.
    Lapsed,
    /// The helper has ended, and with it the connection.
    Over,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Calls that are done before it.
    pub(crate) after: u64,
    /// Whether all further calls fail as well.
    pub(crate) lasts: bool,
}

#[derive(Clone, Debug)]
struct Segment {
    bytes: Vec<u8>,
    version: u64,
}

/// Which connection holds it, as which of its holds, and how.
type Holder = (u64, u64, LockMode);

/// All that there is.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    segments: BTreeMap<String, Segment>,
    locks: BTreeMap<Vec<u8>, Vec<Holder>>,
    /// Puts that will be done, each by its connection: the segment, the bytes, and the version that they replace.
    on_their_way: Vec<(u64, String, Vec<u8>, u64)>,
    /// The last version of any segment, and the last number of any hold: no two have the same.
    last: u64,
    calls: u64,
    fault: Option<Fault>,
    room: usize,
}

impl State {
    /// An empty state with room for `room` segments.
    pub(crate) fn with_room(room: usize) -> State {
        State { room, ..State::default() }
    }

    /// From now on.
    pub(crate) fn fails(&mut self, fault: Option<Fault>) {
        (self.calls, self.fault) = (0, fault);
    }

    /// Whether a call has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.fault.is_some_and(|fault| self.calls > fault.after)
    }

    /// Locks that are held.
    pub(crate) fn held(&self) -> usize {
        self.locks.values().map(Vec::len).sum()
    }

    pub(crate) fn count(&self) -> usize {
        self.segments.len()
    }

    pub(crate) fn set_room(&mut self, room: usize) {
        self.room = room;
    }

    /// Without what programs hold: as if all had been killed, and what they put had arrived.
    pub(crate) fn with_all_killed(mut self) -> State {
        for (_, segment, bytes, over) in std::mem::take(&mut self.on_their_way) {
            let _ = self.put(&segment, &bytes, over);
        }
        self.locks.clear();
        self
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn found(&mut self, segment: &str) -> Result<&mut Segment> {
        let missing = || failure(Failure::NotFound, &format!("there is no segment {segment}"));
        self.segments.get_mut(segment).ok_or_else(missing)
    }

    fn put(&mut self, segment: &str, bytes: &[u8], over: u64) -> Result<u64> {
        let version = self.next();
        let found = self.found(segment)?;
        if found.version != over {
            return Err(failure(Failure::Conflict { current: found.version }, "another version"));
        }
        found.bytes[..bytes.len()].copy_from_slice(bytes);
        found.version = version;
        Ok(version)
    }

    fn arrive(&mut self, connection: u64) {
        let (mine, others) = std::mem::take(&mut self.on_their_way).into_iter().partition(|put| put.0 == connection);
        self.on_their_way = others;
        for (_, segment, bytes, over) in mine {
            let _ = self.put(&segment, &bytes, over);
        }
    }

    fn release_all_of(&mut self, connection: u64) {
        self.arrive(connection);
        for holders in self.locks.values_mut() {
            holders.retain(|holder| holder.0 != connection);
        }
    }

    fn acquire(&mut self, connection: u64, name: &[u8], mode: LockMode) -> Result<u64> {
        let ticket = self.next();
        let holders = self.locks.entry(name.to_vec()).or_default();
        if let Some((_, ticket, its)) = holders.iter().find(|holder| holder.0 == connection) {
            let is_more = mode == LockMode::Exclusive && *its == LockMode::Shared;
            return if is_more { Err(Error::Refused("it is held shared".into())) } else { Ok(*ticket) };
        }
        let is_free = |holder: &Holder| mode == LockMode::Shared && holder.2 == LockMode::Shared;
        if !holders.iter().all(is_free) {
            return Err(Error::NotFree);
        }
        holders.push((connection, ticket, mode));
        Ok(ticket)
    }

    fn holder(&mut self, ticket: u64) -> Option<&mut Holder> {
        self.locks.values_mut().flatten().find(|holder| holder.1 == ticket)
    }
}

/// All that there is, for all connections.
#[derive(Clone, Default)]
pub(crate) struct World(pub(crate) Arc<Mutex<State>>);

pub(crate) struct Link {
    world: World,
    number: u64,
    is_over: bool,
}

fn failure(why: Failure, text: &str) -> Error {
    Error::Memory { why, text: text.into() }
}

fn over() -> Error {
    verbena_ipc::Error::from(verbena_ipc::Over::HelperGone).into()
}

/// What a call is about, as far as it matters to how it fails.
#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Memory,
    /// A lock is wanted.
    Lock,
    /// One is given back, for which there is always room.
    Unlock,
}

impl Connect for World {
    type Store = Link;

    fn connect(&self) -> Result<Link> {
        // A connection may be older than the state.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let state = self.0.lock();
        let is_gone = |fault: Fault| fault.kind == Kind::Over && fault.lasts && state.calls > fault.after;
        if state.fault.is_some_and(is_gone) {
            return Err(over());
        }
        drop(state);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Link { world: self.clone(), number, is_over: false })
    }
}

impl Link {
    fn call<T>(&mut self, about: About, ask: impl FnOnce(&mut State, u64) -> Result<T>) -> Result<T> {
        if self.is_over {
            return Err(over());
        }
        let mut state = self.world.0.lock();
        state.calls += 1;
        let calls = state.calls;
        let hits = |fault: &Fault| calls == fault.after + 1 || fault.lasts && calls > fault.after;
        let Some(fault) = state.fault.filter(hits) else { return ask(&mut state, self.number) };
        let unknown = match about {
            About::Memory => failure(Failure::Unknown, "nobody knows"),
            About::Lock | About::Unlock => verbena_ipc::Error::Deadline { number: calls }.into(),
        };
        match (fault.kind, about) {
            (Kind::NoRoom, About::Memory) => Err(failure(Failure::NoRoom, "the node is full")),
            (Kind::NoRoom, About::Lock) => Err(Error::Refused("no room for another lock".into())),
            (Kind::Late, About::Memory) => Err(failure(Failure::Late, "the view changes")),
            (Kind::Done, _) => ask(&mut state, self.number).and(Err(unknown)),
            (Kind::NoRoom, About::Unlock) | (Kind::Late, _) | (Kind::NotDone | Kind::DoneLater, _) => Err(unknown),
            (Kind::Lapsed, _) => {
                state.release_all_of(self.number);
                match about {
                    About::Memory => Err(failure(Failure::Unavailable, "the node has no lease")),
                    About::Lock | About::Unlock => Err(Error::Lost),
                }
            }
            (Kind::Over, _) => {
                state.release_all_of(self.number);
                self.is_over = true;
                Err(over())
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.world.0.lock().release_all_of(self.number);
    }
}

impl Store for Link {
    type Hold = u64;

    fn allocate(&mut self, wanted: NewSegment) -> Result<()> {
        self.call(About::Memory, |state, _| {
            let name = wanted.name.clone().unwrap_or_default();
            if state.segments.contains_key(&name) {
                return Err(failure(Failure::Exists, "there is one"));
            }
            if state.segments.len() >= state.room {
                return Err(failure(Failure::NoRoom, "the node is full"));
            }
            let version = state.next();
            state.segments.insert(name, Segment { bytes: vec![0; wanted.bytes as usize], version });
            Ok(())
        })
    }

    fn release(&mut self, segment: &str) -> Result<()> {
        self.call(About::Memory, |state, _| {
            state.found(segment)?;
            state.segments.remove(segment);
            Ok(())
        })
    }

    fn get(&mut self, segment: &str) -> Result<Value> {
        self.call(About::Memory, |state, _| {
            let Segment { bytes, version } = state.found(segment)?.clone();
            Ok(Value { bytes, version, stamp_ns: 1 })
        })
    }

    fn get_part(&mut self, segment: &str, offset: u64, length: u64) -> Result<Value> {
        let mut value = self.get(segment)?;
        value.bytes = value.bytes[offset as usize..(offset + length) as usize].to_vec();
        Ok(value)
    }

    fn put(&mut self, segment: &str, bytes: &[u8], over: u64) -> Result<u64> {
        let number = self.number;
        let put = self.call(About::Memory, |state, _| state.put(segment, bytes, over));
        let mut state = self.world.0.lock();
        if matches!(put, Err(Error::Memory { why: Failure::Unknown, .. }))
            && state.fault.is_some_and(|fault| fault.kind == Kind::DoneLater)
        {
            state.on_their_way.push((number, segment.into(), bytes.into(), over));
        }
        put
    }

    fn version(&mut self, segment: &str) -> Result<u64> {
        self.call(About::Memory, |state, _| Ok(state.found(segment)?.version))
    }

    fn lock_name(&mut self, segment: &str) -> Result<Vec<u8>> {
        self.version(segment).map(|_| format!("memory/{segment}").into_bytes())
    }

    fn acquire(&mut self, name: &[u8], mode: LockMode, _: Duration) -> Result<u64> {
        self.call(About::Lock, |state, connection| state.acquire(connection, name, mode))
    }

    fn share(&mut self, hold: &mut u64) -> Result<()> {
        let ticket = *hold;
        self.call(About::Unlock, |state, connection| {
            state.arrive(connection);
            state.holder(ticket).ok_or(Error::Lost)?.2 = LockMode::Shared;
            Ok(())
        })
    }

    fn unlock(&mut self, hold: u64) -> Result<()> {
        self.call(About::Unlock, |state, connection| {
            state.arrive(connection);
            state.holder(hold).ok_or(Error::Lost)?;
            state.locks.values_mut().for_each(|holders| holders.retain(|holder| holder.1 != hold));
            Ok(())
        })
    }

    fn is_held(&mut self, hold: &u64) -> bool {
        !self.is_over && self.world.0.lock().holder(*hold).is_some()
    }
}
