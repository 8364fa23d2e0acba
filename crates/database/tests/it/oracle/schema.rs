//! A random schema.

use super::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Int,
    Small,
    /// Equal if the bytes are.
    Bytes,
    /// Equal also in the other case.
    Folded,
    /// MariaDB: equal also with blanks behind it.
    Padded,
    Char,
    Decimal,
    Double,
    Uuid,
    Flag,
    Day,
}

pub const KINDS: [(&str, Kind); 11] = [
    ("n", Kind::Int),
    ("m", Kind::Small),
    ("s", Kind::Bytes),
    ("t", Kind::Folded),
    ("w", Kind::Padded),
    ("c", Kind::Char),
    ("d", Kind::Decimal),
    ("f", Kind::Double),
    ("u", Kind::Uuid),
    ("o", Kind::Flag),
    ("y", Kind::Day),
];

#[derive(Clone, Debug)]
pub struct Source {
    pub name: String,
    pub columns: Vec<(String, Kind)>,
    pub key: Vec<String>,
    pub unique: Option<String>,
    /// A column that is computed, or a view: not written.
    pub computed: Option<String>,
    pub is_view: bool,
    /// Under which other names its rows can be written.
    pub parts: Vec<String>,
}

pub struct Model {
    pub definitions: Vec<String>,
    pub sources: Vec<Source>,
    is_postgres: bool,
}

impl Model {
    pub fn random(random: &mut Random, is_postgres: bool) -> Model {
        let mut model = Model { definitions: Vec::new(), sources: Vec::new(), is_postgres };
        if !is_postgres {
            let mode = *random.of(&["", "STRICT_ALL_TABLES", "STRICT_TRANS_TABLES,NO_AUTO_VALUE_ON_ZERO"]);
            model.definitions.push(format!("SET sql_mode = '{mode}'"));
        }
        for index in 0..2 + random.below(2) {
            model.table(random, index);
        }
        model.trigger(random);
        model.view(random);
        model
    }

    pub fn tables(&self) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(|source| !source.is_view)
    }

    fn kind(&self, kind: Kind, random: &mut Random) -> String {
        let pg = self.is_postgres;
        let text = match kind {
            Kind::Int if random.one_in(3) => "bigint",
            Kind::Int => "int",
            Kind::Small if !pg => *random.of(&["tinyint", "smallint unsigned"]),
            Kind::Small => "smallint",
            Kind::Bytes if pg => *random.of(&["text", "varchar(3)", "varchar"]),
            Kind::Bytes => "varbinary(3)",
            Kind::Folded if pg => *random.of(&["text COLLATE ci", "varchar(3) COLLATE ci"]),
            Kind::Folded => "varchar(3) COLLATE utf8mb4_general_ci",
            Kind::Padded if pg => "name",
            Kind::Padded => *random.of(&["varchar(3) COLLATE utf8mb4_bin", "varchar(3) COLLATE utf8mb4_nopad_bin"]),
            Kind::Char => "char(3)",
            Kind::Decimal => "numeric(4, 1)",
            Kind::Double if pg => *random.of(&["double precision", "real"]),
            Kind::Double => *random.of(&["double", "float"]),
            Kind::Uuid => "uuid",
            Kind::Flag if pg => "boolean",
            Kind::Flag => "enum('a', 'b')",
            Kind::Day => "date",
        };
        text.to_owned()
    }

    fn table(&mut self, random: &mut Random, index: usize) {
        let name = ["a", "b", "c"][index].to_owned();
        let mut columns = vec![("n".to_owned(), Kind::Int), ("s".to_owned(), Kind::Bytes)];
        columns.extend(
            KINDS[1..].iter().filter(|(name, _)| *name != "s" && random.one_in(3)).map(|(n, k)| ((*n).to_owned(), *k)),
        );
        let key: Vec<String> = match random.below(8) {
            0..=3 => {
                columns.insert(0, ("id".to_owned(), Kind::Int));
                vec!["id".into()]
            }
            4 => {
                let kind =
                    *random.of(&[Kind::Uuid, Kind::Folded, Kind::Char, Kind::Padded, Kind::Bytes, Kind::Decimal]);
                columns.insert(1, ("k".to_owned(), kind));
                vec!["k".into()]
            }
            5 => vec!["n".into(), "s".into()],
            6 => vec!["s".into()],
            _ => Vec::new(),
        };
        let mut parts: Vec<String> = columns
            .iter()
            .map(|(name, kind)| {
                let kind = self.kind(*kind, random);
                let numbered = !self.is_postgres && name == "id" && random.one_in(2);
                format!("{name} {kind}{}", if numbered { " AUTO_INCREMENT" } else { "" })
            })
            .collect();
        let unique = random.one_in(3).then(|| random.of(&columns).0.clone()).filter(|column| !key.contains(column));
        if !key.is_empty() {
            parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
        }
        let is_partitioned = self.is_postgres && key == ["id"] && random.one_in(4);
        let unique = unique.filter(|_| !is_partitioned);
        parts.extend(unique.iter().map(|column| format!("UNIQUE ({column})")));
        let parent = index.checked_sub(1).filter(|parent| self.sources[*parent].key == ["id"] && random.one_in(2));
        if let Some(parent) = parent {
            let parent = &self.sources[parent];
            let on = |random: &mut Random| *random.of(&["CASCADE", "SET NULL", "RESTRICT", "NO ACTION"]);
            let (delete, update) = (on(random), on(random));
            let kind =
                self.definitions.iter().find_map(|text| text.split(&format!("TABLE {} (id ", parent.name)).nth(1));
            let kind = if kind.is_some_and(|rest| rest.starts_with("bigint")) { "bigint" } else { "int" };
            parts.push(format!("p {kind}"));
            columns.push(("p".into(), Kind::Int));
            let references = format!("REFERENCES {} (id) ON DELETE {delete} ON UPDATE {update}", parent.name);
            parts.push(format!("FOREIGN KEY (p) {references}"));
        }
        let computed = random.one_in(4).then(|| "g".to_owned());
        if computed.is_some() {
            parts.push(format!(
                "g int GENERATED ALWAYS AS (n + 1) {}",
                if self.is_postgres { "STORED" } else { "VIRTUAL" }
            ));
            columns.push(("g".into(), Kind::Int));
        }
        let by = if is_partitioned { " PARTITION BY RANGE (id)" } else { "" };
        self.definitions.push(format!("CREATE TABLE {name} ({}){by}", parts.join(", ")));
        let mut names = Vec::new();
        if is_partitioned {
            for (part, from, to) in [("low", "MINVALUE", "2"), ("high", "2", "MAXVALUE")] {
                let text = format!("CREATE TABLE {name}_{part} PARTITION OF {name} FOR VALUES FROM ({from}) TO ({to})");
                self.definitions.push(text);
                names.push(format!("{name}_{part}"));
            }
        } else if self.is_postgres && random.one_in(8) {
            let more = if random.one_in(2) { "" } else { "more int" };
            self.definitions.push(format!("CREATE TABLE {name}_child ({more}) INHERITS ({name})"));
            names.push(format!("{name}_child"));
        }
        if self.is_postgres && random.one_in(10) && unique.is_none() {
            let column = &random.of(&columns).0;
            self.definitions.push(format!("CREATE INDEX ON {name} ({column})"));
        }
        self.sources.push(Source { name, columns, key, unique, computed, is_view: false, parts: names });
    }

    fn trigger(&mut self, random: &mut Random) {
        if random.one_in(2) {
            return;
        }
        let count = self.sources.len();
        let on = random.below(count);
        let (on, target) = (self.sources[on].name.clone(), self.sources[(on + 1) % count].name.clone());
        let event = *random.of(&["INSERT", "UPDATE", "DELETE"]);
        let row = if event == "DELETE" { "old" } else { "new" };
        if self.is_postgres && random.one_in(6) {
            let body = *random.of(&["DELETE FROM @ WHERE n = 3", "UPDATE @ SET n = 3 WHERE n = 2"]);
            let also = body.replace('@', &target);
            self.definitions.push(format!("CREATE RULE r AS ON {event} TO {on} DO ALSO {also}"));
            return;
        }
        let ignore = if self.is_postgres { ("", " ON CONFLICT DO NOTHING") } else { (" IGNORE", "") };
        let body = match random.below(4) {
            0 => format!("UPDATE {target} SET s = 'tri' WHERE n = {row}.n"),
            1 => format!("DELETE FROM {target} WHERE n = {row}.n"),
            2 => format!("INSERT{} INTO {target} (n, s) VALUES ({row}.n, 'f'){}", ignore.0, ignore.1),
            _ => format!("UPDATE {target} SET n = 3 WHERE s = {row}.s"),
        };
        if self.is_postgres {
            let change = if event != "DELETE" && random.one_in(4) { " NEW.n = 1;" } else { "" };
            let when = if change.is_empty() { "AFTER" } else { "BEFORE" };
            self.definitions.push(format!(
                "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {};{change} RETURN {row}; END'",
                body.replace('\'', "''")
            ));
            self.definitions.push(format!("CREATE TRIGGER t {when} {event} ON {on} FOR EACH ROW EXECUTE FUNCTION f()"));
        } else if random.one_in(4) && event != "DELETE" {
            self.definitions.push(format!("CREATE TRIGGER t BEFORE {event} ON {on} FOR EACH ROW SET NEW.n = 1"));
        } else {
            self.definitions.push(format!("CREATE TRIGGER t AFTER {event} ON {on} FOR EACH ROW {body}"));
        }
    }

    fn view(&mut self, random: &mut Random) {
        let one = random.of(&self.sources).name.clone();
        let other = random.of(&self.sources).name.clone();
        let text = match random.below(4) {
            0 => format!("SELECT n, s FROM {one} WHERE n < 3"),
            1 => format!("SELECT p.n AS n, q.s AS s FROM {one} p LEFT JOIN {other} q ON p.n = q.n"),
            2 => format!("SELECT n, max(s) AS s FROM {one} GROUP BY n"),
            _ => format!("SELECT n, s FROM {one} UNION SELECT n, s FROM {other}"),
        };
        self.definitions.push(format!("CREATE VIEW v AS {text}"));
        self.sources.push(Source {
            name: "v".into(),
            columns: vec![("n".into(), Kind::Int), ("s".into(), Kind::Bytes)],
            key: Vec::new(),
            unique: None,
            computed: None,
            is_view: true,
            parts: Vec::new(),
        });
    }
}
