//! `stats`: the names that memcached's own have where both count the same.

use std::process;
use std::sync::OnceLock;

use verbena_coop::service::{DEFAULT_TENANT, Lender, PoolService};
use verbena_coop::{Shown, Tenant, UNIT_BYTES, Usage};
use verbena_memcache::{Statistics, print};

use crate::execute::{Executor, VERSION, seconds};

/// Objects that `stats objects` lists at the most.
const LISTED: usize = 10_000;
/// Keys that `stats hot` lists.
const HOTTEST: usize = 10;

/// The second in which this was asked first: when the server starts.
pub(crate) fn started() -> u64 {
    static STARTED: OnceLock<u64> = OnceLock::new();
    *STARTED.get_or_init(seconds)
}

pub(crate) fn print(which: Statistics<'_>, executor: &Executor<'_>, out: &mut Vec<u8>) {
    let (pool, tenant) = (executor.pool, executor.known.tenant);
    match which {
        Statistics::General => general(executor, out),
        Statistics::Settings => settings(executor, out),
        Statistics::Items => {
            let usage = usage_of(pool, tenant);
            print::statistic("items:1:number", &usage.objects.to_string(), out);
            print::statistic("items:1:mem_requested", &bytes(usage.units).to_string(), out);
        }
        Statistics::Named(b"objects") => objects(pool, tenant, out),
        Statistics::Named(b"nodes") => nodes(pool, out),
        Statistics::Named(b"hot") => hottest(pool, tenant, out),
        Statistics::Named(b"tenants") => tenants(executor, out),
        // Counters are never set back: rates are made of two readings.
        Statistics::Reset => return print::line("RESET", out),
        Statistics::Detail(_) => return print::line("OK", out),
        Statistics::DetailDump => {}
        Statistics::Named(_) => return print::line("ERROR", out),
    }
    print::line("END", out);
}

fn bytes(units: u32) -> u64 {
    u64::from(units) * UNIT_BYTES as u64
}

fn usage_of(pool: &PoolService, tenant: Tenant) -> Usage {
    pool.usage().into_iter().find(|usage| usage.tenant == tenant).unwrap_or_default()
}

/// Bytes of this node that a tenant has at most.
fn limit(executor: &Executor<'_>, memory: u64) -> u64 {
    executor.known.config.most.map_or(memory, |most| most.0.min(memory))
}

/// Of a tenant's client: what its tenant has and does. What begins with `pool_` is of the node.
fn general(executor: &Executor<'_>, out: &mut Vec<u8>) {
    let (pool, observed, known) = (executor.pool, executor.observed, executor.known);
    let of_tenant = (known.tenant != Tenant::DEFAULT).then(|| (usage_of(pool, known.tenant), &known.observed));
    let standing = pool.standing();
    let (counts, started) = (standing.counts, started());
    let mut say = |name: &str, value: u64| print::statistic(name, &value.to_string(), out);
    say("pid", process::id().into());
    say("uptime", seconds().saturating_sub(started));
    say("time", seconds());
    match of_tenant {
        None => {
            say("curr_connections", observed.connections.value().try_into().unwrap_or(0));
            say("total_connections", observed.accepted.value());
            say("cmd_get", counts.gets);
            say("cmd_set", counts.sets);
            say("get_hits", counts.hits);
            say("get_misses", counts.gets.saturating_sub(counts.hits));
            say("bytes", standing.used);
            say("curr_items", standing.objects as u64);
        }
        Some((usage, observed)) => {
            let (hits, misses) = (observed.hits.value(), observed.misses.value());
            say("curr_connections", observed.connections.value().try_into().unwrap_or(0));
            say("cmd_get", hits + misses);
            say("get_hits", hits);
            say("get_misses", misses);
            say("bytes", bytes(usage.units));
            say("curr_items", usage.objects.into());
            say("evictions", usage.evicted);
        }
    }
    say("limit_maxbytes", limit(executor, standing.memory));
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
    if of_tenant.is_some() {
        print::statistic("pool_tenant", &known.config.name, out);
    }
}

fn settings(executor: &Executor<'_>, out: &mut Vec<u8>) {
    let pool = executor.pool;
    let standing = pool.standing();
    print::statistic("maxbytes", &limit(executor, standing.memory).to_string(), out);
    print::statistic("item_size_max", &pool.limits().value_bytes.to_string(), out);
    print::statistic("pool_scheme", &standing.scheme.to_string(), out);
}

/// `STAT name role lent used objects local_hits remote_hits misses` of each node that lends memory, bytes in two of them; 0 for one that has not said anything yet.
fn nodes(pool: &PoolService, out: &mut Vec<u8>) {
    for Lender { name, is_passive, board } in pool.lenders() {
        let shown = board.unwrap_or_default().shown;
        let [lent, used] = [shown.units, shown.used].map(bytes);
        let role = if is_passive { "passive" } else { "active" };
        let Shown { objects, local_hits, remote_hits, misses, .. } = shown;
        print::statistic(&name, &format!("{role} {lent} {used} {objects} {local_hits} {remote_hits} {misses}"), out);
    }
}

/// `STAT name bytes guaranteed most items most evicted connections most hits misses` of each tenant that this node knows, as it stands at this node; `-` where
/// there is no limit. A tenant's client sees its own alone.
fn tenants(executor: &Executor<'_>, out: &mut Vec<u8>) {
    let usage = executor.pool.usage();
    let is_shown = |tenant: Tenant| executor.known.tenant == Tenant::DEFAULT || executor.known.tenant == tenant;
    let limit = |most: Option<u64>| most.map_or_else(|| "-".to_owned(), |most| most.to_string());
    for known in executor.tenants.all() {
        if !is_shown(known.tenant) {
            continue;
        }
        let has = usage.iter().find(|usage| usage.tenant == known.tenant).copied().unwrap_or_default();
        let (config, observed) = (&known.config, &known.observed);
        let name = if config.name.is_empty() { DEFAULT_TENANT } else { &config.name };
        let numbers = [
            bytes(has.units).to_string(),
            config.guaranteed.0.to_string(),
            limit(config.most.map(|most| most.0)),
            has.objects.to_string(),
            limit(config.items.map(u64::from)),
            has.evicted.to_string(),
            observed.connections.value().to_string(),
            limit(config.connections.map(|most| most as u64)),
            observed.hits.value().to_string(),
            observed.misses.value().to_string(),
        ];
        print::statistic(name, &numbers.join(" "), out);
    }
}

/// `STAT key count` of the keys that this pool's clients read most, the hottest first. Counts compare keys, and no more.
fn hottest(pool: &PoolService, tenant: Tenant, out: &mut Vec<u8>) {
    for (key, count) in pool.hottest(tenant, HOTTEST) {
        out.extend_from_slice(b"STAT ");
        out.extend_from_slice(&key);
        print::line(&format!(" {count}"), out);
    }
}

/// `STAT key bytes expiry cas` of each object in this node's memory, also of those that are no longer valid: their keys have
/// another value elsewhere, and nothing told this node.
fn objects(pool: &PoolService, tenant: Tenant, out: &mut Vec<u8>) {
    for object in pool.objects(tenant, LISTED) {
        out.extend_from_slice(b"STAT ");
        out.extend_from_slice(&object.key);
        let (bytes, head) = (object.item.value.len(), object.item.head);
        print::line(&format!(" {bytes} {} {}", head.expires, head.cas), out);
    }
}
