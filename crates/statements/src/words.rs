//! Statements that are known by their first words: transactions, the catalog, and what the parser rejects.
//!
//! Their literals matter (`SET autocommit = 0`), so they are read from the tokens and not from a shape. A statement that
//! is on no list here is everything.

use crate::lex::{Kind, Lexer, Refusal};
use crate::plan::{Effect, Plan, Session, Step, Storable};
use crate::planner::plan;
use crate::{CATALOG, Dialect, Product, Rules, Schema, ddl, setting, shape};

/// A token that is no blank.
#[derive(Clone, Debug)]
pub(crate) struct Piece<'a> {
    pub kind: Kind,
    pub bytes: &'a [u8],
    /// The word in upper case, or the symbol.
    pub upper: Vec<u8>,
    pub start: usize,
}

/// What surrounds a statement.
#[derive(Clone, Copy)]
pub(crate) struct Context<'c> {
    pub rules: Rules,
    pub dialect: &'c Dialect,
    pub schema: &'c Schema,
    pub sql: &'c [u8],
}

/// A setting by a function, as frameworks write it (PostgreSQL).
const SETS: &str = "select set_config(";

/// Whether the statement is one that the parser reads.
pub(crate) fn is_parsed(text: &str) -> bool {
    let word = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("");
    const PARSED: [&str; 7] = ["select", "insert", "update", "delete", "replace", "with", "values"];
    let sets = text.get(..SETS.len()).is_some_and(|start| start.eq_ignore_ascii_case(SETS));
    text.starts_with('(') || !sets && PARSED.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// The tokens of a statement.
pub(crate) fn pieces<'a>(dialect: &'a Dialect, sql: &'a [u8]) -> Result<Vec<Piece<'a>>, Refusal> {
    let mut lexer = Lexer::new(dialect, sql)?;
    let mut pieces = Vec::new();
    while let Some(token) = lexer.next()? {
        if token.kind != Kind::Space {
            let bytes = &sql[token.start..token.end];
            let plain = matches!(token.kind, Kind::Word | Kind::Symbol);
            let upper = if plain { bytes.to_ascii_uppercase() } else { Vec::new() };
            pieces.push(Piece { kind: token.kind, bytes, upper, start: token.start });
        }
    }
    Ok(pieces)
}

/// Plans a statement by its first words.
pub(crate) fn known(context: Context<'_>) -> Plan {
    match pieces(context.dialect, context.sql) {
        Ok(pieces) => Words { context, pieces: &pieces }.plan(),
        Err(reason) => Plan::everything(reason),
    }
}

/// A statement as words.
#[derive(Clone, Copy)]
pub(crate) struct Words<'w> {
    pub context: Context<'w>,
    pub pieces: &'w [Piece<'w>],
}

impl<'w> Words<'w> {
    pub fn word(&self, index: usize) -> &'w [u8] {
        self.pieces.get(index).map_or(b"", |piece| &piece.upper)
    }

    pub fn has(&self, word: &[u8]) -> bool {
        self.pieces.iter().any(|piece| piece.upper == word)
    }

    /// Whether all behind the first words are of these.
    fn only(&self, from: usize, words: &[&[u8]]) -> bool {
        self.pieces[from.min(self.pieces.len())..].iter().all(|piece| words.contains(&piece.upper.as_slice()))
    }

    fn plan(self) -> Plan {
        let mysql = self.context.dialect.is_mysql();
        let unknown = || Plan::everything(&format!("unknown statement {}", String::from_utf8_lossy(self.word(0))));
        match self.word(0) {
            b"BEGIN" | b"START" => self.begin().map_or_else(unknown, step),
            b"COMMIT" if self.word(1) == b"PREPARED" => prepared(),
            b"COMMIT" | b"END" | b"ROLLBACK" | b"ABORT" => self.end().map_or_else(unknown, step),
            b"SAVEPOINT" => step(Step::Savepoint),
            // In SQLite the outermost savepoint is a transaction.
            b"RELEASE" if self.context.dialect.product == Product::Sqlite => step(Step::Commit),
            b"RELEASE" if self.word(1) == b"SAVEPOINT" || !mysql => step(Step::Savepoint),
            b"PREPARE" if self.word(1) == b"TRANSACTION" => step(Step::Prepare),
            b"PREPARE" => session(Session::Unknown),
            b"DEALLOCATE" | b"LISTEN" | b"UNLISTEN" | b"NOTIFY" | b"CLOSE" => Plan::nothing(),
            b"DROP" if self.word(1) == b"PREPARE" => Plan::nothing(),
            b"XA" if mysql => match self.word(1) {
                b"START" | b"BEGIN" => step(Step::Begin),
                b"END" => Plan::nothing(),
                b"PREPARE" => step(Step::Prepare),
                b"COMMIT" => prepared(),
                b"ROLLBACK" => step(Step::Rollback),
                _ => unknown(),
            },
            b"SET" => setting::set(self),
            b"SELECT" if self.context.dialect.is_postgres() => setting::set_config(self),
            b"RESET" | b"DISCARD" if self.context.dialect.is_postgres() => setting::reset(self),
            b"USE" if mysql => match self.pieces.get(1) {
                Some(database) => session(Session::Database(unquoted(database))),
                None => unknown(),
            },
            b"PRAGMA" => setting::pragma(self),
            b"SHOW" => self.show(),
            b"DESC" | b"DESCRIBE" | b"EXPLAIN" => self.explain(),
            b"DO" if mysql => self.reparsed(1, b"select "),
            b"TABLE" => self.reparsed(1, b"select * from "),
            b"DECLARE" => self.cursor().unwrap_or_else(unknown),
            b"FETCH" | b"MOVE" => stored_only("a cursor"),
            b"LOCK" if !mysql => Plan::nothing(),
            b"LOCK" | b"UNLOCK" => step(Step::Commit),
            b"ANALYZE" | b"OPTIMIZE" | b"REPAIR" | b"CHECK" if mysql => match self.word(1) {
                b"TABLE" | b"LOCAL" | b"NO_WRITE_TO_BINLOG" => step(Step::Commit),
                _ => unknown(),
            },
            b"ANALYZE" if !self.has(b"SELECT") => Plan::nothing(),
            b"VACUUM" | b"REINDEX" | b"CHECKPOINT" if self.context.dialect.is_postgres() => Plan::nothing(),
            _ => ddl::change(self).unwrap_or_else(|| Plan { session: self.unsettled(), ..unknown() }),
        }
    }

    /// What a statement that is not understood may change in its session. Definitions of PostgreSQL change nothing there, but temporary tables hide others.
    fn unsettled(self) -> Vec<Session> {
        const DEFINITIONS: [&[u8]; 9] =
            [b"CREATE", b"ALTER", b"DROP", b"GRANT", b"REVOKE", b"COMMENT", b"REFRESH", b"MERGE", b"TRUNCATE"];
        let is_definition = self.context.dialect.is_postgres() && DEFINITIONS.contains(&self.word(0));
        let is_temporary = self.has(b"TEMP") || self.has(b"TEMPORARY");
        if is_definition && !is_temporary { Vec::new() } else { vec![Session::Unknown] }
    }

    fn begin(self) -> Option<Step> {
        const MODES: [&[u8]; 20] = [
            b"WORK",
            b"TRANSACTION",
            b"DEFERRED",
            b"IMMEDIATE",
            b"EXCLUSIVE",
            b"WITH",
            b"CONSISTENT",
            b"SNAPSHOT",
            b",",
            b"READ",
            b"WRITE",
            b"ONLY",
            b"ISOLATION",
            b"LEVEL",
            b"SERIALIZABLE",
            b"REPEATABLE",
            b"COMMITTED",
            b"UNCOMMITTED",
            b"NOT",
            b"DEFERRABLE",
        ];
        let atomic = self.has(b"ATOMIC");
        let start = self.word(0) == b"BEGIN" || self.word(1) == b"TRANSACTION";
        (start && !atomic && self.only(1, &MODES)).then_some(Step::Begin)
    }

    fn end(self) -> Option<Step> {
        const MODES: [&[u8]; 6] = [b"WORK", b"TRANSACTION", b"AND", b"NO", b"CHAIN", b"RELEASE"];
        let back = matches!(self.word(0), b"ROLLBACK" | b"ABORT");
        match self.word(1) {
            b"PREPARED" if back => Some(Step::Rollback),
            _ if back && self.has(b"TO") => Some(Step::Savepoint),
            _ if self.only(1, &MODES) => Some(if back { Step::Rollback } else { Step::Commit }),
            _ => None,
        }
    }

    fn show(self) -> Plan {
        if self.context.dialect.is_postgres() {
            let mut plan = Plan::nothing();
            plan.store_only(Storable::Setting);
            return plan;
        }
        if self.has(b"(") {
            return Plan::everything("SHOW with an expression");
        }
        const MODES: [&[u8]; 5] = [b"FULL", b"EXTENDED", b"GLOBAL", b"SESSION", b"LOCAL"];
        let what = (1..self.pieces.len()).map(|index| self.word(index)).find(|word| !MODES.contains(word));
        match what.unwrap_or(b"") {
            b"COLUMNS" | b"FIELDS" | b"TABLES" | b"DATABASES" | b"SCHEMAS" | b"CREATE" | b"TRIGGERS" | b"FUNCTION"
            | b"PROCEDURE" | b"EVENTS" | b"CHARACTER" | b"CHARSET" | b"COLLATION" | b"ENGINES" | b"STORAGE"
            | b"PLUGINS" | b"PRIVILEGES" => catalog(),
            b"VARIABLES" => setting::show(self),
            b"" => Plan::everything("SHOW of nothing"),
            _ => stored_only("the state of the server"),
        }
    }

    fn explain(self) -> Plan {
        // A plan depends on statistics, and ANALYZE executes the statement.
        const STATEMENTS: [&[u8]; 8] =
            [b"SELECT", b"INSERT", b"UPDATE", b"DELETE", b"REPLACE", b"WITH", b"ANALYZE", b"ANALYSE"];
        if self.has(b"ANALYZE") || self.has(b"ANALYSE") {
            return Plan::everything("EXPLAIN ANALYZE");
        }
        let statement = self.pieces.iter().any(|piece| STATEMENTS.contains(&piece.upper.as_slice()));
        if statement || !self.context.dialect.is_mysql() { stored_only("a plan") } else { catalog() }
    }

    /// Plans what begins at a piece, with other words before it, by the parser. Its rows are not looked at.
    pub fn reparsed(self, from: usize, before: &[u8]) -> Plan {
        let Some(first) = self.pieces.get(from) else { return Plan::everything("nothing follows") };
        let sql = [before, &self.context.sql[first.start..]].concat();
        let shapes = match shape::shapes(self.context.dialect, &sql) {
            Ok(shapes) => shapes,
            Err(reason) => return Plan::everything(reason),
        };
        let [shape] = shapes.as_slice() else { return Plan::everything("not one statement") };
        let mut plan = plan(self.context.rules, self.context.dialect, self.context.schema, &shape.text);
        // The numbers of the slots are not those of the statement.
        for read in std::mem::take(&mut plan.reads) {
            plan.read_whole(&read.table);
        }
        if plan.writes.is_empty() { plan } else { Plan::everything("a write in a statement that reads") }
    }

    fn cursor(self) -> Option<Plan> {
        let query = self.pieces.iter().position(|piece| piece.upper == b"FOR")?;
        let postgres = self.context.dialect.is_postgres() && self.has(b"CURSOR");
        postgres.then(|| self.reparsed(query + 1, b""))
    }
}

/// The bytes of an identifier, or of a text.
pub(crate) fn unquoted(piece: &Piece<'_>) -> Vec<u8> {
    match (piece.kind, piece.bytes) {
        (Kind::Quoted | Kind::Text, [_, inner @ .., _]) => inner.to_vec(),
        (_, bytes) => bytes.to_vec(),
    }
}

pub(crate) fn step(step: Step) -> Plan {
    Plan { step, ..Plan::nothing() }
}

pub(crate) fn session(session: Session) -> Plan {
    Plan { session: vec![session], ..Plan::nothing() }
}

/// Commits what another session may have written.
fn prepared() -> Plan {
    Plan { touches_all: Some("a prepared transaction".to_owned()), effect: Effect::AtOnce, ..step(Step::Commit) }
}

/// An answer that is not stored, of a statement that does nothing.
pub(crate) fn stored_only(reason: &'static str) -> Plan {
    Plan { storable: Storable::No(reason), ..Plan::nothing() }
}

/// Reads the catalog.
pub(crate) fn catalog() -> Plan {
    Plan { whole: vec![CATALOG.to_vec()], ..Plan::nothing() }
}

impl Plan {
    /// A statement after which MySQL has committed what was open; others do it with the transaction.
    pub(crate) fn defines(mut self, dialect: &Dialect) -> Plan {
        if dialect.is_mysql() {
            self.step = Step::Commit;
        }
        self.writes_with(if dialect.is_mysql() { Effect::AtOnce } else { Effect::WithTransaction });
        self
    }
}
