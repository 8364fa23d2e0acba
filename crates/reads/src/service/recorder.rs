//! What a relay records in the region of this incarnation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use verbena_cluster::LeaseWord;
use verbena_fabric::Region;
use verbena_metrics::Counter;
use verbena_terms::{BootClock, Clock, Time};

use crate::entry::{Entry, Seen};
use crate::layout::Layout;
use crate::writer::Writer;

/// By which the relay of this process records. Cheap to clone.
#[derive(Clone)]
pub struct Recorder(Arc<Log>);

struct Log {
    now: Mutex<Option<Current>>,
    /// The last moment of all incarnations of this process: a transaction may outlive the one in which it began. Changed while `now` is held.
    moment: AtomicU64,
    /// A view that has this incarnation is in effect: all that store pages know of the relay.
    is_known: AtomicBool,
    lease: Mutex<Option<Arc<LeaseWord>>>,
    /// When the lease was seen to be valid last, in a view that has this relay; zero: never yet.
    valid: Mutex<Time>,
    recorded: Counter,
    /// How long reads are passed without a lease.
    patience: Duration,
}

/// The region of the present incarnation, with what is in it.
struct Current {
    region: Arc<dyn Region>,
    writer: Writer,
}

impl Current {
    fn write<T>(&mut self, what: impl FnOnce(&mut Writer, &mut dyn FnMut((u64, u64))) -> T) -> T {
        let region = &self.region;
        what(&mut self.writer, &mut |(at, word)| {
            // A region that is gone is read by nobody.
            if let Err(error) = region.store(at, word) {
                tracing::debug!(%error, "a word of the log of reads was not stored");
            }
        })
    }
}

/// Nothing is recorded in it any more. Whoever still reads it is told so: statements may be passed for some time (rule Q19).
fn close(now: &mut Option<Current>) {
    if let Some(mut current) = now.take() {
        current.write(|writer, store| writer.open(false, store));
    }
}

impl Recorder {
    pub(super) fn new(recorded: Counter, patience: Duration) -> Recorder {
        let (now, moment, is_known, lease) =
            (Mutex::default(), AtomicU64::new(0), AtomicBool::new(false), Mutex::default());
        let valid = Mutex::new(Time::ZERO);
        Recorder(Arc::new(Log { now, moment, is_known, lease, valid, recorded, patience }))
    }

    /// An incarnation begins, with this region.
    pub(super) fn begin(&self, region: Arc<dyn Region>, layout: Layout, lease: Arc<LeaseWord>) {
        *self.0.lease.lock() = Some(lease);
        let now = &mut *self.0.now.lock();
        close(now);
        let mut current = Current { region, writer: Writer::new(layout, self.0.moment.load(Ordering::SeqCst)) };
        current.write(|writer, store| writer.begin(store));
        *now = Some(current);
    }

    /// Whether others are there who read what is recorded.
    pub(super) fn open(&self, is_open: bool) {
        if let Some(current) = &mut *self.0.now.lock() {
            current.write(|writer, store| writer.open(is_open, store));
        }
    }

    /// Tags of members that have gone are nobody's.
    pub(super) fn close_tags(&self) {
        if let Some(current) = &mut *self.0.now.lock() {
            for at in Layout::tags() {
                // As in `write`.
                let _ = current.region.store(at, 0);
            }
        }
    }

    pub(super) fn is_in_effect(&self) {
        self.0.is_known.store(true, Ordering::SeqCst);
    }

    pub(super) fn end(&self) {
        self.0.is_known.store(false, Ordering::SeqCst);
        close(&mut self.0.now.lock());
    }

    /// Whether statements of applications may be passed: the proxies of the cluster know of this relay, or have known of it until a short time ago. A relay that they have
    /// given up is listed as departed for at least that long, and meanwhile no page has a list (rule Q19).
    pub fn may_pass(&self) -> bool {
        let log = &self.0;
        let now = BootClock.now();
        let lease = log.lease.lock().clone();
        let is_valid = lease.is_some_and(|lease| lease.load().valid_at(now).is_some());
        let mut valid = log.valid.lock();
        if is_valid && log.is_known.load(Ordering::SeqCst) {
            *valid = now;
            return true;
        }
        *valid != Time::ZERO && now.since(*valid) < log.patience
    }

    /// A statement comes that may begin a transaction.
    pub fn moment(&self) -> u64 {
        let now = &mut *self.0.now.lock();
        let counted = self.0.moment.fetch_add(1, Ordering::SeqCst) + 1;
        now.as_mut().map_or(counted, |current| current.write(|writer, store| writer.moment(store)))
    }

    /// Whether the tag is that of a request of another process that is open.
    pub fn is_open_elsewhere(&self, tag: u64) -> bool {
        let now = self.0.now.lock();
        now.as_ref().is_some_and(|current| tag != 0 && current.region.load(Layout::tag_at(tag)) == Ok(tag))
    }

    /// Records what a statement did, whose it may be, and when its transaction began. It is there before this returns, which is before the answer is passed on (rule Q1).
    pub fn record(&self, tag: Option<u64>, since: Option<u64>, seen: Seen) {
        let mut now = self.0.now.lock();
        let Some(current) = now.as_mut().filter(|current| current.writer.is_open()) else { return };
        let mut entry = Entry { tag, since, seen };
        current.write(|writer, store| writer.record(&entry, store));
        self.0.recorded.increment();
        let is_closed = |tag| current.region.load(Layout::tag_at(tag)) != Ok(tag);
        if tag.is_some_and(is_closed) {
            // Meanwhile its request was answered: it counts for all that are open (rule Q3).
            entry.tag = None;
            current.write(|writer, store| writer.record(&entry, store));
        }
    }

    /// Whether anything that is recorded is read.
    pub fn is_read(&self) -> bool {
        self.0.now.lock().as_ref().is_some_and(|current| current.writer.is_open())
    }
}

#[cfg(test)]
mod tests {
    use verbena_fabric::sim::{Faults, World};
    use verbena_metrics::Registry;
    use verbena_terms::{Incarnation, ViewNumber};

    use super::*;
    use crate::layout::{EPOCH_AT, MOMENT_AT};

    #[test]
    fn a_new_incarnation_counts_on_and_the_region_of_the_old_one_says_that_it_is_over() {
        let recorder = Recorder::new(
            Registry::new().counter("verbena_database_reads_recorded_total", "Entries.").unwrap(),
            Duration::from_secs(1),
        );
        let node = World::new(1, Faults::none()).node(Incarnation::new(1, 1));
        let layout = Layout { owner: node.identity(), ring_words: 64, names: 1, is_complete: true };
        let begin = || {
            let region: Arc<dyn Region> = Arc::from(node.register(layout.bytes(), ViewNumber(0)).unwrap());
            recorder.begin(region.clone(), layout, Arc::default());
            recorder.open(true);
            region
        };
        let first = begin();
        let in_first = [recorder.moment(), recorder.moment()];
        assert_eq!(first.load(EPOCH_AT).unwrap() % 2, 1);
        recorder.end();
        assert_eq!(first.load(EPOCH_AT).unwrap() % 2, 0, "who still reads it takes what it has for all");
        let between = recorder.moment();
        let second = begin();
        // A fill of the second incarnation takes transactions of before for old (rule Q7).
        assert!(in_first[0] > 0 && in_first[0] < in_first[1] && in_first[1] < between);
        assert_eq!(second.load(MOMENT_AT), Ok(between));
        assert!(recorder.moment() > between);
        begin();
        assert_eq!(second.load(EPOCH_AT).unwrap() % 2, 0);
    }
}
