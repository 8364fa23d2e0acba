//! From a parsed statement to its [`Plan`].
//!
//! The parser's visitor goes through the whole statement. Each query, wherever it stands, is looked at by itself
//! ([`crate::select`]), each write by [`crate::change`], and here each expression and each name of a table. Two nets are
//! below what those two understand: a table that is mentioned and that neither has dealt with is read as a whole, and a
//! function or a construct that is on no list makes the statement everything.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, DataType, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, Select,
    Statement, TableFactor, Visit, Visitor,
};
use sqlparser::dialect::{Dialect as Grammar, MySqlDialect, PostgreSqlDialect, SQLiteDialect};
use sqlparser::parser::Parser;

use crate::functions::{self, Class};
use crate::plan::{Effect, INTO, Plan, Session, Storable};
use crate::{CATALOG, Dialect, Product, Rules, Schema, Table, shape};

/// How deep views and triggers may stand in each other.
const MAX_DEPTH: usize = 8;
/// How deep the parser may go.
const MAX_RECURSION: usize = 100;

/// Stops the visit: the statement is everything.
pub(crate) type Flow = ControlFlow<String>;

pub(crate) fn refuse(reason: impl Into<String>) -> Flow {
    ControlFlow::Break(reason.into())
}

/// What a name of a table stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Table(Vec<u8>),
    View(Vec<u8>),
    /// A query with a name.
    Common,
    Catalog,
    /// A table of the server whose rows change by themselves.
    Status,
    Unknown,
}

pub(crate) struct Planner<'s> {
    pub rules: Rules,
    pub dialect: &'s Dialect,
    pub schema: &'s Schema,
    pub plan: Plan,
    /// Inside of a view or a trigger: literals are not those of the statement.
    pub blind: bool,
    /// An operator is in the statement that the parser binds otherwise than the server.
    pub odd_operators: bool,
    /// Tables that need no more names than they have.
    pub handled: BTreeSet<Vec<u8>>,
    mentioned: BTreeSet<Vec<u8>>,
    common: BTreeSet<Vec<u8>>,
    table_functions: BTreeSet<String>,
    depth: usize,
    /// The next query is the statement itself.
    outermost: bool,
}

/// Plans one statement, given as its shape.
pub(crate) fn plan(rules: Rules, dialect: &Dialect, schema: &Schema, text: &str) -> Plan {
    let statement = match parse(dialect, text) {
        Ok(statement) => statement,
        Err(reason) => return Plan::everything(&reason),
    };
    let only_rows = changes_only_rows(dialect, &statement);
    let mut planner = Planner {
        rules,
        dialect,
        schema,
        plan: Plan::nothing(),
        blind: false,
        odd_operators: odd_operators(dialect, text),
        handled: BTreeSet::new(),
        mentioned: BTreeSet::new(),
        common: BTreeSet::new(),
        table_functions: BTreeSet::new(),
        depth: 0,
        outermost: matches!(statement, Statement::Query(_)),
    };
    if let ControlFlow::Break(reason) = statement.visit(&mut planner) {
        return Plan { only_rows, ..Plan::everything(&reason) };
    }
    planner.plan.only_rows = only_rows;
    for table in planner.mentioned.difference(&planner.handled) {
        planner.plan.read_whole(table);
    }
    planner.plan
}

/// Whether a statement makes, changes and drops no table, whatever it is made of. In MySQL neither a function nor a trigger does so: what commits is refused in them. A
/// function of PostgreSQL may.
fn changes_only_rows(dialect: &Dialect, statement: &Statement) -> bool {
    let is_of_rows = matches!(
        statement,
        Statement::Query(_) | Statement::Insert(_) | Statement::Update { .. } | Statement::Delete(_)
    );
    dialect.is_mysql() && is_of_rows
}

fn parse(dialect: &Dialect, text: &str) -> Result<Statement, String> {
    let grammar: &dyn Grammar = match dialect.product {
        Product::MySql | Product::MariaDb => &MySqlDialect {},
        Product::PostgreSql => &PostgreSqlDialect {},
        Product::Sqlite => &SQLiteDialect {},
    };
    let text = without_row_locks(text);
    let parser = Parser::new(grammar).with_recursion_limit(MAX_RECURSION).try_with_sql(text);
    let mut statements = parser.and_then(|mut parser| parser.parse_statements()).map_err(|error| error.to_string())?;
    match (statements.pop(), statements.is_empty()) {
        (Some(statement), true) => Ok(statement),
        _ => Err("not one statement".to_owned()),
    }
}

/// The statement without the locks on rows that the parser does not know: they change no answer.
fn without_row_locks(mut text: &str) -> &str {
    const LOCKS: [&str; 5] = [" lock in share mode", " for no key update", " for key share", " skip locked", " nowait"];
    let ends = |text: &str, lock: &str| {
        let at = text.len().checked_sub(lock.len())?;
        text.get(at..)?.eq_ignore_ascii_case(lock).then_some(at)
    };
    let mut cut = text;
    while let Some((at, lock)) = LOCKS.iter().find_map(|lock| Some((ends(cut, lock)?, *lock))) {
        cut = &cut[..at];
        // What stands before `nowait` may be a lock that the parser knows; it stays.
        if !matches!(lock, " skip locked" | " nowait") {
            text = cut;
        }
    }
    text
}

/// Whether an AND may not be what the parser takes it for. In MySQL `||` is OR, and XOR and `:=` are weaker than AND.
fn odd_operators(dialect: &Dialect, text: &str) -> bool {
    let words = || text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    dialect.is_mysql()
        && (text.contains("||") || text.contains(":=") || words().any(|word| word.eq_ignore_ascii_case("xor")))
}

/// The bytes of an identifier.
pub(crate) fn identifier(dialect: &Dialect, ident: &Ident) -> Vec<u8> {
    // Latin-1: each character is one byte.
    let mut bytes: Vec<u8> = ident.value.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect();
    if dialect.is_postgres() && ident.quote_style.is_none() {
        bytes.make_ascii_lowercase();
    }
    bytes
}

impl<'s> Planner<'s> {
    pub fn identifier(&self, ident: &Ident) -> Vec<u8> {
        identifier(self.dialect, ident)
    }

    pub fn parts(&self, name: &ObjectName) -> Option<Vec<Vec<u8>>> {
        let part = |part: &ObjectNamePart| match part {
            ObjectNamePart::Identifier(ident) => Some(self.identifier(ident)),
            ObjectNamePart::Function(_) => None,
        };
        name.0.iter().map(part).collect()
    }

    /// What a name stands for. Where a common name hides a table, the table is read too: that is never too little.
    pub fn resolve(&mut self, name: &ObjectName) -> Named {
        let Some(mut parts) = self.parts(name) else { return Named::Unknown };
        if self.schema.folds_tables {
            parts.iter_mut().for_each(|part| part.make_ascii_lowercase());
        }
        let found = match parts.as_slice() {
            [table] => {
                let mut found = Named::Unknown;
                // PostgreSQL looks into its own catalog first.
                if self.dialect.is_postgres() && table.starts_with(b"pg_") {
                    found = functions::system_table(self.dialect, b"pg_catalog", table);
                }
                for database in &self.schema.search {
                    if found == Named::Unknown {
                        found = self.look_up(database, table);
                    }
                }
                if found == Named::Unknown && self.dialect.product == Product::Sqlite {
                    found = functions::system_table(self.dialect, b"main", table);
                }
                found
            }
            [database, table] => match self.look_up(database, table) {
                Named::Unknown => functions::system_table(self.dialect, database, table),
                found => found,
            },
            _ => Named::Unknown,
        };
        match parts.as_slice() {
            [name] if self.common.iter().any(|common| common.eq_ignore_ascii_case(name)) => {
                if let Named::Table(table) = &found {
                    self.plan.read_whole(table);
                }
                Named::Common
            }
            _ => found,
        }
    }

    fn look_up(&self, database: &[u8], table: &[u8]) -> Named {
        let name = Schema::name(database, table);
        if let Some(found) = self.schema.tables.get(&name) {
            return Named::Table(found.root.clone().unwrap_or(name));
        }
        if self.schema.views.contains_key(&name) { Named::View(name) } else { Named::Unknown }
    }

    /// A table of the schema.
    pub fn table(&self, name: &[u8]) -> Option<&'s Table> {
        self.schema.tables.get(name)
    }

    /// A table is read, in whatever way.
    fn mention(&mut self, name: &ObjectName) -> Flow {
        match self.resolve(name) {
            Named::Table(table) => match self.table(&table) {
                Some(known) if known.foreign => refuse("a foreign table"),
                Some(known) => {
                    if known.by_role {
                        self.plan.store_only(Storable::No("which rows are seen depends on the role"));
                    }
                    self.mentioned.insert(table);
                    Flow::Continue(())
                }
                None => refuse(format!("unknown table {name}")),
            },
            Named::View(view) if self.rules.views => self.view(&view),
            Named::View(_) | Named::Common => Flow::Continue(()),
            Named::Catalog => {
                self.plan.read_whole(CATALOG);
                Flow::Continue(())
            }
            Named::Status => {
                self.plan.store_only(Storable::No("the server's own tables"));
                Flow::Continue(())
            }
            Named::Unknown => refuse(format!("unknown table {name}")),
        }
    }

    /// A view is its tables (rule Q18).
    fn view(&mut self, view: &[u8]) -> Flow {
        match self.schema.views.get(view) {
            Some(body) => self.inside(body, |statement| matches!(statement, Statement::Query(_))),
            None => refuse("an unknown view"),
        }
    }

    /// Goes through statements that stand in the catalog.
    pub fn inside(&mut self, body: &[u8], fits: fn(&Statement) -> bool) -> Flow {
        if self.depth == MAX_DEPTH {
            return refuse("views or triggers in each other, too deep");
        }
        // The server stores the text in its own form, whatever the session's settings are.
        let dialect = Dialect { version: self.dialect.version, ..Dialect::new(self.dialect.product) };
        let shapes = match shape::shapes(&dialect, body) {
            Ok(shapes) => shapes,
            Err(reason) => return refuse(reason),
        };
        let before = (self.blind, std::mem::take(&mut self.common), std::mem::take(&mut self.outermost));
        self.blind = true;
        self.depth += 1;
        for shape in &shapes {
            match parse(&dialect, &shape.text) {
                Ok(statement) if fits(&statement) => statement.visit(self)?,
                Ok(_) => return refuse("a statement in a view or a trigger that is not understood"),
                Err(reason) => return refuse(reason),
            }
        }
        self.depth -= 1;
        (self.blind, self.common, self.outermost) = before;
        Flow::Continue(())
    }

    fn function(&mut self, function: &Function) -> Flow {
        let Some(parts) = self.parts(&function.name) else { return refuse("an odd function") };
        let name = match parts.as_slice() {
            [name] => name,
            [schema, name] if self.dialect.is_postgres() && schema == b"pg_catalog" => name,
            _ => return refuse(format!("unknown function {}", function.name)),
        };
        if !matches!(function.parameters, FunctionArguments::None) {
            return refuse("a function with two lists");
        }
        self.called(name)
    }

    /// A variable of MySQL is read.
    fn variable(&mut self, name: &[u8]) {
        // What changes it touches everything, so that it needs no name.
        if name.strip_prefix(b"@@").is_some_and(functions::is_global) {
            return;
        }
        let setting = name.strip_prefix(b"@@").is_some_and(functions::is_setting);
        self.plan.store_only(if setting { Storable::Setting } else { Storable::No("a variable of the session") });
    }

    /// A function is called (rule Q18).
    fn called(&mut self, name: &[u8]) -> Flow {
        if self.schema.routines.contains(&name.to_ascii_lowercase()) {
            return refuse(format!("function {} is not built in", String::from_utf8_lossy(name)));
        }
        match functions::class(self.dialect, name) {
            Class::Harmless | Class::Aggregate => {}
            Class::Setting => self.plan.store_only(Storable::Setting),
            Class::Time => self.plan.store_only(Storable::Time),
            Class::Chance => self.plan.store_only(Storable::No("chance")),
            Class::Connection => self.plan.store_only(Storable::No("the connection or the user")),
            Class::FoundRows => self.plan.store_only(Storable::AsTheStatementBefore),
            Class::Unknown => return refuse(format!("unknown function {}", String::from_utf8_lossy(name))),
        }
        Flow::Continue(())
    }
}

impl Visitor for Planner<'_> {
    type Break = String;

    fn pre_visit_statement(&mut self, statement: &Statement) -> Flow {
        match statement {
            Statement::Query(_) => Flow::Continue(()),
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => self.update(update),
            Statement::Delete(delete) => self.delete(delete),
            _ => refuse("a statement that is not understood"),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> Flow {
        if let Some(with) = &query.with {
            for common in &with.cte_tables {
                let name = self.identifier(&common.alias.name);
                self.common.insert(name);
            }
        }
        let outermost = std::mem::take(&mut self.outermost);
        self.query(query, outermost)
    }

    fn pre_visit_select(&mut self, select: &Select) -> Flow {
        match &select.into {
            Some(_) => refuse(INTO),
            None => Flow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> Flow {
        match factor {
            TableFactor::Table { args: None, version: None, sample: None, json_path: None, .. } => Flow::Continue(()),
            TableFactor::Table { name, args: Some(_), .. } => {
                self.table_functions.insert(name.to_string());
                match self.parts(name).as_deref() {
                    Some([function]) if functions::is_table(function) => Flow::Continue(()),
                    _ => refuse(format!("unknown function {name}")),
                }
            }
            TableFactor::Derived { sample: None, .. }
            | TableFactor::NestedJoin { .. }
            | TableFactor::UNNEST { .. }
            | TableFactor::JsonTable { .. } => Flow::Continue(()),
            TableFactor::Function { name, .. } => match self.parts(name).as_deref() {
                Some([function]) if functions::is_table(function) => Flow::Continue(()),
                _ => refuse(format!("unknown function {name}")),
            },
            _ => refuse("a source of rows that is not understood"),
        }
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> Flow {
        if self.table_functions.contains(&relation.to_string()) {
            return Flow::Continue(());
        }
        self.mention(relation)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> Flow {
        match expr {
            Expr::Function(function) => self.function(function),
            Expr::Identifier(ident) if ident.quote_style.is_none() => {
                let name = self.identifier(ident);
                if name.starts_with(b"@") {
                    self.variable(&name);
                } else if functions::is_bare(self.dialect, &name) {
                    return self.called(&name);
                }
                Flow::Continue(())
            }
            Expr::CompoundIdentifier(parts) if parts.first().is_some_and(|ident| ident.value.starts_with('@')) => {
                let first = self.identifier(&parts[0]).to_ascii_lowercase();
                let ours = parts.len() == 2 && [&b"@@session"[..], b"@@global", b"@@local"].contains(&first.as_slice());
                let name = if ours { [b"@@", self.identifier(&parts[1]).as_slice()].concat() } else { first.clone() };
                // The server's own value is the same for every session.
                if first != b"@@global" || !functions::is_setting(&name[2..]) {
                    self.variable(&name);
                }
                Flow::Continue(())
            }
            Expr::BinaryOp { op: BinaryOperator::Custom(_) | BinaryOperator::PGCustomBinaryOperator(_), .. } => {
                refuse("an operator that is not built in")
            }
            Expr::BinaryOp { op: BinaryOperator::Assignment, .. } => {
                self.plan.session.push(Session::Unknown);
                self.plan.store_only(Storable::No("a variable of the session"));
                Flow::Continue(())
            }
            Expr::Cast { data_type: DataType::Custom(name, _), .. } if self.dialect.is_postgres() => {
                match self.parts(name).as_deref() {
                    Some([kind]) if kind.starts_with(b"reg") => {
                        self.plan.read_whole(CATALOG);
                        Flow::Continue(())
                    }
                    _ => refuse(format!("unknown type {name}")),
                }
            }
            _ => Flow::Continue(()),
        }
    }
}

impl Plan {
    /// Something is written.
    pub(crate) fn writes_with(&mut self, effect: Effect) {
        self.effect = self.effect.max(effect);
    }
}
