//! The law against SQLite itself: random schemas, random texts of reads and writes. A read, a write and the read again;
//! an answer that changed without its names meeting is a failure.

mod model;
mod texts;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};
use verbena_statements::{Analyser, Dialect, Literal, Names, Product, Rules};

use model::Model;
use texts::Texts;

/// Pairs of one schema.
const PAIRS_A_SCHEMA: u64 = 250;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        // xorshift64*: a stream that never changes.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound as u64) as usize
    }

    pub fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    pub fn of<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }
}

/// A value of an answer, or of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cell {
    Null,
    Number(String),
    Text(String),
    Blob(Vec<u8>),
}

impl Cell {
    fn literal(&self) -> Option<Literal<'_>> {
        match self {
            Cell::Null => None,
            Cell::Number(digits) => Some(Literal::Number(digits.as_bytes())),
            Cell::Text(text) => Some(Literal::Text(text.as_bytes())),
            Cell::Blob(bytes) => Some(Literal::Text(bytes)),
        }
    }
}

impl ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Owned(match self {
            Cell::Null => Value::Null,
            Cell::Number(digits) => {
                digits.parse().map_or_else(|_| Value::Real(digits.parse().expect("a number")), Value::Integer)
            }
            Cell::Text(text) => Value::Text(text.clone()),
            Cell::Blob(bytes) => Value::Blob(bytes.clone()),
        }))
    }
}

/// A statement and its parameters.
#[derive(Clone, Debug)]
pub struct Text {
    pub sql: String,
    pub parameters: Vec<Cell>,
}

type Rows = Vec<Vec<Cell>>;

fn answer(database: &Connection, text: &Text) -> rusqlite::Result<Rows> {
    let mut statement = database.prepare(&text.sql)?;
    let width = statement.column_count();
    let mut rows = statement.query(params_from_iter(&text.parameters))?;
    let mut answer = Vec::new();
    while let Some(row) = rows.next()? {
        let cell = |at| {
            Ok(match row.get_ref(at)? {
                ValueRef::Null => Cell::Null,
                ValueRef::Integer(number) => Cell::Number(number.to_string()),
                ValueRef::Real(number) => Cell::Number(format!("{number:?}")),
                ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
                ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
            })
        };
        answer.push((0..width).map(cell).collect::<rusqlite::Result<_>>()?);
    }
    Ok(answer)
}

fn literals(text: &Text) -> Vec<Option<Literal<'_>>> {
    text.parameters.iter().map(Cell::literal).collect()
}

/// The names of a read whose answer is known.
fn depends(analyser: &mut Analyser, text: &Text, answer: &Rows) -> Names {
    let mut reads = analyser.analyse(&Dialect::new(Product::Sqlite), text.sql.as_bytes(), &literals(text)).reads;
    let mut names = reads.start();
    for row in answer {
        for table in 0..reads.keys().len() {
            let key: Vec<Option<Literal<'_>>> = reads.keys()[table].iter().map(|at| row[*at].literal()).collect();
            names.extend(reads.row(table, &key));
        }
    }
    names.extend(reads.end());
    reads.bounded(names)
}

fn touches(analyser: &mut Analyser, text: &Text) -> Names {
    analyser.analyse(&Dialect::new(Product::Sqlite), text.sql.as_bytes(), &literals(text)).touches
}

fn shares_a_table(one: &Names, other: &Names) -> bool {
    match (one, other) {
        (Names::Of(ours), Names::Of(theirs)) => ours.keys().any(|table| theirs.contains_key(table)),
        _ => true,
    }
}

/// Each rule switched off.
fn switched_off() -> Vec<(&'static str, Rules)> {
    let on = Rules::default();
    vec![
        ("table", Rules { table: false, ..on }),
        ("membership", Rules { membership: false, ..on }),
        ("window", Rules { window: false, ..on }),
        ("values", Rules { values: false, ..on }),
        ("inserts", Rules { inserts: false, ..on }),
        ("updates", Rules { updates: false, ..on }),
        ("exact", Rules { exact: false, ..on }),
        ("fits", Rules { fits: false, ..on }),
        ("views", Rules { views: false, ..on }),
        ("triggers", Rules { triggers: false, ..on }),
        ("cascades", Rules { cascades: false, ..on }),
        ("collapse", Rules { collapse: false, ..on }),
    ]
}

#[derive(Default)]
struct Count {
    pairs: u64,
    refused: u64,
    rejected: u64,
    rejection: String,
    changed: u64,
    needless: u64,
    needless_by_table: u64,
    everything: u64,
    missed: Vec<String>,
    missed_without: Vec<u64>,
}

fn run(pairs: u64) -> Count {
    let off = switched_off();
    let mut count = Count { missed_without: vec![0; off.len()], ..Count::default() };
    let mut seed = 0x5EED_u64;
    while count.pairs < pairs {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut random = Random(seed | 1);
        let model = Model::random(&mut random);
        let database = Connection::open_in_memory().expect("memory");
        database.execute_batch("pragma hard_heap_limit = 100000000").expect("a pragma");
        for statement in &model.definitions {
            database.execute_batch(statement).unwrap_or_else(|error| panic!("{error}: {statement}"));
        }
        let mut analyser = Analyser::new(Product::Sqlite, model.schema());
        let mut without: Vec<Analyser> =
            off.iter().map(|(_, rules)| Analyser::new(Product::Sqlite, model.schema()).with_rules(*rules)).collect();
        for _ in 0..PAIRS_A_SCHEMA {
            let mut texts = Texts::new(&mut random, &model);
            if count.pairs.is_multiple_of(4) {
                for fill in texts.fill() {
                    attempt(&database, &fill, &mut Count::default());
                }
            }
            for table in model.tables() {
                // INSERT ... SELECT would double them for ever.
                let keep = format!("select rowid from {} limit 8", table.name);
                let trim = format!("delete from {} where rowid not in ({keep})", table.name);
                attempt(&database, &Text { sql: trim, parameters: Vec::new() }, &mut Count::default());
            }
            let read = texts.read();
            let write = texts.write(&read);
            pair(&database, &read, &write, &mut analyser, &mut without, &mut count);
        }
    }
    count
}

/// The answer, or none if SQLite rejects the statement: now and then the texts have a name that is ambiguous.
fn attempt(database: &Connection, text: &Text, count: &mut Count) -> Option<Rows> {
    use rusqlite::ErrorCode::{ConstraintViolation, TypeMismatch, Unknown};
    let error = match answer(database, text) {
        Ok(rows) => return Some(rows),
        Err(error) => error,
    };
    match error.sqlite_error_code() {
        Some(ConstraintViolation | TypeMismatch) => {
            count.refused += 1;
            Some(Rows::new())
        }
        Some(Unknown) | None => {
            count.rejected += 1;
            count.rejection = error.to_string();
            None
        }
        _ => panic!("{error}: {}", text.sql),
    }
}

fn pair(
    database: &Connection,
    read: &Text,
    write: &Text,
    analyser: &mut Analyser,
    without: &mut [Analyser],
    count: &mut Count,
) {
    let Some(before) = attempt(database, read, count) else { return };
    if attempt(database, write, count).is_none() {
        return;
    }
    let Some(after) = attempt(database, read, count) else { return };
    let (depends_on, touched) = (depends(analyser, read, &before), touches(analyser, write));
    count.pairs += 1;
    count.everything += u64::from(depends_on == Names::Everything) + u64::from(touched == Names::Everything);
    let mut sorted = (before.clone(), after);
    if !read.sql.contains(" limit ") {
        // Without LIMIT any order of the same rows is a right answer, as each LIMIT is behind a complete order.
        sorted.0.sort();
        sorted.1.sort();
    }
    let met = depends_on.meets(&touched);
    if sorted.0 == sorted.1 {
        count.needless += u64::from(met);
        count.needless_by_table += u64::from(shares_a_table(&depends_on, &touched));
        return;
    }
    count.changed += 1;
    if !met {
        count.missed.push(format!(
            "{read:?}\n  {write:?}\n  {:?}\n  {:?}\n  {depends_on:?}\n  {touched:?}",
            sorted.0, sorted.1
        ));
    }
    for (analyser, missed) in without.iter_mut().zip(&mut count.missed_without) {
        *missed += u64::from(!depends(analyser, read, &before).meets(&touches(analyser, write)));
    }
}

#[test]
fn no_answer_of_sqlite_changes_without_its_names_meeting() {
    let pairs = if std::env::var_os("VERBENA_LONG").is_some() { 1_000_000 } else { 20_000 };
    let count = run(pairs);
    println!(
        "{} pairs, {} changed, {} writes refused by SQLite, {} statements everything; needless meetings {} (by table {})",
        count.pairs, count.changed, count.refused, count.everything, count.needless, count.needless_by_table
    );
    for ((rule, _), missed) in switched_off().iter().zip(&count.missed_without) {
        println!("without {rule}: {missed} missed");
    }
    assert!(
        count.missed.is_empty(),
        "{} missed, of them\n{}",
        count.missed.len(),
        count.missed[..count.missed.len().min(5)].join("\n")
    );
    assert!(count.rejected < count.pairs / 20, "{} are no SQL, the last: {}", count.rejected, count.rejection);
    assert!(count.changed > count.pairs / 10, "only {} answers changed", count.changed);
    assert!(count.everything < count.pairs / 20, "{} statements were not understood", count.everything);
    assert!(count.needless < count.needless_by_table, "names are no better than tables");
    for ((rule, _), missed) in switched_off().iter().zip(&count.missed_without) {
        // SQLite stores what it is given, in any length.
        assert_eq!(*missed > 0, !matches!(*rule, "fits" | "collapse"), "{rule}: {missed}");
    }
}

#[test]
fn a_kept_shape_says_the_same_for_other_literals() {
    let (mut random, mut texts_seen) = (Random(0x5EED), 0);
    for _ in 0..5 {
        let model = Model::random(&mut random);
        let mut kept = Analyser::new(Product::Sqlite, model.schema());
        let mut fresh = Analyser::new(Product::Sqlite, model.schema()).keeping(0);
        for _ in 0..300 {
            let mut texts = Texts::new(&mut random, &model);
            let read = texts.read();
            for text in [texts.write(&read), read] {
                let sql = format!("/* {texts_seen} */ {}", text.sql);
                let look = |analyser: &mut Analyser| {
                    analyser.analyse(&Dialect::new(Product::Sqlite), sql.as_bytes(), &literals(&text))
                };
                assert_eq!(look(&mut kept), look(&mut fresh), "{}", text.sql);
                texts_seen += 1;
            }
        }
        assert!(kept.shapes() < 600, "no shape was seen twice");
    }
}
