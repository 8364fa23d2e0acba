//! `stats`: the names that memcached's own have where both count the same.

use std::process;
use std::sync::OnceLock;

use verbena_coop::service::{Lender, PoolService};
use verbena_coop::{Shown, UNIT_BYTES};
use verbena_memcache::{Statistics, print};

use crate::execute::{VERSION, seconds};
use crate::observed::Observed;

/// Objects that `stats objects` lists at the most.
const LISTED: usize = 10_000;
/// Keys that `stats hot` lists.
const HOTTEST: usize = 10;

/// The second in which this was asked first: when the server starts.
pub(crate) fn started() -> u64 {
    static STARTED: OnceLock<u64> = OnceLock::new();
    *STARTED.get_or_init(seconds)
}

pub(crate) fn print(which: Statistics<'_>, pool: &PoolService, observed: &Observed, out: &mut Vec<u8>) {
    match which {
        Statistics::General => general(pool, observed, out),
        Statistics::Settings => settings(pool, out),
        Statistics::Items => {
            let standing = pool.standing();
            print::statistic("items:1:number", &standing.objects.to_string(), out);
            print::statistic("items:1:mem_requested", &standing.used.to_string(), out);
        }
        Statistics::Named(b"objects") => objects(pool, out),
        Statistics::Named(b"nodes") => nodes(pool, out),
        Statistics::Named(b"hot") => hottest(pool, out),
        // Counters are never set back: rates are made of two readings.
        Statistics::Reset => return print::line("RESET", out),
        Statistics::Detail(_) => return print::line("OK", out),
        Statistics::DetailDump => {}
        Statistics::Named(_) => return print::line("ERROR", out),
    }
    print::line("END", out);
}

fn general(pool: &PoolService, observed: &Observed, out: &mut Vec<u8>) {
    let standing = pool.standing();
    let (counts, started) = (standing.counts, started());
    let mut say = |name: &str, value: u64| print::statistic(name, &value.to_string(), out);
    say("pid", process::id().into());
    say("uptime", seconds().saturating_sub(started));
    say("time", seconds());
    say("curr_connections", observed.connections.value().try_into().unwrap_or(0));
    say("total_connections", observed.accepted.value());
    say("cmd_get", counts.gets);
    say("cmd_set", counts.sets);
    say("get_hits", counts.hits);
    say("get_misses", counts.gets.saturating_sub(counts.hits));
    say("bytes", standing.used);
    say("limit_maxbytes", standing.memory);
    say("curr_items", standing.objects as u64);
    say("pool_members", standing.members as u64);
    say("pool_keys", standing.entries as u64);
    say("pool_remote_reads", counts.remote_reads);
    let tally = standing.tally;
    say("pool_local_hits", tally.local_hits);
    say("pool_remote_hits", tally.remote_hits);
    say("pool_offered", tally.offered);
    say("pool_taken_in", tally.taken_in);
    say("pool_copies", tally.copies);
    say("pool_moves", tally.moves);
    say("pool_swaps", tally.swaps);
    say("pool_evicted", tally.evicted);
    say("pool_table_reads", counts.table_reads);
    say("pool_letters", counts.letters);
    say("pool_unknown", counts.unknown);
    say("pool_failed", counts.failed);
    print::statistic("version", VERSION, out);
}

fn settings(pool: &PoolService, out: &mut Vec<u8>) {
    let standing = pool.standing();
    print::statistic("maxbytes", &standing.memory.to_string(), out);
    print::statistic("item_size_max", &pool.limits().value_bytes.to_string(), out);
    print::statistic("pool_scheme", &standing.scheme.to_string(), out);
}

/// `STAT name role lent used objects local_hits remote_hits misses` of each node that lends memory, bytes in two of them; 0 for one that has not said anything yet.
fn nodes(pool: &PoolService, out: &mut Vec<u8>) {
    for Lender { name, is_passive, board } in pool.lenders() {
        let shown = board.unwrap_or_default().shown;
        let [lent, used] = [shown.units, shown.used].map(|units| u64::from(units) * UNIT_BYTES as u64);
        let role = if is_passive { "passive" } else { "active" };
        let Shown { objects, local_hits, remote_hits, misses, .. } = shown;
        print::statistic(&name, &format!("{role} {lent} {used} {objects} {local_hits} {remote_hits} {misses}"), out);
    }
}

/// `STAT key count` of the keys that this pool's clients read most, the hottest first. Counts compare keys, and no more.
fn hottest(pool: &PoolService, out: &mut Vec<u8>) {
    for (key, count) in pool.hottest(HOTTEST) {
        out.extend_from_slice(b"STAT ");
        out.extend_from_slice(&key);
        print::line(&format!(" {count}"), out);
    }
}

/// `STAT key bytes expiry cas` of each object in this node's memory, also of those that are no longer valid: their keys have
/// another value elsewhere, and nothing told this node.
fn objects(pool: &PoolService, out: &mut Vec<u8>) {
    for object in pool.objects(LISTED) {
        out.extend_from_slice(b"STAT ");
        out.extend_from_slice(&object.key);
        let (bytes, head) = (object.item.value.len(), object.item.head);
        print::line(&format!(" {bytes} {} {}", head.expires, head.cas), out);
    }
}
