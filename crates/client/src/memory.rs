//! Memory that nodes share, for a program.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use verbena_ipc::ReadableMemory;
use verbena_terms::{BootClock, Clock, Time};

use crate::error::{Error, Result};
use crate::locks::{Hold, Locks};
use crate::memory_wire::{
    Failure, MemoryAnswer, MemoryRequest, NewSegment, Reclaims, SegmentInfo, SegmentStat, VALUE_PART_BYTES, Which,
};
use crate::socket::Socket;
use crate::window::Window;
use crate::wire::LockMode;
use crate::wire::{Answer, BOARD_FORGETS, Request};

/// How much longer than its helper a program waits: the helper knows what became of it.
const LONGER: Duration = Duration::from_secs(1);
/// How long who found no value where it was said to be waits before it asks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Parts that are on their way at a time.
const PARTS: usize = 3;

/// A program's connection for memory. For one thread at a time; other threads connect for themselves.
///
/// Segments last as long as their home, whatever becomes of the program: a program [releases](Self::release) a segment
/// that it needs no more.
pub struct Memory {
    locks: Locks,
    patience: Duration,
    shelves: u64,
    look: Option<Look>,
    /// The node's memory of a view, mapped; at this count of what was forgotten.
    region: Option<(u32, Arc<ReadableMemory>)>,
    forgets: u64,
}

/// A callback that a waiting call makes at this interval: whether to go on.
type Look = (Duration, Box<dyn FnMut() -> bool + Send>);

/// A value, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The bytes that were asked for.
    pub bytes: Vec<u8>,
    /// Grows by one with each put.
    pub version: u64,
    /// When it was put, in nanoseconds since 1970, by its writer's clock; 0 if nothing was, or the coherence is `null`.
    pub stamp_ns: u64,
}

/// The segments that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentList {
    /// In order of their homes and numbers.
    pub segments: Vec<SegmentInfo>,
    /// Names of homes that did not answer: what they have is not in it.
    pub silent: BTreeSet<String>,
}

/// A put, as it differs from one of a whole value over whatever is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// The first byte.
    pub offset: u64,
    /// The version that it is to replace, and no other. Has to be named where the coherence is `version`.
    pub over: Option<u64>,
}

impl Memory {
    /// Connects to the helper at `socket`. Each call waits at most `patience`, and the helper a second less than its program.
    ///
    /// # Errors
    /// As [`Helper::connect`](crate::Helper::connect).
    pub fn connect(socket: &Socket, patience: Duration) -> Result<Memory> {
        let locks = Locks::connect(socket, patience)?;
        Ok(Memory { locks, patience, shelves: 0, look: None, region: None, forgets: 0 })
    }

    /// Has `go_on` asked every `turn` by calls that wait, but for those that wait for locks; if it says no they are [`Error::Stopped`].
    pub fn while_it_waits(&mut self, turn: Duration, go_on: impl FnMut() -> bool + Send + 'static) {
        self.look = Some((turn, Box::new(go_on)));
    }

    /// A new segment, of zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] with [`Failure::Exists`](crate::Failure) if its name is taken, [`NoRoom`](crate::Failure)
    /// where its home is full or the user has all that it may have,
    /// [`Bad`](crate::Failure) for what cannot be.
    pub fn allocate(&mut self, wanted: NewSegment) -> Result<SegmentInfo> {
        match self.call(MemoryRequest::Allocate(wanted))? {
            MemoryAnswer::Allocated(segment) => Ok(segment),
            other => Err(unexpected(other)),
        }
    }

    /// Gives up a segment: its memory and its name are free. One that is lost gives up its name.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn release(&mut self, which: impl Into<Which>) -> Result<()> {
        match self.call(MemoryRequest::Release(which.into()))? {
            MemoryAnswer::Released => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// A whole value.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn get(&mut self, which: impl Into<Which>) -> Result<Value> {
        self.get_part(which, 0, None)
    }

    /// A part of a value: `length` bytes from `offset` on, or all that follow. However long it is, it is of one version (but for `null`).
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn get_part(&mut self, which: impl Into<Which>, offset: u64, length: Option<u64>) -> Result<Value> {
        self.shelves += 1;
        let shelf = self.shelves;
        let wanted = length;
        let get = MemoryRequest::Get { which: which.into(), offset, length, shelf };
        let MemoryAnswer::Value { version, stamp_ns, bytes, first } = self.call(get)? else {
            return Err(Error::Malformed("another answer than a value".into()));
        };
        let mut value = Value { bytes: first, version, stamp_ns };
        let froms = (value.bytes.len() as u64..bytes).step_by(VALUE_PART_BYTES);
        let requests = froms.map(|from| MemoryRequest::More { shelf, from });
        self.call_each(requests, |answer| match answer {
            MemoryAnswer::Part(part) => {
                value.bytes.extend_from_slice(&part);
                Ok(())
            }
            other => Err(unexpected(other)),
        })?;
        if value.bytes.len() as u64 != bytes || wanted.is_some_and(|wanted| wanted != bytes) {
            return Err(Error::Malformed(format!("{} bytes of {bytes}", value.bytes.len())));
        }
        Ok(value)
    }

    /// Puts a whole value in the place of the one that is there, and gives the new version.
    ///
    /// # Errors
    /// [`Error::Memory`]; with [`Failure::Unknown`](crate::Failure) it may have been done, or be done later.
    pub fn put(&mut self, which: impl Into<Which>, bytes: &[u8]) -> Result<u64> {
        self.put_with(which, bytes, PutOptions::default())
    }

    /// Puts a part of a value, or replaces one version and no other.
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`Failure::Conflict`](crate::Failure) with the version that there is.
    pub fn put_with(&mut self, which: impl Into<Which>, bytes: &[u8], options: PutOptions) -> Result<u64> {
        let last = bytes.len().saturating_sub(1) / VALUE_PART_BYTES * VALUE_PART_BYTES;
        let (before, rest) = bytes.split_at(last);
        let stages = before.chunks(VALUE_PART_BYTES).enumerate().map(|(nth, chunk)| {
            let from = (nth * VALUE_PART_BYTES) as u64;
            MemoryRequest::Stage { from, bytes: chunk.to_vec() }
        });
        self.call_each(stages, |answer| match answer {
            MemoryAnswer::Staged => Ok(()),
            other => Err(unexpected(other)),
        })?;
        let PutOptions { offset, over } = options;
        let (which, is_staged, bytes) = (which.into(), last > 0, rest.to_vec());
        match self.call(MemoryRequest::Put { which, offset, is_staged, bytes, over })? {
            MemoryAnswer::Put(version) => Ok(version),
            other => Err(unexpected(other)),
        }
    }

    /// What is known of a segment, and how old its value is.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn stat(&mut self, which: impl Into<Which>) -> Result<SegmentStat> {
        match self.call(MemoryRequest::Stat(which.into()))? {
            MemoryAnswer::Stat(stat) => Ok(stat),
            other => Err(unexpected(other)),
        }
    }

    /// The segment's newest value where it is, if that is in this node's memory: nothing is copied, and looking again
    /// asks no other process.
    ///
    /// # Errors
    /// [`Error::Memory`] with [`Failure::Elsewhere`](crate::Failure) if its home is another node, the fabric's memory is of another kind (`xdp`), or the program's user neither runs the node nor is root:
    /// a [`get`](Self::get) reads it then.
    pub fn window(&mut self, which: impl Into<Which>) -> Result<Window> {
        let which = which.into();
        let until = BootClock.now() + self.patience;
        loop {
            self.let_go_of_old_memory();
            let board = self.locks.board().clone();
            // Before it is asked for: what is forgotten from here on may be where it is.
            let forgets = board.read(BOARD_FORGETS);
            let has = self.region.as_ref().map_or(0, |(view, _)| *view);
            let (number, answer) = self.call_numbered(MemoryRequest::Window { which: which.clone(), has })?;
            let MemoryAnswer::Window(pane) = answer else { return Err(unexpected(answer)) };
            if let Some(descriptor) = self.locks.attached(number)? {
                let memory = ReadableMemory::map(&descriptor).map_err(|error| no_memory(&error))?;
                self.region = Some((pane.view, Arc::new(memory)));
            }
            let memory = self.region.as_ref().filter(|(view, _)| *view == pane.view).map(|(_, memory)| memory.clone());
            let memory =
                memory.ok_or_else(|| no_memory(&"its descriptor did not come: is there room for another one?"))?;
            if let Some(window) = Window::open(memory, pane, board, forgets) {
                return Ok(window);
            }
            if BootClock.now() >= until {
                let text =
                    "the segment's value was not found where it was said to be: it moves, or its node has no lease";
                return Err(Error::Memory { why: Failure::Late, text: text.into() });
            }
            if self.look.as_mut().is_some_and(|(_, go_on)| !go_on()) {
                return Err(Error::Stopped);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// The segments whose names begin with `prefix`, at all homes; if it is empty, those without a name too.
    ///
    /// # Errors
    /// If the helper cannot be asked.
    pub fn list(&mut self, prefix: &str) -> Result<SegmentList> {
        let mut list = SegmentList::default();
        loop {
            let from = u32::try_from(list.segments.len()).map_err(|_| Error::Malformed("2^32 segments".into()))?;
            match self.call(MemoryRequest::List { prefix: prefix.into(), from })? {
                MemoryAnswer::List { segments, more: true, .. } if segments.is_empty() => {
                    return Err(Error::Malformed("an empty part".into()));
                }
                MemoryAnswer::List { segments, silent, more } => {
                    list.segments.extend(segments);
                    list.silent.extend(silent);
                    if !more {
                        return Ok(list);
                    }
                }
                other => return Err(unexpected(other)),
            }
        }
    }

    /// Has the node of this connection offer `bytes` from now on, of what it is configured to offer; more than now
    /// takes an earlier call back. Nothing is allocated there above that. What does not fit any more goes after
    /// `notice`, which [`stat`](Self::stat) and [`list`](Self::list) show; a request for it then fails with
    /// [`Failure::Reclaimed`](crate::Failure). Asking for the same again changes nothing.
    ///
    /// # Errors
    /// [`Error::Memory`] with [`Failure::NotYours`](crate::Failure) for others than the user who runs the node and root, [`Bad`](crate::Failure) for more than is configured, and where the
    /// node has not the role `home`.
    pub fn reclaim(&mut self, bytes: u64, notice: Duration) -> Result<Reclaims> {
        let notice_ms = u64::try_from(notice.as_millis()).unwrap_or(u64::MAX);
        match self.call(MemoryRequest::Reclaim { bytes, notice_ms })? {
            MemoryAnswer::Reclaims(reclaims) => Ok(reclaims),
            other => Err(unexpected(other)),
        }
    }

    /// Waits for a segment's lock for at most `at_most`, or without a limit. It keeps out only clients that ask for it
    /// as well: gets and puts do not look at it. It is the lock of the name `memory/IDENTITY`, which `verbena lock ls`
    /// shows.
    ///
    /// # Errors
    /// As [`Locks::acquire`], and [`lock_name`](Self::lock_name).
    pub fn lock(&mut self, which: impl Into<Which>, mode: LockMode, at_most: Option<Duration>) -> Result<Hold> {
        let name = self.lock_name(which)?;
        self.locks.acquire(&name, mode, at_most)
    }

    /// What its lock is called, for what else [`locks`](Self::locks) can do with it.
    ///
    /// # Errors
    /// As [`stat`](Self::stat); [`Failure::NotYours`](crate::Failure) for another user's segment.
    pub fn lock_name(&mut self, which: impl Into<Which>) -> Result<Vec<u8>> {
        let SegmentStat { id, segment, is_yours, .. } = self.stat(which)?;
        if !is_yours {
            let text = format!("segment {id} belongs to user {}", segment.owner);
            return Err(Error::Memory { why: Failure::NotYours, text });
        }
        Ok(format!("memory/{id}").into_bytes())
    }

    /// Releases it, when everything that this connection has put has arrived, or never will (rule M3).
    ///
    /// # Errors
    /// As [`Locks::release`]: [`Error::Lost`] if others may have had it meanwhile.
    pub fn unlock(&mut self, hold: Hold) -> Result<()> {
        self.locks.release(hold)
    }

    /// The locks of this connection: those of segments are among them.
    pub fn locks(&mut self) -> &mut Locks {
        &mut self.locks
    }

    fn call(&mut self, asked: MemoryRequest) -> Result<MemoryAnswer> {
        self.let_go_of_old_memory();
        self.call_numbered(asked).map(|(_, answer)| answer)
    }

    fn call_numbered(&mut self, asked: MemoryRequest) -> Result<(u64, MemoryAnswer)> {
        let until = BootClock.now() + self.patience + LONGER;
        let number = self.post(asked, until)?;
        Ok((number, self.answer(number, until)?))
    }

    /// What is mapped cannot be given back by the node: so it is not kept for longer than windows are.
    fn let_go_of_old_memory(&mut self) {
        let forgets = self.locks.board().read(BOARD_FORGETS);
        if self.forgets != forgets {
            (self.forgets, self.region) = (forgets, None);
        }
    }

    /// Some at a time, one answer after the other.
    fn call_each(
        &mut self,
        requests: impl Iterator<Item = MemoryRequest>,
        mut each: impl FnMut(MemoryAnswer) -> Result<()>,
    ) -> Result<()> {
        let until = BootClock.now() + self.patience + LONGER;
        let (mut requests, mut posted) = (requests.fuse(), VecDeque::new());
        loop {
            while posted.len() < PARTS
                && let Some(request) = requests.next()
            {
                posted.push_back(self.post(request, until)?);
            }
            let Some(number) = posted.pop_front() else { return Ok(()) };
            let answer = self.answer(number, until);
            if let Err(error) = answer.and_then(&mut each) {
                posted.into_iter().for_each(|number| self.locks.does_without(number));
                return Err(error);
            }
        }
    }

    fn post(&mut self, asked: MemoryRequest, until: Time) -> Result<u64> {
        let patience_ms = u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX);
        self.locks.post(&Request::Memory { patience_ms, asked }, until)
    }

    fn answer(&mut self, number: u64, until: Time) -> Result<MemoryAnswer> {
        match self.await_answer(number, until)? {
            Some(Answer::Memory(MemoryAnswer::Failed(why, text))) => Err(Error::Memory { why, text }),
            Some(Answer::Memory(answer)) => Ok(answer),
            Some(Answer::Refused(why)) => Err(Error::Refused(why)),
            Some(_) => Err(Error::Malformed("an answer to another question".into())),
            None => {
                self.locks.does_without(number);
                Err(verbena_ipc::Error::Deadline { number }.into())
            }
        }
    }

    fn await_answer(&mut self, number: u64, until: Time) -> Result<Option<Answer>> {
        loop {
            let turn = self.look.as_ref().map_or(until, |(turn, _)| until.min(BootClock.now() + *turn));
            let answer = self.locks.answer_numbered(number, turn)?;
            if answer.is_some() || turn == until {
                return Ok(answer);
            }
            if let Some((_, go_on)) = &mut self.look
                && !go_on()
            {
                self.locks.does_without(number);
                return Err(Error::Stopped);
            }
        }
    }
}

/// What a program cannot map it has to get.
fn no_memory(why: &dyn std::fmt::Display) -> Error {
    Error::Memory { why: Failure::Elsewhere, text: format!("the node's memory cannot be read in place: {why}") }
}

fn unexpected(answer: MemoryAnswer) -> Error {
    let what = match answer {
        MemoryAnswer::Failed(why, text) => return Error::Memory { why, text },
        MemoryAnswer::Allocated(_) => "that something is allocated",
        MemoryAnswer::Stat(_) => "how a segment is",
        MemoryAnswer::Released => "that something is released",
        MemoryAnswer::Value { .. } | MemoryAnswer::Part(_) => "a value",
        MemoryAnswer::Staged | MemoryAnswer::Put(_) => "that something is put",
        MemoryAnswer::List { .. } => "a list",
        MemoryAnswer::Reclaims(_) => "what a node offers",
        MemoryAnswer::Window(_) => "where a value is",
    };
    Error::Malformed(format!("{what} is no answer to that"))
}
