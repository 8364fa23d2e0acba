//! Random reads and writes of a small table in memory: an answer that changed without its names meeting is a failure.

use verbena_statements::{Change, Equality, Names, Read, Rules, Side, Write};

const PAIRS: u32 = 200_000;
const COLUMNS: [&[u8]; 3] = [b"k", b"a", b"b"];

/// A row: the primary key `k`, and the columns `a` and `b`.
type Row = [u64; 3];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        // xorshift64*: a stream that never changes.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

struct Query {
    equality: Option<(usize, u64)>,
    less: Option<(usize, u64)>,
    order: usize,
    limit: Option<usize>,
    /// With LIMIT alone: a row that goes before the answer shifts it.
    offset: usize,
    keys_shown: bool,
}

impl Query {
    fn random(random: &mut Random) -> Query {
        let column = |random: &mut Random| random.below(3) as usize;
        Query {
            equality: (random.below(2) == 0).then(|| (column(random), random.below(4))),
            less: (random.below(3) == 0).then(|| (column(random), random.below(4))),
            order: column(random),
            limit: (random.below(2) == 0).then(|| 1 + random.below(2) as usize),
            offset: random.below(2) as usize,
            keys_shown: random.below(2) == 0,
        }
    }

    fn rows(&self, table: &[Row]) -> Vec<Row> {
        let mut rows: Vec<Row> = table
            .iter()
            .filter(|row| self.equality.is_none_or(|(column, value)| row[column] == value))
            .filter(|row| self.less.is_none_or(|(column, value)| row[column] < value))
            .copied()
            .collect();
        rows.sort_by_key(|row| (row[self.order], row[0]));
        match self.limit {
            Some(limit) => rows.into_iter().skip(self.offset).take(limit).collect(),
            None => rows,
        }
    }

    fn answer(&self, table: &[Row]) -> Vec<Vec<u64>> {
        self.rows(table).into_iter().map(|row| if self.keys_shown { row.to_vec() } else { row[1..].to_vec() }).collect()
    }

    fn names(&self, table: &[Row], rules: Rules) -> Names {
        // The key breaks ties of the order, so it decides too.
        let mut deciding = vec![self.order, 0];
        deciding.extend(self.equality.iter().chain(&self.less).map(|(column, _)| *column));
        let read = Read {
            table: b"t".to_vec(),
            equality: self.equality.map(|(column, value)| Equality {
                column: COLUMNS[column].to_vec(),
                values: vec![text(value)],
                unique: column == 0,
            }),
            deciding: deciding.into_iter().map(|column| COLUMNS[column].to_vec()).collect(),
            window: self.limit.is_some(),
            rows: self.keys_shown.then(|| self.rows(table).iter().map(|row| text(row[0])).collect()),
        };
        Names::bounded(rules, Side::Read, read.names(rules))
    }
}

fn text(value: u64) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// Changes the table, and says what the statement that does it shows of itself.
fn write(random: &mut Random, table: &mut Vec<Row>) -> Change {
    let key = random.below(4);
    // A condition on another column than the key shows no key.
    let by_key = random.below(2) == 0;
    let matches = move |row: &Row| if by_key { row[0] == key } else { row[1] == key };
    let keys = by_key.then(|| vec![text(key)]);
    match random.below(3) {
        0 => {
            let row = [key, random.below(4), random.below(4)];
            if table.iter().all(|other| other[0] != key) {
                table.push(row);
            }
            let shown = |random: &mut Random, column: usize| (random.below(3) > 0).then(|| text(row[column]));
            Change::Insert((0..3).map(|column| (COLUMNS[column].to_vec(), shown(random, column))).collect())
        }
        1 => {
            let (column, value) = (1 + random.below(2) as usize, random.below(4));
            table.iter_mut().filter(|row| matches(row)).for_each(|row| row[column] = value);
            Change::Update(vec![COLUMNS[column].to_vec()], keys)
        }
        _ => {
            table.retain(|row| !matches(row));
            Change::Delete(keys)
        }
    }
}

struct Count {
    changed: u32,
    missed: u32,
    needless: u32,
}

fn run(rules: Rules) -> Count {
    let (mut random, mut count) = (Random(0x5EED), Count { changed: 0, missed: 0, needless: 0 });
    for _ in 0..PAIRS {
        let mut table: Vec<Row> = Vec::new();
        for key in 0..4 {
            if random.below(2) == 0 {
                table.push([key, random.below(4), random.below(4)]);
            }
        }
        let query = Query::random(&mut random);
        let (names, before) = (query.names(&table, rules), query.answer(&table));
        let change = write(&mut random, &mut table);
        let write = Write { table: b"t".to_vec(), change };
        let met = names.meets(&Names::bounded(rules, Side::Write, write.names(rules)));
        let changed = before != query.answer(&table);
        count.changed += u32::from(changed);
        count.missed += u32::from(changed && !met);
        count.needless += u32::from(!changed && met);
    }
    count
}

#[test]
fn no_answer_changes_without_its_names_meeting() {
    let count = run(Rules::default());
    let table_level = PAIRS - count.changed;
    println!("{PAIRS} pairs, {} changed, needless meetings {} (tables: {table_level})", count.changed, count.needless);
    assert!(count.changed > PAIRS / 10, "only {} answers changed", count.changed);
    assert_eq!(count.missed, 0);
    assert!(count.needless < table_level, "names are no better than tables");
}

#[test]
fn each_rule_switched_off_is_found() {
    let on = Rules::default();
    let off = [
        ("membership", Rules { membership: false, ..on }),
        ("window", Rules { window: false, ..on }),
        ("values", Rules { values: false, ..on }),
        ("inserts", Rules { inserts: false, ..on }),
        ("updates", Rules { updates: false, ..on }),
    ];
    for (rule, rules) in off {
        let missed = run(rules).missed;
        println!("without {rule}: {missed} missed");
        assert!(missed > 0, "{rule} protects nothing that the oracle sees");
    }
}
