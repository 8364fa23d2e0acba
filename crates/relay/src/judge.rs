//! What the relay shows of a connection, and what it is told to do.

/// Sees the commands and answers of one connection and decides what is held.
///
/// Commands are numbered in the order in which the client sent them, and an answer is shown under the number of its
/// command.
pub trait Judge: Send {
    /// What a held command writes, as the bracket takes it.
    type Write: Send + 'static;

    /// The client logs in, or changes its user. The server may still refuse it.
    fn login(&mut self, login: &Login) {
        let _ = login;
    }

    /// Decides what becomes of a command. `state` is what the server last reported, and `None` while earlier commands
    /// are unanswered. A command that is to be held is then judged again, with the state, when they have been
    /// answered: the pipeline is cut there (Q10). Names of a read are recorded here or with its rows, never later.
    fn judge(&mut self, command: &Command<'_>, state: Option<&State>) -> Verdict<Self::Write>;

    /// A statement was prepared: the server's identity of it, how many parameters it has, and the columns of its result.
    fn prepared(&mut self, number: u64, statement: u32, parameters: usize, columns: &[Column]) {
        let _ = (number, statement, parameters, columns);
    }

    /// PostgreSQL: the types of the parameters of a statement that a Describe asked for.
    fn parameters(&mut self, number: u64, types: &[u32]) {
        let _ = (number, types);
    }

    /// PostgreSQL: the server reports a setting of the session, at the login and whenever it changes.
    fn setting(&mut self, name: &[u8], value: &[u8]) {
        let _ = (name, value);
    }

    /// A result begins. `None`: the server left its columns out, because the client knows them from the last time that
    /// this statement ran.
    fn columns(&mut self, number: u64, columns: Option<&[Column]>) {
        let _ = (number, columns);
    }

    /// A row, before any of its bytes is passed on.
    fn row(&mut self, number: u64, row: &Row<'_>) {
        let _ = (number, row);
    }

    /// The answer has ended, and its last bytes have not been passed on. A command whose bracket was not begun ends with
    /// an error too, after the rollback.
    fn answered(&mut self, number: u64, answer: &Answer) {
        let _ = (number, answer);
    }
}

/// What a client says of its session when it logs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Login {
    /// Who.
    pub user: Vec<u8>,
    /// MySQL: the number of the character set and collation of its statements.
    pub character_set: Option<u16>,
    /// Its default database.
    pub database: Option<Vec<u8>>,
    /// PostgreSQL: the other parameters of its startup message.
    pub settings: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<W> {
    /// Forward it, and show nothing of its answer but the end.
    Pass,
    /// Forward it, and show its columns and rows.
    Tell,
    /// It may make a write visible: begin a bracket first. Its columns and rows are shown.
    Hold(W),
}

/// A command of the client.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// Counts the commands of this connection from 0.
    pub number: u64,
    /// What it asks for.
    pub kind: Kind,
    /// Its bytes, without the frame and without the byte that says the kind.
    pub bytes: &'a [u8],
    /// False where `bytes` is only the beginning of a command longer than `Limits::command_bytes`.
    pub is_whole: bool,
}

/// The kinds of commands, of both protocols. The bytes of each are as the protocol lays them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Statements as text (COM_QUERY, Query).
    Statements,
    /// COM_STMT_PREPARE, Parse.
    Prepare,
    /// Bind.
    Bind,
    /// COM_STMT_EXECUTE, Execute.
    Execute,
    /// COM_STMT_BULK_EXECUTE.
    ExecuteBulk,
    /// Describe, whose columns are those of a later Execute.
    Describe,
    /// COM_STMT_FETCH.
    Fetch,
    /// COM_STMT_SEND_LONG_DATA. Only its beginning is shown.
    LongData,
    /// COM_STMT_CLOSE, Close.
    CloseStatement,
    /// COM_STMT_RESET.
    ResetStatement,
    /// COM_INIT_DB: the name of the database.
    Database,
    /// COM_FIELD_LIST.
    ListFields,
    /// COM_CHANGE_USER.
    ChangeUser,
    /// COM_RESET_CONNECTION.
    ResetConnection,
    /// Sync: the end of an implicit transaction.
    Sync,
    /// FunctionCall.
    Call,
    /// Any other command, by the protocol's number.
    Other(u8),
}

/// Whether a transaction is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    /// The server said that there is none.
    Closed,
    /// The server said that one is open.
    Open,
    /// One is open, and every statement but its end is refused (PostgreSQL).
    Failed,
    /// The last command ended with an error that may have rolled the transaction back (MySQL: an error carries no
    /// status). What writes is to be held.
    Unknown,
}

/// What the server last reported of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Whether a transaction is open.
    pub transaction: Transaction,
    /// Each statement outside a transaction commits by itself.
    pub autocommit: bool,
    /// The status flags of MySQL as they came; 0 for PostgreSQL.
    pub flags: u16,
}

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// It ended with an error.
    pub is_error: bool,
    /// The state after it. `None` where the server has not said it (PostgreSQL: before ReadyForQuery).
    pub state: Option<State>,
}

/// A column of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// The name that the statement gives it.
    pub label: Vec<u8>,
    /// Where its values come from.
    pub origin: Origin,
    /// The protocol's number of its type.
    pub type_number: u32,
    /// MySQL: the number of its character set and collation. PostgreSQL: 0 for text, 1 for binary.
    pub encoding: u16,
    /// MySQL: the column's flags. PostgreSQL: 0.
    pub flags: u16,
}

/// Where a column's values come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Computed.
    None,
    /// A column of a table, by their own names (MySQL).
    Named {
        /// The database.
        schema: Vec<u8>,
        /// The table's name, not its alias.
        table: Vec<u8>,
        /// The column's name, not its alias.
        column: Vec<u8>,
    },
    /// A column of a table, by numbers of the catalog (PostgreSQL).
    Numbered {
        /// The table's object identifier.
        table: u32,
        /// The column's number in the table.
        column: i16,
    },
}

/// How the values of a row are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// MySQL, answers to text: each value as a string with its length before it.
    MysqlText,
    /// MySQL, answers to prepared statements: each value as its type says.
    MysqlBinary,
    /// PostgreSQL.
    Postgres,
}

/// A row of a result.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    /// Its bytes without the frame.
    pub bytes: &'a [u8],
    /// How they are laid out.
    pub format: Format,
    /// False where `bytes` is only the beginning of a row longer than `Limits::answer_bytes`.
    pub is_whole: bool,
}

impl<'a> Row<'a> {
    /// The values of a row of PostgreSQL, which says how many it has.
    pub fn counted(&self) -> Vec<Option<&'a [u8]>> {
        crate::postgres::values(self.bytes, usize::MAX)
    }

    /// The values, in the order of the columns; NULL is `None`. Fewer than the columns where the row is longer than
    /// the relay looks at, or is not laid out as its protocol says.
    pub fn values(&self, columns: &[Column]) -> Vec<Option<&'a [u8]>> {
        match self.format {
            Format::MysqlText => crate::mysql::text_values(self.bytes, columns.len()),
            Format::MysqlBinary => crate::mysql::binary_values(self.bytes, columns),
            Format::Postgres => crate::postgres::values(self.bytes, columns.len()),
        }
    }
}
