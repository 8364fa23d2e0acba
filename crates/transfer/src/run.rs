//! Runs the machines on channels and disks.
//!
//! The network side and the disk side are apart (section 9.2.2 of the paper, *pipelined data transfers*): each stream has a
//! thread that reads and one that writes, the disk has one, and the machine stands between them on the caller's thread.
//! Credit bounds what is between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, sync_channel};
use std::time::Duration;

use verbena_terms::{BootClock, Clock};

use crate::channel::{Lanes, StreamError};
use crate::channel_kind::ChannelKind;
use crate::descriptor::Handover;
use crate::disk::Disk;
use crate::file_error::FileError;
use crate::frame::{Entry, EntryKind, Failure, FileNumber, Frame, Measured};
use crate::receiver::Receiver;
use crate::receiver_action::ReceiverAction;
use crate::rules::SessionSettings;
use crate::sender::{Look, Sender, SenderAction};
use crate::source::Sources;
use crate::source_copy::SourceCopy;
use crate::store::Store;
use crate::streams::{Event, Links, Streams};
use crate::tuner::Tuner;

/// Messages between a stream's reader and the machine.
const MOST_WAITING: usize = 64;
/// Time between two samples of what the link does, and between two reports.
const SAMPLE_EVERY: Duration = Duration::from_millis(20);
const REPORT_EVERY: Duration = Duration::from_millis(200);
/// What is kept of what a tuner writes down: lines, and letters of each.
const MOST_NOTES: usize = 500;
const LONGEST_NOTE: usize = 400;

/// How far a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that stand.
    pub files: u64,
    /// Bytes that went over the channels.
    pub bytes: u64,
    /// The file that came to its end last.
    pub last: Vec<u8>,
    /// Streams that are there.
    pub streams: u16,
    /// What chunks go over.
    pub channel: Option<ChannelKind>,
}

/// What a session came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Files that stand, whole.
    pub files: u64,
    /// Bytes of chunks that went over the channels.
    pub bytes: u64,
    /// Files that do not stand, and why.
    pub failures: Vec<(Vec<u8>, Failure)>,
    /// Streams that were made.
    pub streams: u16,
    /// What chunks went over in the end.
    pub channel: Option<ChannelKind>,
    /// What was measured last.
    pub measured: Measured,
    /// What was measured and decided about streams, a line each (rule T13).
    pub notes: Vec<String>,
}

impl Summary {
    fn note(&mut self, text: &str) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(text.chars().filter(|letter| !letter.is_control()).take(LONGEST_NOTE).collect());
        }
    }

    /// With what a walk could not read.
    #[must_use]
    pub fn with_unread(mut self, unread: Vec<(Vec<u8>, FileError)>) -> Summary {
        self.failures.extend(unread.into_iter().map(|(path, error)| (path, Failure::Source(error.to_string()))));
        self
    }

    /// Names a file that was copied alone, which has no name in its session.
    pub fn name(&mut self, name: Option<&[u8]>) {
        for (path, _) in self.failures.iter_mut().filter(|(path, _)| path.is_empty()) {
            path.extend_from_slice(name.unwrap_or_default());
        }
    }

    fn progress(&self, last: Vec<u8>) -> Progress {
        let (files, bytes, streams, channel) = (self.files, self.bytes, self.streams, self.channel);
        Progress { files, bytes, last, streams, channel }
    }

    /// Which streams are there, and what they are. `lanes` are to carry chunks.
    fn look<Work: Send + 'static>(&mut self, streams: &Streams<Work>, lanes: Lanes) {
        (self.streams, self.channel) = (streams.count(), streams.channel(lanes));
    }
}

/// Why a session ended before its end. What stands stays; the next one goes on there.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// A stream ended.
    #[error("{0}; run the same command again to go on")]
    Stream(#[from] StreamError),
    /// The other side broke the protocol.
    #[error("the other side broke the protocol: {0}")]
    Protocol(String),
    /// The caller broke it off.
    #[error("it was broken off")]
    Stopped,
}

enum Sent {
    Opened(FileNumber, Result<crate::sender::Look, Failure>),
    Read(FileNumber, u64, Result<(Vec<u8>, crate::tree::Hash), Failure>),
    Looked(FileNumber, Result<crate::sender::Look, Failure>),
}

/// Sends files. `entries` is asked for the next one as there is room. `report` is called as files come to their end and
/// several times a second, and breaks the session off by `false`.
pub fn send(
    links: impl Into<Links>,
    mut sources: Sources,
    entries: impl Iterator<Item = Entry>,
    settings: SessionSettings,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, SessionError> {
    let links = links.into();
    let (events, inbox) = sync_channel(MOST_WAITING);
    let streams = Streams::start(links.first, links.later, settings.streams, &events)?;
    let chunk_bytes = settings.chunk_bytes;
    let handover = streams.handover();
    let settings = SessionSettings { is_handed_over: handover.is_some(), ..settings };
    let disk = Disk::start(events, (Arc::default(), |_| false), move |(action, entry): Asked| match action {
        SenderAction::Open(file) => Some(Sent::Opened(file, open(&mut sources, file, &entry?, handover.as_ref()))),
        SenderAction::Read { file, chunk, length, is_whole_file } => {
            Some(Sent::Read(file, chunk, sources.read(file, chunk * chunk_bytes, length, is_whole_file)))
        }
        SenderAction::Look(file) => Some(Sent::Looked(file, sources.look(file))),
        SenderAction::Close(file) => {
            sources.close(file);
            None
        }
        _ => None,
    });
    let tuner = links.tuner.map(|settings| Tuner::new(settings, BootClock.now()));
    let tuning = Tuning { tuner, all: Lanes { first: 0, count: settings.streams } };
    let sent = send_by(Sender::new(settings), (streams, &inbox, &disk), entries, tuning, report);
    drop(inbox);
    disk.end();
    sent
}

/// Opens a source. Where files are handed over, its descriptor is given before its offer is made.
fn open(sources: &mut Sources, file: FileNumber, entry: &Entry, handover: Option<&Handover>) -> Result<Look, Failure> {
    let look = sources.open(file, entry)?;
    if let Some(handover) = handover
        && let Some(descriptor) = sources.descriptor(file)?
    {
        handover.give(descriptor);
    }
    Ok(look)
}

/// A job of the sender's disk, and of which file.
type Asked = (SenderAction, Option<Entry>);

fn send_by(
    mut sender: Sender,
    (mut streams, inbox, disk): (Streams<Sent>, &Inbox<Event<Sent>>, &Disk<Asked>),
    mut entries: impl Iterator<Item = Entry>,
    mut tuning: Tuning,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, SessionError> {
    let mut names: BTreeMap<FileNumber, Entry> = BTreeMap::new();
    let (mut summary, mut is_all) = (Summary::default(), false);
    summary.note(streams.about(0));
    tuning.follow(&mut sender, &mut streams, &mut summary);
    let mut pace = Pace::new(if tuning.tuner.is_some() { SAMPLE_EVERY } else { REPORT_EVERY });
    loop {
        while !is_all && sender.wants_files() {
            match entries.next() {
                Some(entry) => drop(names.insert(sender.add(entry.clone()), entry)),
                None => {
                    is_all = true;
                    sender.all_added();
                }
            }
        }
        for action in sender.actions() {
            match action {
                SenderAction::Send { stream, frame, data } => {
                    summary.bytes += bytes(&frame, &data);
                    streams.send(stream, frame, data);
                }
                SenderAction::Settled { file, result } => {
                    let path = names.remove(&file).map(|entry| entry.path).unwrap_or_default();
                    settle(&mut summary, path, result, report).inspect_err(|_| streams.close())?;
                }
                SenderAction::Finished => {
                    streams.finish();
                    return Ok(summary);
                }
                SenderAction::Open(file) => disk.begin((action, names.get(&file).cloned())),
                other => disk.begin((other, None)),
            }
        }
        if !is_all && sender.wants_files() {
            continue;
        }
        if pace.is_due() {
            tuning.sample(&mut sender, &mut streams, &mut summary);
            pace.report(&summary, report).inspect_err(|_| streams.close())?;
        }
        match inbox.recv_timeout(pace.rest()) {
            Ok(Event::Frame(_, Frame::Abort { reason }, _)) => {
                streams.close();
                return Err(SessionError::Protocol(reason));
            }
            Ok(Event::Frame(stream, frame, _)) => sender.frame(stream, frame),
            Ok(Event::Joined(number, one)) => {
                // Its credit comes with the receiver's first word on it.
                let is_new = streams.join(number, one).inspect_err(|_| streams.close())?;
                if is_new && number == tuning.lanes().first {
                    summary.note(streams.about(number));
                }
                summary.look(&streams, tuning.lanes());
            }
            Ok(Event::Refused(error)) => tuning.refused(&error, &mut sender, &mut streams, &mut summary),
            Ok(Event::Done(Sent::Opened(file, look))) => sender.opened(file, look),
            Ok(Event::Done(Sent::Read(file, chunk, bytes))) => sender.read(file, chunk, bytes),
            Ok(Event::Done(Sent::Looked(file, look))) => sender.looked(file, look),
            Ok(Event::Broken(_, error)) => {
                streams.close();
                return Err(error.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(StreamError::Ended.into()),
        }
    }
}

/// The tuner, and what it decides about.
struct Tuning {
    tuner: Option<Tuner>,
    /// The streams that are used without a tuner.
    all: Lanes,
}

impl Tuning {
    fn lanes(&self) -> Lanes {
        self.tuner.as_ref().map_or(self.all, Tuner::lanes)
    }

    fn sample(&mut self, sender: &mut Sender, streams: &mut Streams<Sent>, summary: &mut Summary) {
        let Some(tuner) = &mut self.tuner else { return };
        let mut sample = streams.sample(tuner.lanes());
        sample.is_idle &= !sender.is_held();
        sample.streams = sender.granted_streams();
        match tuner.sample(BootClock.now(), sample) {
            Some(_) => self.follow(sender, streams, summary),
            None => self.tell(streams, summary),
        }
    }

    fn refused(
        &mut self,
        error: &std::io::Error,
        sender: &mut Sender,
        streams: &mut Streams<Sent>,
        summary: &mut Summary,
    ) {
        summary.note(&format!("a further stream could not be made: {error}"));
        if let Some(tuner) = &mut self.tuner {
            tuner.refused(streams.present(tuner.lanes()), BootClock.now());
            self.follow(sender, streams, summary);
        }
    }

    /// Uses as many streams as the tuner says, and makes what is missing.
    fn follow(&mut self, sender: &mut Sender, streams: &mut Streams<Sent>, summary: &mut Summary) {
        if let Some(tuner) = &self.tuner {
            sender.use_lanes(tuner.lanes());
            streams.want(tuner.lanes());
        }
        summary.look(streams, self.lanes());
        self.tell(streams, summary);
    }

    /// Writes down what was decided, and tells the other side.
    fn tell(&mut self, streams: &Streams<Sent>, summary: &mut Summary) {
        let Some(tuner) = &mut self.tuner else { return };
        for decision in tuner.decisions() {
            let why = decision.to_string();
            summary.note(&why);
            let (Lanes { first, count }, measured) = (tuner.lanes(), decision.measured());
            summary.measured = measured;
            streams.send_urgent(Frame::Streams { first, wanted: count, measured, why });
        }
    }
}

/// When samples are taken and reports are made.
struct Pace {
    every: Duration,
    next: std::time::Instant,
    reported: std::time::Instant,
}

impl Pace {
    fn new(every: Duration) -> Pace {
        let now = std::time::Instant::now();
        Pace { every, next: now + every, reported: now }
    }

    fn rest(&self) -> Duration {
        self.next.saturating_duration_since(std::time::Instant::now())
    }

    fn is_due(&mut self) -> bool {
        let now = std::time::Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.every;
        }
        is_due
    }

    fn report(&mut self, summary: &Summary, report: &mut dyn FnMut(&Progress) -> bool) -> Result<(), SessionError> {
        if self.reported.elapsed() < REPORT_EVERY {
            return Ok(());
        }
        self.reported = std::time::Instant::now();
        if report(&summary.progress(Vec::new())) { Ok(()) } else { Err(SessionError::Stopped) }
    }
}

/// Bytes of files that a message sends, or has copied.
fn bytes(frame: &Frame, data: &[u8]) -> u64 {
    if let Frame::Copy { length, .. } = frame { u64::from(*length) } else { data.len() as u64 }
}

fn settle(
    summary: &mut Summary,
    path: Vec<u8>,
    result: Result<(), Failure>,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<(), SessionError> {
    match result {
        Ok(()) => summary.files += 1,
        Err(failure) => summary.failures.push((path.clone(), failure)),
    }
    if report(&summary.progress(path)) { Ok(()) } else { Err(SessionError::Stopped) }
}

enum Received {
    Prepared(FileNumber, Result<crate::receiver_action::Basis, Failure>),
    Verified(FileNumber, u64, Option<crate::tree::Hash>),
    Cloned(FileNumber, Result<(), Failure>),
    Written(FileNumber, u64, Result<crate::tree::Hash, Failure>),
    Copied(FileNumber, u64, Result<Option<crate::tree::Hash>, Failure>),
    Published(FileNumber, Result<(), Failure>),
}

/// A job of the receiver's disk.
enum Job {
    Act(ReceiverAction),
    /// Take the source of a file that will be offered.
    HandOver(FileNumber, SourceCopy),
}

fn work_of_receiver(store: &mut Store, chunk_bytes: u64, job: Job) -> Option<Received> {
    let action = match job {
        Job::Act(action) => action,
        Job::HandOver(file, source) => {
            store.hand_over(file, source);
            return None;
        }
    };
    match action {
        ReceiverAction::Prepare { file, entry, identity } => {
            Some(Received::Prepared(file, store.prepare(file, &entry, &identity)))
        }
        ReceiverAction::Verify { file, chunk, length, is_whole_file } => {
            Some(Received::Verified(file, chunk, store.verify(file, chunk * chunk_bytes, length, is_whole_file)))
        }
        ReceiverAction::Clone(file) => Some(Received::Cloned(file, store.copy_target(file))),
        ReceiverAction::Write { file, chunk, offset, is_whole_file, data } => {
            Some(Received::Written(file, chunk, store.write(file, offset, &data, is_whole_file)))
        }
        ReceiverAction::Copy { file, chunk, offset, length, is_whole_file } => {
            Some(Received::Copied(file, chunk, store.copy_source(file, offset, length, is_whole_file)))
        }
        ReceiverAction::Record { file, identity, hashes } => {
            store.record(file, &identity, &hashes);
            None
        }
        ReceiverAction::Publish { file, identity } => Some(Received::Published(file, store.publish(file, &identity))),
        ReceiverAction::Close(file) => {
            store.close(file);
            None
        }
        _ => None,
    }
}

/// The file of an offer, and its size.
fn offered(frame: &Frame) -> Option<(FileNumber, u64)> {
    match frame {
        Frame::Offer { file, entry, identity } if entry.kind == EntryKind::File => Some((*file, identity.size)),
        _ => None,
    }
}

/// Receives files until the sender offers no more. `report` is called as files come to their end and several times a
/// second, and breaks the session off by `false`.
pub fn receive(
    links: impl Into<Links>,
    mut store: Store,
    settings: SessionSettings,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, SessionError> {
    let links = links.into();
    let (events, inbox) = sync_channel(MOST_WAITING);
    let streams = Streams::start(links.first, links.later, settings.streams, &events)?;
    let chunk_bytes = settings.chunk_bytes;
    // What is claimed of a part when its session ends is not sent again by the next one.
    let is_kept = |job: &Job| matches!(job, Job::Act(ReceiverAction::Record { .. } | ReceiverAction::Close(_)));
    let settings = SessionSettings { is_handed_over: streams.handover().is_some(), ..settings };
    let is_over = Arc::new(AtomicBool::new(false));
    store.stops_copying(is_over.clone());
    let disk = Disk::start(events, (is_over, is_kept), move |job| work_of_receiver(&mut store, chunk_bytes, job));
    let received = receive_by(Receiver::without_streams(settings), (streams, &inbox, &disk), report);
    drop(inbox);
    disk.end();
    received
}

fn receive_by(
    mut receiver: Receiver,
    (mut streams, inbox, disk): (Streams<Received>, &Inbox<Event<Received>>, &Disk<Job>),
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, SessionError> {
    streams.numbers().into_iter().for_each(|stream| receiver.joined(stream));
    let handover = streams.handover();
    let mut lanes = Lanes { first: 0, count: 1 };
    let mut summary = Summary::default();
    summary.look(&streams, lanes);
    let mut pace = Pace::new(REPORT_EVERY);
    loop {
        for action in receiver.actions() {
            match action {
                ReceiverAction::Send { stream, frame } => streams.send(stream, frame, Vec::new()),
                ReceiverAction::Settled { entry, result } => {
                    settle(&mut summary, entry.path, result, report).inspect_err(|_| streams.close())?;
                }
                ReceiverAction::Finished => {
                    streams.finish();
                    return Ok(summary);
                }
                ReceiverAction::Violation(what) => {
                    streams.close();
                    return Err(SessionError::Protocol(what.to_owned()));
                }
                other => disk.begin(Job::Act(other)),
            }
        }
        if pace.is_due() {
            pace.report(&summary, report).inspect_err(|_| streams.close())?;
        }
        match inbox.recv_timeout(pace.rest()) {
            Ok(Event::Frame(_, Frame::Abort { reason }, _)) => {
                streams.close();
                return Err(SessionError::Protocol(reason));
            }
            Ok(Event::Frame(_, Frame::Streams { first, wanted, measured, why }, _)) => {
                summary.note(&why);
                (summary.measured, lanes) = (measured, Lanes { first, count: wanted });
                streams.want(lanes);
                summary.look(&streams, lanes);
            }
            Ok(Event::Joined(number, one)) => {
                if streams.join(number, one).inspect_err(|_| streams.close())? {
                    receiver.joined(number);
                }
                summary.look(&streams, lanes);
            }
            Ok(Event::Refused(error)) => summary.note(&format!("a further stream could not be made: {error}")),
            Ok(Event::Frame(stream, frame, data)) => {
                summary.bytes += bytes(&frame, &data);
                if let (Some(handover), Some((file, size))) = (&handover, offered(&frame)) {
                    // It has come with its offer, or before it.
                    let source = handover.take().and_then(|descriptor| SourceCopy::new(descriptor, size).ok());
                    let Some(source) = source else {
                        streams.close();
                        return Err(SessionError::Protocol("a file was not handed over".into()));
                    };
                    disk.begin(Job::HandOver(file, source));
                }
                receiver.frame(stream, frame, data);
            }
            Ok(Event::Done(done)) => match done {
                Received::Prepared(file, basis) => receiver.prepared(file, basis),
                Received::Verified(file, chunk, hash) => receiver.verified(file, chunk, hash),
                Received::Cloned(file, result) => receiver.cloned(file, result),
                Received::Written(file, chunk, hash) => receiver.written(file, chunk, hash),
                Received::Copied(file, chunk, hash) => receiver.copied(file, chunk, hash),
                Received::Published(file, result) => receiver.published(file, result),
            },
            // The sender ends all its streams when it is done; what it says on the first may still be under way.
            Ok(Event::Broken(1.., StreamError::Ended)) => {}
            Ok(Event::Broken(_, error)) => {
                receiver.records().into_iter().for_each(|record| disk.begin(Job::Act(record)));
                streams.close();
                return Err(error.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(StreamError::Ended.into()),
        }
    }
}
