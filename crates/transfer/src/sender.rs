//! The sending side of a session, without input and output.
//!
//! A file goes through these states:
//! ```text
//!   Queued --Open--> Opening --opened--> Offered --Ready--> Moving --all read and sent--> Looking --same--> Ended --Stored
//!                                           (small: at once)  ^                              |
//!                                                             +------- changed, thrice ------+
//! ```
//! Every chunk of the source is read and hashed, also those that the receiver has: the root is a proof of the whole file
//! (rule T9). Only what differs is sent. A read begins with a buffer in hand (rule T12): reads under way and chunks that
//! wait for credit are together never more than the buffers of the session.

use std::collections::{BTreeMap, VecDeque};

use crate::channel::Lanes;
use crate::frame::{Entry, EntryKind, Failure, FileNumber, Frame, Identity};
use crate::rules::SessionSettings;
use crate::tree::{Hash, chunk_count, chunk_length, root};

/// How often a source that has changed is read again.
const MOST_ROUNDS: u32 = 3;
/// How often chunks of one file are sent once more because they were damaged.
const MOST_AGAIN: u32 = 32;

/// Work for the caller of a [`Sender`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderAction {
    /// Open the file and look at it: [`Sender::opened`].
    Open(FileNumber),
    /// Read and hash a chunk: [`Sender::read`].
    Read {
        /// The file.
        file: FileNumber,
        /// The chunk.
        chunk: u64,
        /// Its bytes.
        length: u64,
        /// Whether it is the whole file.
        is_whole_file: bool,
    },
    /// Look at the file once more: [`Sender::looked`].
    Look(FileNumber),
    /// The file is not needed any more.
    Close(FileNumber),
    /// Send a frame.
    Send {
        /// On which stream.
        stream: u16,
        /// What.
        frame: Frame,
        /// What follows the head.
        data: Vec<u8>,
    },
    /// A file has its end.
    Settled {
        /// Which.
        file: FileNumber,
        /// What came of it.
        result: Result<(), Failure>,
    },
    /// Every file has its end, and none will follow.
    Finished,
}

/// What a look at a source found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The version.
    pub identity: Identity,
    /// Whether it was changed so lately that another change would not show (rule T7).
    pub is_young: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Queued,
    Opening,
    Offered,
    Moving,
    Looking,
    Ended,
}

#[derive(Debug)]
struct Outgoing {
    entry: Entry,
    state: State,
    look: Look,
    /// What the receiver holds, by chunk.
    there: Vec<Option<Hash>>,
    /// What this look at the source has, by chunk.
    hashes: Vec<Option<Hash>>,
    /// Chunks to read.
    wanted: VecDeque<u64>,
    reading: usize,
    queued: usize,
    /// Chunks that were sent.
    sent: u64,
    /// Chunks that the receiver copies: it says what it has copied.
    copying: u64,
    /// Whether the source has ended before its end, where the receiver has read it.
    is_short: bool,
    rounds: u32,
    again: u32,
    /// Whether its chunks stay behind its offer, on stream 0: the receiver has not said that it knows the file.
    is_ahead: bool,
}

#[derive(Debug)]
struct Queued {
    file: FileNumber,
    chunk: u64,
    length: u64,
    content: Content,
}

/// What is sent of a chunk.
#[derive(Debug)]
enum Content {
    Bytes(Hash, Vec<u8>),
    /// That the receiver is to copy it.
    InSource,
}

/// The machine of the sending side.
#[derive(Debug)]
pub struct Sender {
    settings: SessionSettings,
    files: BTreeMap<FileNumber, Outgoing>,
    next_file: FileNumber,
    queue: VecDeque<Queued>,
    /// Bytes that may be sent and that were, by stream.
    credit: Vec<(u64, u64)>,
    /// Turns about among the streams in use.
    next_stream: usize,
    /// Streams that may carry chunks: the others rest.
    lanes: Lanes,
    /// Those that may as long as none of `lanes` is there.
    former: Lanes,
    reading: usize,
    actions: Vec<SenderAction>,
    is_all_offered: bool,
    is_finished: bool,
}

impl Sender {
    /// A sender whose receiver has granted nothing yet.
    pub fn new(settings: SessionSettings) -> Sender {
        Sender {
            settings,
            files: BTreeMap::new(),
            next_file: 1,
            queue: VecDeque::new(),
            credit: vec![(0, 0); usize::from(settings.streams)],
            next_stream: 0,
            lanes: Lanes { first: 0, count: settings.streams },
            former: Lanes { first: 0, count: settings.streams },
            reading: 0,
            actions: Vec::new(),
            is_all_offered: false,
            is_finished: false,
        }
    }

    /// What is to be done, in order.
    pub fn actions(&mut self) -> Vec<SenderAction> {
        std::mem::take(&mut self.actions)
    }

    /// Whether another file can be taken.
    pub fn wants_files(&self) -> bool {
        self.files.len() < self.settings.open_files
    }

    /// Files that have no end yet.
    pub fn unsettled(&self) -> usize {
        self.files.len()
    }

    /// Whether everything has its end.
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Lets these streams carry chunks from now on (rule T13). Until the first of them is granted credit, those before go on.
    pub fn use_lanes(&mut self, lanes: Lanes) {
        if self.granted(self.lanes) > 0 {
            self.former = self.lanes;
        }
        self.lanes = lanes;
        self.pump();
    }

    /// How many of the streams that are to carry chunks can: the receiver has granted credit on each from the first on.
    pub fn granted_streams(&self) -> u16 {
        self.granted(self.lanes)
    }

    fn granted(&self, lanes: Lanes) -> u16 {
        let credit = lanes.numbers().map_while(|number| self.credit.get(usize::from(number)));
        credit.take_while(|(granted, _)| *granted > 0).count() as u16
    }

    /// Whether chunks that are read wait for the other side's credit.
    pub fn is_held(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes a file to send.
    pub fn add(&mut self, entry: Entry) -> FileNumber {
        let file = self.next_file;
        self.next_file += 1;
        let look = Look { identity: Identity::default(), is_young: false };
        let outgoing = Outgoing {
            entry,
            state: State::Queued,
            look,
            there: Vec::new(),
            hashes: Vec::new(),
            wanted: VecDeque::new(),
            reading: 0,
            queued: 0,
            sent: 0,
            copying: 0,
            is_short: false,
            rounds: 0,
            again: 0,
            is_ahead: false,
        };
        self.files.insert(file, outgoing);
        self.pump();
        file
    }

    /// No file follows.
    pub fn all_added(&mut self) {
        self.is_all_offered = true;
        self.pump();
    }

    /// The outcome of `Open`.
    pub fn opened(&mut self, file: FileNumber, look: Result<Look, Failure>) {
        let chunk_bytes = self.settings.chunk_bytes;
        let small = self.settings.small;
        let Some(outgoing) = self.files.get_mut(&file) else { return };
        match look {
            Err(failure) => self.settle(file, Err(failure)),
            Ok(look) => {
                outgoing.begin(look, chunk_bytes);
                let is_file = outgoing.entry.kind == EntryKind::File;
                // What is no file has no chunks: the offer says it all.
                outgoing.is_ahead = look.identity.size <= small;
                outgoing.state = if outgoing.is_ahead { State::Moving } else { State::Offered };
                if !is_file {
                    outgoing.state = State::Ended;
                }
                let frame = Frame::Offer { file, entry: outgoing.entry.clone(), identity: look.identity };
                self.actions.push(SenderAction::Send { stream: 0, frame, data: Vec::new() });
            }
        }
        self.pump();
    }

    /// The outcome of `Read`.
    pub fn read(&mut self, file: FileNumber, chunk: u64, bytes: Result<(Vec<u8>, Hash), Failure>) {
        self.reading -= 1;
        if let Some(outgoing) = self.files.get_mut(&file) {
            outgoing.reading -= 1;
            match bytes {
                Err(failure) => self.withdraw(file, failure),
                Ok((bytes, hash)) => {
                    let at = chunk as usize;
                    let length = chunk_length(outgoing.look.identity.size, chunk, self.settings.chunk_bytes);
                    if let Some(slot) = outgoing.hashes.get_mut(at) {
                        *slot = Some(hash);
                        // A source that was cut short has changed: another round is due, and this chunk is none.
                        if outgoing.there[at] != Some(hash) && bytes.len() as u64 == length {
                            outgoing.queued += 1;
                            let is_handed_over = self.settings.is_handed_over;
                            let content = if is_handed_over { Content::InSource } else { Content::Bytes(hash, bytes) };
                            self.queue.push_back(Queued { file, chunk, length, content });
                        }
                    }
                }
            }
        }
        self.pump();
    }

    /// The outcome of `Look`.
    pub fn looked(&mut self, file: FileNumber, look: Result<Look, Failure>) {
        let settings = self.settings;
        // A chunk that was asked for once more since makes another look necessary.
        let looking = self.files.get_mut(&file).filter(|outgoing| outgoing.state == State::Looking);
        let Some(outgoing) = looking else { return };
        match look {
            Err(failure) => self.withdraw(file, failure),
            Ok(look) => {
                let is_same = look.identity == outgoing.look.identity && !outgoing.look.is_young;
                if is_same && outgoing.is_short {
                    self.withdraw(file, Failure::Changed);
                } else if is_same || !settings.rules.last_look {
                    outgoing.state = State::Ended;
                    let hashes: Vec<Hash> = outgoing.hashes.iter().map(|hash| hash.unwrap_or_default()).collect();
                    let (identity, sent, again) = (outgoing.look.identity, outgoing.sent, outgoing.again);
                    let frame = Frame::End { file, identity, root: root(&hashes), sent, again };
                    self.actions.push(SenderAction::Send { stream: 0, frame, data: Vec::new() });
                } else if outgoing.rounds >= MOST_ROUNDS {
                    self.withdraw(file, Failure::Changed);
                } else {
                    outgoing.rounds += 1;
                    outgoing.begin(look, settings.chunk_bytes);
                    outgoing.state = State::Moving;
                }
            }
        }
        self.pump();
    }

    /// A frame of the receiver, and the stream that it came by.
    pub fn frame(&mut self, stream: u16, frame: Frame) {
        match frame {
            Frame::Credit { total } => {
                if let Some((granted, _)) = self.credit.get_mut(usize::from(stream)) {
                    // A running total: an older one that arrives late takes nothing back.
                    *granted = total.max(*granted);
                }
            }
            Frame::Have { file, first, hashes } => {
                if let Some(outgoing) = self.files.get_mut(&file).filter(|outgoing| outgoing.state == State::Offered) {
                    for (slot, hash) in outgoing.there.iter_mut().skip(first as usize).zip(hashes) {
                        *slot = hash;
                    }
                }
            }
            Frame::Ready { file } => {
                if let Some(outgoing) = self.files.get_mut(&file).filter(|outgoing| outgoing.state == State::Offered) {
                    outgoing.state = State::Moving;
                }
            }
            Frame::Again { file, chunk } => self.on_again(file, chunk),
            Frame::Copied { file, chunk, hash } => self.on_copied(file, chunk, hash),
            Frame::Stored { file } if self.files.get(&file).is_some_and(|outgoing| outgoing.state == State::Ended) => {
                self.settle(file, Ok(()));
            }
            Frame::Refused { file, failure } if self.files.contains_key(&file) => self.settle(file, Err(failure)),
            // What is for a file that has its end changes nothing.
            _ => {}
        }
        self.pump();
    }

    fn on_copied(&mut self, file: FileNumber, chunk: u64, hash: Option<Hash>) {
        let Some(outgoing) = self.files.get_mut(&file).filter(|outgoing| outgoing.copying > 0) else { return };
        outgoing.copying -= 1;
        outgoing.is_short |= hash.is_none();
        for hashes in [&mut outgoing.hashes, &mut outgoing.there] {
            if let Some(slot) = hashes.get_mut(chunk as usize) {
                *slot = hash;
            }
        }
    }

    fn on_again(&mut self, file: FileNumber, chunk: u64) {
        let Some(outgoing) = self.files.get_mut(&file) else { return };
        outgoing.again += 1;
        if outgoing.again > MOST_AGAIN + outgoing.hashes.len() as u32 {
            return self.withdraw(file, Failure::Damaged);
        }
        if let Some(there) = outgoing.there.get_mut(chunk as usize) {
            *there = None;
            if !outgoing.wanted.contains(&chunk) {
                outgoing.wanted.push_back(chunk);
            }
        }
        // Its end is told again, after another look.
        outgoing.state = State::Moving;
    }

    fn withdraw(&mut self, file: FileNumber, failure: Failure) {
        let frame = Frame::Withdrawn { file, failure: failure.clone() };
        self.actions.push(SenderAction::Send { stream: 0, frame, data: Vec::new() });
        self.settle(file, Err(failure));
    }

    fn settle(&mut self, file: FileNumber, result: Result<(), Failure>) {
        if self.files.remove(&file).is_some() {
            self.queue.retain(|queued| queued.file != file);
            self.actions.push(SenderAction::Close(file));
            self.actions.push(SenderAction::Settled { file, result });
        }
    }

    /// Begins what can begin.
    fn pump(&mut self) {
        // One at a time: files are offered in the order of their numbers, which the receiver counts on (rule T10).
        let next = self.files.iter_mut().find(|(_, outgoing)| matches!(outgoing.state, State::Queued | State::Opening));
        if let Some((file, outgoing)) = next.filter(|(_, outgoing)| outgoing.state == State::Queued) {
            outgoing.state = State::Opening;
            self.actions.push(SenderAction::Open(*file));
        }
        loop {
            self.send_queued();
            if !self.read_more() {
                break;
            }
        }
        self.look_at_ends();
        if self.is_all_offered && self.files.is_empty() && !self.is_finished {
            self.is_finished = true;
            self.actions.push(SenderAction::Send { stream: 0, frame: Frame::AllOffered, data: Vec::new() });
            self.actions.push(SenderAction::Finished);
        }
    }

    fn send_queued(&mut self) {
        let lanes = if self.granted(self.lanes) > 0 { self.lanes } else { self.former };
        let (first, count) = (usize::from(lanes.first), usize::from(lanes.count).max(1));
        while let Some(front) = self.queue.front() {
            let length = front.length;
            let is_ahead = self.files.get(&front.file).is_some_and(|outgoing| outgoing.is_ahead);
            let (first, count) = if is_ahead { (0, 1) } else { (first, count) };
            let open = (0..count)
                .map(|step| first + (self.next_stream + step) % count)
                .find(|stream| self.credit.get(*stream).is_some_and(|(granted, sent)| sent + length <= *granted));
            let Some(stream) = open else { return };
            let Some(Queued { file, chunk, content, .. }) = self.queue.pop_front() else { return };
            self.next_stream = stream - first + 1;
            self.credit[stream].1 += length;
            if let Some(outgoing) = self.files.get_mut(&file) {
                outgoing.queued -= 1;
                outgoing.sent += 1;
                let is_whole_file = outgoing.hashes.len() == 1;
                let offset = chunk * self.settings.chunk_bytes;
                let (session, sequence) = (self.settings.session, outgoing.sent);
                let (frame, data) = match content {
                    Content::Bytes(hash, bytes) => {
                        if let Some(there) = outgoing.there.get_mut(chunk as usize) {
                            *there = Some(hash);
                        }
                        (Frame::Chunk { session, file, offset, sequence, is_whole_file, hash }, bytes)
                    }
                    Content::InSource => {
                        outgoing.copying += 1;
                        // A chunk is at most 4 MiB.
                        let length = length as u32;
                        (Frame::Copy { session, file, offset, length, sequence, is_whole_file }, Vec::new())
                    }
                };
                self.actions.push(SenderAction::Send { stream: stream as u16, frame, data });
            }
        }
    }

    /// Reads what is to be compared or sent. What the receiver lacks of a file that was handed over, it copies: true if there is more of that.
    fn read_more(&mut self) -> bool {
        let mut is_more = false;
        for (file, outgoing) in self.files.iter_mut().filter(|(_, outgoing)| outgoing.state == State::Moving) {
            while self.reading + self.queue.len() < self.settings.buffers {
                let Some(chunk) = outgoing.wanted.pop_front() else { break };
                let length = chunk_length(outgoing.look.identity.size, chunk, self.settings.chunk_bytes);
                let stands = outgoing.there.get(chunk as usize).is_some_and(Option::is_some);
                if self.settings.is_handed_over && !stands {
                    outgoing.queued += 1;
                    self.queue.push_back(Queued { file: *file, chunk, length, content: Content::InSource });
                    is_more = true;
                    continue;
                }
                outgoing.reading += 1;
                self.reading += 1;
                let is_whole_file = outgoing.hashes.len() == 1;
                self.actions.push(SenderAction::Read { file: *file, chunk, length, is_whole_file });
            }
        }
        is_more
    }

    fn look_at_ends(&mut self) {
        for (file, outgoing) in self.files.iter_mut().filter(|(_, outgoing)| outgoing.state == State::Moving) {
            let is_moving = outgoing.reading > 0 || outgoing.queued > 0 || outgoing.copying > 0;
            if outgoing.wanted.is_empty() && !is_moving {
                outgoing.state = State::Looking;
                self.actions.push(SenderAction::Look(*file));
            }
        }
    }
}

impl Outgoing {
    /// Begins to read one version of the source.
    fn begin(&mut self, look: Look, chunk_bytes: u64) {
        let count = chunk_count(look.identity.size, chunk_bytes);
        let was_one = self.hashes.len() == 1;
        self.is_short = false;
        self.look = look;
        self.hashes = vec![None; count as usize];
        self.there.resize(count as usize, None);
        if was_one != (count == 1) {
            // The hash of a chunk that is the whole file is another one.
            self.there.fill(None);
        }
        self.wanted = (0..count).collect();
    }
}
