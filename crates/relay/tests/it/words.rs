//! A judge for tests, by the first words of a statement.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use verbena_relay::{Answer, Column, Command, Judge, Kind, Login, Row, State, Transaction, Verdict};

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
    is_postgres: bool,
    /// MySQL: what is being prepared, what is prepared, and what was last.
    preparing: Vec<(u64, String)>,
    prepared: HashMap<u32, String>,
    latest: String,
    /// PostgreSQL: statements and portals by name, and what this pipeline wrote.
    named: HashMap<Vec<u8>, String>,
    written: Option<String>,
    columns: Vec<Column>,
}

impl Words {
    pub fn new(log: Log, shows_rows: bool) -> Self {
        Self { log, shows_rows, ..Self::default() }
    }

    pub fn of_postgres(log: Log, shows_rows: bool) -> Self {
        Self { is_postgres: true, ..Self::new(log, shows_rows) }
    }

    /// The statement that a command runs, if it runs one.
    fn statement(&mut self, command: &Command<'_>) -> Option<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']).to_lowercase();
        let parts: Vec<_> = command.bytes.split(|byte| *byte == 0).collect();
        let portal = |name: &[u8]| [b"portal ", name].concat();
        match command.kind {
            Kind::Statements => Some(text(command.bytes)),
            Kind::Prepare if self.is_postgres => {
                self.named.insert(parts[0].to_vec(), text(parts.get(1)?));
                None
            }
            Kind::Bind => {
                let statement = self.named.get(*parts.get(1)?).cloned().unwrap_or_default();
                self.named.insert(portal(parts[0]), statement);
                None
            }
            Kind::Execute if self.is_postgres => self.named.get(&portal(parts[0])).cloned(),
            Kind::Prepare => {
                self.preparing.push((command.number, text(command.bytes)));
                self.latest = text(command.bytes);
                None
            }
            Kind::Execute | Kind::ExecuteBulk => {
                let id = u32::from_le_bytes(*command.bytes.first_chunk()?);
                Some(if id == u32::MAX { self.latest.clone() } else { self.prepared.get(&id).cloned()? })
            }
            _ => None,
        }
    }

    fn is_held(&self, statement: &str, state: Option<&State>) -> bool {
        let is_outside = !state.is_some_and(|state| {
            state.transaction == Transaction::Open || state.transaction == Transaction::Closed && !state.autocommit
        });
        statement.split(';').map(str::trim).any(|one| {
            let begins = |words: &[&str]| words.iter().any(|word| one.starts_with(word));
            let writes = begins(&WRITES) && !one.contains("to stdout");
            if self.is_postgres {
                return begins(&["commit", "end"]) || is_outside && (writes || begins(&CHANGES));
            }
            begins(&["commit", "set autocommit", "lock tables", "xa commit"])
                || begins(&CHANGES)
                || writes && (is_outside || one.contains("myisam"))
                || begins(&["begin", "start"]) && state.is_none_or(|state| state.transaction == Transaction::Open)
        })
    }
}

const WRITES: [&str; 8] = ["insert", "update", "delete", "replace", "load", "copy", "call", "truncate"];
const CHANGES: [&str; 4] = ["create", "drop", "alter", "rename"];

impl Judge for Words {
    type Write = String;

    fn login(&mut self, login: &Login) {
        let text = String::from_utf8_lossy;
        let database = login.database.clone().unwrap_or_default();
        self.log.push(format!("login {} {}", text(&login.user), text(&database)));
    }

    fn judge(&mut self, command: &Command<'_>, state: Option<&State>) -> Verdict<String> {
        let short = |statement: &str| statement.chars().take(60).collect::<String>();
        let statement = self.statement(command);
        match statement {
            // What a pipeline writes outside a block is visible after its Sync.
            Some(statement) if self.is_postgres && command.kind == Kind::Execute => {
                if statement.starts_with("commit") || statement.starts_with("end") {
                    return Verdict::Hold(short(&statement));
                }
                if self.is_held(&statement, None) {
                    self.written = Some(short(&statement));
                }
                Verdict::Tell
            }
            Some(statement) if self.is_held(&statement, state) => Verdict::Hold(short(&statement)),
            Some(_) => Verdict::Tell,
            None if command.kind == Kind::Sync
                && state.is_none_or(|state| state.transaction == Transaction::Closed) =>
            {
                self.written.as_ref().map_or(Verdict::Pass, |written| Verdict::Hold(format!("sync after {written}")))
            }
            None if matches!(command.kind, Kind::Fetch | Kind::Prepare | Kind::Describe) => Verdict::Tell,
            None => Verdict::Pass,
        }
    }

    fn prepared(&mut self, number: u64, statement: u32, _: usize, columns: &[Column]) {
        if let Some(at) = self.preparing.iter().position(|(known, _)| *known == number) {
            let (_, text) = self.preparing.remove(at);
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
        let state = answer.state.map_or("-".into(), |state| format!("{:?}", state.transaction));
        self.log.push(format!("{number} {what} {state}"));
        if answer.state.is_some() {
            self.written = None;
        }
    }
}
