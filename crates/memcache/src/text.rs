//! One line of the text protocol. Answers to malformed ones are memcached's own, byte for byte.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::base64;
use crate::limits::{KEY_BYTES, Limits};
use crate::meta;
use crate::number::{signed_32, unsigned, unsigned_32};
use crate::request::{
    Arithmetic, Direction, Exptime, Keys, Mode, Operation, Read, Rejection, Remove, Request, Statistics, Store,
};

pub(crate) const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
const UNKNOWN: &str = "ERROR";
/// More words than any command has, those that name many keys aside.
const MAX_WORDS: usize = 23;

/// What a line is.
pub(crate) enum Line<'a> {
    Request(Request<'a>),
    /// A value of that many bytes follows.
    Store(Request<'a>, usize),
    /// That many bytes follow, which nobody reads.
    Rejected(Rejection, usize),
    /// As `Rejected`, but the request has an effect.
    Refused(Request<'a>, usize),
    /// Another protocol.
    Close,
}

pub(crate) type Words<'a> = SmallVec<[&'a [u8]; MAX_WORDS]>;

pub(crate) fn reject<'a>(line: &'static str) -> Line<'a> {
    Line::Rejected(Rejection { line, noreply: false }, 0)
}

pub(crate) fn is_key(word: &[u8]) -> bool {
    word.len() <= KEY_BYTES && word.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// Bytes of the value that this word announces, with the end of its line; 0 if it announces none.
pub(crate) fn announced(length: &[u8]) -> usize {
    match signed_32(length) {
        Some(length @ 0..) if length <= i32::MAX - 2 => length as usize + 2,
        _ => 0,
    }
}

pub(crate) fn line<'a>(line: &'a [u8], limits: &Limits) -> Line<'a> {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let Some(name) = words.next() else { return reject(UNKNOWN) };
    if let b"get" | b"gets" | b"gat" | b"gats" = name {
        return get(name, line);
    }
    let words: Words<'a> = std::iter::once(name).chain(words).take(MAX_WORDS).collect();
    match name {
        b"mg" | b"ms" | b"md" | b"ma" => meta::line(&words, limits),
        b"mn" => Line::Request(Request::Noop),
        b"me" => debug(&words),
        b"set" => store(Mode::Set, &words, limits),
        b"add" => store(Mode::Add, &words, limits),
        b"replace" => store(Mode::Replace, &words, limits),
        b"append" => store(Mode::Append, &words, limits),
        b"prepend" => store(Mode::Prepend, &words, limits),
        b"cas" => store(Mode::Cas, &words, limits),
        b"delete" => delete(&words),
        b"incr" => arithmetic(Direction::Up, &words),
        b"decr" => arithmetic(Direction::Down, &words),
        b"touch" => touch(&words),
        b"flush_all" => flush(&words),
        b"verbosity" => {
            let build = |level, noreply| Request::Verbosity { level, noreply };
            setting(&words, BAD_FORMAT, build)
        }
        b"cache_memlimit" => {
            let build = |mebibytes, noreply| Request::MemoryLimit { mebibytes, noreply };
            setting(&words, UNKNOWN, build)
        }
        b"stats" => statistics(&words),
        b"pool_scheme" if words.len() == 2 => Line::Request(Request::Scheme(words[1])),
        b"version" => Line::Request(Request::Version),
        b"quit" => Line::Request(Request::Quit),
        _ => unknown(name, &words),
    }
}

/// A browser that was led to this port ends here: what follows its first line are headers, not commands.
fn unknown<'a>(name: &[u8], words: &Words<'a>) -> Line<'a> {
    let is_like_ours = matches!(name[0], b'm' | b'g' | b's' | b'a' | b'c' | b'i' | b'd' | b't') || name.len() < 2;
    let is_http = words.last().is_some_and(|last| last.starts_with(b"HTTP/"));
    if is_http && !is_like_ours { Line::Close } else { reject(UNKNOWN) }
}

fn get<'a>(name: &[u8], line: &'a [u8]) -> Line<'a> {
    let mut rest = after_word(line);
    let mut read = Read::default();
    if name.starts_with(b"gat") {
        let word = first_word(rest);
        if word.is_empty() {
            return reject(UNKNOWN);
        }
        let Some(exptime) = signed_32(word) else { return reject("CLIENT_ERROR invalid exptime argument") };
        read.touch = Some(Exptime(exptime));
        rest = after_word(rest);
    } else if first_word(rest).is_empty() {
        return reject(UNKNOWN);
    }
    let keys = Keys(rest);
    if !keys.iter().all(is_key) {
        return reject(BAD_FORMAT);
    }
    Line::Request(Request::Get { keys, read, with_cas: name.ends_with(b"s") })
}

fn trimmed(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|&byte| byte != b' ').unwrap_or(line.len());
    &line[start..]
}

fn first_word(line: &[u8]) -> &[u8] {
    let line = trimmed(line);
    &line[..line.iter().position(|&byte| byte == b' ').unwrap_or(line.len())]
}

fn after_word(line: &[u8]) -> &[u8] {
    let line = trimmed(line);
    &line[line.iter().position(|&byte| byte == b' ').unwrap_or(line.len())..]
}

/// As memcached has it: the last word, whichever it is.
fn is_noreply(words: &Words<'_>) -> bool {
    words.last().is_some_and(|last| *last == b"noreply")
}

fn store<'a>(mode: Mode, words: &Words<'a>, limits: &Limits) -> Line<'a> {
    let fixed = if mode == Mode::Cas { 6 } else { 5 };
    if words.len() != fixed && words.len() != fixed + 1 {
        return reject(UNKNOWN);
    }
    let noreply = is_noreply(words);
    let follows = announced(words[4]);
    let refused = Line::Rejected(Rejection { line: BAD_FORMAT, noreply }, follows);
    let (Some(flags), Some(exptime)) = (unsigned_32(words[2]), signed_32(words[3])) else { return refused };
    let compare = match mode {
        Mode::Cas => match unsigned(words[5]) {
            Some(cas) => Some(cas),
            None => return refused,
        },
        _ => None,
    };
    if !is_key(words[1]) || follows == 0 {
        return refused;
    }
    let key = words[1];
    if follows - 2 > limits.value_bytes {
        if mode == Mode::Set {
            return Line::Refused(Request::Classic { key, operation: Operation::TooLarge, noreply }, follows);
        }
        return Line::Rejected(Rejection { line: TOO_LARGE, noreply }, follows);
    }
    let store = Store {
        mode,
        flags,
        exptime: Exptime(exptime),
        value: &[],
        compare,
        is_stale_allowed: false,
        new_cas: None,
        vivify: None,
    };
    Line::Store(Request::Classic { key, operation: Operation::Store(store), noreply }, follows - 2)
}

pub(crate) const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";

fn delete<'a>(words: &Words<'a>) -> Line<'a> {
    if !(2..=4).contains(&words.len()) {
        return reject(UNKNOWN);
    }
    let noreply = words.len() > 2 && is_noreply(words);
    // Old clients send a time, which was once possible: 0 alone is taken.
    let is_valid = match words.len() {
        2 => true,
        3 => words[2] == b"0" || noreply,
        _ => words[2] == b"0" && noreply,
    };
    if !is_valid {
        let line = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
        return Line::Rejected(Rejection { line, noreply }, 0);
    }
    one_key(words[1], Operation::Remove(Remove::default()), noreply)
}

fn one_key<'a>(key: &'a [u8], operation: Operation<'a>, noreply: bool) -> Line<'a> {
    if !is_key(key) {
        return Line::Rejected(Rejection { line: BAD_FORMAT, noreply }, 0);
    }
    Line::Request(Request::Classic { key, operation, noreply })
}

fn arithmetic<'a>(direction: Direction, words: &Words<'a>) -> Line<'a> {
    if words.len() != 3 && words.len() != 4 {
        return reject(UNKNOWN);
    }
    let noreply = is_noreply(words);
    let Some(delta) = unsigned(words[2]) else {
        let line = if is_key(words[1]) { "CLIENT_ERROR invalid numeric delta argument" } else { BAD_FORMAT };
        return Line::Rejected(Rejection { line, noreply }, 0);
    };
    let arithmetic = Arithmetic { direction, delta, compare: 0, vivify: None, initial: 0, touch: None, new_cas: None };
    one_key(words[1], Operation::Arithmetic(arithmetic), noreply)
}

fn touch<'a>(words: &Words<'a>) -> Line<'a> {
    if words.len() != 3 && words.len() != 4 {
        return reject(UNKNOWN);
    }
    let noreply = is_noreply(words);
    let Some(exptime) = signed_32(words[2]) else {
        let line = if is_key(words[1]) { "CLIENT_ERROR invalid exptime argument" } else { BAD_FORMAT };
        return Line::Rejected(Rejection { line, noreply }, 0);
    };
    one_key(words[1], Operation::Touch(Exptime(exptime)), noreply)
}

fn flush<'a>(words: &Words<'a>) -> Line<'a> {
    if words.len() > 3 {
        return reject(UNKNOWN);
    }
    let noreply = is_noreply(words);
    let mut delay = 0;
    if words.len() != if noreply { 2 } else { 1 } {
        let Some(exptime) = signed_32(words[1]) else {
            return Line::Rejected(Rejection { line: "CLIENT_ERROR invalid exptime argument", noreply }, 0);
        };
        delay = exptime;
    }
    Line::Request(Request::FlushAll { delay: Exptime(delay), noreply })
}

fn setting<'a>(words: &Words<'a>, bad: &'static str, build: impl Fn(u32, bool) -> Request<'a>) -> Line<'a> {
    if words.len() != 2 && words.len() != 3 {
        return reject(UNKNOWN);
    }
    let noreply = is_noreply(words);
    match unsigned_32(words[1]) {
        Some(number) => Line::Request(build(number, noreply)),
        None => Line::Rejected(Rejection { line: bad, noreply }, 0),
    }
}

fn statistics<'a>(words: &Words<'a>) -> Line<'a> {
    let statistics = match (words.get(1).copied(), words.get(2).copied()) {
        (None, _) => Statistics::General,
        (Some(b"reset"), _) => Statistics::Reset,
        (Some(b"settings"), _) => Statistics::Settings,
        (Some(b"items"), _) => Statistics::Items,
        (Some(b"detail"), Some(b"on")) => Statistics::Detail(true),
        (Some(b"detail"), Some(b"off")) => Statistics::Detail(false),
        (Some(b"detail"), Some(b"dump")) => Statistics::DetailDump,
        (Some(b"detail"), _) => return reject("CLIENT_ERROR usage: stats detail on|off|dump"),
        (Some(name), _) => Statistics::Named(name),
    };
    Line::Request(Request::Stats(statistics))
}

fn debug<'a>(words: &Words<'a>) -> Line<'a> {
    let Some(&key) = words.get(1).filter(|key| is_key(key)) else { return reject(BAD_FORMAT) };
    let is_base64 = words.get(2).is_some_and(|flag| *flag == b"b");
    let key = match is_base64 {
        false => Cow::Borrowed(key),
        true => match base64::decode(key) {
            Some(key) => Cow::Owned(key),
            None => return reject(BAD_FORMAT),
        },
    };
    Line::Request(Request::Debug { key, is_base64 })
}
