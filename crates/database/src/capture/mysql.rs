//! The binlog of MySQL and MariaDB, read as a replica reads it.
//!
//! MariaDB gives a replica that does not ask for its own events those of MySQL: a transaction begins with BEGIN and ends with its number, or with COMMIT. Rows are there only where the format
//! of the log is ROW; a statement in it is a definition, or is taken for everything.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::StreamExt;
use mysql_async::binlog::EventType;
use mysql_async::binlog::events::{EventData, RowsEventData, TableMapEvent};
use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStream, BinlogStreamRequest, Conn, Row};
use tokio::time::{MissedTickBehavior, timeout};
use verbena_terms::{BootClock, Clock, Time};

use super::around::{Kind, Written};
use super::{Capture, CaptureError, PASSES_EVERY};
use crate::address::Address;
use crate::catalog;
use crate::explain::spoken;

/// How often the server says that it is there, in nanoseconds.
const BEAT: u64 = 1_000_000_000;
/// How long it may say nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// In the place of an event of MariaDB's own that a replica of MySQL does not know.
const DUMMY: &[u8] = b"# Dummy event replacing event type";
/// MariaDB's own events that say nothing of rows: what is written along, checkpoints, numbers of transactions, encryption.
const MARIADBS: std::ops::RangeInclusive<u8> = 160..=164;
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
    /// The number of a file has so many digits; behind it, in an event, there may be a checksum.
    fn new(file: &[u8], at: u64, digits: usize) -> Option<Place> {
        let dot = file.iter().rposition(|byte| *byte == b'.')?;
        let digits = file[dot + 1..].iter().take(digits).take_while(|byte| byte.is_ascii_digit()).count();
        let file = std::str::from_utf8(&file[..dot + 1 + digits]).ok()?;
        Some(Place { number: file[dot + 1..].parse().ok()?, at, file: file.to_owned() })
    }

    /// Digits of the number of its file.
    fn digits(&self) -> usize {
        self.file.len() - self.file.rfind('.').map_or(0, |dot| dot + 1)
    }

    /// A replica asks in 32 bits.
    fn can_be_asked_for(&self) -> bool {
        u32::try_from(self.at).is_ok()
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
        Err(error) if may_not(&error) => {
            let user = address.user.as_deref().unwrap_or_default();
            CaptureError::Setting(format!(
                "the user of database.to may not read the log: GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO '{user}' (MySQL: REPLICATION SLAVE, REPLICATION CLIENT). The server says: {error}"
            ))
        }
        Err(error) => error,
    }
}

/// A privilege is missing: ER_ACCESS_DENIED_ERROR of a replica that introduces itself, ER_SPECIFIC_ACCESS_DENIED_ERROR. A wrong password is among the first, and the catalog says that too.
fn may_not(error: &CaptureError) -> bool {
    let CaptureError::Database(catalog::CatalogError::MySql(mysql_async::Error::Server(said))) = error else {
        return false;
    };
    matches!(said.code, 1045 | 1227)
}

async fn try_follow(capture: &Capture, address: &Address, last: &mut Option<Last>) -> Result<Infallible, CaptureError> {
    let at = BootClock.now();
    let mut asks = soon(catalog::mysql_connection(address)).await??;
    // It says nothing for as long as nothing is expected.
    soon(asks.query_drop("SET SESSION wait_timeout = 31536000")).await??;
    let server = soon(server(&mut asks)).await??;
    let stands = soon(place(&mut asks)).await??;
    let from = match last {
        Some(last) if last.server == server && last.place <= stands && last.place.can_be_asked_for() => {
            last.place.clone()
        }
        _ => stands,
    };
    let follows = last.as_ref().is_some_and(|last| last.place == from && last.server == server);
    let mut reads = soon(catalog::mysql_connection(address)).await??;
    soon(reads.query_drop(format!("SET @master_heartbeat_period = {BEAT}"))).await??;
    // Replicas are told apart by it: two with one number throw each other out.
    let number = (RandomState::new().hash_one(std::process::id()) as u32).max(1 << 16);
    let request = BinlogStreamRequest::new(number).with_filename(from.file.as_bytes()).with_pos(from.at);
    let log = soon(reads.get_binlog_stream(request)).await??;
    let mut place = from;
    let mut follower = Follower { capture, asks, log, follows, at, has_begun: false };
    let ended = follower.read(&mut place).await;
    // Where nothing came the place itself may be what is wrong: its file was thrown away.
    *last = follower.has_begun.then_some(Last { server, place });
    ended
}

/// What is asked of the server may take so long.
async fn soon<T>(asked: impl Future<Output = T>) -> Result<T, CaptureError> {
    timeout(SILENCE, asked).await.map_err(|_| CaptureError::Silent)
}

struct Follower<'a> {
    capture: &'a Capture,
    /// Where the log stands is asked here.
    asks: Conn,
    log: BinlogStream,
    /// Nothing was missed before the place from which it reads.
    follows: bool,
    /// A moment before the log stood there.
    at: Time,
    has_begun: bool,
}

impl Follower<'_> {
    /// Reads the log from `read` on, which moves as transactions end.
    async fn read(&mut self, read: &mut Place) -> Result<Infallible, CaptureError> {
        let Follower { capture, asks, log, .. } = self;
        let mut transaction = Transaction::default();
        let mut asked = None;
        let mut passes = tokio::time::interval(PASSES_EVERY);
        passes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = tokio::select! {
                event = timeout(SILENCE, log.next()) => event.map_err(|_| CaptureError::Silent)?,
                _ = passes.tick() => {
                    if asked.is_none() && capture.is_waiting() {
                        let at = BootClock.now();
                        asked = Some((at, soon(place(asks)).await??));
                    }
                    pass(capture, &mut asked, read);
                    continue;
                }
            };
            let event = event.ok_or(CaptureError::Silent)??;
            if !std::mem::replace(&mut self.has_begun, true) {
                capture.begins(self.follows, self.at).await;
            }
            let header = event.header();
            let malformed = |error: std::io::Error| CaptureError::Malformed(error.to_string());
            let data = event.read_data().map_err(malformed)?;
            if let Some(EventData::RotateEvent(rotated)) = &data {
                let digits = read.digits();
                let place = Place::new(rotated.name_raw(), rotated.position(), digits);
                *read = place.ok_or_else(|| CaptureError::Malformed("a file of the log without a number".into()))?;
                continue;
            }
            let tables = |id| log.get_tme(id);
            match (header.event_type(), data) {
                // Prepared, and not visible yet: XA COMMIT stands for itself.
                (Ok(EventType::XA_PREPARE_LOG_EVENT), _) => transaction = Transaction::default(),
                (Ok(_), Some(data)) => transaction.take(capture, data, tables).await?,
                (Ok(_), None) => {}
                (Err(_), _) if MARIADBS.contains(&header.event_type_raw()) => {}
                (Err(_), _) => capture.defined("an event of a form that is not known").await,
            }
            // What the server makes up has no place; a transaction is begun again from its start.
            let is_of_log = header.event_type() != Ok(EventType::HEARTBEAT_EVENT) && header.log_pos() != 0;
            if is_of_log && transaction.is_over() {
                // It has 32 bits in an event.
                read.at += u64::from(header.log_pos().wrapping_sub(read.at as u32));
            }
            pass(capture, &mut asked, read);
        }
    }
}

fn pass(capture: &Capture, asked: &mut Option<(Time, Place)>, read: &Place) {
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
    // What of the databases is in it.
    for (column, filter) in [(2, "binlog_do_db"), (3, "binlog_ignore_db")] {
        if row.get::<String, _>(column).is_some_and(|databases| !databases.is_empty()) {
            return Err(CaptureError::Setting(format!(
                "the database leaves writes out of its log ({filter}): take that away"
            )));
        }
    }
    let place = file.zip(at).and_then(|(file, at)| Place::new(file.as_bytes(), at, usize::MAX));
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
                self.is_open = true;
                match capture.known.table(table.database_name_raw(), table.table_name_raw()) {
                    Some(name) => {
                        if !self.rows.contains_key(&name) {
                            self.rows.insert(name.clone(), first(&rows, table));
                        }
                        self.written.add(name, kind);
                    }
                    None => self.written.is_more = true,
                }
            }
            EventData::XidEvent(_) => self.ends(capture).await,
            EventData::QueryEvent(query) => {
                let text = query.query_raw();
                let text = text.trim_ascii();
                match () {
                    () if text.eq_ignore_ascii_case(b"BEGIN") => {
                        *self = Transaction { is_open: true, ..Transaction::default() }
                    }
                    // Of an engine without transactions, or the end of XA's first part.
                    () if text.eq_ignore_ascii_case(b"COMMIT") => self.ends(capture).await,
                    () if text.eq_ignore_ascii_case(b"ROLLBACK") => *self = Transaction::default(),
                    // A dummy is cut to the length of what it stands for.
                    () if text.starts_with(DUMMY) || DUMMY.starts_with(text) || is_quiet(text) => {}
                    () => capture.defined(&String::from_utf8_lossy(&text[..text.len().min(TOLD)])).await,
                }
            }
            // Rows in a form of their own, and what the server lost.
            EventData::BeginLoadQueryEvent(_) | EventData::ExecuteLoadQueryEvent(_) | EventData::IncidentEvent(_) => {
                capture.defined("LOAD DATA in the form of a statement, or a gap in the log").await;
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
    let is = |word: &str| text.starts_with(word.as_bytes());
    // `SET STATEMENT ... FOR` stands before another statement.
    let sets = is("SET ") && !is("SET STATEMENT");
    let words =
        ["XA START", "XA BEGIN", "XA END", "XA ROLLBACK", "SAVEPOINT", "FLUSH ", "ANALYZE ", "GRANT ", "REVOKE "];
    sets || words.iter().any(|word| is(word)) || ["CREATE USER", "ALTER USER", "DROP USER"].iter().any(|word| is(word))
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
        let place = |file: &[u8], at| Place::new(file, at, usize::MAX).unwrap();
        assert_eq!(
            Place::new(b"changes.0000091\x99", 4, 6),
            Some(place(b"changes.000009", 4)),
            "a digit in a checksum"
        );
        assert_eq!(place(b"changes.000009\xA1\x99\x00\xFF", 4), place(b"changes.000009", 4));
        assert!(place(b"a.b.000009", 900) < place(b"a.b.000010", 4));
        assert!(place(b"changes.1000000", 4) > place(b"changes.999999", 4));
        assert!(place(b"changes.000001", 5) > place(b"changes.000001", 4));
        for wrong in [&b"changes"[..], b"", b"changes.", b"changes.\xFF1"] {
            assert_eq!(Place::new(wrong, 4, usize::MAX), None);
        }
    }
}
