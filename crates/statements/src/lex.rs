//! The bytes of a statement as tokens, read as the server reads them.
//!
//! The parser takes text, literals are bytes, and comments may be executable (rule Q20). So the tokens come first: the
//! parser later sees a text without comments in which each literal is the number of its place ([`crate::shape`]).
//! Whatever this file is not sure of is refused, and what is refused is everything.

use std::borrow::Cow;

use crate::{Charset, Dialect, Product};

/// Why nothing is said about a statement.
pub(crate) type Refusal = &'static str;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Blanks, or a comment.
    Space,
    /// A keyword or an identifier without quotes.
    Word,
    /// An identifier in quotes.
    Quoted,
    /// A number in decimal digits.
    Number,
    /// A text in quotes.
    Text,
    /// A literal that has no name: hexadecimal, bits, with escapes of PostgreSQL, of another character set.
    Opaque,
    /// A place for a parameter.
    Parameter,
    /// Any other byte.
    Symbol,
    /// The end of one of several statements.
    Semicolon,
}

/// A token and where it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
}

/// Reads tokens from the front.
pub(crate) struct Lexer<'a> {
    dialect: &'a Dialect,
    bytes: &'a [u8],
    at: usize,
    /// Inside of an executable comment that the server reads.
    executed: bool,
    previous: Kind,
}

impl<'a> Lexer<'a> {
    pub fn new(dialect: &'a Dialect, bytes: &'a [u8]) -> Result<Lexer<'a>, Refusal> {
        if dialect.charset == Charset::Other {
            return Err("a character set whose second byte may be a backslash");
        }
        Ok(Lexer { dialect, bytes, at: 0, executed: false, previous: Kind::Space })
    }

    /// The next token, or nothing at the end.
    pub fn next(&mut self) -> Result<Option<Token>, Refusal> {
        let start = self.at;
        let Some(first) = self.peek(0) else {
            return if self.executed { Err("an executable comment without an end") } else { Ok(None) };
        };
        let kind = self.token(first)?;
        self.previous = kind;
        Ok(Some(Token { kind, start, end: self.at }))
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn token(&mut self, first: u8) -> Result<Kind, Refusal> {
        let next = self.peek(1);
        match first {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => {
                self.skip_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c));
                Ok(Kind::Space)
            }
            b'/' if next == Some(b'*') => self.comment(),
            b'*' if next == Some(b'/') && self.executed => {
                self.executed = false;
                self.at += 2;
                Ok(Kind::Space)
            }
            b'#' if self.dialect.is_mysql() => Ok(self.line_comment()),
            b'-' if next == Some(b'-') && self.starts_line_comment() => Ok(self.line_comment()),
            b'\'' => self.quoted(b'\'', self.dialect.backslash_escapes).map(|()| Kind::Text),
            b'"' if self.dialect.double_quotes_name() => self.quoted(b'"', false).map(|()| Kind::Quoted),
            b'"' => self.quoted(b'"', self.dialect.backslash_escapes).map(|()| Kind::Text),
            b'`' if !self.dialect.is_postgres() => self.quoted(b'`', false).map(|()| Kind::Quoted),
            b'[' if self.dialect.product == Product::Sqlite => {
                self.skip_while(|byte| byte != b']');
                self.at += 1;
                if self.at > self.bytes.len() { Err("an identifier without an end") } else { Ok(Kind::Quoted) }
            }
            b'0'..=b'9' => self.number(),
            b'.' if next.is_some_and(|byte| byte.is_ascii_digit()) => {
                if matches!(self.previous, Kind::Word | Kind::Quoted) {
                    return Err("a digit after a dot");
                }
                self.number()
            }
            b'$' if self.dialect.is_postgres() => self.dollar(),
            b'?' if !self.dialect.is_postgres() => {
                self.at += 1;
                self.skip_while(|byte| byte.is_ascii_digit());
                Ok(Kind::Parameter)
            }
            b':' | b'@' | b'$' if self.dialect.product == Product::Sqlite => {
                self.at += 1;
                self.skip_while(is_word);
                Ok(Kind::Parameter)
            }
            b'A'..=b'Z' | b'a'..=b'z' | b'_' => self.word(),
            b'$' if self.dialect.is_mysql() => self.word(),
            b';' if self.executed => Err("a semicolon in an executable comment"),
            b';' => {
                self.at += 1;
                Ok(Kind::Semicolon)
            }
            0x80.. => Err("a byte outside of ASCII and of quotes"),
            0 | b'\\' => Err("a byte that no statement has"),
            _ => {
                self.at += 1;
                Ok(Kind::Symbol)
            }
        }
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        self.at += self.bytes[self.at..].iter().take_while(|byte| wanted(**byte)).count();
    }

    /// MySQL wants a blank or the end after two dashes; the others do not.
    fn starts_line_comment(&self) -> bool {
        !self.dialect.is_mysql() || self.peek(2).is_none_or(|byte| byte <= b' ')
    }

    fn line_comment(&mut self) -> Kind {
        // PostgreSQL ends it at a carriage return too; the others do not.
        let postgres = self.dialect.is_postgres();
        self.skip_while(|byte| byte != b'\n' && !(postgres && byte == b'\r'));
        Kind::Space
    }

    fn comment(&mut self) -> Result<Kind, Refusal> {
        let rest = &self.bytes[self.at + 2..];
        if self.dialect.is_mysql() && (rest.starts_with(b"!") || rest.starts_with(b"M!")) {
            return self.executable(if rest[0] == b'!' { 1 } else { 2 });
        }
        if self.dialect.is_mysql() && rest.starts_with(b"+") && contains(rest, b"SET_VAR") {
            return Err("a hint that sets a variable");
        }
        self.at += 2;
        let mut depth = 1;
        while depth > 0 {
            match (self.peek(0), self.peek(1)) {
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.at += 2;
                }
                (Some(b'/'), Some(b'*')) if self.dialect.is_postgres() => {
                    depth += 1;
                    self.at += 2;
                }
                (Some(_), _) => self.at += 1,
                // SQLite takes the end of the statement for the end of the comment.
                (None, _) if self.dialect.product == Product::Sqlite => break,
                (None, _) => return Err("a comment without an end"),
            }
        }
        Ok(Kind::Space)
    }

    /// `/*! ... */`, `/*!50000 ... */`, `/*M!100100 ... */` (rule Q20).
    fn executable(&mut self, mark: usize) -> Result<Kind, Refusal> {
        if self.executed {
            return Err("an executable comment in another");
        }
        self.at += 2 + mark;
        let digits = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let read = match digits {
            0 => mark == 1 || self.dialect.product == Product::MariaDb,
            5 | 6 => {
                let number = self.bytes[self.at..self.at + digits].iter().fold(0, |n, d| n * 10 + u32::from(d - b'0'));
                let version =
                    self.dialect.version.ok_or("an executable comment, and the server's version is unknown")?;
                let maria = self.dialect.product == Product::MariaDb;
                // MariaDB passes over what was written for MySQL from 5.7 on.
                let foreign = maria && mark == 1 && (50_700..=99_999).contains(&number);
                (mark == 1 || maria) && number <= version && !foreign
            }
            _ => return Err("an executable comment with an odd version"),
        };
        self.at += digits;
        if read {
            self.executed = true;
            return Ok(Kind::Space);
        }
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|pair| pair == b"*/").ok_or("a comment without an end")?;
        if contains(&rest[..end], b"/*") {
            return Err("a comment in an executable comment");
        }
        self.at += end + 2;
        Ok(Kind::Space)
    }

    /// From the quote at the front to behind its end.
    fn quoted(&mut self, quote: u8, escapes: bool) -> Result<(), Refusal> {
        self.at += 1;
        loop {
            self.skip_while(|byte| byte != quote && byte != b'\\');
            match self.peek(0) {
                None => return Err("a quote without an end"),
                Some(b'\\') if quote != b'\\' => self.at += if escapes { 2 } else { 1 },
                Some(_) if self.peek(1) == Some(quote) => self.at += 2,
                Some(_) => {
                    self.at += 1;
                    return Ok(());
                }
            }
            if self.at > self.bytes.len() {
                return Err("a quote without an end");
            }
        }
    }

    fn number(&mut self) -> Result<Kind, Refusal> {
        if self.peek(0) == Some(b'0') && matches!(self.peek(1), Some(b'x' | b'X' | b'b' | b'B' | b'o' | b'O')) {
            self.at += 2;
            self.skip_while(|byte| byte.is_ascii_hexdigit());
            return if self.peek(0).is_some_and(is_word) { Err("an odd number") } else { Ok(Kind::Opaque) };
        }
        self.skip_while(|byte| byte.is_ascii_digit());
        if self.peek(0) == Some(b'.') {
            self.at += 1;
            self.skip_while(|byte| byte.is_ascii_digit());
        }
        if matches!(self.peek(0), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
            if self.peek(1 + sign).is_some_and(|byte| byte.is_ascii_digit()) {
                self.at += 1 + sign;
                self.skip_while(|byte| byte.is_ascii_digit());
            }
        }
        // MySQL has identifiers that begin with a digit, others have digits with underscores.
        if self.peek(0).is_some_and(is_word) { Err("an odd number") } else { Ok(Kind::Number) }
    }

    /// `$1`, `$$ text $$`, `$tag$ text $tag$`.
    fn dollar(&mut self) -> Result<Kind, Refusal> {
        self.at += 1;
        if self.peek(0).is_some_and(|byte| byte.is_ascii_digit()) {
            self.skip_while(|byte| byte.is_ascii_digit());
            return Ok(Kind::Parameter);
        }
        let start = self.at - 1;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if self.peek(0) != Some(b'$') {
            return Err("an odd dollar");
        }
        self.at += 1;
        let tag = &self.bytes[start..self.at];
        let end = self.bytes[self.at..].windows(tag.len()).position(|window| window == tag);
        self.at += end.ok_or("a quote without an end")? + tag.len();
        Ok(Kind::Opaque)
    }

    fn word(&mut self) -> Result<Kind, Refusal> {
        let start = self.at;
        self.skip_while(is_word);
        let word = &self.bytes[start..self.at];
        match (word, self.peek(0)) {
            (b"u" | b"U", Some(b'&')) if self.dialect.is_postgres() && matches!(self.peek(1), Some(b'\'' | b'"')) => {
                Err("a text with Unicode escapes")
            }
            ([b'x' | b'X' | b'b' | b'B' | b'n' | b'N'], Some(b'\'')) => {
                self.quoted(b'\'', self.dialect.backslash_escapes).map(|()| Kind::Opaque)
            }
            ([b'e' | b'E'], Some(b'\'')) if self.dialect.is_postgres() => {
                self.quoted(b'\'', true).map(|()| Kind::Opaque)
            }
            (_, Some(0x80..)) => Err("a byte outside of ASCII and of quotes"),
            _ => Ok(Kind::Word),
        }
    }
}

/// The bytes of a text between its quotes, as the server stores them; nothing if they are not sure.
pub(crate) fn text<'a>(dialect: &Dialect, quoted: &'a [u8]) -> Option<Cow<'a, [u8]>> {
    let (quote, inner) = match quoted {
        [quote, inner @ .., _] => (*quote, inner),
        _ => return None,
    };
    if dialect.charset != Charset::Utf8 && !inner.is_ascii() {
        return None;
    }
    let escapes = dialect.backslash_escapes;
    if !inner.iter().any(|byte| *byte == quote || escapes && *byte == b'\\') {
        return Some(Cow::Borrowed(inner));
    }
    if escapes && !dialect.is_mysql() {
        return None;
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(inner.len()), inner.iter().copied());
    while let Some(byte) = rest.next() {
        if byte == quote {
            // The other one of the two.
            rest.next();
            bytes.push(quote);
        } else if escapes && byte == b'\\' {
            match rest.next()? {
                b'0' => bytes.push(0),
                b'b' => bytes.push(8),
                b'n' => bytes.push(b'\n'),
                b'r' => bytes.push(b'\r'),
                b't' => bytes.push(b'\t'),
                b'Z' => bytes.push(26),
                wild @ (b'%' | b'_') => bytes.extend([b'\\', wild]),
                other => bytes.push(other),
            }
        } else {
            bytes.push(byte);
        }
    }
    Some(Cow::Owned(bytes))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$'
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
}
