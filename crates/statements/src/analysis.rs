//! What a command reads and touches.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashlink::LruCache;

use crate::bind::{BoundRead, Values, row_key};
use crate::lex::Refusal;
use crate::plan::{Effect, Plan, Session, Step, Storable};
use crate::shape::{Shape, shapes};
use crate::value::canonical;
use crate::words::{Context, is_parsed, known};
use crate::{Charset, ColumnType, Dialect, Literal, Name, Names, Product, Rules, Schema, Side, planner};

/// How many shapes are kept.
const MAX_SHAPES: usize = 4_096;
/// A longer shape is planned each time.
const MAX_SHAPE_BYTES: usize = 8 << 10;

/// Says what commands to one database read and touch, and keeps what it has found out of their shapes.
///
/// ```
/// use verbena_statements::{Analyser, Column, ColumnType, Dialect, Literal, Product, Schema, Table};
///
/// let mut id = Column::new(b"id", ColumnType::Integer);
/// id.nullable = false;
/// let columns = vec![id, Column::new(b"title", ColumnType::Bytes), Column::new(b"author", ColumnType::Integer)];
/// let posts = Table { columns, primary: vec![b"id".to_vec()], ..Table::default() };
/// let mut schema = Schema { search: vec![b"blog".to_vec()], ..Schema::default() };
/// schema.tables.insert(Schema::name(b"blog", b"posts"), posts);
///
/// let mut analyser = Analyser::new(Product::MariaDb, schema);
/// let dialect = Dialect::new(Product::MariaDb);
///
/// // A read: names before the answer, a name for each row before it is passed on, and what remains at the end.
/// let mut read = analyser.analyse(&dialect, b"SELECT id, title FROM posts WHERE author = ?", &[Some(Literal::Number(b"7"))]);
/// let mut page = read.reads.start();
/// for row in [[&b"3"[..], b"Spring"], [b"9", b"Autumn"]] {
///     for table in 0..read.reads.keys().len() {
///         let key: Vec<_> = read.reads.keys()[table].iter().map(|&at| Some(Literal::Text(row[at]))).collect();
///         page.extend(read.reads.row(table, &key));
///     }
/// }
/// page.extend(read.reads.end());
/// let page = read.reads.bounded(page);
///
/// // Writes: the name of a row that the page shows, and of one that it does not show.
/// let mut touches = |sql: &[u8]| analyser.analyse(&dialect, sql, &[]).touches;
/// assert!(page.meets(&touches(b"UPDATE posts SET title = 'Winter' WHERE id = 9")));
/// assert!(!page.meets(&touches(b"UPDATE posts SET title = 'Winter' WHERE id = 10")));
/// assert!(page.meets(&touches(b"INSERT INTO posts (title, author) VALUES ('Summer', 7)")));
/// assert!(!page.meets(&touches(b"INSERT INTO posts (title, author) VALUES ('Summer', 8)")));
/// ```
pub struct Analyser {
    product: Product,
    rules: Rules,
    schema: Schema,
    plans: LruCache<String, Arc<Plan>>,
    kept: usize,
}

/// What a command reads, touches and does to its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// What it reads.
    pub reads: Reads,
    /// What it touches.
    pub touches: Names,
    /// Whether a page that shows its answer may be stored at all.
    pub storable: Storable,
    /// What it is to its transaction; of several statements the last in the order of [`Step`].
    pub step: Step,
    /// When its writes become visible.
    pub effect: Effect,
    /// What it changes in its session.
    pub session: Vec<Session>,
    /// Whether it makes, changes and drops no table, though it may touch everything.
    pub only_rows: bool,
    /// Why it reads or touches everything.
    pub reasons: Vec<String>,
}

/// What a command reads: the names before the answer, where the answer carries primary keys, and the names of rows.
///
/// Names must be recorded before the bytes that they stand for are passed on (rule Q1): those of [`Reads::start`] before
/// the answer, those of [`Reads::row`] before the row, those of [`Reads::end`] before the end of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    rules: Rules,
    everything: bool,
    whole: Vec<Vec<u8>>,
    tables: Vec<BoundRead>,
    /// Of each table with a key, its place among the tables.
    keyed: Vec<usize>,
    /// Of each table with a key, the columns of the answer that carry it.
    keys: Vec<Vec<usize>>,
    /// Of each table with a key, the rows that were found.
    found: Vec<BTreeSet<Vec<u8>>>,
}

impl Analyser {
    /// For a database with this catalog.
    pub fn new(product: Product, schema: Schema) -> Analyser {
        let plans = LruCache::new_unbounded();
        Analyser { product, rules: Rules::default(), schema, plans, kept: MAX_SHAPES }
    }

    /// Switches rules off, in tests that show what they protect.
    pub fn with_rules(mut self, rules: Rules) -> Analyser {
        self.rules = rules;
        self
    }

    /// Keeps at most this many shapes; with 0 each command is looked at afresh.
    pub fn keeping(mut self, shapes: usize) -> Analyser {
        self.kept = shapes;
        self
    }

    /// The catalog has changed.
    pub fn set_schema(&mut self, schema: Schema) {
        self.schema = schema;
        self.plans.clear();
    }

    /// The number of shapes that are kept.
    pub fn shapes(&self) -> usize {
        self.plans.len()
    }

    /// Looks at a command, with the values of its parameters; nothing for a NULL and for a value in a form that is not
    /// known.
    pub fn analyse(&mut self, dialect: &Dialect, sql: &[u8], parameters: &[Option<Literal<'_>>]) -> Analysis {
        // The server converts what is not ASCII.
        let converted = |text: &[u8]| dialect.charset != Charset::Utf8 && !text.is_ascii();
        let parameters: Vec<Option<Literal<'_>>> = parameters
            .iter()
            .map(|value| value.filter(|value| !matches!(value, Literal::Text(text) if converted(text))))
            .collect();
        match shapes(dialect, sql) {
            _ if dialect.product != self.product => self.refused("another database"),
            Err(reason) => self.refused(reason),
            Ok(shapes) => self.statements(dialect, sql, &shapes, &parameters),
        }
    }

    /// Of a command that cannot be looked at, such as one of which not all is at hand: it may read, touch and commit anything.
    pub fn unknown(&self, reason: &'static str) -> Analysis {
        self.refused(reason)
    }

    fn refused(&self, reason: Refusal) -> Analysis {
        let mut analysis = Analysis::nothing(self.rules);
        analysis.add(&Plan::everything(reason), Vec::new());
        analysis.touches = Names::Everything;
        analysis
    }

    fn statements(
        &mut self,
        dialect: &Dialect,
        sql: &[u8],
        shapes: &[Shape<'_>],
        parameters: &[Option<Literal<'_>>],
    ) -> Analysis {
        let mut analysis = Analysis::nothing(self.rules);
        let mut touched = Vec::new();
        for shape in shapes {
            let plan = self.plan(dialect, sql, shape);
            let values = Values { rules: self.rules, slots: &shape.slots, parameters };
            analysis.add(&plan, values.reads(&plan));
            analysis.storable = analysis.storable.max(values.storable(&plan, dialect.is_postgres()));
            touched.extend(values.touches(&plan));
            if plan.touches_all.is_some() {
                analysis.touches = Names::Everything;
            }
        }
        if analysis.touches != Names::Everything {
            analysis.touches = Names::bounded(self.rules, Side::Write, touched);
        }
        if shapes.len() > 1 {
            analysis.reads.forget_rows();
        }
        analysis
    }

    fn plan(&mut self, dialect: &Dialect, sql: &[u8], shape: &Shape<'_>) -> Arc<Plan> {
        if let Some(plan) = self.plans.get(shape.text.as_str()) {
            return Arc::clone(plan);
        }
        if !is_parsed(&shape.text) {
            let sql = &sql[shape.start..shape.end];
            return Arc::new(known(Context { rules: self.rules, dialect, schema: &self.schema, sql }));
        }
        let mut plan = planner::plan(self.rules, dialect, &self.schema, &shape.text);
        if dialect.is_postgres() && plan.touches_all.is_some() {
            plan.within_transaction();
        }
        let plan = Arc::new(plan);
        if self.kept > 0 && shape.text.len() <= MAX_SHAPE_BYTES {
            if self.plans.len() >= self.kept {
                self.plans.remove_lru();
            }
            self.plans.insert(shape.text.clone(), Arc::clone(&plan));
        }
        plan
    }
}

impl Analysis {
    fn nothing(rules: Rules) -> Analysis {
        let reads = Reads {
            rules,
            everything: false,
            whole: Vec::new(),
            tables: Vec::new(),
            keyed: Vec::new(),
            keys: Vec::new(),
            found: Vec::new(),
        };
        Analysis {
            reads,
            touches: Names::none(),
            storable: Storable::Yes,
            step: Step::None,
            effect: Effect::None,
            session: Vec::new(),
            only_rows: true,
            reasons: Vec::new(),
        }
    }

    fn add(&mut self, plan: &Plan, reads: Vec<BoundRead>) {
        self.storable = self.storable.max(plan.storable);
        self.step = self.step.max(plan.step);
        self.effect = self.effect.max(plan.effect);
        self.session.extend(plan.session.iter().cloned());
        self.only_rows &= plan.only_rows;
        self.reads.everything |= plan.reads_all.is_some();
        self.reads.whole.extend(plan.whole.iter().cloned());
        for read in reads {
            if let Some(key) = &read.key {
                self.reads.keyed.push(self.reads.tables.len());
                self.reads.keys.push(key.iter().map(|(at, _)| *at).collect());
                self.reads.found.push(BTreeSet::new());
            }
            self.reads.tables.push(read);
        }
        self.reasons.extend(plan.reads_all.iter().chain(&plan.touches_all).cloned());
        self.reasons.dedup();
    }

    /// Whether the command must be held until every home has acknowledged its Begin (rule Q4), given whether a
    /// transaction is open, as the server has last said it.
    pub fn is_held(&self, open: bool) -> bool {
        match self.effect {
            _ if self.step == Step::Commit => true,
            // Of several statements in one command the writes may stand before what begins a transaction, or behind what ends one.
            Effect::WithTransaction if matches!(self.step, Step::Begin | Step::Rollback | Step::Prepare) => true,
            // MySQL commits what was open.
            _ if self.step == Step::Begin => open,
            Effect::None => false,
            Effect::WithTransaction => !open,
            Effect::AtOnce => true,
        }
    }
}

impl Reads {
    /// Whether the answer depends on everything.
    pub fn is_everything(&self) -> bool {
        self.everything
    }

    /// The tables that are read, as far as they are known.
    pub fn tables(&self) -> impl Iterator<Item = &[u8]> {
        self.whole.iter().chain(self.tables.iter().map(|bound| &bound.read.table)).map(Vec::as_slice)
    }

    /// The columns of the answer that carry primary keys, by table.
    pub fn keys(&self) -> &[Vec<usize>] {
        &self.keys
    }

    /// How the values of those columns compare.
    pub fn key_kinds(&self, table: usize) -> Vec<ColumnType> {
        let read = self.keyed.get(table).and_then(|place| self.tables.get(*place));
        let key = read.and_then(|read| read.key.as_deref()).unwrap_or_default();
        key.iter().map(|(_, kind)| *kind).collect()
    }

    /// The names that are known before the answer.
    pub fn start(&self) -> Vec<(Vec<u8>, Name)> {
        let mut names = Vec::new();
        for table in &self.whole {
            if self.rules.table {
                names.push((table.clone(), Name::Table));
            }
            if self.rules.collapse {
                names.push((table.clone(), Name::Any));
            }
        }
        for BoundRead { read, .. } in &self.tables {
            names.extend(read.before(self.rules).into_iter().map(|name| (read.table.clone(), name)));
        }
        names
    }

    /// The name of a row, given the values of the columns in [`Reads::keys`]. A key with a NULL is no row: an outer join
    /// found none.
    pub fn row(&mut self, table: usize, key: &[Option<Literal<'_>>]) -> Option<(Vec<u8>, Name)> {
        let BoundRead { read, key: kinds } = self.tables.get(*self.keyed.get(table)?)?;
        let key: Vec<Literal<'_>> = key.iter().copied().collect::<Option<_>>()?;
        let parts =
            key.iter().zip(kinds.iter().flatten()).map(|(value, (_, kind))| canonical(self.rules, *kind, *value));
        let name = match parts.collect::<Option<Vec<Vec<u8>>>>() {
            Some(parts) => {
                let key = row_key(&parts);
                if !self.found.get_mut(table)?.insert(key.clone()) || !self.rules.values {
                    return None;
                }
                Name::Row(key)
            }
            // A value that has no name: each write of the table touches the answer.
            None => Name::Any,
        };
        Some((read.table.clone(), name))
    }

    /// The names that are known at the end of the answer.
    pub fn end(&self) -> Vec<(Vec<u8>, Name)> {
        let found = |place: usize| match self.keyed.iter().position(|keyed| *keyed == place) {
            Some(table) => self.found[table].len(),
            None => 0,
        };
        let tables = self.tables.iter().enumerate();
        let names = tables.filter_map(|(place, BoundRead { read, .. })| {
            let name = read.after(self.rules, found(place))?;
            Some((read.table.clone(), name))
        });
        names.collect()
    }

    /// Bounds the names of a page.
    pub fn bounded(&self, names: Vec<(Vec<u8>, Name)>) -> Names {
        if self.everything { Names::Everything } else { Names::bounded(self.rules, Side::Read, names) }
    }

    /// The rows of several answers are not told apart.
    fn forget_rows(&mut self) {
        self.keyed.clear();
        self.keys.clear();
        self.found.clear();
        for table in &mut self.tables {
            table.key = None;
            table.read.rows = None;
        }
    }
}
