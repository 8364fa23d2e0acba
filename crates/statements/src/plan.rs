//! What is known of a shape: the reads and writes of a statement, with numbers of slots in the place of values.

use crate::ColumnType;

/// Whether a page may be stored that shows what the statement answers, whatever its names (rule Q18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Storable {
    /// It may.
    Yes,
    /// As the statement before on the same connection: `FOUND_ROWS()`, whose names that one has.
    AsTheStatementBefore,
    /// The answer shows a setting of the session, such as `@@sql_mode` or `DATABASE()`: it may, if the session has the
    /// settings that it began with, or the request that is answered set them.
    Setting,
    /// The answer depends on the time: only if the route says so.
    Time,
    /// It may not, and why.
    No(&'static str),
}

/// What a statement is to the transaction of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Nothing.
    None,
    /// A savepoint is made, left or rolled back. Names stay in the transaction (rule Q8).
    Savepoint,
    /// A transaction begins. In MySQL one that was open is committed.
    Begin,
    /// All is rolled back.
    Rollback,
    /// A transaction is prepared for a second phase.
    Prepare,
    /// What was open is committed, by itself or because the server commits before such a statement.
    Commit,
}

/// Why a SELECT that makes a table is not understood. The table may be a temporary one.
pub(crate) const INTO: &str = "SELECT INTO";

/// When a write of the statement becomes visible (rule Q4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It writes nothing.
    None,
    /// With its transaction; at once if none is open.
    WithTransaction,
    /// At once, whether or not a transaction is open.
    AtOnce,
}

/// What a statement changes in its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session {
    /// A variable, in lower case, and the value as the statement writes it.
    Variable(Vec<u8>, Vec<u8>),
    /// Likewise, until the end of the transaction (PostgreSQL).
    Local(Vec<u8>, Vec<u8>),
    /// All is as it was at the login (DISCARD ALL).
    Reset,
    /// The default database.
    Database(Vec<u8>),
    /// The character set of the connection.
    Charset(Vec<u8>),
    /// Something else: what the session was before is not known to hold.
    Unknown,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A slot, perhaps with a minus before it.
    Slot { index: usize, negative: bool },
    /// An expression.
    Unknown,
}

/// A condition `column in (sources)`.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub column: Vec<u8>,
    pub kind: ColumnType,
    pub unique: bool,
    pub sources: Vec<Source>,
}

/// One table that is read.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRead {
    pub table: Vec<u8>,
    /// A unique key first.
    pub conditions: Vec<Condition>,
    pub deciding: Vec<Vec<u8>>,
    pub window: bool,
    /// Where the answer carries the primary key, and how its columns compare.
    pub key: Option<Vec<(usize, ColumnType)>>,
}

/// A column that is inserted.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub column: Vec<u8>,
    pub kind: ColumnType,
    pub width: usize,
    pub unsigned: bool,
    pub numbered: bool,
}

/// The primary keys of the rows of a write, each the sources of its columns; nothing if they are not known.
pub(crate) type Keys = Option<Vec<Vec<(ColumnType, Source)>>>;

/// What is done to a table.
#[derive(Clone, Debug)]
pub(crate) enum PlannedChange {
    Insert { targets: Vec<Target>, rows: Vec<Vec<Source>> },
    Update { columns: Vec<Vec<u8>>, keys: Keys },
    Delete { keys: Keys },
    Unknown,
}

/// What is known of a statement's shape.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Tables of which no more is known than that they are read.
    pub whole: Vec<Vec<u8>>,
    pub reads: Vec<PlannedRead>,
    pub writes: Vec<(Vec<u8>, PlannedChange)>,
    /// Why it depends on everything.
    pub reads_all: Option<String>,
    /// Why it touches everything.
    pub touches_all: Option<String>,
    pub storable: Storable,
    pub step: Step,
    pub effect: Effect,
    pub session: Vec<Session>,
    /// Whatever it touches: of its kind none makes, changes or drops a table.
    pub only_rows: bool,
}

impl Plan {
    /// A statement that does nothing.
    pub fn nothing() -> Plan {
        Plan {
            whole: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            reads_all: None,
            touches_all: None,
            storable: Storable::Yes,
            step: Step::None,
            effect: Effect::None,
            session: Vec::new(),
            only_rows: false,
        }
    }

    /// A statement that is not understood. It may also commit what was open.
    pub fn everything(reason: &str) -> Plan {
        Plan {
            reads_all: Some(reason.to_owned()),
            touches_all: Some(reason.to_owned()),
            storable: Storable::No("not understood"),
            step: Step::Commit,
            effect: Effect::AtOnce,
            session: vec![Session::Unknown],
            ..Plan::nothing()
        }
    }

    /// Such a statement of PostgreSQL that is a query or a write by row: no function commits, and none is to change the session (docs/howto/dependencies-from-sql.md).
    pub fn within_transaction(&mut self) {
        self.step = Step::None;
        self.effect = Effect::WithTransaction;
        if self.touches_all.as_deref() != Some(INTO) {
            self.session.clear();
        }
    }

    /// Reads the whole table.
    pub fn read_whole(&mut self, table: &[u8]) {
        if !self.whole.iter().any(|other| other == table) {
            self.whole.push(table.to_vec());
        }
    }

    /// The answer may be stored only if this holds too.
    pub fn store_only(&mut self, storable: Storable) {
        self.storable = self.storable.max(storable);
    }
}
