//! What a statement changes in its session: SET, PRAGMA.

use crate::functions;
use crate::lex::Kind;
use crate::plan::{Plan, Session, Step, Storable};
use crate::words::{Piece, Words, catalog, session, stored_only, unquoted};

/// Pragmas of SQLite that show the catalog.
const CATALOG_PRAGMAS: [&[u8]; 8] = [
    b"TABLE_INFO",
    b"TABLE_XINFO",
    b"TABLE_LIST",
    b"INDEX_LIST",
    b"INDEX_INFO",
    b"INDEX_XINFO",
    b"FOREIGN_KEY_LIST",
    b"COLLATION_LIST",
];

/// Pragmas of SQLite that change the session alone, or nothing that a statement can show.
const SESSION_PRAGMAS: [&[u8]; 14] = [
    b"FOREIGN_KEYS",
    b"JOURNAL_MODE",
    b"SYNCHRONOUS",
    b"CACHE_SIZE",
    b"BUSY_TIMEOUT",
    b"TEMP_STORE",
    b"MMAP_SIZE",
    b"RECURSIVE_TRIGGERS",
    b"DEFER_FOREIGN_KEYS",
    b"WAL_AUTOCHECKPOINT",
    b"WAL_CHECKPOINT",
    b"OPTIMIZE",
    b"LOCKING_MODE",
    b"QUERY_ONLY",
];

/// Plans SET.
pub(crate) fn set(words: Words<'_>) -> Plan {
    if words.context.dialect.is_mysql() { mysql(words) } else { postgres(words) }
}

fn postgres(words: Words<'_>) -> Plan {
    if !words.context.dialect.is_postgres() {
        return Plan::everything("SET");
    }
    let at = if matches!(words.word(1), b"SESSION" | b"LOCAL") { 2 } else { 1 };
    match words.word(at) {
        b"ROLE" | b"AUTHORIZATION" => session(Session::Unknown),
        b"CHARACTERISTICS" => variable(b"transaction", rest(words, at + 1)),
        // It shows what was before it.
        b"TRANSACTION" if words.has(b"SNAPSHOT") => Plan::everything("SET TRANSACTION SNAPSHOT"),
        b"TRANSACTION" | b"CONSTRAINTS" => variable(b"transaction", rest(words, at + 1)),
        b"TIME" if words.word(at + 1) == b"ZONE" => variable(b"timezone", rest(words, at + 2)),
        b"NAMES" => session(Session::Charset(rest(words, at + 1))),
        _ => {
            let Some(to) = words.pieces.iter().position(|piece| matches!(piece.upper.as_slice(), b"=" | b"TO")) else {
                return Plan::everything("SET");
            };
            let name: Vec<u8> = words.pieces[at.min(to)..to].iter().flat_map(unquoted).collect();
            changed(&name.to_ascii_lowercase(), rest(words, to + 1), words.word(1) == b"LOCAL")
        }
    }
}

/// A setting of PostgreSQL. Some change what statements do, in ways that are not followed.
fn changed(name: &[u8], value: Vec<u8>, is_local: bool) -> Plan {
    if [&b"role"[..], b"session_authorization", b"session_replication_role"].contains(&name) {
        return session(Session::Unknown);
    }
    match is_local {
        true => session(Session::Local(name.to_vec(), value)),
        false => variable(name, value),
    }
}

/// `SELECT set_config('name', 'value', is_local)`, which answers the value.
pub(crate) fn set_config(words: Words<'_>) -> Plan {
    let plain = |piece: &Piece<'_>| {
        piece.kind == Kind::Text && !unquoted(piece).iter().any(|byte| matches!(byte, b'\'' | b'\\'))
    };
    match words.pieces {
        [_, _, _, name, _, value, _, local, end]
            if plain(name)
                && plain(value)
                && end.bytes == b")"
                && matches!(local.upper.as_slice(), b"TRUE" | b"FALSE") =>
        {
            changed(&unquoted(name).to_ascii_lowercase(), unquoted(value), local.upper == b"TRUE")
        }
        _ => Plan::everything("set_config"),
    }
}

/// RESET, DISCARD.
pub(crate) fn reset(words: Words<'_>) -> Plan {
    match (words.word(0), words.word(1)) {
        (b"DISCARD", b"ALL") => session(Session::Reset),
        (b"DISCARD", b"PLANS" | b"SEQUENCES") => Plan::nothing(),
        (b"DISCARD", _) | (b"RESET", b"ROLE" | b"SESSION") => session(Session::Unknown),
        (_, b"TIME") => variable(b"timezone", b"default".to_vec()),
        (_, name) => changed(&name.to_ascii_lowercase(), b"default".to_vec(), false),
    }
}

fn variable(name: &[u8], value: Vec<u8>) -> Plan {
    session(Session::Variable(name.to_ascii_lowercase(), value))
}

/// The statement from a piece on, as it is written.
fn rest(words: Words<'_>, at: usize) -> Vec<u8> {
    words.pieces.get(at).map_or(Vec::new(), |piece| words.context.sql[piece.start..].to_vec())
}

fn mysql(words: Words<'_>) -> Plan {
    match words.word(1) {
        b"NAMES" | b"CHARSET" => {
            return session(Session::Charset(words.pieces.get(2).map(unquoted).unwrap_or_default()));
        }
        b"CHARACTER" if words.word(2) == b"SET" => {
            return session(Session::Charset(words.pieces.get(3).map(unquoted).unwrap_or_default()));
        }
        b"ROLE" => return session(Session::Unknown),
        b"TRANSACTION" => return variable(b"transaction", rest(words, 2)),
        b"SESSION" | b"LOCAL" if words.word(2) == b"TRANSACTION" => return variable(b"transaction", rest(words, 3)),
        b"STATEMENT" | b"PASSWORD" | b"DEFAULT" | b"RESOURCE" => {
            return Plan::everything("SET of more than the session");
        }
        _ => {}
    }
    let mut plan = Plan::nothing();
    for part in parts(&words.pieces[1..]) {
        let assigned = assignment(words, part);
        plan.session.extend(assigned.session);
        plan.step = plan.step.max(assigned.step);
        plan.store_only(assigned.storable);
        plan.whole.extend(assigned.whole);
        plan.reads_all = plan.reads_all.or(assigned.reads_all);
        if let Some(reason) = assigned.touches_all {
            return Plan::everything(&reason);
        }
    }
    plan
}

/// The parts of a list, cut at the commas that are in no parentheses.
fn parts<'a, 'p>(pieces: &'p [Piece<'a>]) -> Vec<&'p [Piece<'a>]> {
    let mut depth = 0_usize;
    let comma = |piece: &Piece<'_>| {
        match piece.upper.as_slice() {
            b"(" => depth += 1,
            b")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && piece.upper == b","
    };
    pieces.split(comma).collect()
}

/// `[SESSION | @@ | @@session.] name = value` or `@name := value`.
fn assignment(words: Words<'_>, part: &[Piece<'_>]) -> Plan {
    let Some(equals) = part.iter().position(|piece| piece.upper == b"=") else { return Plan::everything("SET") };
    let colon = usize::from(equals > 0 && part[equals - 1].upper == b":");
    let (target, value) = (&part[..equals - colon], &part[equals + 1..]);
    let names: Vec<&Piece<'_>> = target.iter().filter(|piece| !matches!(piece.bytes, b"@" | b".")).collect();
    let own = |piece: &Piece<'_>| matches!(piece.upper.as_slice(), b"SESSION" | b"LOCAL");
    let name = match names.as_slice() {
        [name] => unquoted(name).to_ascii_lowercase(),
        [scope, name] if own(scope) => unquoted(name).to_ascii_lowercase(),
        _ => return Plan::everything("SET of more than the session"),
    };
    let (Some(first), Some(last)) = (value.first(), value.last()) else { return Plan::everything("SET") };
    let text = words.context.sql[first.start..last.start + last.bytes.len()].to_vec();
    let mut plan = match value {
        [_] => Plan::nothing(),
        _ => expression(words, &text),
    };
    let system = !matches!(target, [at, name, ..] if at.bytes == b"@" && name.bytes != b"@");
    if system && name == b"autocommit" {
        let off = matches!(value, [one] if [&b"0"[..], b"OFF", b"FALSE"].contains(&one.bytes.to_ascii_uppercase().as_slice()));
        plan.step = plan.step.max(if off { Step::None } else { Step::Commit });
    }
    let name = if system { name } else { [b"@", name.as_slice()].concat() };
    plan.session.push(Session::Variable(name, text));
    plan
}

/// What a value reads, if it is more than a literal.
fn expression(words: Words<'_>, text: &[u8]) -> Plan {
    let context = crate::words::Context { sql: text, ..words.context };
    match crate::words::pieces(context.dialect, text) {
        Ok(pieces) => Words { context, pieces: &pieces }.reparsed(0, b"select "),
        Err(reason) => Plan::everything(reason),
    }
}

/// `SHOW VARIABLES LIKE 'name'`.
pub(crate) fn show(words: Words<'_>) -> Plan {
    let pattern = words.pieces.last().filter(|piece| piece.kind == Kind::Text).map(unquoted);
    match pattern {
        Some(name) if functions::is_setting(&name) => Plan { storable: Storable::Setting, ..Plan::nothing() },
        _ => stored_only("the variables of the server"),
    }
}

/// Plans PRAGMA.
pub(crate) fn pragma(words: Words<'_>) -> Plan {
    let at = if words.word(2) == b"." { 3 } else { 1 };
    let name = words.word(at);
    if CATALOG_PRAGMAS.contains(&name) {
        catalog()
    } else if SESSION_PRAGMAS.contains(&name) {
        let mut plan = variable(name, rest(words, at + 1));
        plan.store_only(Storable::Setting);
        plan
    } else {
        Plan::everything("PRAGMA")
    }
}
