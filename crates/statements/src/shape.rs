//! A statement without its literals.
//!
//! The *shape* is the text that the parser sees: no comment, each run of blanks one blank, and in the place of each
//! literal or parameter the number of its slot (`where a = 0 and b = '1'`). Statements that differ in literals alone have
//! one shape, so what is known of a shape holds for all of them. The text is Latin-1: a byte of a quoted identifier is
//! one character.

use std::borrow::Cow;

use crate::Dialect;
use crate::lex::{Kind, Lexer, Refusal, text};

/// The longest command that is looked at.
pub(crate) const MAX_BYTES: usize = 16 << 20;
/// How deep parentheses may be.
const MAX_DEPTH: usize = 60;
/// How many words and symbols may stand between two commas: a chain of operators is as deep as it is long.
const MAX_RUN: usize = 3_000;

/// What stands in the place of a literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot<'a> {
    /// Decimal digits, perhaps with a point or an exponent.
    Number(&'a [u8]),
    /// A text.
    Text(Cow<'a, [u8]>),
    /// The parameter with this index, from 0.
    Parameter(usize),
    /// A value of which nothing is known.
    Unknown,
}

/// One statement of a command.
#[derive(Debug, Default)]
pub(crate) struct Shape<'a> {
    /// What the parser sees.
    pub text: String,
    /// The values, by their number in the text.
    pub slots: Vec<Slot<'a>>,
    /// Where the statement stands in the command.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
}

/// Cuts a command into its statements.
pub(crate) fn shapes<'a>(dialect: &'a Dialect, sql: &'a [u8]) -> Result<Vec<Shape<'a>>, Refusal> {
    if sql.len() > MAX_BYTES {
        return Err("longer than 16 MiB");
    }
    let mut lexer = Lexer::new(dialect, sql)?;
    let (mut done, mut parameters) = (Vec::with_capacity(1), 0);
    let mut builder = Builder::new(dialect, sql, 0);
    while let Some(token) = lexer.next()? {
        if token.kind == Kind::Semicolon {
            done.extend(builder.finish(token.start));
            builder = Builder::new(dialect, sql, token.end);
        } else {
            builder.push(token.kind, token.start, token.end, &mut parameters)?;
        }
    }
    done.extend(builder.finish(sql.len()));
    Ok(done)
}

struct Builder<'a> {
    dialect: &'a Dialect,
    sql: &'a [u8],
    shape: Shape<'a>,
    /// A blank is due before the next token.
    blank: bool,
    after_text: bool,
    runs: Vec<usize>,
}

impl<'a> Builder<'a> {
    fn new(dialect: &'a Dialect, sql: &'a [u8], start: usize) -> Builder<'a> {
        let text = String::with_capacity((sql.len() - start).min(1024));
        let shape = Shape { text, slots: Vec::with_capacity(8), start, end: start };
        Builder { dialect, sql, shape, blank: false, after_text: false, runs: vec![0] }
    }

    fn finish(mut self, end: usize) -> Option<Shape<'a>> {
        self.shape.end = end;
        (!self.shape.text.is_empty()).then_some(self.shape)
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize, parameters: &mut usize) -> Result<(), Refusal> {
        let bytes = &self.sql[start..end];
        if kind == Kind::Space {
            self.blank = !self.shape.text.is_empty();
            return Ok(());
        }
        let concatenated = kind == Kind::Text && self.after_text && self.dialect.is_mysql();
        if kind == Kind::Text && self.after_text && self.dialect.is_postgres() {
            // With a line's end between them they are one, with the escapes of the first.
            return Err("a text in several pieces");
        }
        self.after_text = kind == Kind::Text || kind == Kind::Opaque && self.dialect.is_postgres();
        if concatenated {
            // MySQL makes one text of two.
            if let Some(last) = self.shape.slots.last_mut() {
                *last = Slot::Unknown;
            }
            return Ok(());
        }
        if std::mem::take(&mut self.blank) {
            self.shape.text.push(' ');
        }
        match kind {
            Kind::Word => self.copy(bytes),
            Kind::Symbol => {
                self.nest(bytes[0])?;
                self.copy(bytes);
            }
            Kind::Quoted => self.identifier(bytes),
            Kind::Number => self.slot(Slot::Number(bytes), ""),
            Kind::Text => self.slot(text(self.dialect, bytes).map_or(Slot::Unknown, Slot::Text), "'"),
            Kind::Opaque => self.slot(Slot::Unknown, "'"),
            Kind::Parameter => self.slot(parameter(bytes, parameters), "'"),
            Kind::Space | Kind::Semicolon => {}
        }
        if matches!(kind, Kind::Word | Kind::Symbol) && bytes != b"." {
            let run = self.runs.last_mut().ok_or("parentheses that do not match")?;
            *run += 1;
            if *run > MAX_RUN {
                return Err("too long between two commas");
            }
        }
        Ok(())
    }

    fn nest(&mut self, symbol: u8) -> Result<(), Refusal> {
        match symbol {
            b'(' | b'[' | b'{' if self.runs.len() > MAX_DEPTH => return Err("too deep"),
            b'(' | b'[' | b'{' => self.runs.push(0),
            b')' | b']' | b'}' => drop(self.runs.pop()),
            b',' => self.runs.last_mut().into_iter().for_each(|run| *run = 0),
            _ => {}
        }
        Ok(())
    }

    /// Words and symbols are ASCII.
    fn copy(&mut self, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(word) => self.shape.text.push_str(word),
            Err(_) => self.shape.text.extend(bytes.iter().copied().map(char::from)),
        }
    }

    /// An identifier gets the quotes that the parser knows for the dialect.
    fn identifier(&mut self, bytes: &[u8]) {
        let (open, close) = (bytes[0], bytes[bytes.len() - 1]);
        let quote = if self.dialect.is_mysql() { '`' } else { '"' };
        self.shape.text.push(quote);
        let mut rest = bytes[1..bytes.len() - 1].iter().copied();
        while let Some(byte) = rest.next() {
            if byte == close && open == close {
                rest.next();
            }
            let character = char::from(byte);
            self.shape.text.push(character);
            if character == quote {
                self.shape.text.push(quote);
            }
        }
        self.shape.text.push(quote);
    }

    fn slot(&mut self, slot: Slot<'a>, quote: &str) {
        let text = &mut self.shape.text;
        text.push_str(quote);
        push_number(text, self.shape.slots.len());
        text.push_str(quote);
        self.shape.slots.push(slot);
    }
}

/// A number in decimal digits, without the machinery of formatting: this is done for each literal of each statement.
fn push_number(text: &mut String, number: usize) {
    if number >= 10 {
        push_number(text, number / 10);
    }
    text.push(char::from(b'0' + (number % 10) as u8));
}

/// `?` is the next one, `?7` and `$7` are the seventh; a parameter with a name has no value here.
fn parameter<'a>(bytes: &[u8], count: &mut usize) -> Slot<'a> {
    if bytes == b"?" {
        *count += 1;
        return Slot::Parameter(*count - 1);
    }
    let number = std::str::from_utf8(&bytes[1..]).ok().and_then(|digits| digits.parse::<usize>().ok());
    match number.and_then(|number| number.checked_sub(1)) {
        Some(index) if matches!(bytes[0], b'?' | b'$') => Slot::Parameter(index),
        _ => Slot::Unknown,
    }
}
