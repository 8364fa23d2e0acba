//! The receiving side of a session, without input and output.
//!
//! A file goes through these states:
//! ```text
//!   Preparing --prepared--> Verifying --every claim hashed--> Receiving --all there, root equal--> Publishing --> (settled)
//!                               ^                                 |
//!                               +--cloned-- Cloning <-- a chunk --+   (what stood at the target is not touched: a copy is)
//! ```
//! What stands at the target counts chunk by chunk, once it has been hashed (rule T8). Chunks that arrive before that are
//! kept; credit bounds them (rule T11).

use std::collections::BTreeMap;

use crate::frame::{Entry, Failure, FileNumber, Frame, Identity, MOST_HASHES};
use crate::incoming::{Content, End, Incoming, Kept, State};
use crate::receiver_action::{Basis, ReceiverAction};
use crate::rules::SessionSettings;
use crate::tree::{Hash, chunk_count, chunk_length, root};

/// Files that a sender may have offered without an end.
const MOST_FILES: usize = 4096;
/// The same where each has a descriptor.
const MOST_HANDED_OVER: usize = 256;
/// Chunks of all open files together: their hashes are in memory.
const MOST_CHUNKS: u64 = 4 << 20;
/// Chunks that are hashed at a time to verify what stands.
const MOST_VERIFIED: usize = 4;

/// The machine of the receiving side.
#[derive(Debug)]
pub struct Receiver {
    settings: SessionSettings,
    files: BTreeMap<FileNumber, Incoming>,
    last_file: FileNumber,
    /// Bytes taken, and bytes granted, by stream.
    credit: Vec<(u64, u64)>,
    /// Bytes that have come, by stream.
    arrived: Vec<u64>,
    actions: Vec<ReceiverAction>,
    is_all_offered: bool,
    is_finished: bool,
    dropped: u64,
}

impl Receiver {
    /// A receiver of a session whose streams are all there. Its first actions grant credit.
    pub fn new(settings: SessionSettings) -> Receiver {
        let mut receiver = Receiver::without_streams(settings);
        (0..settings.streams).for_each(|stream| receiver.joined(stream));
        receiver
    }

    /// A receiver that grants credit as streams are there: [`Receiver::joined`].
    pub fn without_streams(settings: SessionSettings) -> Receiver {
        Receiver {
            settings,
            files: BTreeMap::new(),
            last_file: 0,
            credit: vec![(0, 0); usize::from(settings.streams)],
            arrived: vec![0; usize::from(settings.streams)],
            actions: Vec::new(),
            is_all_offered: false,
            is_finished: false,
            dropped: 0,
        }
    }

    /// A stream is there: it is granted its first credit (rule T11).
    pub fn joined(&mut self, stream: u16) {
        let total = self.settings.window;
        if let Some((_, granted @ 0)) = self.credit.get_mut(usize::from(stream)) {
            *granted = total;
            self.send(stream, Frame::Credit { total });
        }
    }

    /// What is to be done, in order.
    pub fn actions(&mut self) -> Vec<ReceiverAction> {
        std::mem::take(&mut self.actions)
    }

    /// Whether everything has its end.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Chunks that came for files without a place (rule T10).
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// A frame of the sender, the stream that it came by, and its data.
    pub fn frame(&mut self, stream: u16, frame: Frame, data: Vec<u8>) {
        match frame {
            Frame::Offer { file, entry, identity } => self.on_offer(file, entry, identity),
            Frame::Chunk { session, file, offset, sequence, is_whole_file, hash } if !self.settings.is_handed_over => {
                let content = Content::Bytes(hash, data);
                self.on_chunk(session, file, Kept { stream, offset, sequence, is_whole_file, content });
            }
            Frame::Copy { session, file, offset, length, sequence, is_whole_file } if self.settings.is_handed_over => {
                let content = Content::InSource(length.into());
                self.on_chunk(session, file, Kept { stream, offset, sequence, is_whole_file, content });
            }
            Frame::End { file, identity, root, sent, again } => {
                if let Some(incoming) = self.files.get_mut(&file) {
                    incoming.end = Some(End { identity, root, sent, again });
                    self.go_on(file);
                }
            }
            Frame::Withdrawn { file, failure } => self.settle(file, Err(failure), false),
            Frame::AllOffered => {
                self.is_all_offered = true;
                self.look_at_end();
            }
            _ => self.actions.push(ReceiverAction::Violation("a message that only receivers send")),
        }
    }

    fn on_chunk(&mut self, session: u64, file: FileNumber, kept: Kept) {
        let (stream, length) = (kept.stream, kept.content.length());
        if !self.is_granted(stream, length) {
            self.actions.push(ReceiverAction::Violation("more data than was granted"));
            return;
        }
        let is_aligned = kept.offset.is_multiple_of(self.settings.chunk_bytes)
            && length <= self.settings.chunk_bytes
            && kept.offset / self.settings.chunk_bytes < MOST_CHUNKS;
        let file = self.address(session, file);
        match self.files.get_mut(&file).filter(|_| is_aligned && length > 0) {
            Some(incoming) if incoming.state != State::Publishing => {
                incoming.received += 1;
                incoming.kept.push(kept);
                self.go_on(file);
            }
            _ => {
                self.dropped += 1;
                if self.settings.rules.credit_dropped {
                    self.take(stream, length);
                }
            }
        }
    }

    /// Whether a sender keeps to its credit (rule T11).
    fn is_granted(&mut self, stream: u16, length: u64) -> bool {
        let stream = usize::from(stream);
        match (self.arrived.get_mut(stream), self.credit.get(stream)) {
            (Some(arrived), Some((_, granted))) => {
                *arrived += length;
                *arrived <= *granted
            }
            _ => false,
        }
    }

    /// Which file a chunk is for.
    fn address(&self, session: u64, file: FileNumber) -> FileNumber {
        let is_ours = session == self.settings.session && self.files.contains_key(&file);
        match self.files.keys().next() {
            Some(open) if !is_ours && !self.settings.rules.drop_strays => *open,
            _ if is_ours => file,
            _ => 0,
        }
    }

    fn on_offer(&mut self, file: FileNumber, entry: Entry, identity: Identity) {
        let most = if self.settings.is_handed_over { MOST_HANDED_OVER } else { MOST_FILES };
        if file <= self.last_file || self.files.len() >= most {
            self.actions.push(ReceiverAction::Violation("a file number that was used, or too many files"));
            return;
        }
        self.last_file = file;
        let open: u64 = self.files.values().map(|incoming| incoming.hashes.len() as u64).sum();
        let count = chunk_count(identity.size, self.settings.chunk_bytes);
        if open.saturating_add(count) > MOST_CHUNKS {
            self.send(0, Frame::Refused { file, failure: Failure::Target("it is too large for one session".into()) });
            self.actions.push(ReceiverAction::Close(file));
            return;
        }
        let incoming = Incoming {
            entry: entry.clone(),
            identity,
            state: State::Preparing,
            target: None,
            is_told: false,
            to_verify: Vec::new(),
            verifying: 0,
            hashes: vec![None; count as usize],
            sequences: Vec::new(),
            writing: BTreeMap::new(),
            kept: Vec::new(),
            since_record: 0,
            received: 0,
            again: 0,
            end: None,
        };
        self.files.insert(file, incoming);
        self.actions.push(ReceiverAction::Prepare { file, entry, identity });
    }

    /// The outcome of `Prepare`.
    pub fn prepared(&mut self, file: FileNumber, basis: Result<Basis, Failure>) {
        let (settings, chunk_bytes) = (self.settings, self.settings.chunk_bytes);
        let Some(incoming) = self.files.get_mut(&file) else { return };
        let count = chunk_count(incoming.identity.size, chunk_bytes);
        incoming.state = State::Verifying;
        match basis {
            Err(failure) => return self.refuse(file, failure),
            Ok(Basis::Done) => return self.settle(file, Ok(()), true),
            Ok(Basis::Part(claims)) => {
                for (chunk, hash) in claims.into_iter().filter(|(chunk, _)| *chunk < count) {
                    if settings.rules.hash_claims {
                        incoming.to_verify.push(chunk);
                    } else {
                        incoming.hashes[chunk as usize] = Some(hash);
                    }
                }
            }
            Ok(Basis::Target(size)) => {
                incoming.target = Some(size);
                incoming.to_verify = (0..chunk_count(size.min(incoming.identity.size), chunk_bytes)).collect();
            }
        }
        self.go_on(file);
    }

    /// The outcome of `Verify`: `None` if nothing stands there.
    pub fn verified(&mut self, file: FileNumber, chunk: u64, hash: Option<Hash>) {
        let Some(incoming) = self.files.get_mut(&file) else { return };
        incoming.verifying -= 1;
        if let Some(slot) = incoming.hashes.get_mut(chunk as usize) {
            // The sender believes what it was told; what has changed since is asked for.
            let is_other = incoming.is_told && *slot != hash;
            *slot = hash;
            if is_other {
                *slot = None;
                incoming.again += 1;
                self.actions.push(ReceiverAction::Send { stream: 0, frame: Frame::Again { file, chunk } });
            }
        }
        self.go_on(file);
    }

    /// The outcome of `Clone`. The copy is hashed before it counts: the target may have changed since it was.
    pub fn cloned(&mut self, file: FileNumber, result: Result<(), Failure>) {
        let Some(incoming) = self.files.get_mut(&file) else { return };
        match result {
            Err(failure) => self.refuse(file, failure),
            Ok(()) => {
                incoming.target = None;
                incoming.state = State::Verifying;
                let standing = incoming.hashes.iter().enumerate().filter(|(_, hash)| hash.is_some());
                incoming.to_verify = standing.map(|(chunk, _)| chunk as u64).collect();
                self.go_on(file);
            }
        }
    }

    /// The outcome of `Write`: the hash of what was handed to the kernel (rule T9).
    pub fn written(&mut self, file: FileNumber, chunk: u64, hash: Result<Hash, Failure>) {
        let rules = self.settings.rules;
        let Some(incoming) = self.files.get_mut(&file) else { return };
        let Some((expected, stream, length)) = incoming.writing.remove(&chunk) else { return };
        match hash {
            Err(failure) => self.refuse(file, failure),
            Ok(hash) => {
                let is_right = expected == Some(hash) || !rules.compare_hashes;
                if !is_right {
                    incoming.again += 1;
                    self.send(0, Frame::Again { file, chunk });
                }
                self.stands(file, chunk, is_right.then_some(hash));
            }
        }
        self.take(stream, length);
        self.go_on(file);
    }

    /// The outcome of `Copy`: the hash of what was handed to write, or `None` if the source has ended before. The sender learns it: there is no other
    /// reader.
    pub fn copied(&mut self, file: FileNumber, chunk: u64, hash: Result<Option<Hash>, Failure>) {
        let Some(incoming) = self.files.get_mut(&file) else { return };
        let Some((_, stream, length)) = incoming.writing.remove(&chunk) else { return };
        match hash {
            Err(failure) => self.refuse(file, failure),
            Ok(hash) => {
                self.send(0, Frame::Copied { file, chunk, hash });
                self.stands(file, chunk, hash);
            }
        }
        self.take(stream, length);
        self.go_on(file);
    }

    /// Notes what a chunk of a part is now.
    fn stands(&mut self, file: FileNumber, chunk: u64, hash: Option<Hash>) {
        let record_every = self.settings.record_every;
        let Some(incoming) = self.files.get_mut(&file) else { return };
        if let Some(slot) = incoming.hashes.get_mut(chunk as usize) {
            *slot = hash;
        }
        incoming.since_record += 1;
        // Records of large files are large: no more than some dozens a file.
        if incoming.since_record >= record_every.max(incoming.hashes.len() / 64) {
            incoming.since_record = 0;
            let (identity, hashes) = (incoming.identity, incoming.hashes.clone());
            self.actions.push(ReceiverAction::Record { file, identity, hashes });
        }
    }

    /// The outcome of `Publish`.
    pub fn published(&mut self, file: FileNumber, result: Result<(), Failure>) {
        match result {
            Ok(()) => self.settle(file, Ok(()), true),
            Err(failure) => self.refuse(file, failure),
        }
    }

    /// What is to be recorded when the session ends before its end.
    pub fn records(&self) -> Vec<ReceiverAction> {
        let open =
            self.files.iter().filter(|(_, incoming)| incoming.state == State::Receiving && incoming.target.is_none());
        let record = |(file, incoming): (&FileNumber, &Incoming)| ReceiverAction::Record {
            file: *file,
            identity: incoming.identity,
            hashes: incoming.hashes.clone(),
        };
        open.map(record).collect()
    }

    fn send(&mut self, stream: u16, frame: Frame) {
        self.actions.push(ReceiverAction::Send { stream, frame });
    }

    fn refuse(&mut self, file: FileNumber, failure: Failure) {
        self.send(0, Frame::Refused { file, failure: failure.clone() });
        self.settle(file, Err(failure), false);
    }

    fn settle(&mut self, file: FileNumber, result: Result<(), Failure>, is_told: bool) {
        let Some(incoming) = self.files.remove(&file) else { return };
        if incoming.state == State::Receiving && incoming.target.is_none() {
            let (identity, hashes) = (incoming.identity, incoming.hashes);
            self.actions.push(ReceiverAction::Record { file, identity, hashes });
        }
        // What was kept, and what is being written, is taken: its credit comes back.
        let kept = incoming.kept.iter().map(|kept| (kept.stream, kept.content.length()));
        let writing = incoming.writing.values().map(|(_, stream, length)| (*stream, *length));
        let back: Vec<(u16, u64)> = kept.chain(writing).collect();
        for (stream, length) in back {
            if self.settings.rules.credit_dropped {
                self.take(stream, length);
            }
        }
        self.actions.push(ReceiverAction::Close(file));
        if is_told {
            self.send(0, Frame::Stored { file });
        }
        self.actions.push(ReceiverAction::Settled { entry: incoming.entry, result });
        self.look_at_end();
    }

    fn look_at_end(&mut self) {
        if self.is_all_offered && self.files.is_empty() && !self.is_finished {
            self.is_finished = true;
            self.actions.push(ReceiverAction::Finished);
        }
    }

    /// Counts bytes of a stream as taken, and grants more once a quarter of the window is.
    fn take(&mut self, stream: u16, bytes: u64) {
        let window = self.settings.window;
        let Some((taken, granted)) = self.credit.get_mut(usize::from(stream)) else { return };
        *taken += bytes;
        if *taken + window >= *granted + window / 4 {
            *granted = *taken + window;
            let total = *granted;
            self.send(stream, Frame::Credit { total });
        }
    }

    /// Begins what can begin for one file.
    fn go_on(&mut self, file: FileNumber) {
        let chunk_bytes = self.settings.chunk_bytes;
        let Some(incoming) = self.files.get_mut(&file) else { return };
        let size = incoming.identity.size;
        if incoming.state == State::Verifying {
            while incoming.verifying < MOST_VERIFIED {
                let Some(chunk) = incoming.to_verify.pop() else { break };
                incoming.verifying += 1;
                let length = chunk_length(size, chunk, chunk_bytes);
                let is_whole_file = incoming.hashes.len() == 1;
                self.actions.push(ReceiverAction::Verify { file, chunk, length, is_whole_file });
            }
            if incoming.verifying > 0 {
                return;
            }
            incoming.state = State::Receiving;
            if !std::mem::replace(&mut incoming.is_told, true) {
                self.actions.extend(tell(file, &incoming.hashes));
            }
        }
        if incoming.state == State::Receiving {
            self.write_kept(file);
            self.publish(file);
        }
    }

    fn write_kept(&mut self, file: FileNumber) {
        let (rules, chunk_bytes) = (self.settings.rules, self.settings.chunk_bytes);
        let Some(incoming) = self.files.get_mut(&file) else { return };
        let mut taken = Vec::new();
        for kept in std::mem::take(&mut incoming.kept) {
            let chunk = kept.offset / chunk_bytes;
            let length = kept.content.length();
            // The source has grown: its end will say so.
            if incoming.hashes.len() as u64 <= chunk {
                incoming.hashes.resize(chunk as usize + 1, None);
            }
            incoming.sequences.resize(incoming.hashes.len(), 0);
            let is_older = kept.sequence < incoming.sequences[chunk as usize];
            let hash = if let Content::Bytes(hash, _) = kept.content { Some(hash) } else { None };
            let is_equal = hash.is_some() && incoming.hashes[chunk as usize] == hash;
            let stands = is_equal && !incoming.writing.contains_key(&chunk);
            if is_older && rules.keep_order {
                // Sent before the source changed, and overtaken on another stream.
                taken.push((kept.stream, length));
            } else if stands {
                // The file was sent before the sender knew.
                incoming.sequences[chunk as usize] = kept.sequence;
                taken.push((kept.stream, length));
            } else if incoming.state == State::Cloning || incoming.writing.contains_key(&chunk) {
                incoming.kept.push(kept);
            } else if incoming.target.is_some() {
                incoming.state = State::Cloning;
                incoming.kept.push(kept);
                self.actions.push(ReceiverAction::Clone(file));
            } else {
                incoming.hashes[chunk as usize] = None;
                incoming.sequences[chunk as usize] = kept.sequence;
                incoming.writing.insert(chunk, (hash, kept.stream, length));
                let Kept { offset, is_whole_file, content, .. } = kept;
                self.actions.push(match content {
                    Content::Bytes(_, data) => ReceiverAction::Write { file, chunk, offset, is_whole_file, data },
                    Content::InSource(length) => ReceiverAction::Copy { file, chunk, offset, length, is_whole_file },
                });
            }
        }
        for (stream, length) in taken {
            self.take(stream, length);
        }
    }

    /// Publishes a file that is complete (rule T9).
    fn publish(&mut self, file: FileNumber) {
        let (rules, chunk_bytes) = (self.settings.rules, self.settings.chunk_bytes);
        let Some(incoming) = self.files.get_mut(&file) else { return };
        let Some(End { identity, root: expected, sent, again }) = incoming.end else { return };
        let is_idle = incoming.writing.is_empty() && incoming.kept.is_empty() && incoming.state == State::Receiving;
        let count = chunk_count(identity.size, chunk_bytes) as usize;
        let hashes: Option<Vec<Hash>> = (0..count).map(|chunk| incoming.hashes.get(chunk).copied().flatten()).collect();
        // Chunks may still be under way on other streams, also of what stands (rule T10).
        let is_complete = is_idle && hashes.is_some() && incoming.received >= sent && incoming.again == again;
        if !is_complete && (rules.count_chunks || !is_idle) {
            return;
        }
        let found = root(&hashes.unwrap_or_default());
        if found != expected && rules.compare_hashes && rules.count_chunks {
            return self.refuse(file, Failure::Damaged);
        }
        if incoming.target.is_some_and(|size| size != identity.size) {
            // Every byte stands, and too many do: the target itself is never cut.
            incoming.state = State::Cloning;
            self.actions.push(ReceiverAction::Clone(file));
            return;
        }
        incoming.state = State::Publishing;
        self.actions.push(ReceiverAction::Publish { file, identity });
    }
}

/// What stands, told to the sender.
fn tell(file: FileNumber, hashes: &[Option<Hash>]) -> Vec<ReceiverAction> {
    let mut frames = Vec::new();
    for (index, piece) in hashes.chunks(MOST_HASHES).enumerate() {
        if piece.iter().any(Option::is_some) {
            let first = (index * MOST_HASHES) as u64;
            frames.push(Frame::Have { file, first, hashes: piece.to_vec() });
        }
    }
    frames.push(Frame::Ready { file });
    frames.into_iter().map(|frame| ReceiverAction::Send { stream: 0, frame }).collect()
}
