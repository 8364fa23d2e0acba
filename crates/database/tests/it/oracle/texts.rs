//! Random statements for a schema.

use super::Random;
use super::schema::{Kind, Model, Source};

pub struct Texts<'r> {
    pub random: &'r mut Random,
    pub model: &'r Model,
    pub is_postgres: bool,
}

type Named<'m> = (&'m Source, String);

impl<'r> Texts<'r> {
    fn value(&mut self, kind: Kind) -> String {
        let number = self.random.below(5);
        let odd = self.random.one_in(5);
        if self.random.one_in(14) {
            return "NULL".into();
        }
        let word = *self.random.of(&["a", "A", "b", "a ", "ab", "", "1", "tri", "f", "\u{e1}"]);
        match kind {
            Kind::Int | Kind::Small | Kind::Double | Kind::Decimal if !odd => number.to_string(),
            Kind::Int | Kind::Small | Kind::Double | Kind::Decimal => match self.random.below(10) {
                0 => format!("'{number}'"),
                1 => format!("'0{number}'"),
                2 => format!("'{number} '"),
                3 => format!("{number}.0"),
                4 => format!("-{number}"),
                5 => format!("00{number}"),
                6 => format!("{number}e0"),
                7 => format!("{number} + 0"),
                8 => format!("'{number}.0'"),
                _ => format!("'{number}a'"),
            },
            Kind::Uuid => {
                let digits = format!("A000000000000000000000000000000{number}");
                let (a, rest) = digits.split_at(8);
                match self.random.below(4) {
                    0 => format!("'{digits}'"),
                    1 => format!("'{{{a}-{}-{}-{}-{}}}'", &rest[..4], &rest[4..8], &rest[8..12], &rest[12..]),
                    2 => format!(
                        "'{}-{}-{}-{}-{}'",
                        a.to_lowercase(),
                        &rest[..4],
                        &rest[4..8],
                        &rest[8..12],
                        &rest[12..]
                    ),
                    _ => format!("'{a}-{}-{}-{}-{}'", &rest[..4], &rest[4..8], &rest[8..12], &rest[12..]),
                }
            }
            Kind::Flag if self.is_postgres => (*self.random.of(&["true", "false", "'t'", "'no'"])).into(),
            Kind::Flag => (*self.random.of(&["'a'", "'b'", "1", "'A'"])).into(),
            Kind::Day => format!("'2026-{}-0{}'", self.random.of(&["1", "01"]), 1 + number),
            _ if odd && self.is_postgres => match self.random.below(4) {
                0 => format!("E'{word}'"),
                1 => format!("$${word}$$"),
                2 => format!("'{word}'::text"),
                _ => format!("'{word}' || ''"),
            },
            _ if odd => match self.random.below(3) {
                0 => number.to_string(),
                1 => format!("'{word}' ''"),
                _ => "'abcdef'".into(),
            },
            _ => format!("'{word}'"),
        }
    }

    fn column(&mut self, from: &[Named<'_>]) -> (String, Kind) {
        let (source, alias) = self.random.of(from);
        let (column, kind) = self.random.of(&source.columns);
        (format!("{alias}.{column}"), *kind)
    }

    fn condition(&mut self, from: &[Named<'_>], depth: usize) -> String {
        let (column, kind) = self.column(from);
        match self.random.below(16) {
            0..=4 => format!("{column} = {}", self.value(kind)),
            5 => format!("{} = {column}", self.value(kind)),
            6 => format!("{column} IN ({}, {})", self.value(kind), self.value(kind)),
            7 => format!("{column} < {}", self.value(kind)),
            8 => format!("{column} IS {}NULL", *self.random.of(&["", "NOT "])),
            9 => format!("{column} BETWEEN {} AND {}", self.value(kind), self.value(kind)),
            10 => format!("{column} <> {}", self.value(kind)),
            11 if depth > 0 => {
                let (one, other) = (self.condition(from, depth - 1), self.condition(from, depth - 1));
                let or = if self.is_postgres { "OR" } else { *self.random.of(&["OR", "XOR", "||"]) };
                format!("({one} {or} {other})")
            }
            12 if depth > 0 => format!("NOT ({})", self.condition(from, depth - 1)),
            13 | 14 if depth > 0 => {
                let model = self.model;
                let inner = self.random.of(&model.sources);
                let not = *self.random.of(&["", "NOT "]);
                let more = self.condition(&[(inner, "e".to_owned())], 0);
                let (source, alias) = self.random.of(from);
                let n = format!("{alias}.{}", source.columns.iter().find(|(name, _)| name == "n").unwrap().0);
                if self.random.one_in(2) {
                    format!("{n} {not}IN (SELECT e.n FROM {} e WHERE {more})", inner.name)
                } else {
                    format!("{not}EXISTS (SELECT 1 FROM {} e WHERE e.n = {n} AND {more})", inner.name)
                }
            }
            _ => {
                let (other, _) = self.column(from);
                format!("{column} = {other}")
            }
        }
    }

    fn filter(&mut self, from: &[Named<'_>], is_write: bool) -> String {
        let mut conditions = Vec::new();
        let (source, alias) = &from[0];
        if !source.key.is_empty() && self.random.one_in(if is_write { 2 } else { 4 }) {
            for key in &source.key {
                let kind = source.columns.iter().find(|(name, _)| name == key).unwrap().1;
                conditions.push(format!("{alias}.{key} = {}", self.value(kind)));
            }
        }
        for _ in 0..*self.random.of(&[0, 0, 1, 1, 2]) {
            conditions.push(self.condition(from, 1));
        }
        if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) }
    }

    fn from(&mut self) -> (Vec<Named<'r>>, String) {
        let model = self.model;
        let one = self.random.of(&model.sources);
        if self.random.below(5) < 3 {
            let alias = if self.random.one_in(2) { one.name.clone() } else { "p".to_owned() };
            let only = if self.is_postgres && self.random.one_in(20) { "ONLY " } else { "" };
            let name =
                if one.parts.is_empty() || self.random.below(4) > 0 { &one.name } else { self.random.of(&one.parts) };
            let from = if alias == *name { format!("{only}{alias}") } else { format!("{only}{name} AS {alias}") };
            return (vec![(one, alias)], from);
        }
        let other = self.random.of(&model.sources);
        let named = vec![(one, "p".to_owned()), (other, "q".to_owned())];
        let (left, right) = (format!("{} p", one.name), format!("{} q", other.name));
        let on = match self.random.below(3) {
            0 => "p.n = q.n".to_owned(),
            1 => format!("p.s = q.s AND {}", self.condition(&named[1..], 0)),
            _ => format!("p.n = q.n AND {}", self.condition(&named[..1], 0)),
        };
        let from = match self.random.below(6) {
            0 => format!("{left}, {right}"),
            1 => format!("{left} JOIN {right} USING (n)"),
            2 | 3 => format!("{left} LEFT JOIN {right} ON {on}"),
            4 => format!("{left} RIGHT JOIN {right} ON {on}"),
            _ => format!("{left} JOIN {right} ON {on}"),
        };
        (named, from)
    }

    pub fn read(&mut self) -> String {
        let model = self.model;
        match self.random.below(12) {
            0 => {
                let all = *self.random.of(&["", "ALL "]);
                format!("{} UNION {all}{}", self.two_columns(), self.two_columns())
            }
            1 => {
                let source = self.random.of(&model.sources);
                let filter = self.filter(&[(source, source.name.clone())], false);
                format!("WITH z AS (SELECT n, s FROM {}{filter}) SELECT n, count(*) FROM z GROUP BY n", source.name)
            }
            2 => {
                let source = self.random.of(&model.sources);
                let filter = self.filter(&[(source, "p".to_owned())], false);
                let key: String = source.key.iter().map(|key| format!("p.{key}, ")).collect();
                format!(
                    "SELECT {key}p.s, d.s FROM {} p JOIN ({}) d ON d.n = p.n{filter}",
                    source.name,
                    self.two_columns()
                )
            }
            3 => {
                let (named, from) = self.from();
                let filter = self.filter(&named, false);
                let having = *self.random.of(&["", " HAVING count(*) > 1"]);
                let alias = &named[0].1;
                format!("SELECT {alias}.n, count(*), sum({alias}.n) FROM {from}{filter} GROUP BY {alias}.n{having}")
            }
            4 => {
                let (named, from) = self.from();
                let alias = named[0].1.clone();
                let what = match self.random.below(4) {
                    0 => "count(*)".to_owned(),
                    1 => format!("max({alias}.n), count({alias}.s)"),
                    2 => format!("sum({alias}.n)"),
                    _ => format!("count(DISTINCT {alias}.n)"),
                };
                format!("SELECT {what} FROM {from}{}", self.filter(&named, false))
            }
            5 => self.limited(),
            _ => self.select(),
        }
    }

    fn two_columns(&mut self) -> String {
        let model = self.model;
        let source = self.random.of(&model.sources);
        format!("SELECT n, s FROM {}{}", source.name, self.filter(&[(source, source.name.clone())], false))
    }

    fn select(&mut self) -> String {
        let (named, from) = self.from();
        let mut shown = Vec::new();
        if self.random.below(4) > 0 {
            for (source, alias) in &named {
                shown.extend(source.key.iter().map(|key| format!("{alias}.{key}")));
            }
        }
        for _ in 0..1 + self.random.below(3) {
            shown.push(self.column(&named).0);
        }
        match self.random.below(8) {
            0 | 1 if !from.contains("USING") => shown = vec!["*".into()],
            2 => shown.insert(0, "(SELECT max(n) FROM a)".into()),
            3 => {
                let column = self.column(&named).0;
                shown.push(format!("coalesce({column}, NULL)"));
            }
            _ => {}
        }
        let distinct = if self.random.one_in(10) { "DISTINCT " } else { "" };
        // One of several texts that are equal.
        let is_folded = named.iter().any(|(source, _)| {
            source.columns.iter().any(|(_, kind)| {
                matches!(kind, Kind::Folded | Kind::Padded | Kind::Char | Kind::Decimal | Kind::Double)
            })
        });
        let distinct = if is_folded { "" } else { distinct };
        format!("SELECT {distinct}{} FROM {from}{}", shown.join(", "), self.filter(&named, false))
    }

    /// By a complete order.
    fn limited(&mut self) -> String {
        let model = self.model;
        let with_key = |source: &&Source| source.key == ["id"] && source.parts.is_empty();
        let keyed: Vec<&Source> = model.tables().filter(with_key).collect();
        let Some(source) = keyed.first().copied() else { return self.select() };
        let named = [(source, source.name.clone())];
        let filter = self.filter(&named, false);
        let (first, _) = self.column(&named);
        let down = *self.random.of(&["", " DESC"]);
        let offset = if self.random.one_in(2) { " OFFSET 1" } else { "" };
        let shown = if self.random.one_in(2) { "id, n, s" } else { "n, s" };
        let limit = 1 + self.random.below(3);
        format!("SELECT {shown} FROM {}{filter} ORDER BY {first}{down}, id LIMIT {limit}{offset}", source.name)
    }

    pub fn insert(&mut self, table: &Source, how: &str) -> String {
        let mut columns: Vec<&(String, Kind)> = Vec::new();
        for column in table.columns.iter().filter(|(name, _)| Some(name) != table.computed.as_ref()) {
            let wanted = table.key.contains(&column.0) && self.random.below(6) > 0;
            if wanted || self.random.below(3) > 0 {
                columns.push(column);
            }
        }
        if columns.is_empty() {
            columns.push(&table.columns[0]);
        }
        let mut rows = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let mut row = Vec::new();
            for (_, kind) in &columns {
                let is_default = self.random.one_in(15);
                row.push(if is_default { "DEFAULT".to_owned() } else { self.value(*kind) });
            }
            rows.push(format!("({})", row.join(", ")));
        }
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        let table =
            if table.parts.is_empty() || self.random.below(3) > 0 { &table.name } else { self.random.of(&table.parts) };
        format!("{how} INTO {table} ({}) VALUES {}", names.join(", "), rows.join(", "))
    }

    fn assignments(&mut self, table: &Source, before: &str) -> String {
        let mut assignments: Vec<String> = Vec::new();
        let (skip, wanted) = (table.computed.clone(), 1 + self.random.below(2));
        while assignments.len() < wanted {
            let (column, kind) = self.random.of(&table.columns).clone();
            if Some(&column) == skip.as_ref() {
                continue;
            }
            let value = if kind == Kind::Int && self.random.one_in(5) {
                format!("{}.n + 1", table.name)
            } else {
                self.value(kind)
            };
            if !assignments.iter().any(|other| other.starts_with(&format!("{before}{column} "))) {
                assignments.push(format!("{before}{column} = {value}"));
            } else {
                break;
            }
        }
        assignments.join(", ")
    }

    /// A write, mostly of a table that the read has.
    pub fn write(&mut self, read: &str) -> String {
        let model = self.model;
        let tables: Vec<&Source> = model.tables().collect();
        let mut table = *self.random.of(&tables);
        for _ in 0..3 {
            if !read.contains(&format!(" {}", table.name)) {
                table = *self.random.of(&tables);
            }
        }
        let (name, own) = (table.name.clone(), [(table, table.name.clone())]);
        let other = self.random.of(&tables).name.clone();
        match self.random.below(14) {
            0..=2 => self.insert(table, "INSERT"),
            3 if self.is_postgres => format!("{} ON CONFLICT DO NOTHING", self.insert(table, "INSERT")),
            3 => {
                let how = *self.random.of(&["INSERT IGNORE", "REPLACE"]);
                self.insert(table, how)
            }
            4 if self.is_postgres && !table.key.is_empty() => {
                let (insert, set) = (self.insert(table, "INSERT"), self.assignments(table, ""));
                let target = match &table.unique {
                    Some(column) if self.random.one_in(2) => column.clone(),
                    _ => table.key.join(", "),
                };
                format!("{insert} ON CONFLICT ({target}) DO UPDATE SET {set}")
            }
            4 if !self.is_postgres => {
                let (insert, set) = (self.insert(table, "INSERT"), self.assignments(table, ""));
                format!("{insert} ON DUPLICATE KEY UPDATE {set}")
            }
            5 => {
                let filter = self.filter(&own, true);
                format!("INSERT INTO {name} (n, s) SELECT n + 1, s FROM {name}{filter}")
            }
            6 if other != name => {
                let (set, more) = (self.value(Kind::Int), self.condition(&own, 0));
                if self.is_postgres {
                    format!("UPDATE {name} SET n = {set} FROM {other} q WHERE q.n = {name}.n AND {more}")
                } else {
                    format!("UPDATE {name} JOIN {other} q ON q.n = {name}.n SET {name}.n = {set} WHERE {more}")
                }
            }
            7 if other != name => {
                let more = self.condition(&own, 0);
                if self.is_postgres {
                    format!("DELETE FROM {name} USING {other} q WHERE q.n = {name}.n AND {more}")
                } else {
                    format!("DELETE {name} FROM {name} JOIN {other} q ON q.n = {name}.n WHERE {more}")
                }
            }
            8 if self.is_postgres => {
                let filter = self.filter(&own, true);
                format!(
                    "WITH x AS (DELETE FROM {name}{filter} RETURNING n, s) INSERT INTO {other} (n, s) SELECT n, s FROM x"
                )
            }
            9 if self.random.one_in(6) => format!("TRUNCATE TABLE {name}"),
            9..=11 => {
                let set = self.assignments(table, "");
                let filter = self.filter(&own, true);
                format!("UPDATE {name} SET {set}{filter}")
            }
            _ => {
                let filter = self.filter(&own, true);
                format!("DELETE FROM {name}{filter}")
            }
        }
    }
}
