//! What a mount counted, as text. The process that serves it gives it as an extended attribute of the mount's root, which no listing shows.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use verbena_bank::{Bank, Direct};

use crate::files::Files;
use crate::names::NameKind;

/// The attribute of the root that holds the status.
pub(crate) const STATUS: &str = "user.verbena.status";

/// A name and a number a line.
pub(crate) fn status_text(files: &Files) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |name: &str, count: u64| _ = writeln!(text, "{name} {count}");
    line("process", std::process::id().into());
    line("known_files", files.nodes.len() as u64);
    line("open_files", files.handles.len() as u64);
    line("below_calls", files.nodes.calls());
    let Some(cache) = &files.cache else { return text };
    let counts = cache.counts();
    for (name, counter) in [
        ("cached_opens", &counts.opens),
        ("whole_reads", &counts.whole),
        ("partial_reads", &counts.partial),
        ("below_reads", &counts.below),
        ("filled_bytes", &counts.filled_bytes),
        ("dropped_fills", &counts.dropped_fills),
        ("purged_files", &counts.purged),
    ] {
        line(name, counter.load(Relaxed));
    }
    for (reason, counter) in Direct::ALL.iter().zip(&counts.direct) {
        line(&format!("direct_opens_{}", reason.name()), counter.load(Relaxed));
    }
    if let Some(names) = &files.names {
        for kind in NameKind::ALL {
            let [hits, misses] = names.counted(kind);
            line(&format!("{}_hits", kind.name()), hits);
            line(&format!("{}_misses", kind.name()), misses);
        }
        line("listing_bytes", names.bytes() as u64);
    }
    for (name, count) in cache.blocks().counters().read().named() {
        line(&format!("bank_{name}"), count);
    }
    if files.names.is_some() {
        for (name, count) in cache.blocks().listing_counters().read().named() {
            line(&format!("listing_bank_{name}"), count);
        }
    }
    if let Some(near) = cache.blocks().near() {
        let status = near.status();
        line("near_hits", status.hits);
        line("near_blocks", status.blocks);
        line("near_bytes", status.bytes);
    }
    match cache.blocks().bank() {
        Bank::Memcached(memcached, _) => {
            let daemons = memcached.daemons().list();
            line("daemons", daemons.len() as u64);
            line("daemons_up", (0..daemons.len()).filter(|daemon| memcached.is_up(*daemon)).count() as u64);
        }
        Bank::Memory(memory) => {
            let status = memory.status();
            line("segments", status.segments as u64);
            line("segment_bytes", status.bytes);
            line("segment_blocks", status.blocks);
            line("segments_missing", status.problem.is_some().into());
        }
    }
    text
}
