//! What is known of the database, as its catalog says it. The caller builds it, and builds it again after DDL.

use std::collections::{BTreeMap, BTreeSet};

use crate::ColumnType;

/// The tables and views that a session can name.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// The tables, by [`Schema::name`].
    pub tables: BTreeMap<Vec<u8>, Table>,
    /// The views, each with the text of its query.
    pub views: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Where a name without a database is looked for, in this order: the default database, or the search path.
    pub search: Vec<Vec<u8>>,
    /// Functions that are not built in and that are volatile, or of which that is not known, in lower case.
    pub routines: BTreeSet<Vec<u8>>,
    /// Something fires at definitions (PostgreSQL's event triggers): each may do anything.
    pub definitions_fire: bool,
    /// Whether names of tables are compared without case. Those in the schema are in lower case then.
    pub folds_tables: bool,
}

/// One table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Its columns, in the order of `*`.
    pub columns: Vec<Column>,
    /// The columns of the primary key, or none.
    pub primary: Vec<Vec<u8>>,
    /// The other unique keys. A key on an expression, with a condition or with another collation than its column's is
    /// an entry without columns: rows can conflict on it, and no read is by it.
    pub unique: Vec<Vec<Vec<u8>>>,
    /// What fires when it is written.
    pub triggers: Vec<Trigger>,
    /// The foreign keys of others that follow its rows.
    pub cascades: Vec<Cascade>,
    /// For a partition or a child that inherits: the name of the root, under which its rows are known.
    pub root: Option<Vec<u8>>,
    /// Its engine has no transactions: each write takes effect at once (rule Q4).
    pub immediate: bool,
    /// Its rows are elsewhere: a foreign or virtual table.
    pub foreign: bool,
    /// Which rows a session sees depends on its role (row security).
    pub by_role: bool,
}

/// One column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Its name.
    pub name: Vec<u8>,
    /// How its values are compared. `CHAR(n)` and `BINARY(n)` are [`ColumnType::Other`]: what they store is padded.
    pub kind: ColumnType,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What it surely stores unchanged: decimal digits of an integer, bytes of a text.
    pub width: usize,
    /// It stores no number below zero.
    pub unsigned: bool,
    /// An inserted 0 or NULL becomes another value (`AUTO_INCREMENT`).
    pub numbered: bool,
    /// It changes when others do: computed from them, or `ON UPDATE CURRENT_TIMESTAMP`.
    pub follows: bool,
    /// It is not part of `*`.
    pub hidden: bool,
}

/// What fires at a write.
#[derive(Clone, Debug)]
pub struct Trigger {
    /// At an INSERT.
    pub insert: bool,
    /// At an UPDATE.
    pub update: bool,
    /// At a DELETE.
    pub delete: bool,
    /// Its statements, each with a semicolon behind it; nothing if they are not SQL or not known.
    pub body: Option<Vec<u8>>,
}

/// A foreign key of another table whose rows follow.
#[derive(Clone, Debug)]
pub struct Cascade {
    /// The table that has the foreign key.
    pub child: Vec<u8>,
    /// Its rows are changed when a row is deleted (CASCADE, SET NULL, SET DEFAULT).
    pub on_delete: bool,
    /// Its rows are changed when the key is updated.
    pub on_update: bool,
}

impl Schema {
    /// The name of a table of a database (MySQL, SQLite: `main`) or of a schema (PostgreSQL: `public`).
    pub fn name(database: &[u8], table: &[u8]) -> Vec<u8> {
        // No identifier has a zero byte.
        [database, b"\0", table].concat()
    }
}

impl Column {
    /// A column that holds NULL, any length and any sign.
    pub fn new(name: &[u8], kind: ColumnType) -> Column {
        Column {
            name: name.to_vec(),
            kind,
            nullable: true,
            width: usize::MAX,
            unsigned: false,
            numbered: false,
            follows: false,
            hidden: false,
        }
    }
}

impl Table {
    /// An identifier in quotes may differ from another in case alone, so the exact one comes first.
    pub(crate) fn column(&self, name: &[u8]) -> Option<&Column> {
        let exact = self.columns.iter().find(|column| column.name == name);
        exact.or_else(|| self.columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)))
    }

    /// Whether the column alone is a unique key.
    pub(crate) fn is_unique(&self, column: &[u8]) -> bool {
        std::iter::once(&self.primary).chain(&self.unique).any(|key| key.len() == 1 && key[0] == column)
    }

    /// The columns of the primary key, if each of its values has a name.
    pub(crate) fn key(&self) -> Option<Vec<&Column>> {
        let columns: Option<Vec<&Column>> = self.primary.iter().map(|name| self.column(name)).collect();
        columns.filter(|key| !key.is_empty() && key.iter().all(|c| !c.nullable && c.kind != ColumnType::Other))
    }
}
