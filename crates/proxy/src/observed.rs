//! What the proxy counts.

use std::time::Duration;

use http::StatusCode;
use verbena_metrics::{Counter, Family, Gauge, Latency, Level, Registry, RegistryError};

use crate::coded::Coded;

/// Values that a label can have; there are fewer reasons than that.
const LABELS: usize = 64;

/// Paths and statuses, of requests that emptied the cache, that are counted apart. The first ones have series of their
/// own.
const EMPTIED: usize = 256;

/// Paths, of requests that were no hits and could have been, that are counted apart.
const MISSED: usize = 32;

/// Bytes of a path's first segment that a series shows.
const LONGEST_SEGMENT: usize = 48;

/// What was done for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Hit,
    Miss,
    Pass,
    Update,
    Error,
}

impl Done {
    const ALL: [(Done, &str); 5] = [
        (Done::Hit, "hit"),
        (Done::Miss, "miss"),
        (Done::Pass, "pass"),
        (Done::Update, "update"),
        (Done::Error, "error"),
    ];
}

/// The proxy's metrics.
#[derive(Clone)]
pub(crate) struct Observed {
    /// Answers by what was done, in the order of [`Done`].
    answers: [Counter; Done::ALL.len()],
    /// Answers that are no hits, by the reason in their `Cache-Status`.
    misses: Family<Counter, 1>,
    /// Why fetched pages were not stored.
    pub not_stored: Family<Counter, 1>,
    /// Why pages are taken to depend on everything.
    pub undeclared: Family<Counter, 1>,
    /// Requests that were updates of everything, by the first segment of their path and the status of the answer.
    emptied: Family<Counter, 2>,
    /// How long the answers to requests took that were no hits and could have been, by the first segment of their path.
    missed: Family<Latency, 1>,
    /// Connections of clients with which no TLS came about, by reason.
    pub handshakes_failed: Family<Counter, 1>,
    /// Errors of the application by kind.
    pub origin_errors: Family<Counter, 1>,
    /// 1 for an origin that answers as far as is known.
    pub origin_up: Family<Gauge, 1>,
    pub hit_latency: Latency,
    pub miss_latency: Latency,
    pub update_latency: Latency,
    pub connections: Level,
    pub in_flight: Level,
    /// Requests that wait for what another one fetches.
    pub waiting: Level,
    /// Fills at the application, and those that wait to get there.
    pub fills: Level,
    pub fills_waiting: Level,
    /// Fills for which there was no place in time.
    pub fills_refused: Counter,
    /// Standard pages that were fetched anew while a stale copy was answered.
    pub refreshes: Counter,
    /// Slices of standard pages that were sent behind the first one of an answer.
    pub slices: Counter,
    /// Answers in slices that were cut.
    pub slices_cut: Counter,
    /// Writes whose client was answered before every home had acknowledged what they purge.
    pub purged_late: Counter,
    /// Connections that are tunnels.
    pub tunnels: Level,
    /// Those for which there was no place.
    pub tunnels_refused: Counter,
    /// Connections of balancers without a header that says whose they are, by what was wrong.
    pub headers_refused: Family<Counter, 1>,
    /// Connections given up because the client took nothing.
    pub stalled: Counter,
    /// Connections that had to wait because as many as may be were open.
    pub delayed: Counter,
    pub coded: Coded,
}

impl Observed {
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let answers: Family<Counter, 1> = registry.family(
            "verbena_proxy_answers_total",
            "Answers to clients, by what was done for them.",
            ["result"],
            LABELS,
        )?;
        Ok(Observed {
            answers: Done::ALL.map(|(_, name)| answers.with([name])),
            misses: registry.family(
                "verbena_proxy_misses_total",
                "Answers that are no hits, by the reason that their Cache-Status gives.",
                ["reason"],
                LABELS,
            )?,
            not_stored: registry.family(
                "verbena_proxy_not_stored_total",
                "Pages that were fetched and not stored, by reason.",
                ["reason"],
                LABELS,
            )?,
            undeclared: registry.family(
                "verbena_proxy_undeclared_total",
                "Pages to be stored that count as depending on everything, by what is wrong with the field that says what they depend on.",
                ["reason"],
                LABELS,
            )?,
            emptied: registry.family(
                "verbena_proxy_emptied_total",
                "Requests each of which emptied the cache, by the first segment of their path and the status of the answer.",
                ["path", "status"],
                EMPTIED,
            )?,
            missed: registry.family(
                "verbena_proxy_missed_seconds",
                "Time until requests that were no hits and could have been were answered, by the first segment of their path.",
                ["path"],
                MISSED,
            )?,
            handshakes_failed: registry.family(
                "verbena_proxy_handshakes_failed_total",
                "Connections of clients with which no TLS came about: refused by either side, or too slow.",
                ["reason"],
                LABELS,
            )?,
            origin_errors: registry.family(
                "verbena_proxy_origin_errors_total",
                "Requests to the application that failed, by kind.",
                ["kind"],
                LABELS,
            )?,
            origin_up: registry.family(
                "verbena_proxy_origin_up",
                "1 for an application that answers as far as is known, 0 for one that takes no connection or is silent.",
                ["origin"],
                LABELS,
            )?,
            hit_latency: registry.latency(
                "verbena_proxy_hit_latency_seconds",
                "Time from the head of a request to the head of an answer from the cache.",
            )?,
            miss_latency: registry.latency(
                "verbena_proxy_miss_latency_seconds",
                "Time from the head of a request to the head of an answer from the application.",
            )?,
            update_latency: registry.latency(
                "verbena_proxy_update_latency_seconds",
                "Time from the head of a writing request to its answer, begin and end at the homes included.",
            )?,
            connections: registry.level("verbena_proxy_connections", "Connections of clients.")?,
            tunnels: registry.level("verbena_proxy_tunnels", "Connections and streams of clients that are tunnels (WebSocket).")?,
            tunnels_refused: registry.counter(
                "verbena_proxy_tunnels_refused_total",
                "Tunnels that were refused because as many as may be were open.",
            )?,
            headers_refused: registry.family(
                "verbena_proxy_headers_refused_total",
                "Connections from proxy.proxy_protocol_from that were closed for want of a header of the PROXY protocol, by what was wrong.",
                ["reason"],
                LABELS,
            )?,
            stalled: registry.counter(
                "verbena_proxy_stalled_connections_total",
                "Connections given up because the client took nothing for too long.",
            )?,
            delayed: registry.counter(
                "verbena_proxy_delayed_connections_total",
                "Connections that had to wait because as many as may be were open.",
            )?,
            fills: registry.level("verbena_proxy_fills", "Pages that are being fetched from the application for the cache.")?,
            fills_waiting: registry.level(
                "verbena_proxy_fills_waiting",
                "Pages that wait to be fetched, because as many as may be are being fetched.",
            )?,
            fills_refused: registry.counter(
                "verbena_proxy_fills_refused_total",
                "Pages that were not fetched, because too many waited, or for too long.",
            )?,
            refreshes: registry.counter(
                "verbena_proxy_refreshes_total",
                "Standard pages that were fetched anew while a stale copy was answered.",
            )?,
            slices: registry.counter(
                "verbena_proxy_slices_total",
                "Slices of standard pages that were sent behind the first one of their answer.",
            )?,
            slices_cut: registry.counter(
                "verbena_proxy_slices_cut_total",
                "Answers in slices that were cut, because the page changed or the application failed in between.",
            )?,
            purged_late: registry.counter(
                "verbena_proxy_purged_late_total",
                "Writes in standard mode whose client was answered before every home had acknowledged what they purge.",
            )?,
            coded: Coded::new(registry)?,
            in_flight: registry.level("verbena_proxy_requests_in_flight", "Requests that are not answered yet.")?,
            waiting: registry.level(
                "verbena_proxy_requests_waiting",
                "Requests that wait for a page that another request is fetching.",
            )?,
        })
    }

    /// A request to `path` was an update of everything. `None`: no answer came.
    pub fn emptied(&self, path: &str, status: Option<StatusCode>) {
        self.emptied.with([first_segment(path), status.as_ref().map_or("none", StatusCode::as_str)]).increment();
    }

    /// A request to `path` was no hit and could have been, and took so long.
    pub fn missed(&self, path: &str, took: Duration) {
        self.missed.with([first_segment(path)]).record(took);
    }

    /// A request was answered. If it was no hit, `why` is the reason.
    pub fn answered(&self, done: Done, why: Option<&'static str>) {
        self.answers[done as usize].increment();
        if let Some(why) = why {
            self.misses.with([why]).increment();
        }
    }
}

/// `/cart` of `/cart/7/add`.
fn first_segment(path: &str) -> &str {
    let end = path.char_indices().skip(1).find(|(at, char)| *char == '/' || *at >= LONGEST_SEGMENT).map(|(at, _)| at);
    &path[..end.unwrap_or(path.len())]
}

/// One more, until it is dropped.
pub(crate) struct Counted<'a>(&'a Level);

impl<'a> Counted<'a> {
    pub fn new(level: &'a Level) -> Self {
        level.add(1);
        Counted(level)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart_by_their_first_segment() {
        for (path, first) in
            [("/", "/"), ("/cart", "/cart"), ("/cart/7", "/cart"), ("//cart", "/"), ("*", "*"), ("", "")]
        {
            assert_eq!(first_segment(path), first, "{path}");
        }
        assert_eq!(first_segment(&format!("/{}", "\u{e4}".repeat(40))).len(), LONGEST_SEGMENT + 1);
        assert_eq!(first_segment(&format!("/{}", "a".repeat(90))).len(), LONGEST_SEGMENT);
    }

    #[test]
    fn what_was_done_is_counted_under_its_own_name() {
        for (at, (done, name)) in Done::ALL.into_iter().enumerate() {
            assert_eq!(done as usize, at);
            assert_eq!(format!("{done:?}").to_lowercase(), name);
        }
    }
}
