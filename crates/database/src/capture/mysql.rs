//! The binlog of MySQL and MariaDB, read as a replica reads it.
//!
//! MariaDB gives a replica that does not ask for its own events those of MySQL: a transaction begins with BEGIN and ends with its number, or with COMMIT. Rows are there only where the format
//! of the log is ROW; a statement in it is a definition, or is taken for everything.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::StreamExt;
use mysql_async::binlog::EventType;
use mysql_async::binlog::events::{EventData, RowsEventData, TableMapEvent};
use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStreamRequest, Conn, Row};
use verbena_terms::{BootClock, Clock};

use super::around::{Kind, Written};
use super::{Capture, CaptureError, PASSES_EVERY};
use crate::address::Address;
use crate::catalog;
use crate::explain::spoken;

/// How often the server says that it is there, in nanoseconds.
const BEAT: u64 = 1_000_000_000;
/// How long it may say nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// Bytes of rows beyond which none of them is told.
const LONGEST_TOLD: usize = 64 << 10;
/// Bytes of a statement that are told.
const TOLD: usize = 200;

/// A place in the log: a file's number, and a byte of it. In the events it has 32 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    number: u64,
    at: u64,
    file: String,
}

impl Place {
    /// Behind the number of a file in an event there may be a checksum.
    fn new(file: &[u8], at: u64) -> Option<Place> {
        let dot = file.iter().rposition(|byte| *byte == b'.')?;
        let digits = file[dot + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let file = std::str::from_utf8(&file[..dot + 1 + digits]).ok()?;
        Some(Place { number: file[dot + 1..].parse().ok()?, at, file: file.to_owned() })
    }
}

/// Where the log was read up to, and of which server.
pub(super) struct Last {
    server: String,
    place: Place,
}

/// Reads the log until that fails. `last` is where it was read up to before.
pub(super) async fn follow(capture: &Capture, address: &Address, last: &mut Option<Last>) -> CaptureError {
    match try_follow(capture, address, last).await {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

async fn try_follow(
    capture: &Capture,
    address: &Address,
    last: &mut Option<Last>,
) -> Result<std::convert::Infallible, CaptureError> {
    let mut asks = catalog::mysql_connection(address).await?;
    let server = server(&mut asks).await?;
    let stands = place(&mut asks).await?;
    let from = match last {
        Some(last) if last.server == server && last.place <= stands => last.place.clone(),
        _ => stands,
    };
    let follows = last.as_ref().is_some_and(|last| last.place == from && last.server == server);
    let mut reads = catalog::mysql_connection(address).await?;
    reads.query_drop(format!("SET @master_heartbeat_period = {BEAT}")).await?;
    // Replicas are told apart by it: two with one number throw each other out.
    let number = (RandomState::new().hash_one(std::process::id()) as u32).max(1 << 16);
    let request = BinlogStreamRequest::new(number).with_filename(from.file.as_bytes()).with_pos(from.at);
    let mut log = reads.get_binlog_stream(request).await?;
    let last = last.insert(Last { server, place: from });
    capture.begins(follows).await;

    let mut transaction = Transaction::default();
    let mut asked = None;
    let mut passes = tokio::time::interval(PASSES_EVERY);
    passes.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let event = tokio::select! {
            event = tokio::time::timeout(SILENCE, log.next()) => event.map_err(|_| CaptureError::Silent)?,
            _ = passes.tick() => {
                if asked.is_none() && capture.is_waiting() {
                    let at = BootClock.now();
                    asked = Some((at, place(&mut asks).await?));
                }
                pass(capture, &mut asked, &last.place);
                continue;
            }
        };
        let event = event.ok_or(CaptureError::Silent)??;
        let header = event.header();
        let malformed = |error: std::io::Error| CaptureError::Malformed(error.to_string());
        if let EventData::RotateEvent(rotated) = match event.read_data().map_err(malformed)? {
            Some(data) => data,
            None => continue,
        } {
            let place = Place::new(rotated.name_raw(), rotated.position());
            last.place = place.ok_or_else(|| CaptureError::Malformed("a file of the log without a number".into()))?;
            continue;
        }
        if let Some(data) = event.read_data().map_err(malformed)? {
            let tables = |id| log.get_tme(id);
            transaction.take(capture, data, tables).await?;
        }
        // What the server makes up has no place; a transaction is begun again from its start.
        let is_of_log = header.event_type() != Ok(EventType::HEARTBEAT_EVENT) && header.log_pos() != 0;
        if is_of_log && transaction.is_over() {
            last.place.at = u64::from(header.log_pos());
        }
        pass(capture, &mut asked, &last.place);
    }
}

fn pass(capture: &Capture, asked: &mut Option<(verbena_terms::Time, Place)>, read: &Place) {
    if let Some((at, _)) = asked.take_if(|(_, place)| *place <= *read) {
        capture.passed(at);
    }
}

/// What tells it from another one.
async fn server(connection: &mut Conn) -> Result<String, CaptureError> {
    let row: Option<Row> =
        connection.query_first("SELECT @@log_bin, @@binlog_format, @@server_id, @@hostname, @@port, @@datadir").await?;
    let [log, format, number, host, port, data] = row.map(catalog::texts).unwrap_or_default();
    if log == "0" {
        return Err(CaptureError::Setting("the database keeps no binlog: start it with --log-bin".into()));
    }
    if format != "ROW" {
        return Err(CaptureError::Setting(format!(
            "binlog_format is {format}, in which rows have no names: set it to ROW at the database"
        )));
    }
    Ok([number, host, port, data].join(" "))
}

/// Where the log stands now.
async fn place(connection: &mut Conn) -> Result<Place, CaptureError> {
    let row: Option<Row> = connection.query_first("SHOW MASTER STATUS").await?;
    let row =
        row.ok_or_else(|| CaptureError::Setting("the database keeps no binlog: start it with --log-bin".into()))?;
    let (file, at): (Option<String>, Option<u64>) = (row.get(0), row.get(1));
    let place = file.zip(at).and_then(|(file, at)| Place::new(file.as_bytes(), at));
    place.ok_or_else(|| CaptureError::Malformed("no place of the log".into()))
}

/// A transaction that is being read.
#[derive(Default)]
struct Transaction {
    is_open: bool,
    written: Written,
    rows: BTreeMap<Vec<u8>, String>,
}

impl Transaction {
    fn is_over(&self) -> bool {
        !self.is_open
    }

    async fn take<'a>(
        &mut self,
        capture: &Capture,
        data: EventData<'_>,
        tables: impl Fn(u64) -> Option<&'a TableMapEvent<'static>>,
    ) -> Result<(), CaptureError> {
        match data {
            EventData::RowsEvent(rows) => {
                let table = tables(rows.table_id());
                let table =
                    table.ok_or_else(|| CaptureError::Malformed("rows of a table that was not named".into()))?;
                let kind = match &rows {
                    RowsEventData::WriteRowsEvent(_) | RowsEventData::WriteRowsEventV1(_) => Kind::Insert,
                    RowsEventData::DeleteRowsEvent(_) | RowsEventData::DeleteRowsEventV1(_) => Kind::Delete,
                    _ => Kind::Update,
                };
                let name = capture.known.table(table.database_name_raw(), table.table_name_raw());
                if !self.rows.contains_key(&name) {
                    self.rows.insert(name.clone(), first(&rows, table));
                }
                self.written.add(name, kind);
                self.is_open = true;
            }
            EventData::XidEvent(_) => self.ends(capture).await,
            EventData::QueryEvent(query) => {
                let text = query.query_raw();
                let text = text.trim_ascii();
                match () {
                    () if text.eq_ignore_ascii_case(b"BEGIN") => self.is_open = true,
                    // Of an engine without transactions, or the end of XA's first part.
                    () if text.eq_ignore_ascii_case(b"COMMIT") => self.ends(capture).await,
                    () if text.eq_ignore_ascii_case(b"ROLLBACK") => *self = Transaction::default(),
                    () if text.starts_with(b"#") || text.is_empty() || is_quiet(text) => {}
                    () => capture.defined(&String::from_utf8_lossy(&text[..text.len().min(TOLD)])).await,
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn ends(&mut self, capture: &Capture) {
        let Transaction { written, rows, .. } = std::mem::take(self);
        let told: Vec<String> = rows.into_iter().map(|(table, row)| format!("{} {row}", spoken(&table))).collect();
        capture.committed(&written, &told.join("; ")).await;
    }
}

/// Statements that change no rows of tables.
fn is_quiet(text: &[u8]) -> bool {
    let text = text.to_ascii_uppercase();
    ["SAVEPOINT", "XA ", "FLUSH ", "ANALYZE ", "GRANT ", "REVOKE ", "CREATE USER", "ALTER USER", "DROP USER", "SET "]
        .iter()
        .any(|word| text.starts_with(word.as_bytes()))
}

/// The first row of several, the columns by their numbers: enough to find it by.
fn first(rows: &RowsEventData<'_>, table: &TableMapEvent<'_>) -> String {
    if rows.rows_data().len() > LONGEST_TOLD {
        return "(...)".into();
    }
    let row = rows.rows(table).next().and_then(Result::ok);
    let row = row.and_then(|(before, after)| before.or(after));
    let values = row.map(mysql_async::binlog::row::BinlogRow::unwrap).unwrap_or_default();
    let mut text = String::from("(");
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(&match value {
            mysql_async::binlog::value::BinlogValue::Value(value) => value.as_sql(true),
            _ => "...".into(),
        });
        if text.len() > TOLD {
            text.truncate(text.floor_char_boundary(TOLD));
            text.push_str("...");
            break;
        }
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_found_behind_a_checksum_and_in_the_order_of_files() {
        let place = |file: &[u8], at| Place::new(file, at).unwrap();
        assert_eq!(place(b"changes.000009\xA1\x99\x00\xFF", 4), place(b"changes.000009", 4));
        assert!(place(b"a.b.000009", 900) < place(b"a.b.000010", 4));
        assert!(place(b"changes.1000000", 4) > place(b"changes.999999", 4));
        assert!(place(b"changes.000001", 5) > place(b"changes.000001", 4));
        for wrong in [&b"changes"[..], b"", b"changes.", b"changes.\xFF1"] {
            assert_eq!(Place::new(wrong, 4), None);
        }
    }
}
