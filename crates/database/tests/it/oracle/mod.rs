//! The law against real servers: random schemas with triggers, foreign keys, partitions, views and collations, the catalog as the relay reads it, and random texts. A
//! read, a write and the read again; an answer that changed without its names meeting is a failure.

mod engines;
mod schema;
mod texts;

use verbena_database::Catalog;
use verbena_statements::{Analyser, ColumnType, Literal, Names, Rules, Storable};

use engines::{Engine, Rows};
use schema::Model;
use texts::Texts;

/// Pairs of one schema.
const PAIRS_A_SCHEMA: usize = 60;

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

/// Rules that can be seen to protect something on these servers, each switched off.
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
    ]
}

#[derive(Default)]
struct Count {
    schemas: usize,
    pairs: usize,
    changed: usize,
    refused: usize,
    rejected: usize,
    rejection: String,
    /// Reads, and writes, that are everything.
    everything: [usize; 2],
    needless: usize,
    missed: Vec<String>,
    missed_without: Vec<usize>,
}

/// What analyses statements under one catalog.
struct Looking<'c> {
    catalog: &'c Catalog,
    analyser: Analyser,
}

impl Looking<'_> {
    /// The names of a read whose answer is known, and whether a page that shows it may be stored.
    fn depends(&mut self, sql: &str, answer: &Rows) -> (Names, bool) {
        let analysis = self.analyser.analyse(&self.catalog.dialect, sql.as_bytes(), &[]);
        let mut reads = analysis.reads;
        let mut names = reads.start();
        for row in answer {
            for table in 0..reads.keys().len() {
                let kinds = reads.key_kinds(table);
                let literal = |(at, kind): (&usize, &ColumnType)| {
                    let bytes = row[*at].as_deref()?;
                    Some(if *kind == ColumnType::Integer { Literal::Number(bytes) } else { Literal::Text(bytes) })
                };
                let key: Vec<Option<Literal<'_>>> = reads.keys()[table].iter().zip(&kinds).map(literal).collect();
                names.extend(reads.row(table, &key));
            }
        }
        names.extend(reads.end());
        (reads.bounded(names), analysis.storable == Storable::Yes)
    }

    fn touches(&mut self, sql: &str) -> Names {
        self.analyser.analyse(&self.catalog.dialect, sql.as_bytes(), &[]).touches
    }
}

async fn run(engine: &mut Engine, pairs: usize) -> Count {
    let off = switched_off();
    let mut count = Count { missed_without: vec![0; off.len()], ..Count::default() };
    let mut seed = 0x5EED_u64;
    while count.pairs < pairs {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut random = Random(seed | 1);
        let is_postgres = engine.is_postgres();
        let model = Model::random(&mut random, is_postgres);
        engine.clear().await;
        for definition in &model.definitions {
            engine.make(definition).await;
        }
        count.schemas += 1;
        let catalog = Catalog::read(&engine.address()).await.unwrap();
        let search = || vec![b"s".to_vec()];
        let looking = |rules| Looking { catalog: &catalog, analyser: catalog.analyser(search()).with_rules(rules) };
        let mut with = looking(Rules::default());
        let mut without: Vec<Looking<'_>> = off.iter().map(|(_, rules)| looking(*rules)).collect();
        for turn in 0..PAIRS_A_SCHEMA {
            let mut texts = Texts { random: &mut random, model: &model, is_postgres };
            if turn % 4 == 0 {
                for table in model.tables().chain(model.tables()) {
                    let fill = texts.insert(table, "INSERT");
                    // Some are refused.
                    let _ = engine.ask(&fill).await;
                    let trim = match is_postgres {
                        true => format!("DELETE FROM {0} WHERE ctid NOT IN (SELECT ctid FROM {0} LIMIT 6)", table.name),
                        false => format!("DELETE FROM {} WHERE n > 3 OR n IS NULL", table.name),
                    };
                    let _ = engine.ask(&trim).await;
                }
            }
            let read = texts.read();
            let write = texts.write(&read);
            pair(engine, &read, &write, &mut with, &mut without, &mut count, &model).await;
        }
    }
    count
}

async fn pair(
    engine: &mut Engine,
    read: &str,
    write: &str,
    with: &mut Looking<'_>,
    without: &mut [Looking<'_>],
    count: &mut Count,
    model: &Model,
) {
    let before = match engine.ask(read).await {
        Ok(rows) => rows,
        Err(error) => {
            count.rejected += 1;
            count.rejection = format!("{error}: {read}");
            return;
        }
    };
    count.refused += usize::from(engine.ask(write).await.is_err());
    let Ok(after) = engine.ask(read).await else { return };
    let ((depends_on, is_stored), touched) = (with.depends(read, &before), with.touches(write));
    count.pairs += 1;
    count.everything[0] += usize::from(depends_on == Names::Everything);
    count.everything[1] += usize::from(touched == Names::Everything);
    let mut sorted = (before.clone(), after);
    if !read.contains(" LIMIT ") {
        sorted.0.sort();
        sorted.1.sort();
    }
    let met = depends_on.meets(&touched) || !is_stored;
    if sorted.0 == sorted.1 {
        count.needless += usize::from(met);
        return;
    }
    count.changed += 1;
    if !met {
        let shown = |rows: &Rows| {
            let text = |value: &Option<Vec<u8>>| {
                value.as_ref().map_or("NULL".into(), |v| String::from_utf8_lossy(v).into_owned())
            };
            rows.iter().map(|row| row.iter().map(text).collect::<Vec<_>>().join("|")).collect::<Vec<_>>().join("; ")
        };
        count.missed.push(format!(
            "{}\n  {read}\n  {write}\n  {}\n  {}\n  {depends_on:?}\n  {touched:?}",
            model.definitions.join(";\n"),
            shown(&sorted.0),
            shown(&sorted.1)
        ));
    }
    for (looking, missed) in without.iter_mut().zip(&mut count.missed_without) {
        let (depends_on, is_stored) = looking.depends(read, &before);
        *missed += usize::from(is_stored && !depends_on.meets(&looking.touches(write)));
    }
}

fn judged(name: &str, count: &Count, is_long: bool) {
    println!(
        "{name}: {} schemas, {} pairs, {} changed, {} writes refused, everything: {} reads, {} writes; needless meetings {}",
        count.schemas,
        count.pairs,
        count.changed,
        count.refused,
        count.everything[0],
        count.everything[1],
        count.needless
    );
    for ((rule, _), missed) in switched_off().iter().zip(&count.missed_without) {
        println!("without {rule}: {missed} missed");
    }
    let some = &count.missed[..count.missed.len().min(4)];
    assert!(count.missed.is_empty(), "{} missed, of them\n{}", count.missed.len(), some.join("\n\n"));
    assert!(count.rejected < count.pairs / 2, "{} are no SQL, the last: {}", count.rejected, count.rejection);
    assert!(count.changed > count.pairs / 25, "only {} answers changed", count.changed);
    assert!(count.everything[0] < count.pairs / 5, "{:?} were not understood", count.everything);
    for ((rule, _), missed) in switched_off().iter().zip(&count.missed_without) {
        // PostgreSQL refuses what is too long.
        assert!(*missed > 0 || !is_long || *rule == "fits", "{rule} protects nothing that was seen");
    }
    assert!(count.missed_without.iter().sum::<usize>() > 0, "no rule protects anything that was seen");
}

async fn shown(name: &str, engine: Option<Engine>) {
    let Some(mut engine) = engine else { return };
    let is_long = std::env::var_os("VERBENA_LONG").is_some();
    let count = run(&mut engine, if is_long { 50_000 } else { 240 }).await;
    judged(name, &count, is_long);
}

#[tokio::test]
async fn no_answer_of_postgresql_changes_without_its_names_meeting() {
    shown("PostgreSQL", Engine::postgresql().await).await;
}

#[tokio::test]
async fn no_answer_of_mariadb_changes_without_its_names_meeting() {
    shown("MariaDB", Engine::mariadb().await).await;
}
