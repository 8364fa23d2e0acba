//! Answers as bytes.

use std::io::Write;

use crate::base64;
use crate::request::{Meta, MetaVerb, Operation, Shown};
use crate::semantics::{Answer, Head, Item, Seen};

/// A line and its end.
pub fn line(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One item of the answer to `get`, `gets`, `gat` or `gats`. `END` follows the last ([`line`]).
pub fn value(key: &[u8], head: &Head, bytes: &[u8], with_cas: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    number(u64::from(head.flags), b' ', out);
    number(bytes.len() as u64, b' ', out);
    if with_cas {
        number(head.cas, b' ', out);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The answer to a classic command on one key.
pub fn classic(answer: &Answer, noreply: bool, out: &mut Vec<u8>) {
    if noreply {
        return;
    }
    if let Answer::Number { number: counted, .. } = answer {
        return line(&counted.to_string(), out);
    }
    line(
        match answer {
            Answer::Stored { .. } => "STORED",
            Answer::NotStored => "NOT_STORED",
            Answer::Exists => "EXISTS",
            Answer::Deleted => "DELETED",
            Answer::Touched => "TOUCHED",
            Answer::NonNumeric => NON_NUMERIC,
            Answer::TooLarge => crate::text::TOO_LARGE,
            Answer::Hit(_) | Answer::Miss | Answer::NotFound | Answer::Number { .. } => "NOT_FOUND",
        },
        out,
    );
}

const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// The answer to `mg`, `ms`, `md` or `ma`. `bytes` is the value that was read; the other three need none.
pub fn meta(request: &Meta<'_>, answer: &Answer, bytes: &[u8], out: &mut Vec<u8>) {
    let counted;
    let (code, seen, body) = match answer {
        Answer::Hit(seen) => ("HD", Some(seen), bytes),
        Answer::Number { number, seen } => {
            if request.is_quiet && !seen.is_created {
                return;
            }
            counted = number.to_string();
            ("HD", Some(seen), counted.as_bytes())
        }
        Answer::Stored { .. } | Answer::Deleted | Answer::Touched if request.is_quiet => return,
        Answer::Stored { .. } | Answer::Deleted | Answer::Touched => ("HD", None, bytes),
        Answer::Miss if request.is_quiet => return,
        Answer::Miss => ("EN", None, bytes),
        Answer::NotStored => ("NS", None, bytes),
        Answer::Exists => ("EX", None, bytes),
        Answer::NotFound => ("NF", None, bytes),
        Answer::NonNumeric => return line(NON_NUMERIC, out),
        Answer::TooLarge => return line(crate::text::TOO_LARGE, out),
    };
    let with_value = request.with_value && seen.is_some();
    if with_value {
        out.extend_from_slice(b"VA");
        number(body.len() as u64, b' ', out);
    } else {
        out.extend_from_slice(code.as_bytes());
    }
    for shown in &request.shown {
        match shown {
            Shown::Opaque(token) => {
                out.push(b' ');
                out.extend_from_slice(token);
            }
            Shown::Key => key(&request.key, request.is_base64, out),
            _ => match (request.verb, seen) {
                (MetaVerb::Set, _) => of_stored(shown, request, answer, out),
                (MetaVerb::Get | MetaVerb::Arithmetic, Some(seen)) => of_item(shown, request.verb, seen, out),
                _ => {}
            },
        }
    }
    if let (MetaVerb::Get, Some(seen)) = (request.verb, seen) {
        for (mark, is_shown) in [(b'Z', seen.head.is_won), (b'X', seen.head.is_stale), (b'W', seen.wins)] {
            if is_shown {
                out.extend_from_slice(&[b' ', mark]);
            }
        }
    }
    out.extend_from_slice(b"\r\n");
    if with_value {
        out.extend_from_slice(body);
        out.extend_from_slice(b"\r\n");
    }
}

fn key(key: &[u8], is_base64: bool, out: &mut Vec<u8>) {
    out.extend_from_slice(b" k");
    if is_base64 {
        base64::encode(key, out);
        out.extend_from_slice(b" b");
    } else {
        out.extend_from_slice(key);
    }
}

/// A flag of `ms`: what was stored. The cas value is 0 and the size that of the request if nothing was.
fn of_stored(shown: &Shown<'_>, request: &Meta<'_>, answer: &Answer, out: &mut Vec<u8>) {
    let (cas, size) = match (answer, &request.operation) {
        (Answer::Stored { cas, size }, _) => (*cas, *size),
        (_, Operation::Store(store)) => (0, store.value.len()),
        _ => (0, 0),
    };
    match shown {
        Shown::Cas => letter(b'c', cas, out),
        Shown::Size => letter(b's', size as u64, out),
        _ => {}
    }
}

/// A flag of `mg` or `ma`.
fn of_item(shown: &Shown<'_>, verb: MetaVerb, seen: &Seen, out: &mut Vec<u8>) {
    match (shown, verb) {
        (Shown::Cas, _) => letter(b'c', seen.head.cas, out),
        (Shown::Remaining { standing, made }, _) => {
            let new = if seen.is_created { made } else { standing };
            match new.map_or(seen.head.expires, |exptime| exptime.moment(seen.now)) {
                0 => out.extend_from_slice(b" t-1"),
                expires => letter(b't', expires.saturating_sub(seen.now), out),
            }
        }
        (_, MetaVerb::Arithmetic) => {}
        (Shown::Size, _) => letter(b's', seen.size as u64, out),
        (Shown::Flags, _) => letter(b'f', u64::from(seen.head.flags), out),
        (Shown::Idle, _) => letter(b'l', seen.now.saturating_sub(seen.head.accessed), out),
        (Shown::Hit, _) => letter(b'h', u64::from(seen.head.is_fetched), out),
        (Shown::Opaque(_) | Shown::Key, _) => {}
    }
}

fn letter(letter: u8, of: u64, out: &mut Vec<u8>) {
    out.push(b' ');
    number(of, letter, out);
}

fn number(number: u64, before: u8, out: &mut Vec<u8>) {
    out.push(before);
    // Writing to memory does not fail.
    let _ = write!(out, "{number}");
}

/// The answer to `me`: `item` is `None` if there is no item, `bytes` all that it takes in memory.
pub fn debug(of: &[u8], is_base64: bool, item: Option<&Item>, bytes: usize, now: u64, out: &mut Vec<u8>) {
    let Some(Item { head, .. }) = item.filter(|item| !item.head.is_expired(now)) else { return line("EN", out) };
    out.extend_from_slice(b"ME ");
    if is_base64 {
        base64::encode(of, out);
    } else {
        out.extend_from_slice(of);
    }
    let remaining = if head.expires == 0 { "-1".to_owned() } else { (head.expires - now).to_string() };
    let idle = now.saturating_sub(head.accessed);
    let fetched = if head.is_fetched { "yes" } else { "no" };
    line(&format!(" exp={remaining} la={idle} cas={} fetch={fetched} cls=1 size={bytes}", head.cas), out);
}

/// One line of statistics. `END` follows the last ([`line`]).
pub fn statistic(name: &str, value: &str, out: &mut Vec<u8>) {
    line(&format!("STAT {name} {value}"), out);
}
