//! The streams of a session: a thread that reads and one that writes for each, also for those that join later.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver as Inbox, Sender as Outbox, SyncSender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::channel::{Channel, Ends, Lanes, LinkCounts, StreamError, read_frame};
use crate::channel_kind::ChannelKind;
use crate::descriptor::Handover;
use crate::frame::Frame;
use crate::run::SessionError;
use crate::tuner::{Sample, TunerSettings};

/// Bytes that are written between two counts of them.
const PIECE: usize = 64 << 10;

/// Makes the stream of a number. Runs on a thread of its own.
pub type Maker = Box<dyn FnMut(u16) -> std::io::Result<Box<dyn Channel>> + Send>;

/// A stream that the other side has made and that has proven itself, with its number.
pub type Arrived = (u16, Box<dyn Channel>);

/// Such streams as they come.
pub type Arriving = Inbox<Arrived>;

/// Where further streams of a session come from.
#[derive(Default)]
pub enum Later {
    /// There are none.
    #[default]
    Never,
    /// This side makes them.
    Make(Maker),
    /// The other side makes them. They come with their numbers.
    Arrive(Arriving),
}

/// The streams of a session.
#[derive(Default)]
pub struct Links {
    /// Those that are there, with their numbers: 0 is one of them.
    pub first: Vec<(u16, Box<dyn Channel>)>,
    /// Those that join.
    pub later: Later,
    /// How the sending side finds how many to use. `None` uses all that are there.
    pub tuner: Option<TunerSettings>,
}

impl From<Vec<Box<dyn Channel>>> for Links {
    fn from(first: Vec<Box<dyn Channel>>) -> Links {
        let first = (0..).zip(first).collect();
        Links { first, ..Links::default() }
    }
}

pub(crate) enum Event<Work> {
    Frame(u16, Frame, Vec<u8>),
    Broken(u16, StreamError),
    Joined(u16, Box<dyn Channel>),
    /// A stream that was asked for cannot be made.
    Refused(std::io::Error),
    Done(Work),
}

/// What one writer, or all of them, have done.
#[derive(Debug, Default)]
struct Meter {
    /// Bytes that writers have in hand.
    queued: AtomicU64,
    /// Bytes that the channels took.
    written: AtomicU64,
    /// Whether nothing was left to write.
    ran_dry: AtomicBool,
}

/// What a writer is given: `None` wakes it for an urgent message.
type Queued = Option<(Frame, Vec<u8>)>;

struct Stream {
    writer: Outbox<Queued>,
    urgent: Arc<Mutex<Vec<Frame>>>,
    close: Box<dyn Fn() + Send + Sync>,
    finish: Box<dyn Fn() + Send + Sync>,
    counts: Box<dyn Fn() -> Option<LinkCounts> + Send>,
    meter: Arc<Meter>,
    /// What the link had done when the stream joined, and at the last sample.
    began: LinkCounts,
    last: LinkCounts,
    channel: ChannelKind,
    about: String,
    handover: Option<Handover>,
    thread: JoinHandle<()>,
}

/// The threads of the streams.
pub(crate) struct Streams<Work> {
    streams: BTreeMap<u16, Stream>,
    most: u16,
    asked: BTreeSet<u16>,
    maker: Option<Outbox<u16>>,
    events: SyncSender<Event<Work>>,
    meter: Arc<Meter>,
    written: u64,
}

impl<Work: Send + 'static> Streams<Work> {
    pub(crate) fn start(
        first: Vec<(u16, Box<dyn Channel>)>,
        later: Later,
        most: u16,
        events: &SyncSender<Event<Work>>,
    ) -> Result<Streams<Work>, SessionError> {
        let mut streams = Streams {
            streams: BTreeMap::new(),
            most,
            asked: first.iter().map(|(number, _)| *number).collect(),
            maker: None,
            events: events.clone(),
            meter: Arc::default(),
            written: 0,
        };
        for (number, one) in first {
            streams.join(number, one)?;
        }
        let events = events.clone();
        match later {
            Later::Never => {}
            Later::Make(mut make) => {
                let (maker, numbers) = channel::<u16>();
                streams.maker = Some(maker);
                std::thread::spawn(move || {
                    for number in numbers {
                        let event = match make(number) {
                            Ok(one) => Event::Joined(number, one),
                            Err(error) => Event::Refused(error),
                        };
                        if events.send(event).is_err() {
                            return;
                        }
                    }
                });
            }
            Later::Arrive(arriving) => {
                std::thread::spawn(move || {
                    for (number, one) in arriving {
                        if events.send(Event::Joined(number, one)).is_err() {
                            return;
                        }
                    }
                });
            }
        }
        Ok(streams)
    }

    /// Adds a stream. False if its number is not one of the session, or is taken: it is closed.
    pub(crate) fn join(&mut self, number: u16, one: Box<dyn Channel>) -> Result<bool, SessionError> {
        if number >= self.most || self.streams.contains_key(&number) {
            return Ok(false);
        }
        let ends = one.ends().map_err(StreamError::Io)?;
        let Ends { mut read, mut write, close, finish, counts, channel: kind, about, handover } = ends;
        let (writer, queue) = channel();
        let (read_events, write_events) = (self.events.clone(), self.events.clone());
        let (all, meter) = (self.meter.clone(), Arc::<Meter>::default());
        let meters = [all, meter.clone()];
        std::thread::spawn(move || read_all(number, &mut *read, &read_events));
        let urgent: Arc<Mutex<Vec<Frame>>> = Arc::default();
        let waiting = urgent.clone();
        let thread = std::thread::spawn(move || {
            if let Err(error) = write_all(&queue, &waiting, &mut *write, &meters) {
                let _ = write_events.send(Event::Broken(number, error.into()));
            }
        });
        let began = counts().unwrap_or_default();
        let last = began;
        let stream = Stream {
            writer,
            urgent,
            close,
            finish,
            counts,
            meter,
            began,
            last,
            channel: kind,
            about,
            handover,
            thread,
        };
        self.streams.insert(number, stream);
        Ok(true)
    }

    /// Makes what is missing of these streams, where this side makes them.
    pub(crate) fn want(&mut self, lanes: Lanes) {
        let Some(maker) = &self.maker else { return };
        for number in lanes.numbers().filter(|number| *number < self.most) {
            if self.asked.insert(number) {
                // A maker that has gone has said why.
                let _ = maker.send(number);
            }
        }
    }

    /// How many of these streams, from the first on, are there.
    pub(crate) fn present(&self, lanes: Lanes) -> u16 {
        lanes.numbers().take_while(|number| self.streams.contains_key(number)).count() as u16
    }

    /// Streams that are there.
    pub(crate) fn count(&self) -> u16 {
        self.streams.len() as u16
    }

    /// What chunks go over: the channel of these streams, or of stream 0 as long as there are none.
    pub(crate) fn channel(&self, lanes: Lanes) -> Option<ChannelKind> {
        let stream = self.streams.get(&lanes.first).or_else(|| self.streams.get(&0));
        stream.map(|stream| stream.channel)
    }

    pub(crate) fn numbers(&self) -> Vec<u16> {
        self.streams.keys().copied().collect()
    }

    /// The descriptors that go along with the first stream, where files are handed over.
    pub(crate) fn handover(&self) -> Option<Handover> {
        self.streams.get(&0)?.handover.clone()
    }

    /// What a stream is, for people.
    pub(crate) fn about(&self, number: u16) -> &str {
        self.streams.get(&number).map_or("", |stream| &stream.about)
    }

    pub(crate) fn send(&self, stream: u16, frame: Frame, data: Vec<u8>) {
        if let Some(stream) = self.streams.get(&stream) {
            for meter in [&self.meter, &stream.meter] {
                meter.queued.fetch_add(data.len() as u64, Ordering::Relaxed);
            }
            // A writer that has gone has said why.
            let _ = stream.writer.send(Some((frame, data)));
        }
    }

    /// Sends a message by the first stream before what waits there.
    pub(crate) fn send_urgent(&self, frame: Frame) {
        if let Some(stream) = self.streams.get(&0) {
            stream.urgent.lock().unwrap_or_else(PoisonError::into_inner).push(frame);
            let _ = stream.writer.send(None);
        }
    }

    /// What these streams did since the last call.
    pub(crate) fn sample(&mut self, lanes: Lanes) -> Sample {
        let mut sample = Sample::default();
        let (mut counted, mut trips) = (false, Vec::new());
        for (number, stream) in &mut self.streams {
            let counts = (stream.counts)();
            if !lanes.numbers().contains(number) {
                // What was written to it counts until the other side's kernel has it.
                let written = stream.meter.written.load(Ordering::Relaxed);
                let is_underway = counts.is_some_and(|now| now.bytes.saturating_sub(stream.began.bytes) < written);
                sample.is_draining |= is_underway || stream.meter.queued.load(Ordering::Relaxed) > 0;
            }
            let Some(now) = counts else { continue };
            let last = std::mem::replace(&mut stream.last, now);
            if !lanes.numbers().contains(number) {
                continue;
            }
            counted = true;
            sample.bytes += now.bytes.saturating_sub(last.bytes);
            let packets = now.packets.saturating_sub(last.packets);
            sample.packets += packets;
            sample.again += now.again.saturating_sub(last.again);
            if packets > 0 {
                trips.push(now.round_trip);
            }
        }
        let written = self.meter.written.load(Ordering::Relaxed);
        if !counted {
            sample.bytes = written - self.written;
        }
        self.written = written;
        trips.sort_unstable();
        sample.round_trip = trips.get(trips.len() / 2).copied();
        sample.is_idle = self.meter.ran_dry.swap(false, Ordering::Relaxed);
        sample
    }

    /// Sends what is queued, then ends.
    pub(crate) fn finish(self) {
        let mut finishes = Vec::new();
        let mut threads = Vec::new();
        for stream in self.streams.into_values() {
            drop(stream.writer);
            threads.push(stream.thread);
            finishes.push(stream.finish);
        }
        for thread in threads {
            let _ = thread.join();
        }
        finishes.iter().for_each(|finish| finish());
    }

    pub(crate) fn close(&self) {
        self.streams.values().for_each(|stream| (stream.close)());
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

fn write_all(
    queue: &Inbox<Queued>,
    urgent: &Mutex<Vec<Frame>>,
    write: &mut dyn Write,
    meters: &[Arc<Meter>; 2],
) -> std::io::Result<()> {
    while let Ok(queued) = queue.recv() {
        for frame in std::mem::take(&mut *urgent.lock().unwrap_or_else(PoisonError::into_inner)) {
            write.write_all(&frame.encode(0))?;
        }
        let Some((frame, data)) = queued else { continue };
        write.write_all(&frame.encode(data.len()))?;
        for piece in data.chunks(PIECE) {
            write.write_all(piece)?;
            let length = piece.len() as u64;
            for meter in meters {
                meter.written.fetch_add(length, Ordering::Relaxed);
                if meter.queued.fetch_sub(length, Ordering::Relaxed) == length {
                    meter.ran_dry.store(true, Ordering::Relaxed);
                }
            }
        }
    }
    Ok(())
}
