//! Statements that change tables without saying rows: definitions, TRUNCATE, LOAD DATA, COPY, HANDLER.

use crate::lex::Kind;
use crate::plan::{Effect, Plan, PlannedChange, Session, Storable};
use crate::words::{Words, stored_only, unquoted};
use crate::{CATALOG, Schema, Table};

/// Words after which a definition changes more than the table that it names.
const FAR: [&[u8]; 7] = [b"CASCADE", b"RENAME", b"EXCHANGE", b"SELECT", b"SCHEMA", b"INHERIT", b"ATTACH"];

/// Plans a change of a whole table, or gives nothing if it is not one.
pub(crate) fn change(words: Words<'_>) -> Option<Plan> {
    let mysql = words.context.dialect.is_mysql();
    // Some of what is done concurrently takes effect at once, whether or not a transaction is open.
    if words.context.schema.definitions_fire || words.has(b"CONCURRENTLY") {
        return match words.word(0) {
            b"COPY" => copy(words),
            _ => None,
        };
    }
    match words.word(0) {
        b"CREATE" => create(words),
        b"ALTER" | b"DROP" if words.word(1) == b"TABLE" && !far(words) => {
            let mut plan = tables(words, 2)?;
            plan.writes.push((CATALOG.to_vec(), PlannedChange::Unknown));
            Some(plan.defines(words.context.dialect))
        }
        b"DROP" if mysql && words.word(1) == b"INDEX" => on(words),
        b"TRUNCATE" if !far(words) => {
            let plan = tables(words, if words.word(1) == b"TABLE" { 2 } else { 1 })?;
            let table = |table: &Vec<u8>| words.context.schema.tables.get(table);
            // One of PostgreSQL's may fire.
            let fires = plan.writes.iter().any(|(name, _)| table(name).is_some_and(|table| !table.triggers.is_empty()));
            (!fires || mysql).then(|| plan.defines(words.context.dialect))
        }
        b"LOAD" if mysql => {
            let into = words.pieces.windows(2).position(|two| two[0].upper == b"INTO" && two[1].upper == b"TABLE")?;
            filled(words, into + 2)
        }
        b"COPY" => copy(words),
        b"HANDLER" if mysql => Some(stored_only("HANDLER")),
        _ => None,
    }
}

fn copy(words: Words<'_>) -> Option<Plan> {
    if !words.context.dialect.is_postgres() || words.word(1) == b"(" {
        return None;
    }
    let (table, next) = name(words, 1)?;
    match words.pieces[next..].iter().find(|piece| matches!(piece.upper.as_slice(), b"FROM" | b"TO")) {
        Some(piece) if piece.upper == b"FROM" => filled(words, 1),
        Some(_) if !words.has(b"PROGRAM") => {
            let mut plan = stored_only("COPY");
            plan.read_whole(&table);
            Some(plan)
        }
        _ => None,
    }
}

fn far(words: Words<'_>) -> bool {
    FAR.iter().any(|word| words.has(word))
}

/// Rows come from elsewhere. What triggers do with them is not followed.
fn filled(words: Words<'_>, at: usize) -> Option<Plan> {
    let (table, _) = name(words, at)?;
    let known = words.context.schema.tables.get(&table)?;
    let effect = if known.immediate { Effect::AtOnce } else { Effect::WithTransaction };
    let mut plan = Plan { effect, storable: Storable::No("a write"), ..Plan::nothing() };
    plan.writes.push((table, PlannedChange::Unknown));
    (known.triggers.is_empty() && known.cascades.is_empty()).then_some(plan)
}

fn create(words: Words<'_>) -> Option<Plan> {
    let temporary = matches!(words.word(1), b"TEMPORARY" | b"TEMP");
    let at = if temporary { 2 } else { 1 };
    match words.word(at) {
        b"TABLE" if !far(words) && !words.has(b"AS") && !words.has(b"OF") && !words.has(b"PARTITION") => {
            let mut plan = Plan::nothing();
            plan.writes.push((CATALOG.to_vec(), PlannedChange::Unknown));
            // The table may stand already, and a foreign key makes others' deletes reach it.
            let referenced = words.has(b"REFERENCES");
            (!referenced || words.has(b"IF")).then_some(())?;
            if let Some((table, _)) = name(words, at + 1) {
                plan.writes.push((table, PlannedChange::Unknown));
            }
            if words.context.dialect.is_postgres() {
                // One of this name in another schema may not be found any more by it.
                let parts = identifiers(words, at + 1)?.0;
                let ends = [b"\0", parts.last()?.as_slice()].concat();
                let hidden = words.context.schema.tables.iter().filter(|(name, _)| name.ends_with(&ends));
                let root = |(name, table): (&Vec<u8>, &Table)| table.root.clone().unwrap_or_else(|| name.clone());
                plan.writes.extend(hidden.map(root).map(|name| (name, PlannedChange::Unknown)));
            }
            if temporary {
                if words.context.dialect.is_postgres() {
                    // It hides others of its name.
                    plan.session.push(Session::Unknown);
                }
                plan.writes_with(Effect::WithTransaction);
                return Some(plan);
            }
            Some(plan.defines(words.context.dialect))
        }
        b"INDEX" | b"UNIQUE" | b"FULLTEXT" | b"SPATIAL" if !temporary && words.has(b"INDEX") => on(words),
        _ => None,
    }
}

/// `... INDEX ... ON t`
fn on(words: Words<'_>) -> Option<Plan> {
    let on = words.pieces.iter().position(|piece| piece.upper == b"ON")?;
    let (table, _) = name(words, on + 1)?;
    let mut plan = Plan::nothing();
    plan.writes.push((CATALOG.to_vec(), PlannedChange::Unknown));
    plan.writes.push((table, PlannedChange::Unknown));
    Some(plan.defines(words.context.dialect))
}

/// The tables that a list names; nothing if one of them is not known.
fn tables(words: Words<'_>, at: usize) -> Option<Plan> {
    let mut plan = Plan::nothing();
    let mut at = at;
    loop {
        let (table, next) = name(words, at)?;
        plan.writes.push((table, PlannedChange::Unknown));
        if words.word(next) != b"," || words.word(0) == b"ALTER" {
            return Some(plan);
        }
        at = next + 1;
    }
}

/// The parts of a name, and what follows it.
fn identifiers(words: Words<'_>, at: usize) -> Option<(Vec<Vec<u8>>, usize)> {
    const BEFORE: [&[u8]; 5] = [b"IF", b"NOT", b"EXISTS", b"ONLY", b"IGNORE"];
    let mut at = at;
    while BEFORE.contains(&words.word(at)) {
        at += 1;
    }
    let (context, mut parts) = (words.context, Vec::new());
    loop {
        let piece = words.pieces.get(at).filter(|piece| matches!(piece.kind, Kind::Word | Kind::Quoted))?;
        let mut part = unquoted(piece);
        if context.schema.folds_tables || context.dialect.is_postgres() && piece.kind == Kind::Word {
            part.make_ascii_lowercase();
        }
        parts.push(part);
        at += 1;
        if words.word(at) != b"." {
            break;
        }
        at += 1;
    }
    Some((parts, at))
}

/// A table that is known, and what follows its name.
fn name(words: Words<'_>, at: usize) -> Option<(Vec<u8>, usize)> {
    let (context, (parts, at)) = (words.context, identifiers(words, at)?);
    let names: Vec<Vec<u8>> = match parts.as_slice() {
        [table] => context.schema.search.iter().map(|database| Schema::name(database, table)).collect(),
        [database, table] => vec![Schema::name(database, table)],
        _ => return None,
    };
    let found = names.into_iter().find_map(|name| {
        let table = context.schema.tables.get(&name)?;
        Some(table.root.clone().unwrap_or(name))
    })?;
    Some((found, at))
}
