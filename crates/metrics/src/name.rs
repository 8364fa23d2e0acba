//! How a metric may be called: `verbena_<part>_<what>_<unit>`, and `_total` after it for counters.
//!
//! The rules are those of the Prometheus naming guide that a machine can check: base units only, the kind visible in
//! the ending, one prefix, and the part of the house that owns the metric first, so that a dashboard finds it.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The parts that own metrics: the crates of the house.
const PARTS: [&str; 18] = [
    "bank", "bench", "client", "cluster", "content", "coop", "database", "fabric", "ftp", "ipc", "lock", "memory",
    "metrics", "monitor", "node", "proxy", "transfer", "wan",
];

/// Words that name a unit which is not a base unit, and what to use.
const WRONG_UNITS: [(&str, &str); 16] = [
    ("ns", "seconds"),
    ("nanos", "seconds"),
    ("nanoseconds", "seconds"),
    ("us", "seconds"),
    ("micros", "seconds"),
    ("microseconds", "seconds"),
    ("ms", "seconds"),
    ("millis", "seconds"),
    ("milliseconds", "seconds"),
    ("minutes", "seconds"),
    ("kb", "bytes"),
    ("kilobytes", "bytes"),
    ("mb", "bytes"),
    ("megabytes", "bytes"),
    ("bits", "bytes"),
    ("percent", "ratio"),
];

/// Endings that the text format uses for its own.
const RESERVED_ENDINGS: [&str; 5] = ["count", "sum", "bucket", "created", "info"];

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution of durations.
    Latency,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Latency => "latency",
        })
    }
}

/// Which rule a name breaks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("metric name `{name}`: {rule}")]
pub struct NameError {
    /// The name, as it was given.
    pub name: String,
    /// What is wrong and what to write instead.
    pub rule: String,
}

/// Checks a metric's name against the rules:
///
/// - words of `a-z` and `0-9`, the first character of the name a letter, joined by single `_`;
/// - `verbena`, then a part of the house, then what is measured (at least one word);
/// - a counter ends in `_total` and nothing else does; a latency ends in `_seconds`;
/// - base units only: `seconds`, `bytes`, `ratio`;
/// - no ending that the text format reserves (`_count`, `_sum`, `_bucket`, `_created`, `_info`).
pub fn check_name(kind: Kind, name: &str) -> Result<(), NameError> {
    let broken = |rule: String| Err(NameError { name: name.to_owned(), rule });

    let words: Vec<&str> = name.split('_').collect();
    if let Some(word) = words.iter().find(|word| !is_word(word)) {
        return broken(format!("`{word}` is not a word of a-z and 0-9 (words are joined by single `_`)"));
    }
    if words[0] != "verbena" {
        return broken("begins with `verbena_`, then the part of the house that owns it".to_owned());
    }
    let last = words[words.len() - 1];
    if words.len() < 3 + usize::from(last == "total") {
        return broken(format!("a {kind} says at least which part of the house and what is measured"));
    }
    if !PARTS.contains(&words[1]) {
        return broken(format!("`{}` is not a part of the house ({})", words[1], PARTS.join(", ")));
    }
    for (wrong, right) in WRONG_UNITS {
        if words.contains(&wrong) {
            return broken(format!("`{wrong}` is not a base unit: measure in `{right}`"));
        }
    }

    match kind {
        Kind::Counter if last != "total" => broken("a counter ends in `_total`".to_owned()),
        Kind::Gauge | Kind::Latency if last == "total" => broken(format!("`_total` is for counters, not a {kind}")),
        Kind::Latency if last != "seconds" => broken("a latency ends in `_seconds`".to_owned()),
        _ if RESERVED_ENDINGS.contains(&last) => broken(format!("the text format reserves the ending `_{last}`")),
        _ => Ok(()),
    }
}

/// Checks the name of a label: one or more words as in a metric's name, and not `le`, which buckets use.
pub fn check_label(label: &str) -> Result<(), NameError> {
    let broken = |rule: &str| Err(NameError { name: label.to_owned(), rule: rule.to_owned() });
    if label == "le" {
        return broken("the text format reserves the label `le`");
    }
    if !label.split('_').all(is_word) || label.starts_with(|first: char| first.is_ascii_digit()) {
        return broken("a label is words of a-z and 0-9 joined by single `_`, a letter first");
    }
    Ok(())
}

fn is_word(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass() {
        for (kind, name) in [
            (Kind::Counter, "verbena_proxy_requests_total"),
            (Kind::Counter, "verbena_fabric_sent_bytes_total"),
            (Kind::Gauge, "verbena_ipc_ring_used_ratio"),
            (Kind::Gauge, "verbena_cluster_members"),
            (Kind::Latency, "verbena_lock_acquire_seconds"),
        ] {
            assert_eq!(check_name(kind, name), Ok(()), "{name}");
        }
    }

    #[test]
    fn each_rule_refuses() {
        for (kind, name, told) in [
            (Kind::Counter, "verbena_proxy_Requests_total", "`Requests` is not a word"),
            (Kind::Counter, "verbena_proxy__requests_total", "`` is not a word"),
            (Kind::Gauge, "", "`` is not a word"),
            (Kind::Counter, "proxy_requests_total", "begins with `verbena_`"),
            (Kind::Counter, "verbena_proxy_total", "at least which part"),
            (Kind::Gauge, "verbena_members", "at least which part"),
            (Kind::Counter, "verbena_kitchen_requests_total", "`kitchen` is not a part of the house"),
            (Kind::Counter, "verbena_proxy_requests", "ends in `_total`"),
            (Kind::Gauge, "verbena_proxy_open_total", "`_total` is for counters"),
            (Kind::Latency, "verbena_proxy_response", "ends in `_seconds`"),
            (Kind::Latency, "verbena_proxy_response_ms", "measure in `seconds`"),
            (Kind::Gauge, "verbena_ipc_used_percent", "measure in `ratio`"),
            (Kind::Gauge, "verbena_ipc_rings_count", "reserves the ending `_count`"),
        ] {
            let refusal = check_name(kind, name).unwrap_err().to_string();
            assert!(refusal.contains(told), "{name}: {refusal}");
        }
    }

    #[test]
    fn labels_are_words() {
        assert_eq!(check_label("scheme"), Ok(()));
        assert_eq!(check_label("page_kind2"), Ok(()));
        for label in ["", "le", "2nd", "a__b", "Scheme", "a-b"] {
            assert!(check_label(label).is_err(), "{label}");
        }
    }
}
