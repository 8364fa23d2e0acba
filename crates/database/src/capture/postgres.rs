//! The logical replication of PostgreSQL, by a slot of its own that ends with the connection.
//!
//! The slot begins when the connection does, so nothing that was before it is known, and everything is purged each time. What a publication has not is not seen: definitions, tables
//! that are unlogged, and those that it leaves out.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Row};
use verbena_terms::{BootClock, Clock};

use super::around::{Kind, Written};
use super::pgoutput::{Message, message};
use super::{Capture, CaptureError};
use crate::address::Address;
use crate::catalog::{self, CatalogError};
use crate::explain::spoken;

/// How often the log is asked for.
const ASKS_EVERY: Duration = Duration::from_millis(20);
/// How long an answer may take.
const SILENCE: Duration = Duration::from_secs(10);
/// How long the server may take to begin a log, and to read it.
const SLOT: Duration = Duration::from_secs(60);
/// It rests so many times as long as it took.
const PAUSES: u32 = 4;
/// Changes that are asked for at once; the rest of a transaction comes too.
const AT_ONCE: i32 = 10_000;
/// What the database has to publish.
const PUBLICATION: &str = "verbena";
/// Bytes of a value that are told.
const TOLD: usize = 40;

/// Reads the log until that fails.
pub(super) async fn follow(capture: &Capture, address: &Address) -> CaptureError {
    match try_follow(capture, address).await {
        Ok(never) => match never {},
        Err(CaptureError::Database(CatalogError::Postgres(error)))
            if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) =>
        {
            let user = address.user.as_deref().unwrap_or_default();
            let error = CatalogError::Postgres(error);
            CaptureError::Setting(format!(
                "the user of database.to may not read the log: ALTER ROLE {user} REPLICATION. The server says: {error}"
            ))
        }
        Err(error) => error,
    }
}

async fn try_follow(capture: &Capture, address: &Address) -> Result<std::convert::Infallible, CaptureError> {
    let connected = timeout(SILENCE, catalog::postgres_connection(address)).await;
    let (client, carrier) = connected.map_err(|_| CaptureError::Silent)??;
    let read = read(capture, &client).await;
    carrier.abort();
    read
}

async fn read(capture: &Capture, client: &Client) -> Result<std::convert::Infallible, CaptureError> {
    check(client).await?;
    let slot = format!("verbena_{:016x}", RandomState::new().hash_one(std::process::id()));
    let made = format!("SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput', true)");
    let at = BootClock.now();
    // It waits for the transactions that are open. A server that is not told the end of this connection finds out for itself, and drops the slot.
    client
        .batch_execute("SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3")
        .await?;
    timeout(SLOT, client.batch_execute(&made)).await.map_err(|_| CaptureError::Silent)??;
    let changes = format!(
        "SELECT data FROM pg_logical_slot_get_binary_changes('{slot}', NULL, {AT_ONCE}, 'proto_version', '1', 'publication_names', '{PUBLICATION}')"
    );
    let changes = client.prepare(&changes).await?;
    capture.begins(false, at).await;
    let mut log = Log::default();
    let mut pause = ASKS_EVERY;
    loop {
        sleep(pause).await;
        let (at, began) = (BootClock.now(), Instant::now());
        let rows = timeout(SLOT, client.query(&changes, &[])).await.map_err(|_| CaptureError::Silent)??;
        // Each time the server reads its log from the oldest transaction that is open.
        pause = ASKS_EVERY.max(PAUSES * began.elapsed());
        let is_all = rows.len() < AT_ONCE as usize;
        log.take(capture, &rows).await?;
        if is_all {
            capture.passed(at);
        }
    }
}

async fn check(client: &Client) -> Result<(), CaptureError> {
    let settings = format!(
        "SELECT current_setting('wal_level'), (SELECT count(*) FROM pg_publication WHERE pubname = '{PUBLICATION}' \
         AND puballtables AND pubinsert AND pubupdate AND pubdelete AND pubtruncate)::text"
    );
    for [level, publications] in catalog::rows(client, &settings).await? {
        if level != "logical" {
            return Err(CaptureError::Setting(format!(
                "wal_level is {level}, in which tables have no names: set it to logical and start the database anew"
            )));
        }
        if publications == "0" {
            return Err(CaptureError::Setting(format!(
                "the database has no publication {PUBLICATION} of all tables and all that is done to them: CREATE PUBLICATION {PUBLICATION} FOR ALL TABLES. Tables without a primary key want ALTER TABLE ... REPLICA IDENTITY FULL first, or they cannot be updated any more"
            )));
        }
    }
    Ok(())
}

/// What was read of the log.
#[derive(Default)]
struct Log {
    /// The schemas and names of tables by their numbers.
    tables: HashMap<u32, (Vec<u8>, Vec<u8>)>,
    written: Written,
    /// The first row of each table.
    told: Vec<String>,
}

impl Log {
    async fn take(&mut self, capture: &Capture, rows: &[Row]) -> Result<(), CaptureError> {
        for row in rows {
            let data: &[u8] = row.get(0);
            let malformed = || CaptureError::Malformed(format!("a message {}", data.escape_ascii()));
            match message(data).ok_or_else(malformed)? {
                Message::Begin => (self.written, self.told) = Default::default(),
                Message::Relation { table, schema, name } => {
                    self.tables.insert(table, (schema.to_vec(), name.to_vec()));
                }
                Message::Row { table, kind, values } => {
                    let (schema, name) = self.tables.get(&table).ok_or_else(malformed)?;
                    let Some(name) = &capture.known.table(schema, name) else {
                        self.written.is_more = true;
                        continue;
                    };
                    if !self.written.tables.iter().any(|(known, _)| known == name) {
                        self.told.push(format!("{} {}", spoken(name), said(&values)));
                    }
                    self.written.add(name.clone(), kind);
                }
                Message::Truncate { tables } => {
                    for table in tables {
                        let (schema, name) = self.tables.get(&table).ok_or_else(malformed)?;
                        match capture.known.table(schema, name) {
                            Some(name) => self.written.add(name, Kind::Table),
                            None => self.written.is_more = true,
                        }
                    }
                }
                Message::Commit => {
                    let (written, told): (Written, Vec<String>) =
                        (std::mem::take(&mut self.written), std::mem::take(&mut self.told));
                    capture.committed(&written, &told.join("; ")).await;
                }
                Message::Other => {}
            }
        }
        Ok(())
    }
}

fn said(values: &[Option<&[u8]>]) -> String {
    let said = |value: &Option<&[u8]>| match value {
        Some(value) => String::from_utf8_lossy(&value[..value.len().min(TOLD)]).into_owned(),
        None => "-".into(),
    };
    format!("({})", values.iter().map(said).collect::<Vec<_>>().join(", "))
}
