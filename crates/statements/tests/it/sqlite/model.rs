//! A random schema, as definitions for SQLite and as the catalog for the analysis.

use verbena_statements::{Cascade, Column, ColumnType, Schema, Table, Trigger};

use super::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Text,
    NoCase,
    /// A column of no type.
    Any,
}

#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub columns: Vec<(String, Kind)>,
    pub key: Vec<String>,
    pub unique: Option<String>,
    /// A view.
    pub view: bool,
}

pub struct Model {
    pub definitions: Vec<String>,
    /// Tables, and the view behind them.
    pub sources: Vec<Source>,
    tables: Vec<Table>,
    view: String,
}

fn name(table: &str) -> Vec<u8> {
    Schema::name(b"main", table.as_bytes())
}

impl Model {
    pub fn random(random: &mut Random) -> Model {
        let mut model = Model { definitions: Vec::new(), sources: Vec::new(), tables: Vec::new(), view: String::new() };
        model.definitions.push("pragma foreign_keys = on".to_owned());
        model.definitions.push(format!("pragma recursive_triggers = {}", random.below(2)));
        for table in 0..2 + random.below(2) {
            model.table(random, table);
        }
        model.index(random);
        model.trigger(random);
        model.view(random);
        model
    }

    pub fn schema(&self) -> Schema {
        let mut schema = Schema { search: vec![b"main".to_vec()], folds_tables: true, ..Schema::default() };
        for (source, table) in self.sources.iter().zip(&self.tables) {
            schema.tables.insert(name(&source.name), table.clone());
        }
        schema.views.insert(name("v"), self.view.clone().into_bytes());
        schema
    }

    pub fn tables(&self) -> &[Source] {
        &self.sources[..self.tables.len()]
    }

    fn table(&mut self, random: &mut Random, index: usize) {
        let table = ["a", "b", "c"][index].to_owned();
        let mut columns = vec![("n".to_owned(), Kind::Integer), ("s".to_owned(), Kind::Text)];
        let others = [("m", Kind::Integer), ("u", Kind::NoCase), ("w", Kind::Any), ("x", Kind::Text)];
        columns.extend(others.iter().filter(|_| random.one_in(2)).map(|(name, kind)| ((*name).to_owned(), *kind)));
        let mut constraints = Vec::new();
        let mut nullable = true;
        let key: Vec<String> = match random.below(6) {
            0..=2 => {
                columns.insert(0, ("id".to_owned(), Kind::Integer));
                nullable = false;
                vec!["id".to_owned()]
            }
            3 => {
                columns.push(("k".to_owned(), Kind::NoCase));
                nullable = random.one_in(3);
                vec!["k".to_owned()]
            }
            4 => {
                nullable = false;
                vec!["n".to_owned(), "s".to_owned()]
            }
            _ => Vec::new(),
        };
        let unique = random.one_in(3).then(|| random.of(&columns).0.clone()).filter(|column| !key.contains(column));
        constraints.extend(unique.iter().map(|column| format!("unique ({column})")));
        if !key.is_empty() && key != ["id"] {
            constraints.push(format!("primary key ({})", key.join(", ")));
        }
        let parent = index.checked_sub(1).filter(|parent| self.sources[*parent].key == ["id"] && random.one_in(2));
        if let Some(parent) = parent {
            let (on_delete, on_update) = (random.below(3), random.below(2));
            let delete = ["cascade", "set null", "no action"][on_delete];
            let update = ["cascade", "no action"][on_update];
            columns.push(("p".to_owned(), Kind::Integer));
            let parent_name = &self.sources[parent].name;
            constraints
                .push(format!("foreign key (p) references {parent_name} (id) on delete {delete} on update {update}"));
            let cascade = Cascade { child: name(&table), on_delete: on_delete < 2, on_update: on_update == 0 };
            self.tables[parent].cascades.push(cascade);
        }
        let define = |(name, kind): &(String, Kind)| {
            let kind = match kind {
                Kind::Integer if name == "id" => " integer primary key",
                Kind::Integer => " integer",
                Kind::Text => " text",
                Kind::NoCase => " text collate nocase",
                Kind::Any => "",
            };
            let strict = if !nullable && key.contains(name) && name != "id" { " not null" } else { "" };
            format!("{name}{kind}{strict}")
        };
        let parts: Vec<String> = columns.iter().map(define).chain(constraints).collect();
        self.definitions.push(format!("create table {table} ({})", parts.join(", ")));
        let column = |(name, kind): &(String, Kind)| {
            let kind = match kind {
                Kind::Integer => ColumnType::Integer,
                Kind::Text => ColumnType::Bytes,
                Kind::NoCase => ColumnType::AsciiCase,
                Kind::Any => ColumnType::Other,
            };
            Column { nullable: nullable || !key.contains(name), ..Column::new(name.as_bytes(), kind) }
        };
        self.tables.push(Table {
            columns: columns.iter().map(column).collect(),
            primary: key.iter().map(|column| column.clone().into_bytes()).collect(),
            unique: unique.iter().map(|column| vec![column.clone().into_bytes()]).collect(),
            ..Table::default()
        });
        self.sources.push(Source { name: table, columns, key, unique, view: false });
    }

    /// An index lets SQLite find rows in another order.
    fn index(&mut self, random: &mut Random) {
        if random.one_in(2) {
            let table = random.below(self.tables.len());
            let source = &self.sources[table];
            let column = &random.of(&source.columns).0;
            self.definitions.push(format!("create index i on {} ({column})", source.name));
        }
    }

    fn trigger(&mut self, random: &mut Random) {
        if random.one_in(2) {
            return;
        }
        let on = random.below(self.tables.len());
        let target = (on + 1) % self.tables.len();
        let target = &self.sources[target].name;
        let event = random.below(3);
        let row = if event == 2 { "old" } else { "new" };
        let body = match random.below(4) {
            0 => format!("update {target} set s = 'trigger' where n = {row}.n;"),
            1 => format!("delete from {target} where n = {row}.n;"),
            2 => format!("insert or ignore into {target} (n, s) values ({row}.n, 'fired');"),
            _ => format!("update {target} set n = 3 where n = 4; delete from {target} where s = {row}.s;"),
        };
        let events = ["insert", "update", "delete"];
        let source = &self.sources[on].name;
        self.definitions.push(format!("create trigger t after {} on {source} begin {body} end", events[event]));
        self.tables[on].triggers.push(Trigger {
            insert: event == 0,
            update: event == 1,
            delete: event == 2,
            body: Some(body.into_bytes()),
        });
    }

    fn view(&mut self, random: &mut Random) {
        let one = random.of(&self.sources).name.clone();
        let other = random.of(&self.sources).name.clone();
        self.view = match random.below(4) {
            0 => format!("select n, s from {one} where n < 3"),
            1 => format!("select p.n as n, q.s as s from {one} p left join {other} q on p.n = q.n"),
            2 => format!("select n, max(s) as s from {one} group by n"),
            _ => format!("select n, s from {one} union select n, s from {other}"),
        };
        self.definitions.push(format!("create view v as {}", self.view));
        let columns = vec![("n".to_owned(), Kind::Integer), ("s".to_owned(), Kind::Text)];
        self.sources.push(Source { name: "v".to_owned(), columns, key: Vec::new(), unique: None, view: true });
    }
}
