//! A judge for tests, by the first words of a statement.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use verbena_relay::{Answer, Column, Command, Judge, Kind, Row, State, Transaction, Verdict};

/// What happened on all connections, in order.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn push(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Judges as a careful reader of the statements in these tests would.
#[derive(Debug, Clone, Default)]
pub struct Words {
    pub log: Log,
    /// Show rows in the log.
    pub shows_rows: bool,
    pipelined: Vec<(u64, String)>,
    prepared: HashMap<u32, String>,
    /// PostgreSQL: names of prepared statements and portals.
    named: HashMap<Vec<u8>, String>,
    latest: String,
    columns: Vec<Column>,
}

impl Words {
    pub fn new(log: Log, shows_rows: bool) -> Self {
        Self { log, shows_rows, ..Self::default() }
    }

    /// The statement that a command runs, if it runs one.
    fn statement(&mut self, command: &Command<'_>) -> Option<String> {
        let text = String::from_utf8_lossy(command.bytes).trim_end_matches('\0').trim_start().to_lowercase();
        let zero = |bytes: &[u8]| bytes.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<Vec<_>>();
        match command.kind {
            Kind::Statements => Some(text),
            Kind::Prepare if text.starts_with('\0') || command.bytes.contains(&0) => {
                let parts = zero(command.bytes);
                let statement = String::from_utf8_lossy(&parts[1]).trim_start().to_lowercase();
                self.named.insert(parts[0].clone(), statement);
                None
            }
            Kind::Prepare => {
                self.pipelined.push((command.number, text.clone()));
                self.latest = text;
                None
            }
            Kind::Bind => {
                let parts = zero(command.bytes);
                let statement = self.named.get(&parts[1]).cloned().unwrap_or_default();
                self.named.insert([b"portal ", &parts[0][..]].concat(), statement);
                None
            }
            Kind::Execute if command.bytes.contains(&0) && command.bytes.len() < 9 => {
                let parts = zero(command.bytes);
                self.named.get(&[b"portal ", &parts[0][..]].concat()).cloned()
            }
            Kind::Execute | Kind::ExecuteBulk => {
                let id = u32::from_le_bytes(command.bytes[..4].try_into().unwrap());
                Some(if id == u32::MAX {
                    self.latest.clone()
                } else {
                    self.prepared.get(&id).cloned().unwrap_or_default()
                })
            }
            _ => None,
        }
    }
}

const WRITES: [&str; 8] = ["insert", "update", "delete", "replace", "load", "copy", "call", "truncate"];
/// Commit whatever is open, or make something visible in any case.
const ALWAYS: [&str; 9] =
    ["commit", "create", "drop", "alter", "set autocommit", "lock tables", "xa commit", "rename", "end"];

fn is_held(statement: &str, state: Option<&State>) -> bool {
    let is_outside = !state.is_some_and(|state| {
        state.transaction == Transaction::Open || state.transaction == Transaction::Closed && !state.autocommit
    });
    statement.split(';').map(str::trim).any(|one| {
        let begins = |words: &[&str]| words.iter().any(|word| one.starts_with(word));
        begins(&ALWAYS)
            || begins(&WRITES) && (is_outside || one.contains("myisam")) && !one.contains("to stdout")
            || begins(&["begin", "start"]) && state.is_none_or(|state| state.transaction == Transaction::Open)
    })
}

impl Judge for Words {
    type Write = String;

    fn judge(&mut self, command: &Command<'_>, state: Option<&State>) -> Verdict<String> {
        match self.statement(command) {
            Some(statement) if is_held(&statement, state) => {
                Verdict::Hold(statement.chars().take(60).collect::<String>())
            }
            Some(_) => Verdict::Tell,
            None if matches!(command.kind, Kind::Fetch | Kind::Prepare) => Verdict::Tell,
            None => Verdict::Pass,
        }
    }

    fn prepared(&mut self, number: u64, statement: u32, columns: &[Column]) {
        if let Some(at) = self.pipelined.iter().position(|(known, _)| *known == number) {
            let (_, text) = self.pipelined.remove(at);
            self.prepared.insert(statement, text);
        }
        self.log.push(format!("{number} prepared with {} columns", columns.len()));
    }

    fn columns(&mut self, number: u64, columns: Option<&[Column]>) {
        if let Some(columns) = columns {
            self.columns = columns.to_vec();
        }
        if self.shows_rows {
            let names: Vec<_> = self.columns.iter().map(|column| String::from_utf8_lossy(&column.label)).collect();
            self.log.push(format!("{number} columns {}", names.join(",")));
        }
    }

    fn row(&mut self, number: u64, row: &Row<'_>) {
        if self.shows_rows {
            let values: Vec<_> = (row.values(&self.columns).into_iter())
                .map(|value| value.map_or("NULL".into(), |value| String::from_utf8_lossy(value).into_owned()))
                .collect();
            self.log.push(format!("{number} row {}", values.join(",")));
        }
    }

    fn answered(&mut self, number: u64, answer: &Answer) {
        let what = if answer.is_error { "error" } else { "answered" };
        self.log.push(format!("{number} {what} {:?}", answer.state.transaction));
    }
}
