//! A fill of this node's proxy, between its two looks at the logs of relays.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use verbena_cluster::LeaseWord;
use verbena_fabric::{Batch, Class, Completed, Done, Operation, Pending, Pool, SharedRemote};
use verbena_service::settle::{Finding, Settlement};
use verbena_terms::{BootClock, Clock, Incarnation, ViewNumber};

use super::ReadLogs;
use crate::layout::{EPOCH_AT, Layout, MOMENT_AT, WRITTEN_AT};
use crate::reading::{End, Lost, Read, Reading, Span, Start};

/// How long a look may take.
const LOOK_DEADLINE: Duration = Duration::from_millis(100);
/// How often, and how many times, it is asked what became of a tag that was to be written.
const SETTLE_EVERY: Duration = Duration::from_millis(10);
const SETTLE_TIMES: usize = 3_000;

/// A relay's log that is open.
#[derive(Clone)]
pub(super) struct Log {
    pub remote: SharedRemote,
    pub layout: Layout,
    /// Of the incarnation by which it was opened.
    pub pool: Pool,
}

/// The relays of other processes in one view.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub view: ViewNumber,
    /// No member departed whose connections may still be there.
    pub is_settled: bool,
    /// Nothing where its log is not open yet.
    pub logs: Vec<(Incarnation, Option<Log>)>,
}

/// A request that was forwarded, or is about to be. It has a tag at each relay until it is [finished](Self::finish).
pub struct Watching {
    of: ReadLogs,
    tag: u64,
    view: ViewNumber,
    lost: Option<Lost>,
    logs: Vec<Watched>,
}

struct Watched {
    log: Log,
    start: Result<Start, Lost>,
}

impl Watching {
    /// The first look. Its tag is known to the relays when this is ready, so that the request may be forwarded.
    pub(super) async fn begin(of: ReadLogs, tag: u64) -> Watching {
        let known = of.shared().known.load_full();
        let view = acknowledged(of.shared().lease.get());
        let mut watching = Watching { of, tag, view, lost: None, logs: Vec::new() };
        if known.view != view || !known.is_settled || known.logs.iter().any(|(_, log)| log.is_none()) {
            watching.lost = Some(Lost::Relays);
        }
        let logs = known.logs.iter().filter_map(|(_, log)| log.clone());
        let looks: Vec<(Log, Pending<Completed>)> = logs.map(|log| (log.clone(), first_look(&log, tag))).collect();
        for (log, look) in looks {
            let start = match look.await {
                Ok(found) => start_of(&found),
                Err(error) => {
                    watching.failed(&log, &error);
                    Err(Lost::Gone)
                }
            };
            watching.logs.push(Watched { log, start });
        }
        watching
    }

    /// Whether there is a relay in another process.
    pub fn has_relays(&self) -> bool {
        !self.logs.is_empty() || self.lost.is_some()
    }

    /// Whether each relay's configuration promises that pages are made of the database alone.
    pub fn is_complete(&self) -> bool {
        self.logs.iter().all(|watched| watched.log.layout.is_complete)
    }

    /// The second look: what the request has read, as the relays of other processes have seen it. After this the tag is nobody's.
    pub async fn finish(mut self) -> Read {
        let mut reading = Reading::default();
        if let Some(why) = self.lost {
            reading.lose(why);
        }
        let logs = std::mem::take(&mut self.logs);
        let tag = self.tag;
        let looks: Vec<_> = logs.iter().map(|watched| last_look(watched, tag)).collect();
        for (watched, look) in logs.iter().zip(looks) {
            match self.look(watched, look).await {
                Ok((start, end, words)) => reading.add(tag, &watched.log.layout, &start, &end, &words),
                Err(why) => reading.lose(why),
            }
        }
        if acknowledged(self.of.shared().lease.get()) != self.view {
            reading.lose(Lost::Relays);
        }
        let read = reading.read();
        let found = match &read {
            Read::Lost(why) => why.name(),
            _ => "whole",
        };
        if !logs.is_empty() || self.lost.is_some() {
            self.of.shared().metrics.fills.with([found]).increment();
        }
        read
    }

    async fn look(&self, watched: &Watched, look: Option<Pending<Completed>>) -> Result<(Start, End, Vec<u64>), Lost> {
        let log = &watched.log;
        let found = look.ok_or(Lost::Gone)?.await.map_err(|error| {
            self.failed(log, &error);
            Lost::Gone
        })?;
        let start = watched.start?;
        let (mut end, mut words) = end_of(&found).ok_or(Lost::Gone)?;
        if let Some(span) = start.rest(&log.layout, end.written)? {
            let mut batch = Batch::new();
            read_span(&mut batch, &span, log).ok_or(Lost::Gone)?;
            batch.push(Operation::ReadWord { at: EPOCH_AT });
            let found = log.remote.post(batch, Class::Control, BootClock.now() + LOOK_DEADLINE).await;
            let found = found.map_err(|error| {
                self.failed(log, &error);
                Lost::Gone
            })?;
            words.extend(words_of(&found));
            end.epoch = found.last().and_then(Done::word).ok_or(Lost::Gone)?;
        }
        Ok((start, end, words))
    }

    /// A look came to nothing. What may have become of the tag is found out, or the window of identifiers would fill (rule F2).
    fn failed(&self, log: &Log, error: &verbena_fabric::Error) {
        self.of.lost(log.layout.owner);
        settle(log, error);
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // Its request failed. The tag is taken back, as it would be by the last look.
        for Watched { log, .. } in self.logs.drain(..) {
            let batch = Batch::one(Operation::WriteWord { at: Layout::tag_at(self.tag), value: 0 });
            let posted = log.remote.post(batch, Class::Control, BootClock.now() + LOOK_DEADLINE);
            let Ok(runtime) = tokio::runtime::Handle::try_current() else { continue };
            runtime.spawn(async move {
                if let Err(error) = posted.await {
                    settle(&log, &error);
                }
            });
        }
    }
}

fn acknowledged(lease: Option<&Arc<LeaseWord>>) -> ViewNumber {
    lease.map_or(ViewNumber(0), |lease| lease.load().acknowledged)
}

fn first_look(log: &Log, tag: u64) -> Pending<Completed> {
    let mut batch = Batch::one(Operation::WriteWord { at: Layout::tag_at(tag), value: tag });
    for at in [EPOCH_AT, MOMENT_AT, WRITTEN_AT] {
        batch.push(Operation::ReadWord { at });
    }
    log.remote.post(batch, Class::Control, BootClock.now() + LOOK_DEADLINE)
}

fn start_of(found: &Completed) -> Result<Start, Lost> {
    let mut words = found.iter().skip(1).filter_map(Done::word);
    let mut word = || words.next().ok_or(Lost::Gone);
    Ok(Start { epoch: word()?, moment: word()?, written: word()? })
}

/// The second look, also where the first one failed: the tag may be there.
/// The tag goes first: what the relay records for it alone after that, it records for all (rule Q3).
fn last_look(watched: &Watched, tag: u64) -> Option<Pending<Completed>> {
    let Watched { log, start } = watched;
    let mut batch = Batch::one(Operation::WriteWord { at: Layout::tag_at(tag), value: 0 });
    batch.push(Operation::ReadWord { at: EPOCH_AT }).push(Operation::ReadWord { at: WRITTEN_AT });
    if let Ok(start) = start {
        read_span(&mut batch, &start.guess(&log.layout), log)?;
    }
    Some(log.remote.post(batch, Class::Control, BootClock.now() + LOOK_DEADLINE))
}

/// `None`: the pool has no buffer.
fn read_span(batch: &mut Batch, span: &Span, log: &Log) -> Option<()> {
    for (at, words) in span.parts(&log.layout) {
        let into = log.pool.take(8 * usize::try_from(words).ok()?).ok()?;
        batch.push(Operation::Read { at, into });
    }
    Some(())
}

fn end_of(found: &Completed) -> Option<(End, Vec<u64>)> {
    let mut words = found.iter().skip(1).filter_map(Done::word);
    let (epoch, written) = (words.next()?, words.next()?);
    Some((End { epoch, written }, words_of(found)))
}

fn words_of(found: &Completed) -> Vec<u64> {
    let buffers = found.iter().filter_map(|done| match done {
        Done::Buffer(buffer) => Some(buffer.bytes()),
        Done::Word(_) => None,
    });
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
    buffers.flat_map(|bytes| bytes.chunks_exact(8)).map(word).collect()
}

fn settle(log: &Log, error: &verbena_fabric::Error) {
    let Some(mut settlement) = Settlement::after(error, log.remote.clone(), Class::Control, BootClock.now()) else {
        return;
    };
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    runtime.spawn(async move {
        for _ in 0..SETTLE_TIMES {
            match settlement.poll(BootClock.now()) {
                Some(Finding::Executed(_)) => {}
                Some(_) => return,
                None => sleep(SETTLE_EVERY).await,
            }
        }
    });
}
