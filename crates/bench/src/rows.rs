//! The experiments: every table and figure of the papers, one row each.

use crate::bank;
use crate::content;
use crate::coop;
use crate::emulator;
use crate::error::BenchError;
use crate::http;
use crate::locks;
use crate::memory;
use crate::primitives;
use crate::relayed;
use crate::report::Findings;
use crate::run::Plan;
use crate::site;
use crate::transfer;

/// One experiment.
pub struct Row {
    /// What it is asked for by, and what its files are called.
    pub name: &'static str,
    /// Where in the papers its table or figure is.
    pub paper: &'static str,
    /// What is measured side by side.
    pub variants: &'static str,
    /// What the paper found.
    pub found: &'static str,
    /// How it is measured.
    pub(crate) measure: Measure,
}

pub(crate) type Measure = fn(Plan) -> Result<Findings, BenchError>;

/// Every row, in the order of the house.
pub fn rows() -> &'static [Row] {
    &ROWS
}

/// A row by its name.
pub fn row(name: &str) -> Result<&'static Row, BenchError> {
    ROWS.iter().find(|row| row.name == name).ok_or_else(|| BenchError::NoSuchRow { name: name.to_owned() })
}

/// The table of all rows as plain text, for `verbena bench --list`: wrapped to `columns` characters.
pub fn list(columns: usize) -> String {
    let width = columns.max(40) - 4;
    let mut text = String::new();
    for row in rows() {
        text.push_str(&format!("{}\n", row.name));
        for (title, content) in [("paper", row.paper), ("measures", row.variants), ("found", row.found)] {
            for line in wrapped(&format!("{title}: {content}"), width) {
                text.push_str(&format!("    {line}\n"));
            }
        }
    }
    text
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

static ROWS: [Row; 45] = [
    Row {
        name: "fabric.primitives",
        paper: "dissertation Table 4.1, Fig 5.5, 6.4, 8.11",
        variants: "send/recv, CAS, FAA, read, write by message size; polling and notification; every fabric usable on the machine",
        found: "one-sided read and atomics within 1.5x of send/recv; peer CPU use of one-sided close to 0",
        measure: primitives::measure,
    },
    Row {
        name: "fabric.load",
        paper: "Fig 6.5, 8.8",
        variants: "read latency and bandwidth against 0..200 busy threads on the target's core",
        found: "one-sided flat, two-sided degrades",
        measure: primitives::load,
    },
    Row {
        name: "locks.basic",
        paper: "Fig 4.6, 4.7, Table 4.2",
        variants: "SRSL, DQNL, N-CoSED; polling and notification; breakdown IPC / network / wait",
        found: "SRSL 14% (polling) and 39.6% (notification) above the RDMA schemes (16.0 against 14.02 us, 27.37 against 19.6)",
        measure: locks::basic,
    },
    Row {
        name: "locks.cascade",
        paper: "Fig 4.8",
        variants: "shared cascade and exclusive cascade, 1..16+ waiters, hold time 0 and > 0",
        found: "shared: DQNL +317%, SRSL +25% over N-CoSED; exclusive: SRSL twice the messages",
        measure: locks::cascade,
    },
    Row {
        name: "locks.trace",
        paper: "Fig 4.9",
        variants: "shared lock rate from a web trace, growing number of nodes",
        found: "linear",
        measure: locks::trace,
    },
    Row {
        name: "locks.contention",
        paper: "none: a question of our own",
        variants: "one lock that 1..16 nodes want exclusively, held for 0, 100 us, 1 ms; SRSL, DQNL, N-CoSED: locks a second, Jain's index, longest wait over mean",
        found: "nothing",
        measure: locks::contention,
    },
    Row {
        name: "locks.others",
        paper: "none: a question of our own",
        variants: "a lock of ours through a node's helper, of etcd and of Redis (SET NX PX with a token): one client and four, held for 0 and 1 ms",
        found: "nothing; wanted are hundreds of times the rate of etcd and three times that of Redis",
        measure: locks::others,
    },
    Row {
        name: "memory.ipc",
        paper: "DDSS Fig 3(a)",
        variants: "MQ, RMQ, RCQ, adaptive; 1..512 client threads",
        found: "13 / 8.8 / 0.4 us; RCQ collapses past the cores, RMQ does not",
        measure: memory::ipc,
    },
    Row {
        name: "memory.ops",
        paper: "DDSS Fig 3(b,c)",
        variants: "get and put by size, each IPC mode, each fabric",
        found: "22.6 / 11.3 / 8.2 us",
        measure: memory::ops,
    },
    Row {
        name: "memory.scale",
        paper: "DDSS Fig 4",
        variants: "clients 1..512, data on one node and distributed",
        found: "distributed scales",
        measure: memory::scale,
    },
    Row {
        name: "memory.apps",
        paper: "DDSS Table 1, Fig 5",
        variants: "B-tree and R-tree queries touching 20..100% of records, dataset directory (STORM) 1K..1000K records; without and with DDSS in each IPC mode",
        found: "less time: B-tree about 40-45%, R-tree 57% (20% of records) to 30% (100%), directory 44 / 61 / 48 / 15% at 1K / 10K / 100K / 1000K",
        measure: memory::apps,
    },
    Row {
        name: "memory.checkpoint",
        paper: "DDSS Fig 6",
        variants: "checkpointing processes on one node, on many against one node, distributed",
        found: "RCQ to the core count, RMQ beyond",
        measure: memory::checkpoint,
    },
    Row {
        name: "memory.onload",
        paper: "DDSS Fig 7",
        variants: "proxy response time while 4..32 servers are monitored; service on the proxy's core and on its own",
        found: "up to 50% jitter, none on its own core",
        measure: memory::onload,
    },
    Row {
        name: "content.load",
        paper: "Fig 5.6, 5.7, 5.8",
        variants: "no cache, client polling over a two-sided fabric, over a one-sided fabric; single 8 KB file, Zipf 20 files 200 B - 1 MB, web trace; 0..200 compute threads on the app server; response-time breakdown",
        found: "1.5x response and 1.67x throughput unloaded; nearly 10x throughput at 200 threads; one-sided flat; module below 10% of response time",
        measure: content::load,
    },
    Row {
        name: "content.updates",
        paper: "Fig 6.6, 6.7, 6.8",
        variants: "no cache, invalidate all, dependency lists; traces 1-6 with rising update rate; cache size 1..100%",
        found: "8.8x best; lists sustain, invalidate-all falls to no-cache; 10% cached is close to the maximum",
        measure: content::updates,
    },
    Row {
        name: "content.dependencies",
        paper: "Fig 6.9",
        variants: "dependencies per page 1..64",
        found: "3.5x lower at 64",
        measure: content::dependencies,
    },
    Row {
        name: "content.backend",
        paper: "Fig 6.10",
        variants: "no cache and dependency lists with rising back-end load",
        found: "8.5x grows to 21.9x",
        measure: content::backend,
    },
    Row {
        name: "content.memory",
        paper: "none: a question of our own",
        variants: "bytes of proxy and home that a page takes beside its key, fields and body, by the number of pages, without dependencies and with; time from the start to the first hit",
        found: "nothing; wanted are at most 200 bytes at 1,000,000 pages without dependencies, and 100 ms",
        measure: content::memory,
    },
    Row {
        name: "content.keys",
        paper: "none: a question of our own",
        variants: "hit ratio of a real key trace with synthesised updates, by cache size 1..100%; s3-fifo and lru; with updates and reads only",
        found: "nothing; wanted is that no answer is stale",
        measure: content::keys,
    },
    Row {
        name: "content.views",
        paper: "none: a question of our own",
        variants: "a home leaves in order, joins, is killed, joins after a crash, with 1,000,000 pages cached: time until the view is in effect and until all pages hit; pages lost against pages whose home changed",
        found: "nothing; wanted is that only pages whose home left or is new are lost",
        measure: content::views,
    },
    Row {
        name: "coop.schemes",
        paper: "Fig 7.4, 7.5, Table 7.1, 7.2",
        variants: "AC, BCC, CCWR, MTACC, HYBCC; 8k..64k traces; 2, 4, 8, 10 proxies; messages counted per operation",
        found: "up to +35% over BCC and +180% over AC; HYBCC best everywhere",
        measure: coop::schemes,
    },
    Row {
        name: "coop.lookup",
        paper: "Fig 7.6",
        variants: "lookup and bookkeeping cost by scheme and nodes",
        found: "5-10% of an 8 KB request for CCWR",
        measure: coop::lookup,
    },
    Row {
        name: "coop.trace",
        paper: "none: a question of our own",
        variants: "a real key trace through four nodes that are one cache, with 5, 10 and 25% of its set in all; one central S3-FIFO and four LRU caches alone with the same memory, simulated: hits",
        found: "nothing; wanted are the hits of the central cache, less 1.5 points at the most",
        measure: coop::trace,
    },
    Row {
        name: "coop.memcached",
        paper: "none: a question of our own",
        variants: "a pool of one process, of four, and memcached: get, 16 gets at once, set; 1..64 clients",
        found: "nothing; wanted are 1.0 of memcached's rate for get, 0.9 for 16 at once, 0.8 for set, 1.2 times its 99th percentile",
        measure: coop::memcached,
    },
    Row {
        name: "wan.latency",
        paper: "Fig 8.5, 8.10",
        variants: "one-sided write and sockets, message size and delay",
        found: "equal under delay; half in the LAN",
        measure: emulator::latency,
    },
    Row {
        name: "wan.overlap",
        paper: "Fig 8.7, 8.8, 8.9",
        variants: "overlap ratio, fetch latency under target load, application run time under 40 senders",
        found: "one-sided leaves the CPU alone",
        measure: emulator::overlap,
    },
    Row {
        name: "wan.throughput",
        paper: "Fig 8.12, 8.13, 8.14, 9.5, 9.6",
        variants: "datagram and reliable channels, message size, window, parallel streams, delay 0..10 ms",
        found: "large messages and parallel streams keep the pipe full (up to +50%)",
        measure: emulator::throughput,
    },
    Row {
        name: "wan.precision",
        paper: "none: a question of our own",
        variants: "error of the added one-way delay of the emulator at 10 us..100 ms, modes precise and sleep, paths packet and nfqueue; small datagrams, large frames, single packets; bursts; what two threads take for a word; rattan",
        found: "nothing; wanted are at most 2 us in the median, and 15 us (25 from 10 ms on) in the 99th percentile",
        measure: emulator::precision,
    },
    Row {
        name: "wan.bandwidth",
        paper: "none: a question of our own",
        variants: "one stream of TCP through the emulator at 0, 1, 10 ms beside a kernel that forwards, large frames and single packets, modes precise and sleep; packets of 64 bytes; processor time for a gigabyte; rattan",
        found: "nothing; wanted are at least 0.8 of what the kernel forwards without delay, and all of it with",
        measure: emulator::bandwidth,
    },
    Row {
        name: "transfer.lan",
        paper: "Fig 9.3",
        variants: "FTP get and put by file size: ADTS zero-copy channel, TCP, UDP, and GridFTP, vsftpd",
        found: "up to 95% faster than GridFTP, 181% than FTP-UDP",
        measure: transfer::lan,
    },
    Row {
        name: "transfer.wan",
        paper: "Fig 9.4",
        variants: "32 MB and 256 MB at 0, 10, 100, 1000, 10000 us",
        found: "6x at 10 ms",
        measure: transfer::wan,
    },
    Row {
        name: "transfer.cpu",
        paper: "Fig 9.7",
        variants: "CPU seconds per GB, client and server",
        found: "up to 6x less",
        measure: transfer::cpu,
    },
    Row {
        name: "transfer.replicate",
        paper: "Fig 9.8",
        variants: "a site of Zipf-sized files over the WAN",
        found: "up to 65% faster",
        measure: transfer::replicate,
    },
    Row {
        name: "transfer.sessions",
        paper: "Fig 9.9",
        variants: "connection and data time per transfer, optimisations off and on",
        found: "up to 55% less for 16 files of 1 MB",
        measure: transfer::sessions,
    },
    Row {
        name: "transfer.small",
        paper: "none: a question of our own",
        variants: "many files of 2 KB at 10 ms one way: our session, lftp mirror -P8, rclone --transfers 8",
        found: "nothing; wanted is a tenth of the time of others",
        measure: transfer::small,
    },
    Row {
        name: "bank.stat",
        paper: "IMCa Fig 5",
        variants: "stat of many files by 1..64 clients; 0, 1, 2, 4, 6 cache daemons; the file system's own metadata cache",
        found: "-82% with one daemon",
        measure: bank::stat,
    },
    Row {
        name: "bank.latency",
        paper: "IMCa Fig 6, 7, 8",
        variants: "read and write, record 1 B..1 MB, block 256 B / 2 KB / 8 KB, 1 and 32 clients",
        found: "read -45..-59% (1 client), -82% (32); write no worse with the update thread",
        measure: bank::latency,
    },
    Row {
        name: "bank.throughput",
        paper: "IMCa Fig 9",
        variants: "sequential read of a large file, 1..8 threads, 1, 2, 4 daemons, CRC32 and modulo placement",
        found: "868 against 417 MB/s",
        measure: bank::throughput,
    },
    Row {
        name: "bank.sharing",
        paper: "IMCa Fig 10",
        variants: "one writer, many readers of one file",
        found: "-45% at 32",
        measure: bank::sharing,
    },
    Row {
        name: "database.relay",
        paper: "none: a question of our own",
        variants: "pgbench at PostgreSQL: direct, through the relay, HAProxy in TCP mode, PgBouncer; reads, prepared reads, commits",
        found: "nothing",
        measure: relayed::measure,
    },
    Row {
        name: "database.site",
        paper: "none: a question of our own",
        variants: "MediaWiki and WordPress on PHP-FPM and MariaDB, read with 1, 5, 20 edits a second: no cache, the application's own, invalidate all, the relay alone, with tags, with proofs: requests a second, hits, stale answers",
        found: "nothing; wanted is that no answer of ours is stale",
        measure: site::measure,
    },
    Row {
        name: "http.hits",
        paper: "none: a question of our own",
        variants: "hits a second of the proxy in mode coherent and standard, of nginx and of Varnish, 64 connections: 8 KiB, 8 KiB by HTTP/2 with TLS, 100 KiB, 1 MiB",
        found: "nothing; wanted is 1.3 of nginx and 1.5 of Varnish",
        measure: http::hits,
    },
    Row {
        name: "http.purge",
        paper: "none: a question of our own",
        variants: "three proxies of one cluster, two of them homes, on shm and on tcp; three instances of Varnish that a loop purges: purges of pages, tags, prefixes, hosts and everything while caches are killed and stopped; answers older than an acknowledged purge, hits, acknowledged purges",
        found: "nothing",
        measure: http::purge,
    },
    Row {
        name: "http.herd",
        paper: "none: a question of our own",
        variants: "1,000 clients at once for a page that takes 2 s and may be kept, 100 for one that may not: coherent, standard, nginx",
        found: "nothing",
        measure: http::herd,
    },
    Row {
        name: "httpd.verify",
        paper: "Dissertation 5.2, Figure 5.8",
        variants: "Apache with mod_verbena, with mod_cache that checks nothing, without a cache; 0 to 200 busy threads at the home",
        found: "IPC-Verify is a small part of a hit, and stays so under load",
        measure: content::httpd,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_found() {
        let mut names: Vec<&str> = rows().iter().map(|row| row.name).collect();
        assert_eq!(names.len(), 45);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 45);
        assert!(row("locks.trace").is_ok());
        assert!(matches!(row("locks"), Err(BenchError::NoSuchRow { .. })));
    }

    #[test]
    fn the_list_names_every_row_and_fits() {
        let list = list(60);
        assert!(list.lines().all(|line| line.chars().count() <= 60), "{list}");
        for row in rows() {
            assert!(list.contains(row.name) && list.contains(row.paper.split(',').next().unwrap()));
        }
    }
}
