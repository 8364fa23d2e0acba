//! One connection of the application, as what it reads and writes (rules Q1, Q3 to Q8).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use verbena_metrics::{Counter, Family};
use verbena_relay::{Answer, Column, Command, Judge, Kind, Login, Row, State, Transaction, Verdict};
use verbena_statements::{
    Analysis, CATALOG, Charset, Dialect, Effect, Fills, Literal, Moment, Names, Reads, Rules, Session as Change, Side,
    Storable, Tag, Whose, Why,
};

use crate::bracket::Bracketed;
use crate::catalog::{Known, Moving, Under};
use crate::charsets::{charset_by_name, charset_by_number};
use crate::parameters::{self, Parameter, Types};
use crate::turns::Tables;
use crate::watch::{self, Watchers};

/// A longer statement is prepared without being remembered: what it reads and touches is everything.
const LONGEST_PREPARED: usize = 64 << 10;
/// Prepared statements of one connection that are remembered.
const PREPARED: usize = 16_384;
/// Before the tag of a fill, in a comment of a statement.
const TAG: &[u8] = b"verbena_fill='";
/// COM_PING, COM_QUIT, COM_SET_OPTION: they answer nothing of the data.
const PLAIN: [u8; 3] = [0x0E, 0x01, 0x1B];

/// What all connections share.
pub(crate) struct Shared {
    pub known: Arc<Known>,
    pub fills: Arc<Mutex<Fills>>,
    /// By what was said of them.
    pub statements: Family<Counter, 1>,
    pub watchers: Arc<Watchers>,
    /// Reads outside of transactions wait for their turn.
    pub takes_turns: bool,
}

/// One connection.
pub(crate) struct Session {
    shared: Arc<Shared>,
    default: Option<Vec<u8>>,
    /// The one that it logged in with, which a reset gives back.
    login_charset: Charset,
    charset: Charset,
    ansi_quotes: Option<bool>,
    backslash_escapes: Option<bool>,
    /// It was changed in a way that is not understood: nothing is, until it is reset.
    is_unknown: bool,
    /// It may see what is rolled back later (Q7).
    is_uncommitted: bool,
    /// What its transaction has written.
    touched: Names,
    /// When its transaction began.
    since: Option<Moment>,
    /// It has locked tables, which it alone frees.
    has_locked: bool,
    /// What the statement before read, for `FOUND_ROWS()`.
    before: Names,
    asked: VecDeque<Asked>,
    preparing: HashMap<u64, Vec<u8>>,
    prepared: HashMap<u32, Prepared>,
}

struct Prepared {
    /// None: it is too long to be remembered.
    text: Option<Vec<u8>>,
    parameters: usize,
    types: Types,
    /// Parameters that were sent in pieces.
    long: BTreeSet<u16>,
}

/// A command that is not answered.
struct Asked {
    number: u64,
    whose: Whose,
    /// If its transaction began with it, then not before this.
    at: Moment,
    reads: Option<Reads>,
    touches: Names,
    session: Vec<Change>,
    /// It may have changed the catalog.
    moves_catalog: bool,
    /// Until it is answered nothing is known of the tables that it may change.
    moving: Option<Moving>,
    columns: Vec<Column>,
}

/// What a session is when it asks.
pub(crate) struct Seen<'a> {
    /// What the statement before read.
    pub before: &'a Names,
    /// It has the settings that it began with.
    pub is_usual: bool,
    /// What it reads may be past, or never be committed (Q7).
    pub shows_past: bool,
    /// Its transaction has written, maybe for another request: what it reads may be rolled back (Q6).
    pub has_written: bool,
}

impl Shared {
    /// Counts what a statement reads, before its answer is passed on; says what that is.
    pub fn charge(&self, analysis: &Analysis, whose: Whose, since: Option<Moment>, seen: Seen<'_>) -> Names {
        let reads = &analysis.reads;
        let names = reads.bounded(reads.start());
        let mut fills = self.fills.lock();
        match analysis.storable {
            Storable::Yes => {}
            Storable::AsTheStatementBefore => fills.read(whose, seen.before, since),
            Storable::Setting if seen.is_usual => {}
            Storable::Setting | Storable::Time | Storable::No(_) => fills.read_unstorable(whose, Why::Volatile),
        }
        if seen.shows_past && names != Names::none() {
            fills.read_unstorable(whose, Why::OldSnapshot);
        }
        if seen.has_written && (names != Names::none() || !reads.keys().is_empty()) {
            fills.read_unstorable(whose, Why::Wrote);
        }
        if reads.is_everything() {
            fills.read_everything(whose, Why::NotUnderstood);
        } else {
            fills.read(whose, &names, since);
        }
        if analysis.effect != Effect::None {
            fills.wrote(whose);
        }
        names
    }

    /// The tables at which a statement waits for its turn.
    pub fn turn(&self, analysis: &Analysis) -> Option<Tables> {
        let is_read = self.takes_turns && analysis.effect == Effect::None;
        is_read.then(|| Tables::read(&analysis.reads)).flatten()
    }

    /// Counts what an analysis says, and shows it to those who watch. `text` is there for them.
    pub fn seen(&self, analysis: &Analysis, text: Option<String>, whose: Whose, is_held: bool) {
        if let Some(text) = text {
            self.watchers.tell(&watch::statement(text, analysis, whose, is_held));
        }
        let is_everything = analysis.reads.is_everything() || analysis.touches == Names::Everything;
        self.statements.with([if is_everything { "everything" } else { "names" }]).increment();
    }
}

impl Session {
    pub fn new(shared: Arc<Shared>) -> Session {
        Session {
            shared,
            default: None,
            login_charset: Charset::AsciiCompatible,
            charset: Charset::AsciiCompatible,
            ansi_quotes: None,
            backslash_escapes: None,
            is_unknown: false,
            is_uncommitted: false,
            touched: Names::none(),
            since: None,
            has_locked: false,
            before: Names::none(),
            asked: VecDeque::new(),
            preparing: HashMap::new(),
            prepared: HashMap::new(),
        }
    }

    fn reset(&mut self) {
        let (default, asked, charset) = (self.default.take(), std::mem::take(&mut self.asked), self.login_charset);
        *self = Session { default, asked, login_charset: charset, charset, ..Session::new(self.shared.clone()) };
    }

    fn dialect(&self, known: Dialect) -> Dialect {
        Dialect {
            ansi_quotes: self.ansi_quotes.unwrap_or(known.ansi_quotes),
            backslash_escapes: self.backslash_escapes.unwrap_or(known.backslash_escapes),
            charset: if self.is_unknown { Charset::Other } else { self.charset },
            ..known
        }
    }

    fn analysed(&mut self, command: &Command<'_>) -> Option<(Analysis, Whose, Option<String>)> {
        let Under { dialect, analyser } = self.shared.known.under(self.default.as_deref());
        let dialect = self.dialect(dialect);
        let mut analyser = analyser.lock();
        let watchers = &self.shared.watchers;
        let unknown =
            |why| Some((analyser.unknown(why), Whose::Anybody, watchers.text(b"(a statement that is not looked at)")));
        let with = match command.kind {
            Kind::Statements if !command.is_whole => return unknown("longer than is looked at"),
            Kind::Statements => {
                let analysis = analyser.analyse(&dialect, command.bytes, &[]);
                return Some((analysis, whose(command.bytes), watchers.text(command.bytes)));
            }
            Kind::Execute | Kind::ExecuteBulk => command.bytes.get(..4),
            _ => return None,
        };
        let statement = with.and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        let Some(prepared) = statement.and_then(|statement| self.prepared.get_mut(&statement)) else {
            return unknown("a prepared statement that is not remembered");
        };
        let Some(text) = &prepared.text else { return unknown("a prepared statement that is too long") };
        // Where a cursor is asked for the rows come later, under other commands.
        let has_cursor = command.kind == Kind::Execute && command.bytes.get(4).is_some_and(|flags| *flags != 0);
        if has_cursor || !command.is_whole {
            return unknown("rows by a cursor");
        }
        let values = match command.kind {
            Kind::Execute => {
                parameters::decode(command.bytes, prepared.parameters, &mut prepared.types, &prepared.long)
            }
            // Of values in bulk no name is made.
            _ => Some(vec![Parameter::Unknown; prepared.parameters]),
        };
        prepared.long.clear();
        let Some(values) = values else { return unknown("parameters in a form that is not known") };
        let literals: Vec<Option<Literal<'_>>> = values.iter().map(Parameter::literal).collect();
        Some((analyser.analyse(&dialect, text, &literals), whose(text), watchers.text(text)))
    }

    /// Counts what the statement reads, before its answer is passed on.
    fn charge(&mut self, analysis: &Analysis, whose: Whose, since: Option<Moment>) {
        let seen = Seen {
            before: &self.before,
            is_usual: self.has_usual_settings(),
            shows_past: self.is_uncommitted,
            has_written: self.touched != Names::none(),
        };
        self.before = self.shared.charge(analysis, whose, since, seen);
    }

    fn has_usual_settings(&self) -> bool {
        !self.is_unknown && self.ansi_quotes.is_none() && self.backslash_escapes.is_none()
    }

    fn changed(&mut self, change: &Change) {
        match change {
            Change::Database(name) => self.default = Some(name.clone()),
            Change::Charset(name) => self.charset = charset_by_name(name),
            Change::Variable(name, value) => self.variable(name, &value.to_ascii_uppercase()),
            Change::Unknown => self.is_unknown = true,
            // PostgreSQL's.
            Change::Local(..) | Change::Reset => self.is_unknown = true,
        }
    }

    fn variable(&mut self, name: &[u8], value: &[u8]) {
        let has = |word: &[u8]| value.windows(word.len()).any(|part| part == word);
        match name {
            b"sql_mode" if has(b"@") || has(b"(") => self.is_unknown = true,
            b"sql_mode" => {
                self.ansi_quotes = Some(
                    ["ANSI_QUOTES", "ANSI'", "DB2", "MAXDB", "MSSQL", "ORACLE", "POSTGRESQL"]
                        .iter()
                        .any(|word| has(word.as_bytes())),
                );
                self.backslash_escapes = Some(!has(b"NO_BACKSLASH_ESCAPES"));
            }
            b"character_set_client" => self.charset = charset_by_name(value),
            b"transaction" | b"transaction_isolation" | b"tx_isolation" => {
                self.is_uncommitted = has(b"READ UNCOMMITTED") || has(b"READ-UNCOMMITTED");
            }
            _ => {}
        }
    }

    /// What its transaction has written, and this.
    fn with(&self, more: &Names) -> Names {
        Names::joined(Rules::default(), Side::Write, [&self.touched, more])
    }

    fn asked(&mut self, number: u64) -> Option<&mut Asked> {
        self.asked.iter_mut().find(|asked| asked.number == number)
    }
}

impl Judge for Session {
    type Write = Bracketed;

    fn login(&mut self, login: &Login) {
        self.reset();
        self.default = login.database.clone();
        self.login_charset = charset_by_number(login.character_set);
        self.charset = self.login_charset;
    }

    fn judge(&mut self, command: &Command<'_>, state: Option<&State>) -> Verdict<Bracketed> {
        self.asked.retain(|asked| asked.number != command.number);
        let at = self.shared.fills.lock().tick();
        let plain = |whose| Asked {
            number: command.number,
            whose,
            at,
            reads: None,
            touches: Names::none(),
            session: Vec::new(),
            moves_catalog: false,
            moving: None,
            columns: Vec::new(),
        };
        match command.kind {
            Kind::Prepare => {
                let is_short = command.is_whole && command.bytes.len() <= LONGEST_PREPARED;
                let text = if is_short { command.bytes.to_vec() } else { Vec::new() };
                self.preparing.insert(command.number, text);
            }
            Kind::Database => {
                let mut asked = plain(Whose::Anybody);
                asked.session.push(Change::Database(command.bytes.to_vec()));
                self.asked.push_back(asked);
                return Verdict::Pass;
            }
            Kind::LongData => {
                if let Some((statement, parameter)) = long_data(command.bytes)
                    && let Some(prepared) = self.prepared.get_mut(&statement)
                {
                    prepared.long.insert(parameter);
                }
                // It has no answer.
                return Verdict::Pass;
            }
            Kind::CloseStatement | Kind::ResetStatement => {
                let statement = command.bytes.get(..4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
                if command.kind == Kind::CloseStatement {
                    statement.map(|statement| self.prepared.remove(&statement));
                    return Verdict::Pass;
                }
                if let Some(prepared) = statement.and_then(|statement| self.prepared.get_mut(&statement)) {
                    prepared.long.clear();
                }
            }
            Kind::ResetConnection => {
                self.reset();
            }
            // The cursor may be older than the fill.
            Kind::Fetch => self.shared.fills.lock().read_unstorable(Whose::Anybody, Why::OldSnapshot),
            Kind::ListFields => self.shared.fills.lock().read_everything(Whose::Anybody, Why::NotUnderstood),
            Kind::Other(number) if !PLAIN.contains(&number) => {
                self.shared.fills.lock().read_unstorable(Whose::Anybody, Why::Volatile);
            }
            _ => {}
        }
        let Some((analysis, whose, text)) = self.analysed(command) else {
            self.asked.push_back(plain(Whose::Anybody));
            return Verdict::Pass;
        };
        self.charge(&analysis, whose, self.since);
        let moves_catalog = !analysis.only_rows && moves(&analysis.touches);
        let (is_open, is_closed) = match state.map(|state| state.transaction) {
            Some(Transaction::Open | Transaction::Failed) => (true, false),
            Some(Transaction::Closed) => (false, true),
            Some(Transaction::Unknown) | None => (true, true),
        };
        let is_held = (is_open && analysis.is_held(true)) || (is_closed && analysis.is_held(false));
        let write = is_held.then(|| self.with(&analysis.touches)).filter(|write| *write != Names::none());
        self.shared.seen(&analysis, text, whose, write.is_some());
        let shows = !analysis.reads.keys().is_empty();
        // In a transaction it may hold what the update before it waits for.
        if let Some(locks) = locks_tables(command) {
            self.has_locked = locks;
        }
        let is_outside = is_closed && (!is_open || state.is_none()) && !self.has_locked;
        let read = self.shared.turn(&analysis).filter(|_| is_outside);
        let ends = is_open || self.has_locked || self.touched != Names::none();
        self.asked.push_back(Asked {
            reads: Some(analysis.reads),
            touches: analysis.touches,
            session: analysis.session,
            moves_catalog,
            ..plain(whose)
        });
        match (write, read) {
            (Some(write), _) => {
                if let Some(asked) = self.asked.back_mut().filter(|_| moves_catalog) {
                    asked.moving = Some(self.shared.known.moving());
                }
                Verdict::Hold(Bracketed::Commit(write, ends))
            }
            (None, Some(tables)) => Verdict::Hold(Bracketed::Read(tables)),
            (None, None) if shows => Verdict::Tell,
            (None, None) => Verdict::Pass,
        }
    }

    fn prepared(&mut self, number: u64, statement: u32, parameters: usize, _: &[Column]) {
        let text = self.preparing.remove(&number).filter(|text| !text.is_empty());
        if self.prepared.len() < PREPARED {
            let (types, long) = (Types::default(), BTreeSet::new());
            self.prepared.insert(statement, Prepared { text, parameters, types, long });
        }
    }

    fn columns(&mut self, number: u64, columns: Option<&[Column]>) {
        let fills = self.shared.fills.clone();
        let Some(asked) = self.asked(number) else { return };
        match columns {
            Some(columns) => asked.columns = columns.to_vec(),
            // The client knows them, and here they are not.
            None => {
                fills.lock().read_everything(asked.whose, Why::NotUnderstood);
                asked.reads = None;
            }
        }
    }

    fn row(&mut self, number: u64, row: &Row<'_>) {
        let (fills, since) = (self.shared.fills.clone(), self.since);
        // The server converts what is not ASCII, so no name is made of it.
        let converts = self.charset != Charset::Utf8;
        let Some(asked) = self.asked(number) else { return };
        let Some(reads) = &mut asked.reads else { return };
        let values = row.values(&asked.columns);
        let mut names = Vec::new();
        for table in 0..reads.keys().len() {
            let places = reads.keys()[table].clone();
            let is_odd = |place: &usize| {
                values.get(*place).is_none_or(|value| converts && value.is_some_and(|bytes| !bytes.is_ascii()))
            };
            if places.iter().any(is_odd) {
                fills.lock().read_everything(asked.whose, Why::NotUnderstood);
                asked.reads = None;
                return;
            }
            let texts: Vec<Option<Value<'_>>> = places
                .iter()
                .map(|place| values[*place].map(|bytes| Value::of(&asked.columns[*place], row, bytes)))
                .collect();
            let key: Vec<Option<Literal<'_>>> = texts.iter().map(|value| value.as_ref().map(Value::literal)).collect();
            names.extend(reads.row(table, &key));
        }
        if !names.is_empty() {
            let names = reads.bounded(names);
            fills.lock().read(asked.whose, &names, since);
        }
    }

    fn answered(&mut self, number: u64, answer: &Answer) {
        self.preparing.remove(&number);
        let Some(place) = self.asked.iter().position(|asked| asked.number == number) else { return };
        let Some(asked) = self.asked.remove(place) else { return };
        if let Some(reads) = &asked.reads {
            let names = reads.bounded(reads.end());
            if names != Names::none() {
                self.shared.fills.lock().read(asked.whose, &names, self.since);
            }
        }
        if asked.moves_catalog {
            self.shared.known.moved();
        }
        if !answer.is_error {
            for change in &asked.session {
                self.changed(change);
            }
        }
        match answer.state.map_or(Transaction::Unknown, |state| state.transaction) {
            Transaction::Closed => {
                self.touched = Names::none();
                self.since = None;
            }
            Transaction::Open | Transaction::Failed | Transaction::Unknown => {
                if asked.touches != Names::none() {
                    self.touched = self.with(&asked.touches);
                }
                self.since = self.since.or(Some(asked.at));
            }
        }
    }
}

/// A value of a row, in the form in which names are made of it.
enum Value<'a> {
    Text(&'a [u8]),
    Number(Vec<u8>),
}

impl<'a> Value<'a> {
    fn of(column: &Column, row: &Row<'_>, bytes: &'a [u8]) -> Value<'a> {
        // TINY, SHORT, LONG, LONGLONG, INT24, YEAR.
        let is_integer = matches!(column.type_number, 0x01 | 0x02 | 0x03 | 0x08 | 0x09 | 0x0D);
        /// A flag of a column: its numbers have no sign.
        const UNSIGNED: u16 = 0x20;
        match (is_integer, row.format) {
            (true, verbena_relay::Format::MysqlBinary) => {
                Value::Number(parameters::integer(bytes, column.flags & UNSIGNED != 0))
            }
            (true, _) => Value::Number(bytes.to_vec()),
            (false, _) => Value::Text(bytes),
        }
    }

    fn literal(&self) -> Literal<'_> {
        match self {
            Value::Text(text) => Literal::Text(text),
            Value::Number(digits) => Literal::Number(digits),
        }
    }
}

/// Whether a statement locks tables for its session (true) or frees them (false), if it does either.
fn locks_tables(command: &Command<'_>) -> Option<bool> {
    let words = command.bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut words = words.take(2).map(<[u8]>::to_ascii_uppercase);
    match (command.kind, words.next()?.as_slice(), words.next().as_deref()) {
        (Kind::Statements, b"LOCK", Some(b"TABLE" | b"TABLES")) => Some(true),
        (Kind::Statements, b"UNLOCK" | b"BEGIN" | b"START", _) => Some(false),
        _ => None,
    }
}

/// Whether what touches this may change the catalog.
pub(crate) fn moves(touches: &Names) -> bool {
    match touches {
        Names::Everything => true,
        Names::Of(tables) => tables.contains_key(CATALOG),
    }
}

/// Whose a statement is, by the tag in one of its comments.
pub(crate) fn whose(text: &[u8]) -> Whose {
    let after = text.windows(TAG.len()).position(|part| part == TAG).map(|at| &text[at + TAG.len()..]);
    let digits = after.and_then(|rest| rest.get(..16)).and_then(|digits| std::str::from_utf8(digits).ok());
    let tag = digits.and_then(|digits| Tag::from_str_radix(digits, 16).ok());
    tag.into()
}

/// `| statement : 4 | parameter : 2 | ...`, little-endian.
fn long_data(bytes: &[u8]) -> Option<(u32, u16)> {
    let statement = bytes.get(..4)?.try_into().ok().map(u32::from_le_bytes)?;
    let parameter = bytes.get(4..6)?.try_into().ok().map(u16::from_le_bytes)?;
    Some((statement, parameter))
}

#[cfg(test)]
mod tests;
