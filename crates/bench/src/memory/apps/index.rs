//! A B-tree and an R-tree, SQLite's own, that are queried without anything kept from the query before.

use rusqlite::{Connection, ffi, params};

use crate::error::BenchError;

/// Rows of the B-tree, which are about as many pages as the paper's has, and of the R-tree.
const RECORDS: i64 = 4_000;
const PLACES: i64 = 16_000;
/// Side of the square that places are in.
const SIDE: f64 = 1_000.0;
/// As in the paper.
pub(super) const PAGE_BYTES: u32 = 8_192;

/// Which index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    BTree,
    RTree,
}

/// What a query found: the same wherever the index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    count: i64,
    sum: i64,
}

fn failed(doing: &str, error: &rusqlite::Error) -> BenchError {
    let why = verbena_sqlite::last_error().map_or_else(String::new, |why| format!(" ({why})"));
    BenchError::Target { doing: format!("{doing} in SQLite"), reason: format!("{error}{why}") }
}

impl Index {
    pub(super) fn name(self) -> &'static str {
        match self {
            Index::BTree => "B-tree",
            Index::RTree => "R-tree",
        }
    }

    /// Makes both indices in an empty database.
    pub(super) fn fill(database: &Connection) -> Result<(), BenchError> {
        // Multiples of a prime modulo another are all over the square, the same in each database.
        let text = format!(
            "BEGIN;
             CREATE TABLE records (key INTEGER PRIMARY KEY, value TEXT NOT NULL);
             WITH RECURSIVE keys(key) AS (SELECT 1 UNION ALL SELECT key + 1 FROM keys WHERE key < {RECORDS})
             INSERT INTO records SELECT key, printf('%048d', key) FROM keys;
             CREATE VIRTUAL TABLE places USING rtree(id, west, east, south, north);
             WITH RECURSIVE ids(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM ids WHERE id < {PLACES})
             INSERT INTO places SELECT id, x, x, y, y FROM
                (SELECT id, (id * 7919 % 99991) * {SIDE} / 99991 AS x, (id * 104729 % 99989) * {SIDE} / 99989 AS y FROM ids);
             COMMIT;"
        );
        database.execute_batch(&text).map_err(|error| failed("make an index", &error))
    }

    /// Asks for what is in this part of the records, or of the square.
    pub(super) fn query(self, database: &Connection, percent: u32) -> Result<Found, BenchError> {
        let share = f64::from(percent) / 100.0;
        let found = |row: &rusqlite::Row<'_>| Ok(Found { count: row.get(0)?, sum: row.get(1)? });
        let asked = match self {
            Index::BTree => {
                let text = "SELECT count(*), sum(key + length(value)) FROM records WHERE key <= ?1";
                let mut query = database.prepare_cached(text).map_err(|error| failed("ask", &error))?;
                query.query_row([RECORDS * i64::from(percent) / 100], found)
            }
            Index::RTree => {
                let text = "SELECT count(*), sum(id) FROM places WHERE east <= ?1 AND north <= ?1";
                let mut query = database.prepare_cached(text).map_err(|error| failed("ask", &error))?;
                query.query_row(params![SIDE * share.sqrt()], found)
            }
        };
        let found: Found = asked.map_err(|error| failed("query an index", &error))?;
        let all = if self == Index::BTree { RECORDS } else { PLACES };
        let expected = all as f64 * share;
        // Places are spread evenly, and not exactly so.
        if (found.count as f64 - expected).abs() > 0.03 * all as f64 {
            let reason = format!("{} of {all} were found with {percent} percent asked for", found.count);
            return Err(BenchError::Target { doing: "query an index".to_owned(), reason });
        }
        Ok(found)
    }
}

/// Begins to read, and holds what it needs for that: what follows are queries and nothing else.
pub(super) fn begin(database: &Connection) -> Result<(), BenchError> {
    let begun = database.execute_batch("PRAGMA cache_size = 1000; BEGIN; SELECT count(*) FROM sqlite_schema");
    begun.map_err(|error| failed("begin", &error))
}

/// Gives up all pages that are not in use, as if another program asked.
pub(super) fn forget_pages(database: &Connection) -> Result<(), BenchError> {
    database.execute_batch("PRAGMA shrink_memory").map_err(|error| failed("forget pages", &error))
}

/// Pages that were read since it was asked last, because they were not in memory.
pub(super) fn pages_read(database: &Connection) -> u64 {
    let (mut missed, mut most) = (0, 0);
    // SAFETY: the handle is used within this call only, for which `database` is borrowed and open; both pointers are to integers of this frame.
    unsafe { ffi::sqlite3_db_status(database.handle(), ffi::SQLITE_DBSTATUS_CACHE_MISS, &mut missed, &mut most, 1) };
    u64::try_from(missed).unwrap_or_default()
}
