//! One connection of the application with PostgreSQL, as what it reads and writes (rules Q1, Q3 to Q8).
//!
//! **When a write is visible.** A Query commits what it wrote at its end, unless a transaction block is open; it is held then. In the extended protocol what is executed
//! outside of a block is visible after the next Sync, or with the Query that follows, so it is those that are held, and a COMMIT when it is executed. What a pipeline begins
//! and ends between two ReadyForQuery the server does not report: [`Session::block`] follows it.
//!
//! **Which tables are meant** depends on the search path, which the server does not report: [`path::SearchPath`] follows it, through transactions that are rolled back.
//! What else matters it reports: the character set, and whether a backslash escapes.

mod messages;
mod path;
mod startup;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use verbena_relay::{Answer, Command, Judge, Kind, Login, Row, State, Transaction, Verdict};
use verbena_statements::{
    Analysis, Charset, Dialect, Effect, Literal, Moment, Names, Reads, Rules, Session as Change, Side, Step, Whose, Why,
};

use self::messages::Value;
use self::path::{SearchPath, Set};
use crate::bracket::{Bracketed, bracketed};
use crate::catalog::{Moving, Under};
use crate::session::{Seen, Shared, moves, whose};
use crate::turns::Tables;

/// Prepared statements of one connection that are remembered, and portals. What is forgotten is everything.
const PREPARED: usize = 16_384;
/// Bytes of their texts.
const PREPARED_BYTES: usize = 16 << 20;

/// One connection.
pub(crate) struct Session {
    shared: Arc<Shared>,
    user: Vec<u8>,
    database: Vec<u8>,
    path: SearchPath,
    charset: Charset,
    backslash_escapes: bool,
    /// The server is a replica, and may show the past (Q7).
    is_standby: bool,
    /// It was changed in a way that is not understood: nothing is, until it is reset.
    is_unknown: bool,
    /// It began so.
    begins_unknown: bool,
    /// A setting was changed.
    is_set: bool,
    /// Counts changes of the session.
    epoch: u64,
    /// What its transaction has written, without what is not answered.
    touched: Names,
    /// When its transaction began.
    since: Option<Moment>,
    /// The last ReadyForQuery said that a transaction block is open.
    was_open: bool,
    /// Since then a transaction block was begun, or one may have ended.
    block: Option<bool>,
    /// The transaction has failed, or what came since the last ReadyForQuery.
    has_failed: bool,
    /// Something was executed since the last ReadyForQuery: locks of it are held until the next.
    has_run: bool,
    asked: VecDeque<Asked>,
    /// Statements and portals by name; nothing where they are not known.
    statements: HashMap<Vec<u8>, Option<Arc<Prepared>>>,
    prepared_bytes: usize,
    portals: HashMap<Vec<u8>, (u64, Option<Portal>)>,
}

struct Prepared {
    text: Vec<u8>,
    /// The types of its parameters; 0 where they are not said.
    types: Vec<u32>,
    /// How its text was read.
    reading: (Charset, bool),
}

struct Portal {
    statement: Arc<Prepared>,
    values: Vec<Value>,
    results: Vec<u16>,
    epoch: u64,
}

/// A message that is not answered.
struct Asked {
    number: u64,
    whose: Whose,
    /// If its transaction began with it, then not before this.
    at: Moment,
    reads: Option<Reads>,
    /// The formats of the values of its answer.
    results: Vec<u16>,
    touches: Names,
    session: Vec<Change>,
    step: Step,
    is_held: bool,
    is_executed: bool,
    /// Until it is answered nothing is known of the tables that it may change.
    moving: Option<Moving>,
    /// The statement that it names, and whether it is the one to prepare it.
    statement: Option<(Vec<u8>, bool)>,
}

/// What a message runs.
struct Run {
    analysis: Analysis,
    whose: Whose,
    results: Vec<u16>,
    /// For those who watch.
    text: Option<String>,
}

impl Session {
    pub fn new(shared: Arc<Shared>) -> Session {
        Session {
            shared,
            user: Vec::new(),
            database: Vec::new(),
            path: SearchPath::new(Set::Unknown),
            // Until the server has said it.
            charset: Charset::Other,
            backslash_escapes: true,
            is_standby: false,
            is_unknown: true,
            begins_unknown: true,
            is_set: false,
            epoch: 0,
            touched: Names::none(),
            since: None,
            was_open: false,
            block: None,
            has_failed: false,
            has_run: false,
            asked: VecDeque::new(),
            statements: HashMap::new(),
            prepared_bytes: 0,
            portals: HashMap::new(),
        }
    }

    /// What a statement is looked at with. One that may see another catalog or path than what is known is looked at as if there were no tables.
    fn under(&self, is_sure: bool) -> Under {
        let Session { user, database, path, .. } = self;
        let known = &self.shared.known;
        let is_pending = |asked: &Asked| !asked.session.is_empty() || moves(&asked.touches);
        let is_sure = is_sure && !moves(&self.touched) && !self.asked.iter().any(is_pending);
        let Under { dialect, analyser } = match path.now() {
            Set::Usual if is_sure => known.looking(|paths| paths.search(database, user, None)),
            Set::To(path) if is_sure => known.looking(|paths| paths.search(database, user, Some(path))),
            _ => known.blind(),
        };
        let charset = if self.is_unknown { Charset::Other } else { self.charset };
        Under { dialect: Dialect { backslash_escapes: self.backslash_escapes, charset, ..dialect }, analyser }
    }

    fn reading(&self) -> (Charset, bool) {
        (self.charset, self.backslash_escapes)
    }

    /// What a message runs, if it runs a statement.
    fn run(&self, command: &Command<'_>) -> Option<Run> {
        let blind = self.shared.known.blind().analyser;
        let unknown = |why| {
            let text = self.shared.watchers.text(b"(a statement that is not looked at)");
            Some(Run { analysis: blind.lock().unknown(why), whose: Whose::Anybody, results: Vec::new(), text })
        };
        let mut is_sure = true;
        let (text, literals, results, whose) = match command.kind {
            Kind::Statements => {
                let text = command.bytes.strip_suffix(b"\0").unwrap_or(command.bytes);
                (text, Vec::new(), Vec::new(), whose(text))
            }
            Kind::Execute => {
                let portal = messages::name(command.bytes).and_then(|name| self.portals.get(name));
                let Some((_, Some(portal))) = portal else { return unknown("a portal that is not known") };
                if portal.statement.reading != self.reading() {
                    return unknown("a portal that is older than a setting of the session");
                }
                is_sure = portal.epoch == self.epoch;
                let text = portal.statement.text.as_slice();
                let literals: Vec<Option<Literal<'_>>> = portal.values.iter().map(Value::literal).collect();
                (text, literals, portal.results.clone(), whose(text))
            }
            Kind::Call => return unknown("a function by its number"),
            _ => return None,
        };
        if !command.is_whole {
            return unknown("longer than is looked at");
        }
        if self.asked.iter().flat_map(|asked| &asked.session).any(changes_reading) {
            return unknown("a setting that is not answered changes how it is read");
        }
        let Under { dialect, analyser } = self.under(is_sure);
        let analysis = analyser.lock().analyse(&dialect, text, &literals);
        Some(Run { analysis, whose, results, text: self.shared.watchers.text(text) })
    }

    /// Remembers a statement that is to be prepared.
    fn prepare(&mut self, command: &Command<'_>) -> Option<Vec<u8>> {
        let name = messages::name(command.bytes)?.to_vec();
        let parse = messages::parse(command.bytes).filter(|_| command.is_whole);
        let reading = self.reading();
        let prepared = parse.map(|parse| Prepared { text: parse.text.to_vec(), types: parse.types, reading });
        self.forget(&name);
        let bytes = prepared.as_ref().map_or(0, |prepared| prepared.text.len());
        if self.statements.len() >= PREPARED || self.prepared_bytes + bytes > PREPARED_BYTES {
            self.statements.clear();
            self.prepared_bytes = 0;
        }
        self.prepared_bytes += bytes;
        self.statements.insert(name.clone(), prepared.map(Arc::new));
        Some(name)
    }

    fn forget(&mut self, statement: &[u8]) {
        if let Some(Some(prepared)) = self.statements.remove(statement) {
            self.prepared_bytes -= prepared.text.len();
        }
    }

    /// Remembers a portal.
    fn bind(&mut self, command: &Command<'_>) {
        let Some(name) = messages::name(command.bytes).map(<[u8]>::to_vec) else { return };
        let bound = messages::bind(command.bytes).filter(|_| command.is_whole);
        let portal = bound.and_then(|bind| {
            let statement = self.statements.get(bind.statement)?.clone()?;
            let uses = messages::uses(&statement.text, bind.values.len());
            let value = |(at, bytes): (usize, &Option<&[u8]>)| {
                let format = messages::format(&bind.formats, at);
                messages::parameter(*bytes, statement.types.get(at).copied(), uses[at], format)
            };
            let values = bind.values.iter().enumerate().map(value).collect();
            Some(Portal { statement, values, results: bind.results, epoch: self.epoch })
        });
        if self.portals.len() >= PREPARED {
            self.portals.clear();
        }
        self.portals.insert(name, (command.number, portal));
    }

    /// What its transaction has written, what is not answered, and this.
    fn with(&self, more: &Names) -> Names {
        let pending = self.asked.iter().map(|asked| &asked.touches);
        Names::joined(Rules::default(), Side::Write, [&self.touched, more].into_iter().chain(pending))
    }

    /// Whether a transaction block may be open, and whether none may be.
    fn may_be(&self, state: Option<&State>) -> (bool, bool) {
        let ends = |asked: &Asked| matches!(asked.step, Step::Rollback | Step::Prepare | Step::Commit);
        let is_open = self.block.unwrap_or(self.was_open) && !self.asked.iter().any(ends);
        match (state.map(|state| state.transaction), self.block) {
            (None, _) if is_open => (true, false),
            (None, _) | (Some(_), Some(false)) | (Some(Transaction::Unknown), None) => (true, true),
            (Some(_), Some(true)) | (Some(Transaction::Open | Transaction::Failed), None) => (true, false),
            (Some(Transaction::Closed), None) => (false, true),
        }
    }

    /// What is held at a message: the names that become visible with it.
    fn held(&self, kind: Kind, run: Option<&Analysis>, state: Option<&State>) -> Option<Names> {
        let (may_be_open, may_be_closed) = self.may_be(state);
        let touches = run.map_or_else(Names::none, |analysis| analysis.touches.clone());
        let is_held = match (kind, run) {
            (Kind::Sync, _) => may_be_closed,
            (Kind::Execute, Some(analysis)) => analysis.step == Step::Commit || analysis.effect == Effect::AtOnce,
            // It ends what the extended protocol began.
            (_, Some(analysis)) => may_be_open && analysis.is_held(true) || may_be_closed,
            _ => false,
        };
        let is_written = |write: &Names| *write != Names::none();
        is_held.then(|| self.with(&touches)).filter(is_written)
    }

    /// The tables at which a statement waits for its turn. In a transaction it may hold what the update before it waits for.
    fn turn(&self, analysis: &Analysis, state: Option<&State>) -> Option<Tables> {
        let (may_be_open, may_be_closed) = self.may_be(state);
        self.shared.turn(analysis).filter(|_| may_be_closed && (!may_be_open || state.is_none()) && !self.has_run)
    }

    fn changed(&mut self, change: &Change) {
        self.epoch += 1;
        self.is_set = true;
        match change {
            Change::Variable(name, value) if name == b"search_path" => self.path.set(value, false),
            Change::Local(name, value) if name == b"search_path" => self.path.set(value, true),
            Change::Variable(name, value) if name == b"all" => self.path.set(value, false),
            Change::Reset => {
                self.path.set(b"default", false);
                (self.is_unknown, self.is_set) = (self.begins_unknown, false);
            }
            // The server reports the character set.
            Change::Variable(..) | Change::Local(..) | Change::Charset(_) => {}
            Change::Database(_) | Change::Unknown => self.is_unknown = true,
        }
    }

    fn asked(&mut self, number: u64) -> Option<&mut Asked> {
        self.asked.iter_mut().find(|asked| asked.number == number)
    }

    /// What an executed statement was to its transaction.
    fn stepped(&mut self, asked: &Asked) {
        let is_understood = asked.touches != Names::Everything;
        match asked.step {
            Step::None => {}
            Step::Savepoint => self.path.savepoint(),
            // Of several statements in one command the order is not known here.
            _ if !asked.is_executed && !asked.session.is_empty() && asked.step != Step::Begin => self.path.ended(None),
            Step::Begin if asked.is_executed => self.block = self.block.or(Some(true)),
            Step::Begin => {}
            Step::Rollback | Step::Prepare | Step::Commit => {
                let is_committed = asked.step != Step::Rollback && !self.has_failed;
                self.path.ended(is_understood.then_some(is_committed));
                if asked.is_executed {
                    self.block = Some(false);
                    if asked.is_held && is_understood {
                        self.touched = Names::none();
                    }
                }
            }
        }
    }

    /// The names of a row, by the keys of its tables.
    fn keyed(reads: &mut Reads, results: &[u16], charset: Charset, row: &Row<'_>) -> Option<Names> {
        let values = row.counted();
        let mut names = Vec::new();
        for table in 0..reads.keys().len() {
            let (places, kinds) = (reads.keys()[table].clone(), reads.key_kinds(table));
            let mut key = Vec::with_capacity(places.len());
            for (place, kind) in places.into_iter().zip(kinds) {
                let format = messages::format(results, place)?;
                key.push(match values.get(place)? {
                    None => None,
                    Some(bytes) => match messages::result(bytes, kind, format) {
                        Value::Unknown => return None,
                        // The server converts what is not ASCII.
                        Value::Text(text) if charset != Charset::Utf8 && !text.is_ascii() => return None,
                        value => Some(value),
                    },
                });
            }
            let key: Vec<Option<Literal<'_>>> =
                key.iter().map(|value| value.as_ref().and_then(Value::literal)).collect();
            names.extend(reads.row(table, &key));
        }
        Some(reads.bounded(names))
    }
}

impl Judge for Session {
    type Write = Bracketed;

    fn login(&mut self, login: &Login) {
        self.user = login.user.clone();
        self.database = login.database.clone().unwrap_or_default();
        let path = startup::path_of(&login.settings);
        (self.is_unknown, self.begins_unknown) = (path.is_none(), path.is_none());
        self.path = SearchPath::new(path.unwrap_or(Set::Unknown));
    }

    fn setting(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"client_encoding" => self.charset = charset(value),
            b"standard_conforming_strings" => self.backslash_escapes = value != b"on",
            b"in_hot_standby" => self.is_standby = value != b"off",
            _ => {}
        }
    }

    fn judge(&mut self, command: &Command<'_>, state: Option<&State>) -> Verdict<Bracketed> {
        self.asked.retain(|asked| asked.number != command.number);
        let run = self.run(command);
        let analysis = run.as_ref().map(|run| &run.analysis);
        let write = self.held(command.kind, analysis, state);
        let read = analysis.filter(|_| write.is_none()).and_then(|analysis| self.turn(analysis, state));
        let ends = self.may_be(state).0 || self.has_run;
        if state.is_none()
            && let Some(held) = bracketed(write.as_ref(), ends, read.as_ref())
        {
            // It is judged again when all before it are answered.
            return Verdict::Hold(held);
        }
        let at = self.shared.fills.lock().tick();
        let mut asked = Asked {
            number: command.number,
            whose: Whose::Anybody,
            at,
            reads: None,
            results: Vec::new(),
            touches: Names::none(),
            session: Vec::new(),
            step: Step::None,
            is_held: write.is_some(),
            is_executed: command.kind == Kind::Execute,
            moving: write.as_ref().filter(|write| moves(write)).map(|_| self.shared.known.moving()),
            statement: None,
        };
        match command.kind {
            Kind::Prepare => asked.statement = self.prepare(command).map(|name| (name, true)),
            Kind::Bind => self.bind(command),
            Kind::CloseStatement => match command.bytes {
                [b'S', name @ ..] => self.forget(name.strip_suffix(b"\0").unwrap_or(name)),
                [b'P', name @ ..] => drop(self.portals.remove(name.strip_suffix(b"\0").unwrap_or(name))),
                _ => {}
            },
            Kind::Describe => {
                let name = command.bytes.strip_prefix(b"S").and_then(messages::name);
                asked.statement = name.map(|name| (name.to_vec(), false));
            }
            _ => {}
        }
        let mut shows = asked.statement.is_some();
        if let Some(Run { analysis, whose, results, text }) = run {
            self.shared.seen(&analysis, text, whose, write.is_some());
            let is_alone = state.is_some_and(|state| state.transaction == Transaction::Closed) && self.block.is_none();
            let since = if is_alone && self.asked.is_empty() {
                self.since
            } else {
                self.since.or_else(|| self.asked.front().map(|asked| asked.at))
            };
            let seen = Seen {
                before: &Names::none(),
                is_usual: !self.is_unknown && !self.is_set,
                shows_past: self.is_standby,
                has_written: self.with(&Names::none()) != Names::none(),
            };
            self.shared.charge(&analysis, whose, since, seen);
            shows |= !analysis.reads.keys().is_empty();
            asked.reads = Some(analysis.reads);
            (asked.whose, asked.results, asked.touches) = (whose, results, analysis.touches);
            (asked.session, asked.step) = (analysis.session, analysis.step);
        }
        self.has_run |= command.kind == Kind::Execute;
        self.asked.push_back(asked);
        match bracketed(write.as_ref(), ends, read.as_ref()) {
            Some(held) => Verdict::Hold(held),
            None if shows => Verdict::Tell,
            None => Verdict::Pass,
        }
    }

    fn parameters(&mut self, number: u64, types: &[u32]) {
        let name = self.asked(number).and_then(|asked| asked.statement.clone());
        let Some((name, _)) = name else { return };
        if let Some(Some(prepared)) = self.statements.get_mut(&name) {
            let (text, reading) = (prepared.text.clone(), prepared.reading);
            *prepared = Arc::new(Prepared { text, reading, types: types.to_vec() });
        }
    }

    fn row(&mut self, number: u64, row: &Row<'_>) {
        let (fills, since, charset) = (self.shared.fills.clone(), self.since, self.charset);
        let Some(asked) = self.asked(number) else { return };
        let Some(reads) = asked.reads.as_mut().filter(|reads| !reads.keys().is_empty()) else { return };
        match Session::keyed(reads, &asked.results, charset, row) {
            Some(names) if names == Names::none() => {}
            Some(names) => fills.lock().read(asked.whose, &names, since),
            None => {
                fills.lock().read_everything(asked.whose, Why::NotUnderstood);
                asked.reads = None;
            }
        }
    }

    fn answered(&mut self, number: u64, answer: &Answer) {
        let Some(place) = self.asked.iter().position(|asked| asked.number == number) else { return };
        let Some(mut asked) = self.asked.remove(place) else { return };
        if let Some(reads) = &asked.reads {
            let names = reads.bounded(reads.end());
            if names != Names::none() {
                self.shared.fills.lock().read(asked.whose, &names, self.since);
            }
        }
        if answer.is_error {
            self.has_failed = true;
            if let Some((name, true)) = &asked.statement {
                // That of before may be there still.
                self.forget(name);
            }
        }
        drop(asked.moving.take());
        self.touched = Names::joined(Rules::default(), Side::Write, [&self.touched, &asked.touches]);
        if !answer.is_error {
            for change in std::mem::take(&mut asked.session) {
                self.changed(&change);
            }
            self.stepped(&asked);
        }
        self.since = self.since.or(Some(asked.at));
        if let Some(State { transaction, .. }) = answer.state {
            self.was_open = matches!(transaction, Transaction::Open | Transaction::Failed);
            // A Sync within a COPY has no answer.
            self.asked.retain(|asked| asked.number > number);
            self.has_run = self.asked.iter().any(|asked| asked.is_executed);
        }
        match answer.state.map(|state| state.transaction) {
            Some(Transaction::Closed) => {
                self.path.ended(Some(!self.has_failed));
                (self.touched, self.since, self.block) = (Names::none(), None, None);
                self.has_failed = false;
                self.portals.retain(|_, (bound, _)| *bound > number);
            }
            Some(Transaction::Failed) => (self.block, self.has_failed) = (None, true),
            Some(Transaction::Open) => (self.block, self.has_failed) = (None, false),
            Some(Transaction::Unknown) | None => {}
        }
    }
}

/// Whether a change of the session changes how its texts are read.
fn changes_reading(change: &Change) -> bool {
    match change {
        Change::Variable(name, _) | Change::Local(name, _) => {
            [&b"all"[..], b"client_encoding", b"standard_conforming_strings", b"names"].contains(&name.as_slice())
        }
        Change::Charset(_) | Change::Reset | Change::Database(_) | Change::Unknown => true,
    }
}

/// What `client_encoding` says. Of the encodings that a client may have, these have a second byte that may be a backslash or a quote.
fn charset(name: &[u8]) -> Charset {
    match name.to_ascii_uppercase().as_slice() {
        b"UTF8" | b"UNICODE" => Charset::Utf8,
        b"BIG5" | b"GBK" | b"GB18030" | b"SJIS" | b"SHIFT_JIS_2004" | b"UHC" | b"JOHAB" => Charset::Other,
        _ => Charset::AsciiCompatible,
    }
}
