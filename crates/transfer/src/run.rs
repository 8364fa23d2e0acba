//! Runs the machines on channels and disks.
//!
//! The network side and the disk side are apart (section 9.2.2 of the paper, *pipelined data transfers*): each stream has a
//! thread that reads and one that writes, the disk has one, and the machine stands between them on the caller's thread.
//! Credit bounds what is between them.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use crate::channel::{Channel, StreamError, read_frame, write_frame};
use crate::frame::{Entry, Failure, FileNumber, Frame};
use crate::receiver::Receiver;
use crate::receiver_action::ReceiverAction;
use crate::rules::SessionSettings;
use crate::sender::{Sender, SenderAction};
use crate::source::Sources;
use crate::store::Store;

/// Messages between a stream's reader and the machine.
const MOST_WAITING: usize = 64;

/// How far a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that stand.
    pub files: u64,
    /// Bytes that went over the channels.
    pub bytes: u64,
    /// The file that came to its end last.
    pub last: Vec<u8>,
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

enum Event<Work> {
    Frame(u16, Frame, Vec<u8>),
    Broken(u16, StreamError),
    Done(Work),
}

/// The threads of the streams.
struct Streams {
    writers: Vec<Outbox<(Frame, Vec<u8>)>>,
    closes: Vec<Box<dyn Fn() + Send + Sync>>,
    finishes: Vec<Box<dyn Fn() + Send + Sync>>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    fn start<Work: Send + 'static>(
        channels: Vec<Box<dyn Channel>>,
        events: &SyncSender<Event<Work>>,
    ) -> Result<Streams, SessionError> {
        let mut streams =
            Streams { writers: Vec::new(), closes: Vec::new(), finishes: Vec::new(), threads: Vec::new() };
        for (number, one) in channels.into_iter().enumerate() {
            let ends = one.ends().map_err(StreamError::Io)?;
            let (writer, queue) = channel();
            let (mut read, mut write) = (ends.read, ends.write);
            let (read_events, write_events) = (events.clone(), events.clone());
            streams.writers.push(writer);
            streams.closes.push(ends.close);
            streams.finishes.push(ends.finish);
            std::thread::spawn(move || read_all(number as u16, &mut *read, &read_events));
            streams
                .threads
                .push(std::thread::spawn(move || write_all(number as u16, &queue, &mut *write, &write_events)));
        }
        Ok(streams)
    }

    fn send(&self, stream: u16, frame: Frame, data: Vec<u8>) {
        if let Some(writer) = self.writers.get(usize::from(stream)) {
            // A writer that has gone has said why.
            let _ = writer.send((frame, data));
        }
    }

    /// Sends what is queued, then ends.
    fn finish(mut self) {
        self.writers.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.finishes.iter().for_each(|finish| finish());
    }

    fn close(self) {
        self.closes.iter().for_each(|close| close());
    }
}

fn read_all<Work>(stream: u16, read: &mut dyn std::io::Read, events: &SyncSender<Event<Work>>) {
    let mut is_over = false;
    loop {
        match read_frame(read) {
            // Unread bytes would make the kernel reset the connection, and lose what was sent last.
            Ok(_) if is_over => {}
            Ok((frame, data)) => is_over = events.send(Event::Frame(stream, frame, data)).is_err(),
            Err(error) => {
                let _ = events.send(Event::Broken(stream, error));
                return;
            }
        }
    }
}

fn write_all<Work>(
    stream: u16,
    queue: &Inbox<(Frame, Vec<u8>)>,
    write: &mut dyn std::io::Write,
    events: &SyncSender<Event<Work>>,
) {
    while let Ok((frame, data)) = queue.recv() {
        if let Err(error) = write_frame(write, &frame, &data) {
            let _ = events.send(Event::Broken(stream, error.into()));
            return;
        }
    }
}

/// A thread that works off jobs in their order.
struct Disk<Job> {
    jobs: Outbox<Job>,
}

impl<Job: Send + 'static> Disk<Job> {
    fn start<Work: Send + 'static>(
        events: SyncSender<Event<Work>>,
        mut work: impl FnMut(Job) -> Option<Work> + Send + 'static,
    ) -> Disk<Job> {
        let (jobs, queue) = channel();
        std::thread::spawn(move || {
            while let Ok(job) = queue.recv() {
                if let Some(done) = work(job)
                    && events.send(Event::Done(done)).is_err()
                {
                    return;
                }
            }
        });
        Disk { jobs }
    }

    fn begin(&self, job: Job) {
        let _ = self.jobs.send(job);
    }
}

enum Sent {
    Opened(FileNumber, Result<crate::sender::Look, Failure>),
    Read(FileNumber, u64, Result<(Vec<u8>, crate::tree::Hash), Failure>),
    Looked(FileNumber, Result<crate::sender::Look, Failure>),
}

/// Sends files. `entries` is asked for the next one as there is room. `report` is called as files come to their end, and
/// breaks the session off by `false`.
pub fn send(
    channels: Vec<Box<dyn Channel>>,
    mut sources: Sources,
    mut entries: impl Iterator<Item = Entry>,
    settings: SessionSettings,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, SessionError> {
    let (events, inbox) = sync_channel(MOST_WAITING);
    let streams = Streams::start(channels, &events)?;
    let chunk_bytes = settings.chunk_bytes;
    let disk = Disk::start(events, move |(action, entry): (SenderAction, Option<Entry>)| match action {
        SenderAction::Open(file) => Some(Sent::Opened(file, sources.open(file, &entry?))),
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
    let mut sender = Sender::new(settings);
    let mut names: BTreeMap<FileNumber, Entry> = BTreeMap::new();
    let (mut summary, mut is_all) = (Summary::default(), false);
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
                    summary.bytes += data.len() as u64;
                    streams.send(stream, frame, data);
                }
                SenderAction::Settled { file, result } => {
                    let path = names.remove(&file).map(|entry| entry.path).unwrap_or_default();
                    settle(&mut summary, path, result, report).inspect_err(|_| {
                        streams.closes.iter().for_each(|close| close());
                    })?;
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
        match inbox.recv() {
            Ok(Event::Frame(_, Frame::Abort { reason }, _)) => {
                streams.close();
                return Err(SessionError::Protocol(reason));
            }
            Ok(Event::Frame(stream, frame, _)) => sender.frame(stream, frame),
            Ok(Event::Done(Sent::Opened(file, look))) => sender.opened(file, look),
            Ok(Event::Done(Sent::Read(file, chunk, bytes))) => sender.read(file, chunk, bytes),
            Ok(Event::Done(Sent::Looked(file, look))) => sender.looked(file, look),
            Ok(Event::Broken(_, error)) => {
                streams.close();
                return Err(error.into());
            }
            Err(_) => return Err(StreamError::Ended.into()),
        }
    }
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
    let progress = Progress { files: summary.files, bytes: summary.bytes, last: path };
    if report(&progress) { Ok(()) } else { Err(SessionError::Stopped) }
}

enum Received {
    Prepared(FileNumber, Result<crate::receiver_action::Basis, Failure>),
    Verified(FileNumber, u64, Option<crate::tree::Hash>),
    Cloned(FileNumber, Result<(), Failure>),
    Written(FileNumber, u64, Result<crate::tree::Hash, Failure>),
    Published(FileNumber, Result<(), Failure>),
}

fn work_of_receiver(store: &mut Store, chunk_bytes: u64, action: ReceiverAction) -> Option<Received> {
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

/// Receives files until the sender offers no more. `report` is called as files come to their end, and breaks the session
/// off by `false`.
pub fn receive(
    channels: Vec<Box<dyn Channel>>,
    mut store: Store,
    settings: SessionSettings,
    report: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Summary, SessionError> {
    let (events, inbox) = sync_channel(MOST_WAITING);
    let streams = Streams::start(channels, &events)?;
    let chunk_bytes = settings.chunk_bytes;
    let disk = Disk::start(events, move |action| work_of_receiver(&mut store, chunk_bytes, action));
    let mut receiver = Receiver::new(settings);
    let mut summary = Summary::default();
    loop {
        for action in receiver.actions() {
            match action {
                ReceiverAction::Send { stream, frame } => streams.send(stream, frame, Vec::new()),
                ReceiverAction::Settled { entry, result } => {
                    settle(&mut summary, entry.path, result, report).inspect_err(|_| {
                        streams.closes.iter().for_each(|close| close());
                    })?;
                }
                ReceiverAction::Finished => {
                    streams.finish();
                    return Ok(summary);
                }
                ReceiverAction::Violation(what) => {
                    streams.close();
                    return Err(SessionError::Protocol(what.to_owned()));
                }
                other => disk.begin(other),
            }
        }
        match inbox.recv() {
            Ok(Event::Frame(_, Frame::Abort { reason }, _)) => {
                streams.close();
                return Err(SessionError::Protocol(reason));
            }
            Ok(Event::Frame(stream, frame, data)) => {
                summary.bytes += data.len() as u64;
                receiver.frame(stream, frame, data);
            }
            Ok(Event::Done(done)) => match done {
                Received::Prepared(file, basis) => receiver.prepared(file, basis),
                Received::Verified(file, chunk, hash) => receiver.verified(file, chunk, hash),
                Received::Cloned(file, result) => receiver.cloned(file, result),
                Received::Written(file, chunk, hash) => receiver.written(file, chunk, hash),
                Received::Published(file, result) => receiver.published(file, result),
            },
            // The sender ends all its streams when it is done; what it says on the first may still be under way.
            Ok(Event::Broken(1.., StreamError::Ended)) => {}
            Ok(Event::Broken(_, error)) => {
                receiver.records().into_iter().for_each(|record| disk.begin(record));
                streams.close();
                return Err(error.into());
            }
            Err(_) => return Err(StreamError::Ended.into()),
        }
    }
}
