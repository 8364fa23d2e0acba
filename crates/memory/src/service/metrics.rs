//! What the service counts.

use std::time::Duration;

use verbena_metrics::{Counter, Family, Gauge, Latency, Registry, RegistryError};

use crate::{Answer, Note, Reclaims, Refusal, Wish};

/// The service's counters, for a registry. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    /// By [`Kind`] and [`Outcome`], each in its order: looked up once, for every get and put counts.
    requests: [[Counter; OUTCOMES.len()]; KINDS.len()],
    get: Latency,
    put: Latency,
    pub(super) batches: Counter,
    pub(super) frames: Counter,
    pub(super) unusable: Counter,
    pub(super) segments: Gauge,
    pub(super) share: Gauge,
    pub(super) free: Gauge,
    pub(super) largest: Gauge,
    pub(super) offered: Gauge,
    pub(super) going: Gauge,
    /// Moved, and gone.
    reclaimed: [Counter; 2],
    pub(super) copies: Gauge,
    pub(super) under_way: Gauge,
}

/// What was asked for, in the order of [`KINDS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Allocate,
    Release,
    Get,
    Put,
    Stat,
    List,
    Reclaim,
    Window,
}

impl Kind {
    pub(super) fn of(wish: &Wish) -> Kind {
        match wish {
            Wish::Allocate { .. } => Kind::Allocate,
            Wish::Release { .. } => Kind::Release,
            Wish::Get { .. } => Kind::Get,
            Wish::Put { .. } => Kind::Put,
            Wish::Stat { .. } => Kind::Stat,
            Wish::List { .. } => Kind::List,
            Wish::Reclaim { .. } => Kind::Reclaim,
            Wish::Window { .. } => Kind::Window,
        }
    }
}

const KINDS: [&str; 8] = ["allocate", "release", "get", "put", "stat", "list", "reclaim", "window"];

/// What became of it, in the order of [`OUTCOMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Refused,
    Late,
    Lost,
    Unknown,
}

const OUTCOMES: [&str; 5] = ["done", "refused", "late", "lost", "unknown"];

impl Metrics {
    /// Registered here.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, RegistryError> {
        let help = "Requests of programs about memory by what became of them.";
        let counter = |name: &str, help: &str| registry.counter(name, help);
        let gauge = |name: &str, help: &str| registry.gauge(name, help);
        let family: Family<Counter, 2> =
            registry.family("verbena_memory_requests_total", help, ["operation", "outcome"], 40)?;
        let help = "Segments whose memory this home took back, by whether others had room for them.";
        let taken_back: Family<Counter, 1> =
            registry.family("verbena_memory_reclaimed_segments_total", help, ["outcome"], 2)?;
        Ok(Metrics {
            requests: KINDS.map(|kind| OUTCOMES.map(|outcome| family.with([kind, outcome]))),
            get: registry.latency("verbena_memory_get_seconds", "From a get's arrival to its answer.")?,
            put: registry.latency("verbena_memory_put_seconds", "From a put's arrival to its answer.")?,
            batches: counter("verbena_memory_batches_total", "Batches posted at homes' memory.")?,
            frames: counter("verbena_memory_frames_total", "Messages about memory sent to other members.")?,
            unusable: counter("verbena_memory_unusable_total", "Messages about memory that could not be used.")?,
            segments: gauge("verbena_memory_segments", "Segments at this home.")?,
            share: gauge("verbena_memory_share_bytes", "Bytes that this home is configured to offer.")?,
            offered: gauge("verbena_memory_offered_bytes", "Bytes that it offers, after what it takes back.")?,
            going: gauge("verbena_memory_reclaiming_bytes", "Bytes of segments that have to go from this home.")?,
            reclaimed: ["moved", "gone"].map(|outcome| taken_back.with([outcome])),
            free: gauge("verbena_memory_free_bytes", "Bytes of those offered that are free.")?,
            largest: gauge("verbena_memory_largest_free_bytes", "Bytes of the largest free piece.")?,
            copies: gauge("verbena_memory_copies_bytes", "Bytes of copies of others' segments at this node.")?,
            under_way: gauge(
                "verbena_memory_under_way_bytes",
                "Bytes of values on their way to and from homes, but for short ones.",
            )?,
        })
    }

    /// Something was said about what this home takes back: it is logged, and counted.
    pub(super) fn note(&self, note: &Note) {
        match note {
            Note::Offers(Reclaims { share, offered, taken, .. }) => {
                tracing::info!(offered, share, taken, "this home offers another amount of memory");
            }
            Note::Noticed { segments, bytes, notice } => {
                tracing::info!(segments, bytes, ?notice, "segments have to go from this home: they have notice");
            }
            Note::Moved(segment, to) => {
                self.reclaimed[0].increment();
                let (id, name) = (segment.id, segment.wanted.name.as_ref().map(|name| name.as_str()));
                tracing::info!(%id, name, %to, "a segment's memory is taken back: another home holds it");
            }
            Note::Reclaimed(segment) => {
                self.reclaimed[1].increment();
                let (id, name) = (segment.id, segment.wanted.name.as_ref().map(|name| name.as_str()));
                tracing::info!(%id, name, "a segment's memory is taken back: no other home has room for it");
            }
        }
    }

    #[cfg(feature = "testing")]
    pub(super) fn reclaimed(&self) -> [u64; 2] {
        self.reclaimed.each_ref().map(Counter::value)
    }

    /// A request was answered, after so long.
    pub(super) fn ended(&self, kind: Kind, after: Duration, answer: &Answer) {
        match kind {
            Kind::Get => self.get.record(after),
            Kind::Put => self.put.record(after),
            _ => {}
        }
        let outcome = match answer {
            Answer::Refused(Refusal::Unknown) => Outcome::Unknown,
            Answer::Refused(Refusal::Lost { .. } | Refusal::Reclaimed { .. }) => Outcome::Lost,
            Answer::Refused(Refusal::TimedOut { .. }) => Outcome::Late,
            Answer::Refused(_) => Outcome::Refused,
            _ => Outcome::Done,
        };
        self.requests[kind as usize][outcome as usize].increment();
    }
}

/// Counters without a registry.
impl Default for Metrics {
    fn default() -> Self {
        Metrics::new(&Registry::new()).expect("invariant: a new registry has no metric of that name")
    }
}
