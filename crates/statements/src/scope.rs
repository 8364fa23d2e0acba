//! The tables of one FROM, and what the expressions beside it mention of them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, Ident, InTarget, Join, JoinConstraint, JoinOperator, ObjectName, Query,
    TableFactor, TableWithJoins, UnaryOperator, Value, Visitor,
};

use crate::plan::{Condition, Source};
use crate::planner::{Flow, Named, Planner, refuse};
use crate::{Table, functions};

/// One table, or something else that gives rows, in a FROM.
pub(crate) struct Occurrence<'s> {
    /// How expressions name it.
    pub alias: Vec<u8>,
    /// The table, unless it is a query, a view or a function.
    pub table: Option<(Vec<u8>, &'s Table)>,
}

/// The tables of a FROM.
#[derive(Default)]
pub(crate) struct Scope<'s> {
    pub tables: Vec<Occurrence<'s>>,
    /// The ON conditions, each with the tables whose rows it limits.
    pub limits: Vec<(Expr, std::ops::Range<usize>)>,
    /// Columns of USING.
    pub using: Vec<Vec<u8>>,
    /// A join that merges columns of which no more is known.
    pub natural: bool,
    /// An outer join without a condition of its own: how the joins nest is not sure.
    pub unsure: bool,
}

/// A column that an expression mentions.
pub(crate) struct Mention {
    pub qualifier: Option<Vec<u8>>,
    pub column: Vec<u8>,
    /// In a query in the expression.
    pub nested: bool,
}

/// Collects what expressions mention, those of nested queries too.
pub(crate) struct Mentions<'p, 's> {
    planner: &'p Planner<'s>,
    pub columns: Vec<Mention>,
    /// Something mentions columns without naming them.
    pub all: bool,
    /// An aggregate or a window, not in a nested query.
    pub aggregate: bool,
    depth: usize,
}

impl<'s> Scope<'s> {
    pub fn add(&mut self, planner: &mut Planner<'s>, from: &TableWithJoins) -> Flow {
        self.factor(planner, &from.relation)?;
        for join in &from.joins {
            self.join(planner, join)?;
        }
        Flow::Continue(())
    }

    fn join(&mut self, planner: &mut Planner<'s>, join: &Join) -> Flow {
        let left = self.tables.len();
        self.factor(planner, &join.relation)?;
        let right = self.tables.len();
        let (constraint, limited) = match &join.join_operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::CrossJoin(constraint)
            | JoinOperator::StraightJoin(constraint) => (constraint, 0..right),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => {
                self.unsure |= matches!(constraint, JoinConstraint::None);
                (constraint, left..right)
            }
            JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) => {
                self.unsure |= matches!(constraint, JoinConstraint::None);
                (constraint, 0..0)
            }
            _ => return refuse("a join that is not understood"),
        };
        match constraint {
            JoinConstraint::On(condition) => self.limits.push((condition.clone(), limited)),
            JoinConstraint::Using(columns) => {
                self.using.extend(columns.iter().filter_map(|name| planner.parts(name)?.pop()));
            }
            JoinConstraint::UsingAlias(..) => return refuse("USING with a name"),
            JoinConstraint::Natural => self.natural = true,
            JoinConstraint::None => {}
        }
        Flow::Continue(())
    }

    fn factor(&mut self, planner: &mut Planner<'s>, factor: &TableFactor) -> Flow {
        let (alias, table) = match factor {
            TableFactor::Table { name, alias, args: None, .. } => {
                let table = match planner.resolve(name) {
                    Named::Table(id) => planner.table(&id).map(|table| (id, table)),
                    _ => None,
                };
                let last = planner.parts(name).and_then(|mut parts| parts.pop()).unwrap_or_default();
                // With columns renamed, nothing is known of them.
                let renamed = alias.as_ref().is_some_and(|alias| !alias.columns.is_empty());
                (alias.as_ref().map_or(last, |alias| planner.identifier(&alias.name)), table.filter(|_| !renamed))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => return self.add(planner, table_with_joins),
            TableFactor::NestedJoin { .. } => return refuse("a join with a name"),
            TableFactor::Table { alias, .. }
            | TableFactor::Derived { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::JsonTable { alias, .. } => {
                (alias.as_ref().map_or(Vec::new(), |alias| planner.identifier(&alias.name)), None)
            }
            _ => return refuse("a source of rows that is not understood"),
        };
        self.tables.push(Occurrence { alias, table });
        Flow::Continue(())
    }

    /// The tables that a column may belong to.
    pub fn owners(&self, qualifier: Option<&[u8]>, column: &[u8]) -> Vec<usize> {
        let named = |occurrence: &Occurrence| qualifier.is_none_or(|q| occurrence.alias.eq_ignore_ascii_case(q));
        let has = |occurrence: &Occurrence| occurrence.table.as_ref().is_some_and(|(_, t)| t.column(column).is_some());
        let tables = self.tables.iter().enumerate();
        tables.filter(|(_, occurrence)| named(occurrence) && has(occurrence)).map(|(index, _)| index).collect()
    }

    /// The one table and column that an expression is, if it is nothing else.
    pub fn column(&self, planner: &Planner<'_>, expr: &Expr) -> Option<(usize, Vec<u8>)> {
        let (qualifier, column) = match expr {
            Expr::Identifier(ident) => (None, planner.identifier(ident)),
            Expr::CompoundIdentifier(parts) => {
                let mut parts: Vec<Vec<u8>> = parts.iter().map(|ident| planner.identifier(ident)).collect();
                let column = parts.pop()?;
                (parts.pop(), column)
            }
            _ => return None,
        };
        match self.owners(qualifier.as_deref(), &column).as_slice() {
            [owner] => {
                let (_, table) = self.tables[*owner].table.as_ref()?;
                Some((*owner, table.column(&column)?.name.clone()))
            }
            _ => None,
        }
    }

    /// The conditions `column in (values)` that limit the rows of one table, those on a unique key first.
    pub fn conditions(&self, planner: &Planner<'_>, selection: Option<&Expr>, index: usize) -> Vec<Condition> {
        if planner.blind || planner.odd_operators || self.unsure {
            return Vec::new();
        }
        let mut parts = Vec::new();
        selection.into_iter().for_each(|expr| conjuncts(expr, &mut parts));
        for (condition, limited) in &self.limits {
            if limited.contains(&index) {
                conjuncts(condition, &mut parts);
            }
        }
        let mut found: Vec<Condition> =
            parts.into_iter().filter_map(|part| self.condition(planner, part, index)).collect();
        found.sort_by_key(|condition| !condition.unique);
        found
    }

    fn condition(&self, planner: &Planner<'_>, expr: &Expr, index: usize) -> Option<Condition> {
        let (expr, values) = match expr {
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => match literal(right) {
                Some(source) => (left.as_ref(), vec![source]),
                None => (right.as_ref(), vec![literal(left)?]),
            },
            Expr::In { expr, target: InTarget::List(list), negated: false, .. } => {
                (expr.as_ref(), list.iter().map(literal).collect::<Option<Vec<Source>>>()?)
            }
            _ => return None,
        };
        let (owner, name) = self.column(planner, expr)?;
        let (_, table) = self.tables[owner].table.as_ref()?;
        let column = table.column(&name).filter(|_| owner == index && !values.is_empty())?;
        let unique = table.is_unique(&column.name);
        Some(Condition { column: column.name.clone(), kind: column.kind, unique, sources: values })
    }
}

/// The parts of a condition that must all hold.
fn conjuncts<'e>(expr: &'e Expr, parts: &mut Vec<&'e Expr>) {
    let mut rest = vec![expr];
    while let Some(expr) = rest.pop() {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => rest.extend([right.as_ref(), left.as_ref()]),
            Expr::Nested(inner) => rest.push(inner),
            _ => parts.push(expr),
        }
    }
}

/// The slot that an expression is, if it is nothing else.
pub(crate) fn literal(expr: &Expr) -> Option<Source> {
    let slot = |text: &str, negative| Some(Source::Slot { index: text.parse().ok()?, negative });
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, false) => slot(text, false),
            Value::SingleQuotedString(text) => slot(text, false),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => match &value.value {
                Value::Number(text, false) => slot(text, true),
                _ => None,
            },
            _ => None,
        },
        Expr::Nested(inner) => literal(inner),
        _ => None,
    }
}

impl<'p, 's> Mentions<'p, 's> {
    pub fn new(planner: &'p Planner<'s>) -> Self {
        Mentions { planner, columns: Vec::new(), all: false, aggregate: false, depth: 0 }
    }

    /// The columns of a table of the scope that are mentioned.
    pub fn of(&self, scope: &Scope<'_>, index: usize) -> BTreeSet<Vec<u8>> {
        let Some((_, table)) = &scope.tables[index].table else { return BTreeSet::new() };
        let mentioned = self.columns.iter().filter_map(|mention| {
            let owners = scope.owners(mention.qualifier.as_deref(), &mention.column);
            if owners.contains(&index) { table.column(&mention.column) } else { None }
        });
        mentioned.map(|column| column.name.clone()).collect()
    }

    fn mention(&mut self, parts: &[Ident]) {
        let mut parts: Vec<Vec<u8>> = parts.iter().map(|ident| self.planner.identifier(ident)).collect();
        if let Some(column) = parts.pop() {
            self.columns.push(Mention { qualifier: parts.pop(), column, nested: self.depth > 0 });
        }
    }

    fn function(&mut self, function: &Function) {
        let name = self.planner.parts(&function.name).and_then(|mut parts| parts.pop());
        let many = function.over.is_some() || name.is_some_and(|name| functions::is_aggregate(&name));
        self.aggregate |= many && self.depth == 0;
    }

    pub fn names(&mut self, names: &[ObjectName]) {
        for name in names {
            if let Some(mut parts) = self.planner.parts(name)
                && let Some(column) = parts.pop()
            {
                self.columns.push(Mention { qualifier: parts.pop(), column, nested: self.depth > 0 });
            }
        }
    }
}

impl Visitor for Mentions<'_, '_> {
    type Break = String;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<String> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<String> {
        match expr {
            Expr::Identifier(ident) => self.mention(std::slice::from_ref(ident)),
            Expr::CompoundIdentifier(parts) => self.mention(parts),
            Expr::Function(function) => self.function(function),
            Expr::MatchAgainst { columns, .. } => self.names(columns),
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => self.all = true,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
