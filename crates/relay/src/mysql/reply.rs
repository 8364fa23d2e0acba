//! Where the answer of one command stands, and what each of its packets means.

use super::login::Agreed;
use super::wire::{
    AUTOCOMMIT, CURSOR, IN_TRANSACTION, MORE_RESULTS, Reader, column, eof_status, is_progress, ok_status,
};
use crate::{Column, State, Transaction};

/// The form of an answer, by the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Results, rows in text or binary.
    Results { is_binary: bool },
    /// Rows of a cursor that was opened before.
    Rows,
    /// The description of a prepared statement.
    Prepared,
    /// Column definitions up to their end.
    Fields,
    /// One packet with a status or an error.
    Status,
    /// One packet without a status.
    Text,
    /// A login within a session: questions to the client, then a status or an error.
    Login,
}

impl Form {
    /// An error of such a command may have rolled back the transaction.
    pub(crate) fn may_end_transaction(self) -> bool {
        !matches!(self, Form::Prepared | Form::Fields | Form::Text)
    }
}

/// What the next packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    First,
    /// Definitions that are to come.
    Columns(u64),
    /// The end of definitions, where both sides use EOF.
    ColumnsEnd,
    Rows,
    /// The client sends a file, the server nothing.
    File,
    /// Definitions of parameters, then of columns, each with an end where both sides use EOF.
    Prepared {
        parameters: u64,
        columns: u64,
    },
}

/// What a packet of the server means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// Part of the answer that needs nothing.
    Part,
    /// The columns of a result are complete; `None`: they were left out.
    Columns(Option<Vec<Column>>),
    Row,
    /// The server asks for a file of the client's.
    File,
    /// The server asks the client something about its login.
    Question,
    /// A long statement goes on.
    Progress,
    /// The answer has ended; the status, or `None` with an error.
    Ended(Ending),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) status: Option<u16>,
    pub(crate) is_error: bool,
    /// Of a prepared statement, where its description ended the answer.
    pub(crate) prepared: Option<Prepared>,
}

/// A statement that was prepared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The server's identity of it.
    pub(crate) statement: u32,
    pub(crate) parameters: usize,
    pub(crate) columns: Vec<Column>,
}

/// An answer that has not ended.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) number: u64,
    pub(crate) form: Form,
    /// The judge sees columns and rows.
    pub(crate) is_shown: bool,
    stage: Stage,
    columns: Vec<Column>,
    /// Of a prepared statement: the server's identity of it, and how many parameters it has.
    statement: (u32, usize),
}

type Result<T> = std::result::Result<T, &'static str>;

/// The most columns that a result has.
const MOST_COLUMNS: u64 = u16::MAX as u64;

impl Reply {
    pub(crate) fn new(number: u64, form: Form, is_shown: bool) -> Self {
        let stage = if form == Form::Rows { Stage::Rows } else { Stage::First };
        Self { number, form, is_shown, stage, columns: Vec::new(), statement: (0, 0) }
    }

    pub(crate) fn is_in_rows(&self) -> bool {
        self.stage == Stage::Rows
    }

    pub(crate) fn sends_file(&self) -> bool {
        self.stage == Stage::File
    }

    /// The client has sent the last of its file.
    pub(crate) fn file_sent(&mut self) {
        self.stage = Stage::First;
    }

    pub(crate) fn is_binary(&self) -> bool {
        matches!(self.form, Form::Results { is_binary: true } | Form::Rows)
    }

    /// Takes the next packet of the server. `payload` is its beginning where `is_whole` is false, and `is_longest` says
    /// that its first frame is full.
    pub(crate) fn packet(&mut self, payload: &[u8], is_whole: bool, is_longest: bool, agreed: Agreed) -> Result<Event> {
        let first = *payload.first().ok_or("an empty packet")?;
        if is_progress(payload) {
            return Ok(Event::Progress);
        }
        if first == 0xFF && self.form != Form::Text {
            return Ok(ended(None, true));
        }
        if !is_whole && (first == 0xFE && agreed.no_eof && !is_longest) {
            return Err("an end of rows that is too long");
        }
        if !is_whole && self.stage != Stage::Rows && self.form != Form::Fields {
            return Err("a packet that is too long for what it is");
        }
        match self.stage {
            Stage::First => self.first(first, payload, agreed),
            Stage::Columns(left) => self.column(payload, left, agreed),
            Stage::ColumnsEnd => self.columns_end(first, payload),
            Stage::Rows => self.row(first, payload, is_whole, agreed),
            Stage::File => Err("a packet while the client sends a file"),
            Stage::Prepared { parameters, columns } => self.described(payload, parameters, columns, agreed),
        }
    }

    fn first(&mut self, first: u8, payload: &[u8], agreed: Agreed) -> Result<Event> {
        match self.form {
            Form::Results { .. } => match first {
                0x00 => self.status(ok_status(payload)),
                0xFB => {
                    self.stage = Stage::File;
                    Ok(Event::File)
                }
                _ => self.column_count(payload, agreed),
            },
            Form::Status if first == 0xFE => eof_or_ok(payload, agreed).map(|status| ended(Some(status), false)),
            Form::Status if first == 0x00 => self.status(ok_status(payload)),
            Form::Status => Err("neither a status nor an error"),
            Form::Text => Ok(ended(None, false)),
            Form::Fields if first == 0xFE => eof_or_ok(payload, agreed).map(|status| ended(Some(status), false)),
            Form::Fields => Ok(Event::Part),
            Form::Prepared => self.description(first, payload, agreed),
            Form::Login if first == 0x00 => self.status(ok_status(payload)),
            Form::Login if payload == [1, 3] => Ok(Event::Part),
            Form::Login => Ok(Event::Question),
            Form::Rows => Err("rows begin with a row"),
        }
    }

    /// The end of a result: another one follows, or the answer has ended.
    fn status(&mut self, status: Option<u16>) -> Result<Event> {
        let status = status.ok_or("a status that is cut short")?;
        if status & MORE_RESULTS != 0 && matches!(self.form, Form::Results { .. }) {
            self.stage = Stage::First;
            return Ok(Event::Part);
        }
        Ok(ended(Some(status), false))
    }

    fn column_count(&mut self, payload: &[u8], agreed: Agreed) -> Result<Event> {
        let mut reader = Reader(payload);
        let count = reader.length().filter(|count| (1..=MOST_COLUMNS).contains(count)).ok_or("no count of columns")?;
        let is_left_out = agreed.cached_metadata && reader.u8().ok_or("no word on definitions")? == 0;
        if !reader.0.is_empty() {
            return Err("a count of columns with more behind it");
        }
        self.columns.clear();
        if is_left_out {
            self.stage = if agreed.no_eof { Stage::Rows } else { Stage::ColumnsEnd };
            return Ok(Event::Columns(None));
        }
        self.stage = Stage::Columns(count);
        Ok(Event::Part)
    }

    fn column(&mut self, payload: &[u8], left: u64, agreed: Agreed) -> Result<Event> {
        self.define(payload, agreed)?;
        if left > 1 {
            self.stage = Stage::Columns(left - 1);
            return Ok(Event::Part);
        }
        self.stage = if agreed.no_eof { Stage::Rows } else { Stage::ColumnsEnd };
        Ok(Event::Columns(Some(std::mem::take(&mut self.columns))))
    }

    fn define(&mut self, payload: &[u8], agreed: Agreed) -> Result<()> {
        let column = column(payload, agreed.extended_types).ok_or("a column definition that is cut short")?;
        if self.is_shown {
            self.columns.push(column);
        }
        Ok(())
    }

    fn columns_end(&mut self, first: u8, payload: &[u8]) -> Result<Event> {
        let status = (first == 0xFE).then(|| eof_status(payload)).flatten().ok_or("no end of column definitions")?;
        if status & CURSOR != 0 {
            return self.status(Some(status));
        }
        self.stage = Stage::Rows;
        Ok(Event::Part)
    }

    fn row(&mut self, first: u8, payload: &[u8], is_whole: bool, agreed: Agreed) -> Result<Event> {
        // A value of 16 MiB or more also begins with 0xFE: its packet is never whole.
        if first != 0xFE || !is_whole || (!agreed.no_eof && payload.len() >= 9) {
            return Ok(Event::Row);
        }
        let status = eof_or_ok(payload, agreed)?;
        self.status(Some(status))
    }

    /// ```text
    /// 0, statement u32, columns u16, parameters u16, 0, warnings u16
    /// ```
    fn description(&mut self, first: u8, payload: &[u8], agreed: Agreed) -> Result<Event> {
        let mut reader = Reader(payload);
        let mut counts = || Some((reader.u8()?, reader.u32()?, reader.u16()?, reader.u16()?));
        let (_, statement, columns, parameters) = counts().filter(|_| first == 0).ok_or("no prepared statement")?;
        self.statement = (statement, usize::from(parameters));
        let end = u64::from(!agreed.no_eof);
        // Where EOF is used it counts as one definition more.
        let count = |definitions: u16| u64::from(definitions) + if definitions > 0 { end } else { 0 };
        self.prepared(count(parameters), count(columns))
    }

    fn described(&mut self, payload: &[u8], parameters: u64, columns: u64, agreed: Agreed) -> Result<Event> {
        let is_end = payload[0] == 0xFE && payload.len() < 9;
        if parameters == 0 && !is_end {
            self.define(payload, agreed)?;
        }
        let ends = !agreed.no_eof && if parameters > 0 { parameters == 1 } else { columns == 1 };
        if is_end != ends {
            return Err("definitions that do not end after their number");
        }
        match parameters {
            0 => self.prepared(0, columns - 1),
            _ => self.prepared(parameters - 1, columns),
        }
    }

    fn prepared(&mut self, parameters: u64, columns: u64) -> Result<Event> {
        self.stage = Stage::Prepared { parameters, columns };
        if parameters + columns > 0 {
            return Ok(Event::Part);
        }
        let (statement, parameters) = self.statement;
        let prepared = Some(Prepared { statement, parameters, columns: std::mem::take(&mut self.columns) });
        Ok(Event::Ended(Ending { status: None, is_error: false, prepared }))
    }
}

fn ended(status: Option<u16>, is_error: bool) -> Event {
    Event::Ended(Ending { status, is_error, prepared: None })
}

/// What begins with 0xFE and ends rows.
fn eof_or_ok(payload: &[u8], agreed: Agreed) -> Result<u16> {
    // An OK packet has at least seven bytes, an EOF packet five, and old commands are answered by EOF in any case.
    let status = if agreed.no_eof && payload.len() >= 7 { ok_status(payload) } else { eof_status(payload) };
    status.ok_or("an end of rows that is cut short")
}

/// The state that a status says.
pub(crate) fn state(status: u16) -> State {
    let transaction = if status & IN_TRANSACTION != 0 { Transaction::Open } else { Transaction::Closed };
    State { transaction, autocommit: status & AUTOCOMMIT != 0, flags: status }
}
