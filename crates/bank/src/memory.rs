//! A bank in memory that nodes share: segments of the helper, of coherence `null`.
//!
//! An envelope proves itself, so no lock is needed: torn or foreign bytes are misses (rule B2). Readers of the segment's own node read in
//! its memory, without a message; others get what they need, one-sidedly, through their helper. Writers decide what is replaced ([`set`]).
//!
//! All banks of one user with one size of block have their segments in common, by name: `verbena-bank/USER/BLOCK/NUMBER`. Names of blocks
//! and checksums are made with each volume's secret, so one volume's block is no block of another. A thread looks for
//! the segments and allocates those that are missing, so a helper that starts later, or again, is used from then on.

mod set;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::thread::park_timeout;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use verbena_client::{
    Coherence, Error, Failure, Memory, NewSegment, Placement, PutOptions, Result, SegmentId, Socket, Window,
};

use self::set::{Entry, Geometry, Seat};
use crate::{Answer, BlockSize, DaemonHealth, Name};

/// What a bank in memory is made of.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The helper's sockets. The first that answers is used.
    pub sockets: Vec<Socket>,
    /// Bytes of a block.
    pub block: BlockSize,
    /// Bytes of segments that are wanted. Where another bank of the same user has more, those are used too.
    pub bytes: u64,
    /// After this time a block whose helper has not answered is a miss.
    pub deadline: Duration,
}

/// A bank in memory of the helper.
#[derive(Debug)]
pub struct SharedMemory(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: MemoryOptions,
    epoch: Instant,
    segments: RwLock<Arc<Vec<Segment>>>,
    state: Mutex<State>,
    is_due: AtomicBool,
}

/// What is known of the helper.
#[derive(Default)]
struct State {
    health: DaemonHealth,
    idle: Vec<Connection>,
    /// Why there is no segment, or none more.
    problem: Option<String>,
    looked: Option<Duration>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("health", &self.health).field("problem", &self.problem).finish_non_exhaustive()
    }
}

/// One connection to the helper. Its calls end at a time that the caller sets.
struct Connection {
    memory: Memory,
    until_ms: Arc<AtomicU64>,
}

#[derive(Debug)]
struct Segment {
    id: SegmentId,
    geometry: Geometry,
    bytes: u64,
    home: String,
    /// Where its bytes are in this node's memory; nothing where they have to be got.
    window: RwLock<Option<Window>>,
    is_elsewhere: AtomicBool,
}

/// One caller's use of the helper: a connection when one is needed, until a time.
struct Call<'a> {
    inner: &'a Inner,
    connection: Option<Connection>,
    until: Duration,
}

/// What is known of a bank in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatus {
    /// Segments that it has.
    pub segments: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Whole blocks that they hold.
    pub blocks: u64,
    /// Names of the nodes whose memory they are in.
    pub homes: Vec<String>,
    /// Why there is no segment, or none more.
    pub problem: Option<String>,
}

impl SharedMemory {
    /// Largest segment of a helper.
    const SEGMENT: u64 = 16 << 20;
    /// Segments of one bank: 16 GiB.
    const MOST: usize = 1024;
    /// Idle connections kept.
    const IDLE: usize = 8;
    /// How often segments are looked for when nothing is known to be wrong.
    const LOOK: Duration = Duration::from_secs(10);

    /// Looks for the segments, once here and from then on in a thread of its own, which ends with this. `None` if so many bytes have no room for a block.
    pub fn new(options: MemoryOptions) -> std::io::Result<Option<Self>> {
        if Geometry::new(options.bytes.min(Self::SEGMENT), options.block).is_none() {
            return Ok(None);
        }
        let inner = Arc::new(Inner {
            options,
            epoch: Instant::now(),
            segments: RwLock::default(),
            state: Mutex::default(),
            is_due: AtomicBool::new(true),
        });
        inner.look();
        let weak = Arc::downgrade(&inner);
        std::thread::Builder::new().name("bank segments".to_owned()).spawn(move || keep(&weak))?;
        Ok(Some(SharedMemory(inner)))
    }

    /// What it has now.
    pub fn status(&self) -> MemoryStatus {
        let segments = self.0.segments();
        let mut homes: Vec<String> = segments.iter().map(|segment| segment.home.clone()).collect();
        homes.sort();
        homes.dedup();
        MemoryStatus {
            segments: segments.len(),
            bytes: segments.iter().map(|segment| segment.bytes).sum(),
            blocks: segments.iter().map(|segment| segment.geometry.blocks()).sum(),
            homes,
            problem: self.0.state().problem.clone(),
        }
    }

    /// The items of these names; nothing where no helper, or no segment, could be asked in time.
    pub(crate) fn fetch(&self, names: &[Name]) -> Vec<Option<Answer>> {
        let segments = self.0.segments();
        let mut call = Call::new(&self.0, self.0.options.deadline);
        let answers = names.iter().map(|name| {
            let seat = Seat::of(name);
            let segment = segments.get(seat.segment(segments.len()))?;
            match segment.item(&seat, &mut call) {
                Ok(item) => Some(item.map_or(Answer::None, Answer::Item)),
                Err(error) => {
                    call.failed(&error);
                    None
                }
            }
        });
        let answers = answers.collect();
        call.end();
        answers
    }

    /// Stores items, each over what its set can best do without. Says which were.
    pub(crate) fn store(&self, items: &[(Name, Vec<u8>)]) -> Vec<bool> {
        let segments = self.0.segments();
        let store = |(name, item): &(Name, Vec<u8>)| {
            let seat = Seat::of(name);
            let Some(segment) = segments.get(seat.segment(segments.len())) else { return false };
            let mut call = Call::new(&self.0, self.0.options.deadline);
            let stored = segment.replace(&seat, item, &mut call);
            if let Err(error) = &stored {
                call.failed(error);
            }
            call.end();
            stored.unwrap_or(false)
        };
        items.iter().map(store).collect()
    }

    /// Empties the slots of these names. Says of each whether there was one; nothing where no helper, or no segment, could be asked in time.
    pub(crate) fn remove(&self, names: &[Name]) -> Vec<Option<bool>> {
        let segments = self.0.segments();
        let mut call = Call::new(&self.0, self.0.options.deadline);
        let removed = names.iter().map(|name| {
            let seat = Seat::of(name);
            let segment = segments.get(seat.segment(segments.len()))?;
            segment.empty(&seat, &mut call).map_err(|error| call.failed(&error)).ok()
        });
        let removed = removed.collect();
        call.end();
        removed
    }
}

/// Looks for segments until the bank is dropped.
fn keep(bank: &Weak<Inner>) {
    const TURN: Duration = Duration::from_millis(200);
    loop {
        park_timeout(TURN);
        let Some(inner) = bank.upgrade() else { return };
        let since = inner.state().looked.map(|looked| inner.epoch.elapsed().saturating_sub(looked));
        if inner.is_due.load(Relaxed) || since.is_none_or(|since| since >= SharedMemory::LOOK) {
            inner.look();
        }
    }
}

impl Inner {
    fn segments(&self) -> Arc<Vec<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds all segments that there are, and allocates those that are wanted.
    fn look(&self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        if !self.state().health.may_ask(self.epoch.elapsed()) {
            return;
        }
        self.is_due.store(false, Relaxed);
        let mut call = Call::new(self, PATIENCE);
        let (found, problem) = self.find(&mut call);
        match &problem {
            Some(error) if is_of_the_helper(error) => call.failed(error),
            _ => call.end(),
        }
        let mut state = self.state();
        state.looked = Some(self.epoch.elapsed());
        state.problem = problem.map(|error| error.to_string());
        drop(state);
        let before = self.segments();
        let is_same = before.len() == found.len() && before.iter().zip(&found).all(|(one, other)| one.id == other.id);
        if !is_same {
            *self.segments.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        }
    }

    fn find(&self, call: &mut Call<'_>) -> (Vec<Segment>, Option<Error>) {
        let wanted = (self.options.bytes.div_ceil(SharedMemory::SEGMENT) as usize).min(SharedMemory::MOST);
        let mut found = vec![];
        while found.len() < SharedMemory::MOST {
            match self.one(call, found.len(), found.len() < wanted) {
                Ok(Some(segment)) => found.push(segment),
                Ok(None) => break,
                // What a full helper has is used.
                Err(error) => return (found, Some(error)),
            }
        }
        (found, None)
    }

    fn one(&self, call: &mut Call<'_>, nth: usize, is_wanted: bool) -> Result<Option<Segment>> {
        let user = rustix::process::geteuid().as_raw();
        let name = format!("verbena-bank/{user}/{}/{nth}", self.options.block.bytes());
        let mut stat = call.memory()?.stat(&name);
        if let Err(Error::Memory { why: Failure::Lost | Failure::Reclaimed, .. }) = stat
            && is_wanted
        {
            // A segment that is lost keeps its name until it is released. Another mount may have done so.
            _ = call.memory()?.release(&name);
            stat = call.memory()?.stat(&name);
        }
        let gone = matches!(
            &stat,
            Err(Error::Memory { why: Failure::NotFound | Failure::Released | Failure::Lost | Failure::Reclaimed, .. })
        );
        if gone && !is_wanted {
            return Ok(None);
        }
        if gone {
            let bytes = self.options.bytes.min(SharedMemory::SEGMENT);
            let new = NewSegment::of(bytes).named(&name).coherent(Coherence::Null).placed(Placement::Local);
            match call.memory()?.allocate(new) {
                // Another mount was first.
                Ok(_) | Err(Error::Memory { why: Failure::Exists, .. }) => {}
                Err(error) => return Err(error),
            }
            stat = call.memory()?.stat(&name);
        }
        let stat = stat?;
        if !stat.is_yours || stat.segment.coherence != Coherence::Null {
            let text = format!(
                "segment {name} belongs to user {} or is no bank's: release it with `verbena mem rm`",
                stat.segment.owner
            );
            return Err(Error::Memory { why: Failure::NotYours, text });
        }
        let Some(geometry) = Geometry::new(stat.segment.bytes, self.options.block) else { return Ok(None) };
        Ok(Some(Segment {
            id: stat.id,
            geometry,
            bytes: stat.segment.bytes,
            home: stat.segment.home,
            window: RwLock::default(),
            is_elsewhere: AtomicBool::new(false),
        }))
    }

    fn connect(&self, patience: Duration) -> Result<Connection> {
        let mut last = None;
        for socket in &self.options.sockets {
            match Memory::connect(socket, patience) {
                Ok(mut memory) => {
                    let until_ms = Arc::new(AtomicU64::new(0));
                    let (until, epoch) = (until_ms.clone(), self.epoch);
                    memory.while_it_waits(Duration::from_millis(5), move || {
                        epoch.elapsed().as_millis() < u128::from(until.load(Relaxed))
                    });
                    return Ok(Connection { memory, until_ms });
                }
                Err(error) => last = last.or(Some(error)),
            }
        }
        Err(last.unwrap_or_else(|| Error::Refused("no helper's socket is known".to_owned())))
    }
}

impl Segment {
    /// The item of a name, as it stands there.
    fn item(&self, seat: &Seat, call: &mut Call<'_>) -> Result<Option<Vec<u8>>> {
        let entries = self.read(self.geometry.entries(seat), call)?;
        self.geometry.find(seat, &entries).map(|at| self.read(at, call)).transpose()
    }

    fn replace(&self, seat: &Seat, item: &[u8], call: &mut Call<'_>) -> Result<bool> {
        let entries = self.read(self.geometry.entries(seat), call)?;
        let Some((slot, at)) = self.geometry.replace(seat, &entries, item.len()) else { return Ok(false) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as u32;
        let entry = Entry { tag: seat.tag, bytes: item.len() as u32, stored: now };
        let put = |offset: u64| PutOptions { offset, over: None };
        call.memory()?.put_with(self.id, item, put(slot))?;
        call.memory()?.put_with(self.id, &entry.bytes(), put(at))?;
        Ok(true)
    }

    fn empty(&self, seat: &Seat, call: &mut Call<'_>) -> Result<bool> {
        let entries = self.read(self.geometry.entries(seat), call)?;
        let Some(at) = self.geometry.entry(seat, &entries) else { return Ok(false) };
        let nothing = Entry { tag: 0, bytes: 0, stored: 0 };
        call.memory()?.put_with(self.id, &nothing.bytes(), PutOptions { offset: at, over: None })?;
        Ok(true)
    }

    fn read(&self, at: std::ops::Range<u64>, call: &mut Call<'_>) -> Result<Vec<u8>> {
        let length = at.end - at.start;
        if !self.is_elsewhere.load(Relaxed) {
            let window = self.window.read().unwrap_or_else(PoisonError::into_inner).clone();
            let mut bytes = vec![0; length as usize];
            if let Some(window) = window
                && window.read(at.start as usize, &mut bytes)
            {
                return Ok(bytes);
            }
            // The node's memory was moved, or has never been looked at.
            match call.memory()?.window(self.id) {
                Ok(window) => {
                    let is_read = window.read(at.start as usize, &mut bytes);
                    *self.window.write().unwrap_or_else(PoisonError::into_inner) = Some(window);
                    if is_read {
                        return Ok(bytes);
                    }
                }
                Err(Error::Memory { why: Failure::Elsewhere, .. }) => self.is_elsewhere.store(true, Relaxed),
                Err(error) => return Err(error),
            }
        }
        Ok(call.memory()?.get_part(self.id, at.start, Some(length))?.bytes)
    }
}

impl<'a> Call<'a> {
    fn new(inner: &'a Inner, patience: Duration) -> Self {
        Call { inner, connection: None, until: inner.epoch.elapsed() + patience }
    }

    fn memory(&mut self) -> Result<&mut Memory> {
        if self.connection.is_none() {
            let left = self.until.saturating_sub(self.inner.epoch.elapsed());
            if left.is_zero() {
                return Err(Error::Stopped);
            }
            let idle = self.inner.state().idle.pop();
            self.connection = Some(match idle {
                Some(idle) => idle,
                None => self.inner.connect(left)?,
            });
        }
        match &mut self.connection {
            Some(connection) => {
                connection.until_ms.store(self.until.as_millis() as u64, Relaxed);
                Ok(&mut connection.memory)
            }
            None => Err(Error::Stopped),
        }
    }

    /// Keeps the connection for the next caller.
    fn end(self) {
        let Some(connection) = self.connection else { return };
        let mut state = self.inner.state();
        state.health.answered();
        if state.idle.len() < SharedMemory::IDLE {
            state.idle.push(connection);
        }
    }

    /// Nothing more is asked in this call. The helper rests, and its segments are looked for again.
    fn failed(&mut self, error: &Error) {
        let mut state = self.inner.state();
        if is_of_the_helper(error) {
            if self.connection.take().is_some() || !matches!(error, Error::Stopped) {
                state.health.failed(self.inner.epoch.elapsed());
            }
            state.idle.clear();
            state.problem = Some(error.to_string());
            self.until = Duration::ZERO;
        }
        drop(state);
        self.inner.is_due.store(true, Relaxed);
    }
}

/// Whether the helper itself did not answer, and not only this segment.
fn is_of_the_helper(error: &Error) -> bool {
    !matches!(error, Error::Memory { why, .. } if !matches!(why, Failure::Late | Failure::Unknown | Failure::Unavailable))
}
