//! Random statements for a model.

use super::model::{Kind, Model, Source};
use super::{Cell, Random, Text};

pub struct Texts<'r> {
    random: &'r mut Random,
    model: &'r Model,
    parameters: Vec<Cell>,
    writing: bool,
}

/// A source in a FROM and the name that it has there.
type Named<'m> = (&'m Source, String);

impl<'r> Texts<'r> {
    pub fn new(random: &'r mut Random, model: &'r Model) -> Texts<'r> {
        Texts { random, model, parameters: Vec::new(), writing: false }
    }

    /// Rows, so that the tables stay of some size.
    pub fn fill(&mut self) -> Vec<Text> {
        let model = self.model;
        let mut fill = |table| {
            let sql = self.insert(table, "insert or ignore");
            self.text(sql)
        };
        model.tables().iter().chain(model.tables()).map(&mut fill).collect()
    }

    pub fn read(&mut self) -> Text {
        let sql = match self.random.below(12) {
            0 => format!("{} union {}", self.two_columns(), self.two_columns()),
            1 => format!("{} union all {}", self.two_columns(), self.two_columns()),
            2 => self.common(),
            3 => self.derived(),
            4 => self.grouped(),
            _ => self.select(),
        };
        self.text(sql)
    }

    /// A write, mostly of a table that the read has.
    pub fn write(&mut self, read: &Text) -> Text {
        self.writing = true;
        let model = self.model;
        let mut table = self.random.of(model.tables());
        for _ in 0..2 {
            let named = |start: &str| read.sql.contains(&format!("{start} {}", table.name));
            if !named("from") && !named("join") {
                table = self.random.of(model.tables());
            }
        }
        let sql = match self.random.below(12) {
            0 | 1 => {
                let or = *self.random.of(&["", "", " or ignore"]);
                self.insert(table, &format!("insert{or}"))
            }
            2 => {
                let how = *self.random.of(&["replace", "insert or replace"]);
                self.insert(table, how)
            }
            3 => self.upsert(table),
            4 => self.insert_select(table),
            5..=7 => self.update(table),
            8 => self.update_from(table),
            _ => format!("delete from {}{}", table.name, self.filter(&[(table, table.name.clone())])),
        };
        self.text(sql)
    }

    fn text(&mut self, sql: String) -> Text {
        Text { sql, parameters: std::mem::take(&mut self.parameters) }
    }

    fn value(&mut self, kind: Kind) -> String {
        let number = self.random.below(5);
        let word = *self.random.of(&["a", "A", "b", "ab", "AB", "", "1", "fired"]);
        let kind = if self.random.one_in(12) { Kind::Any } else { kind };
        let odd = self.random.one_in(4);
        let cell = match (kind, odd) {
            (_, true) if self.random.one_in(4) => Cell::Null,
            (Kind::Integer, false) | (Kind::Text | Kind::NoCase, true) => Cell::Number(number.to_string()),
            (Kind::Text | Kind::NoCase, false) => Cell::Text(word.to_owned()),
            (Kind::Integer, true) => match self.random.below(5) {
                0 => Cell::Text(number.to_string()),
                1 => Cell::Text(format!("0{number}")),
                2 => Cell::Number(format!("{number}.0")),
                3 => Cell::Number(format!("-{number}")),
                _ => Cell::Number(format!("00{number}")),
            },
            (Kind::Any, _) => match self.random.below(4) {
                0 => Cell::Number(format!("{number}.5")),
                1 => Cell::Blob(word.as_bytes().to_vec()),
                2 => Cell::Text(word.to_owned()),
                _ => Cell::Number(number.to_string()),
            },
        };
        if self.random.one_in(4) {
            self.parameters.push(cell);
            return "?".to_owned();
        }
        match cell {
            Cell::Null => "null".to_owned(),
            Cell::Number(digits) => digits,
            Cell::Text(text) => format!("'{text}'"),
            Cell::Blob(bytes) => format!("x'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        }
    }

    fn column(&mut self, from: &[Named<'_>]) -> (String, Kind) {
        let (source, alias) = self.random.of(from);
        let (column, kind) = self.random.of(&source.columns);
        if !source.view && self.random.one_in(25) {
            return (format!("{alias}.rowid"), Kind::Integer);
        }
        let qualified = *alias != source.name || from.len() > 1 || self.random.one_in(3);
        (if qualified { format!("{alias}.{column}") } else { column.clone() }, *kind)
    }

    fn condition(&mut self, from: &[Named<'_>], depth: usize) -> String {
        let (column, kind) = self.column(from);
        match self.random.below(16) {
            0..=4 => format!("{column} = {}", self.value(kind)),
            5 => format!("{} = {column}", self.value(kind)),
            6 => format!("{column} in ({}, {})", self.value(kind), self.value(kind)),
            7 => format!("{column} < {}", self.value(kind)),
            8 => format!("{column} is {}null", *self.random.of(&["", "not "])),
            9 => format!("{column} between {} and {}", self.value(kind), self.value(kind)),
            10 => format!("{column} like 'a%'"),
            11 if depth > 0 => {
                let (one, other) = (self.condition(from, depth - 1), self.condition(from, depth - 1));
                format!("({one} or {other})")
            }
            12 if depth > 0 => format!("not ({})", self.condition(from, depth - 1)),
            13 if depth > 0 => {
                let model = self.model;
                let inner = self.random.of(&model.sources);
                let (shown, _) = self.column(&[(inner, inner.name.clone())]);
                format!(
                    "{column} in (select {shown} from {}{})",
                    inner.name,
                    self.filter(&[(inner, inner.name.clone())])
                )
            }
            14 if depth > 0 => {
                let model = self.model;
                let inner = self.random.of(&model.sources);
                let not = *self.random.of(&["", "not "]);
                let more = self.condition(&[(inner, "e".to_owned())], 0);
                format!("{not}exists (select 1 from {} e where e.n = {column} and {more})", inner.name)
            }
            _ => {
                let (other, _) = self.column(from);
                format!("{column} = {other}")
            }
        }
    }

    fn filter(&mut self, from: &[Named<'_>]) -> String {
        let mut conditions = Vec::new();
        if let Some((source, alias)) = from.first()
            && !source.key.is_empty()
            && self.random.one_in(if self.writing { 2 } else { 6 })
        {
            for key in &source.key {
                let (_, kind) = source.columns.iter().find(|(name, _)| name == key).expect("a column");
                conditions.push(format!("{alias}.{key} = {}", self.value(*kind)));
            }
        }
        for _ in 0..*self.random.of(&[0, 0, 1, 1, 2]) {
            conditions.push(self.condition(from, 1));
        }
        if conditions.is_empty() { String::new() } else { format!(" where {}", conditions.join(" and ")) }
    }

    /// One or two sources, joined in some way.
    fn from(&mut self) -> (Vec<Named<'r>>, String) {
        let model = self.model;
        let one = self.random.of(&model.sources);
        if self.random.below(5) < 3 {
            let alias = if self.random.one_in(2) { one.name.clone() } else { "p".to_owned() };
            let from = if alias == one.name { alias.clone() } else { format!("{} as {alias}", one.name) };
            return (vec![(one, alias)], from);
        }
        let other = self.random.of(&model.sources);
        let named = vec![(one, "p".to_owned()), (other, "q".to_owned())];
        let (left, right) = (format!("{} p", one.name), format!("{} q", other.name));
        let from = match self.random.below(7) {
            0 => format!("{left}, {right}"),
            1 => format!("{left} join {right} using (n)"),
            2 | 3 => format!("{left} left join {right} on {}", self.on(&named)),
            4 => {
                let side = *self.random.of(&["right", "full"]);
                format!("{left} {side} join {right} on {}", self.on(&named))
            }
            5 => format!("{left} natural join {right}"),
            _ => format!("{left} join {right} on {}", self.on(&named)),
        };
        (named, from)
    }

    fn on(&mut self, named: &[Named<'_>]) -> String {
        match self.random.below(3) {
            0 => "p.n = q.n".to_owned(),
            1 => format!("p.s = q.s and {}", self.condition(&named[1..], 0)),
            _ => format!("p.n = q.n and {}", self.condition(&named[..1], 0)),
        }
    }

    fn select(&mut self) -> String {
        let (named, from) = self.from();
        let unmerged = !from.contains("using") && !from.contains("natural");
        let (mut shown, mut order) = (Vec::new(), Vec::new());
        let carries = self.random.below(4) > 0;
        for (source, alias) in &named {
            if carries {
                shown.extend(source.key.iter().map(|key| format!("{alias}.{key}")));
            }
        }
        for _ in 0..1 + self.random.below(3) {
            shown.push(self.column(&named).0);
        }
        order.extend(shown.iter().map(|column| format!("{column} collate binary")));
        match self.random.below(12) {
            0..=2 if unmerged => {
                shown = vec!["*".to_owned()];
                let all = named.iter().flat_map(|(source, alias)| source.columns.iter().map(move |c| (alias, &c.0)));
                order = all.map(|(alias, column)| format!("{alias}.{column} collate binary")).collect();
            }
            3 => shown.push("(select max(s) from a)".to_owned()),
            4 => shown = vec![(*self.random.of(&["count(*)", "max(p.n)", "sum(n), min(s)", "count(s)"])).to_owned()],
            5 => shown[0] = format!("{} as y", shown[0]),
            6 => shown.push(format!("coalesce({}, 'none')", self.column(&named).0)),
            _ => {}
        }
        if shown[0].contains('(') {
            let (source, alias) = &named[0];
            let column = &self.random.of(&source.columns).0;
            let what = *self.random.of(&["count", "max", "min", "sum"]);
            shown = vec![format!("{what}({alias}.{column})")];
            order.clear();
        }
        let distinct = if self.random.one_in(10) { "distinct " } else { "" };
        let filter = self.filter(&named);
        let mut sql = format!("select {distinct}{} from {from}{filter}", shown.join(", "));
        let by_alias = shown[0].ends_with(" as y");
        if self.random.one_in(2) && !order.is_empty() {
            if by_alias {
                sql.push_str(" order by y, ");
            } else {
                sql.push_str(" order by ");
            }
            if self.random.one_in(2) && distinct.is_empty() {
                let (first, _) = self.column(&named);
                sql.push_str(&format!("{first}, "));
            }
            sql.push_str(&order.join(", "));
            // DISTINCT shows one of the texts that are equal without case.
            if !self.random.one_in(3) && distinct.is_empty() && !shown.iter().any(|shown| shown.contains('(')) {
                sql.push_str(&format!(" limit {}", 1 + self.random.below(3)));
                if self.random.one_in(2) {
                    sql.push_str(&format!(" offset {}", self.random.below(3)));
                }
            }
        }
        sql
    }

    fn two_columns(&mut self) -> String {
        let model = self.model;
        let source = self.random.of(&model.sources);
        format!("select n, s from {}{}", source.name, self.filter(&[(source, source.name.clone())]))
    }

    fn common(&mut self) -> String {
        let model = self.model;
        let source = self.random.of(&model.sources);
        // A common name may hide a table.
        let name = *self.random.of(&["z", "a", "b"]);
        let recursive = if source.name == name { "" } else { *self.random.of(&["", "recursive "]) };
        if source.name == name {
            return format!("select z.n from (select * from {} where n < 3) z", source.name);
        }
        let filter = self.filter(&[(source, source.name.clone())]);
        format!(
            "with {recursive}{name} as (select n, s from {}{filter}) select s, count(*) from {name} group by s",
            source.name
        )
    }

    fn derived(&mut self) -> String {
        let model = self.model;
        let source = self.random.of(model.tables());
        let inner = self.two_columns();
        let filter = self.filter(&[(source, "p".to_owned())]);
        let key: String = source.key.iter().map(|key| format!("p.{key}, ")).collect();
        format!("select {key}p.s, d.s from {} p join ({inner}) d on d.n = p.n{filter}", source.name)
    }

    fn grouped(&mut self) -> String {
        let (named, from) = self.from();
        let alias = named[0].1.clone();
        let filter = self.filter(&named);
        let having = *self.random.of(&["", " having count(*) > 1", " having max(1) = 1"]);
        let group =
            if from.contains("using") || from.contains("natural") { "n".to_owned() } else { format!("{alias}.n") };
        format!("select {group}, count(*), max({alias}.s) from {from}{filter} group by {group}{having}")
    }

    fn insert(&mut self, table: &Source, how: &str) -> String {
        let mut columns: Vec<&(String, Kind)> = Vec::new();
        for column in &table.columns {
            let wanted = table.key.contains(&column.0) && self.random.below(4) > 0;
            if wanted || self.random.below(3) > 0 {
                columns.push(column);
            }
        }
        if columns.is_empty() {
            return format!("{how} into {} default values", table.name);
        }
        let mut rows = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let values: Vec<String> = columns
                .iter()
                .map(|(_, kind)| match self.random.below(8) {
                    0 => "1 + 1".to_owned(),
                    _ => self.value(*kind),
                })
                .collect();
            rows.push(format!("({})", values.join(", ")));
        }
        let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
        format!("{how} into {} ({}) values {}", table.name, names.join(", "), rows.join(", "))
    }

    fn upsert(&mut self, table: &Source) -> String {
        let sql = self.insert(table, "insert");
        if sql.contains("default values") {
            return sql;
        }
        let target = match (&table.unique, table.key.is_empty()) {
            (Some(column), _) if self.random.one_in(2) => format!(" ({column})"),
            (_, false) => format!(" ({})", table.key.join(", ")),
            _ => return sql,
        };
        match self.random.below(3) {
            0 => format!("{sql} on conflict{target} do nothing"),
            _ => format!("{sql} on conflict{target} do update set {}", self.assignments(table)),
        }
    }

    fn insert_select(&mut self, table: &Source) -> String {
        let model = self.model;
        let source = self.random.of(&model.sources);
        let filter = self.filter(&[(source, source.name.clone())]);
        format!("insert or ignore into {} (n, s) select n, s from {}{filter}", table.name, source.name)
    }

    fn assignments(&mut self, table: &Source) -> String {
        let mut assignments = Vec::new();
        for _ in 0..1 + self.random.below(2) {
            let (column, kind) = self.random.of(&table.columns).clone();
            let value = if self.random.one_in(6) { "n".to_owned() } else { self.value(kind) };
            assignments.push(format!("{column} = {value}"));
        }
        assignments.join(", ")
    }

    fn update(&mut self, table: &Source) -> String {
        let or = *self.random.of(&["", "", "", " or ignore", " or replace"]);
        let assignments = self.assignments(table);
        let filter = self.filter(&[(table, table.name.clone())]);
        format!("update{or} {} set {assignments}{filter}", table.name)
    }

    fn update_from(&mut self, table: &Source) -> String {
        let model = self.model;
        let other = self.random.of(&model.sources);
        let value = self.value(Kind::Text);
        let filter = self.condition(&[(table, table.name.clone())], 0);
        format!("update {} set s = {value} from {} q where q.n = {}.n and {filter}", table.name, other.name, table.name)
    }
}
