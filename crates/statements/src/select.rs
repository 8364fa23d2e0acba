//! What a query reads (rules Q12 to Q14).
//!
//! Each table of a FROM is looked at as if the others were constant. That is enough: a write changes one row after the
//! other, and while the names of no row are met the answer, on which the names depend, stays the same.

use std::collections::BTreeSet;

use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, LimitClause, OrderBy, OrderByKind, Query, Select, SelectFlavor, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Visit, WildcardAdditionalOptions,
};

use crate::ColumnType;
use crate::plan::PlannedRead;
use crate::planner::{Flow, Named, Planner, refuse};
use crate::scope::{Mentions, Scope};

/// What stands around a SELECT.
#[derive(Clone, Copy)]
struct Around<'q> {
    order: Option<&'q OrderBy>,
    /// The statement is this one SELECT, and its rows are the answer.
    answers: bool,
    window: bool,
}

impl<'s> Planner<'s> {
    /// One query, without those that stand in it.
    pub(crate) fn query(&mut self, query: &Query, outermost: bool) -> Flow {
        let Query { with: _, body, order_by, limit_clause, fetch, locks: _, .. } = query;
        let odd = query.for_clause.is_some() || query.settings.is_some() || query.format_clause.is_some();
        if odd || !query.pipe_operators.is_empty() {
            return refuse("a query that is not understood");
        }
        if let Some(LimitClause::LimitOffset { limit_by, .. }) = limit_clause
            && !limit_by.is_empty()
        {
            return refuse("LIMIT BY");
        }
        let limited = limit_clause.is_some() || fetch.is_some();
        let single = matches!(body.as_ref(), SetExpr::Select(_));
        let answers = outermost && single && !self.blind;
        let around = Around { order: order_by.as_ref(), answers, window: limited || !answers };
        self.set(body, around)
    }

    fn set(&mut self, body: &SetExpr, around: Around<'_>) -> Flow {
        // A chain of UNION is as deep as it is long.
        let mut rest = vec![body];
        while let Some(body) = rest.pop() {
            match body {
                SetExpr::Select(select) => self.select(select, around)?,
                SetExpr::SetOperation { left, right, .. } => rest.extend([left.as_ref(), right.as_ref()]),
                // The visitor comes to these by itself.
                SetExpr::Query(_) | SetExpr::Values(_) => {}
                SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) => {}
                SetExpr::Table(table) => {
                    let parts = [&table.schema_name, &table.table_name];
                    let parts: Vec<_> = parts.into_iter().flatten().cloned().collect();
                    match self.resolve(&parts.into()) {
                        Named::Table(table) => self.plan.read_whole(&table),
                        _ => return refuse("TABLE of something else than a table"),
                    }
                }
                SetExpr::Merge(_) => return refuse("MERGE"),
            }
        }
        Flow::Continue(())
    }

    fn select(&mut self, select: &Select, around: Around<'_>) -> Flow {
        let odd = select.top.is_some()
            || select.exclude.is_some()
            || !select.lateral_views.is_empty()
            || select.prewhere.is_some()
            || !select.connect_by.is_empty()
            || !select.cluster_by.is_empty()
            || !select.distribute_by.is_empty()
            || !select.sort_by.is_empty()
            || select.qualify.is_some()
            || select.value_table_mode.is_some()
            || !matches!(select.flavor, SelectFlavor::Standard);
        if odd {
            return refuse("a SELECT that is not understood");
        }
        let mut scope = Scope::default();
        for from in &select.from {
            scope.add(self, from)?;
        }
        let grouped = match &select.group_by {
            GroupByExpr::All(_) => true,
            GroupByExpr::Expressions(by, with) => !by.is_empty() || !with.is_empty(),
        };
        let mut shown = Mentions::new(self);
        select.projection.visit(&mut shown)?;
        let mut deciding = Mentions::new(self);
        select.selection.visit(&mut deciding)?;
        select.having.visit(&mut deciding)?;
        select.group_by.visit(&mut deciding)?;
        select.named_window.visit(&mut deciding)?;
        around.order.map_or(Flow::Continue(()), |order| order.visit(&mut deciding))?;
        for (condition, _) in &scope.limits {
            condition.visit(&mut deciding)?;
        }
        for using in &scope.using {
            let using =
                sqlparser::ast::Ident::with_quote('"', using.iter().copied().map(char::from).collect::<String>());
            deciding.names(&[using.into()]);
        }
        let (distinct, distinct_on) = match &select.distinct {
            None | Some(Distinct::All) => (false, false),
            Some(Distinct::Distinct) => (true, false),
            Some(Distinct::On(_)) => (true, true),
        };
        let many = grouped || shown.aggregate || deciding.aggregate || distinct_on || select.having.is_some();
        let found_rows = select.select_modifiers.as_ref().is_some_and(|modifiers| modifiers.sql_calc_found_rows);
        let window = around.window || many || distinct || found_rows;
        if self.computed_column(&scope, &shown) || self.computed_column(&scope, &deciding) {
            return refuse("a column that the table does not have");
        }
        let aliases = self.aliases(select, &deciding, around.order);
        let all = deciding.all || scope.natural || self.unresolved(&scope, &deciding, &aliases);
        let through_alias = distinct || !aliases.is_empty() || positional(around.order);
        let mut reads = Vec::new();
        for (index, occurrence) in scope.tables.iter().enumerate() {
            let Some((name, table)) = &occurrence.table else { continue };
            let key = if around.answers && !many { self.key(select, &scope, index) } else { None };
            let mut columns = deciding.of(&scope, index);
            if through_alias {
                columns.extend(shown.of(&scope, index));
            }
            if all || through_alias && shown.all {
                columns.extend(table.columns.iter().map(|column| column.name.clone()));
            }
            // Without the rows the names of all values are there, and with those no column says more.
            let columns = if key.is_some() || !self.rules.values { columns } else { BTreeSet::new() };
            reads.push(PlannedRead {
                table: name.clone(),
                conditions: scope.conditions(self, select.selection.as_ref(), index),
                deciding: columns.into_iter().collect(),
                window,
                key,
            });
        }
        for read in reads {
            self.handled.insert(read.table.clone());
            self.plan.reads.push(read);
        }
        Flow::Continue(())
    }

    /// PostgreSQL takes `t.f` for a call of f with the row, if t has no such column.
    fn computed_column(&self, scope: &Scope<'_>, mentions: &Mentions<'_, '_>) -> bool {
        const HIDDEN: [&[u8]; 6] = [b"ctid", b"xmin", b"xmax", b"cmin", b"cmax", b"tableoid"];
        let computed = |qualifier: &[u8], column: &[u8]| {
            let mut named = scope.tables.iter().filter(|table| table.alias == qualifier);
            named.any(|occurrence| occurrence.table.as_ref().is_some_and(|(_, t)| t.column(column).is_none()))
                && !HIDDEN.contains(&column)
        };
        self.dialect.is_postgres()
            && mentions.columns.iter().any(|m| m.qualifier.as_ref().is_some_and(|q| computed(q, &m.column)))
    }

    /// The names of the projection that the order or the groups use.
    fn aliases(&self, select: &Select, deciding: &Mentions<'_, '_>, order: Option<&OrderBy>) -> Vec<Vec<u8>> {
        let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
        if order.is_none() && !grouped && select.having.is_none() && select.selection.is_none() {
            return Vec::new();
        }
        let alias = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(self.identifier(alias)),
            _ => None,
        };
        let used = |alias: &Vec<u8>| {
            deciding.columns.iter().any(|m| m.qualifier.is_none() && m.column.eq_ignore_ascii_case(alias))
        };
        select.projection.iter().filter_map(alias).filter(used).collect()
    }

    /// Whether something decides that is no column of a table that is known: `rowid`, `ctid`, the whole row.
    fn unresolved(&self, scope: &Scope<'_>, deciding: &Mentions<'_, '_>, aliases: &[Vec<u8>]) -> bool {
        deciding.columns.iter().any(|mention| {
            let qualifier = mention.qualifier.as_deref();
            let ours = |qualifier: &[u8]| scope.tables.iter().any(|table| table.alias.eq_ignore_ascii_case(qualifier));
            let foreign = scope.tables.iter().any(|table| table.table.is_none());
            let known = !scope.owners(qualifier, &mention.column).is_empty()
                || qualifier.is_none() && aliases.iter().any(|alias| alias.eq_ignore_ascii_case(&mention.column))
                || mention.nested && qualifier.is_none_or(|qualifier| !ours(qualifier));
            !(known || foreign && qualifier.is_none_or(ours))
        })
    }

    /// Where the answer carries the primary key of a table.
    fn key(&self, select: &Select, scope: &Scope<'_>, index: usize) -> Option<Vec<(usize, ColumnType)>> {
        let (_, table) = scope.tables[index].table.as_ref()?;
        let key = table.key()?;
        let mut shown: Vec<Option<(usize, Vec<u8>)>> = Vec::new();
        let found = |shown: &[Option<(usize, Vec<u8>)>]| {
            let position = |name: &[u8]| {
                shown.iter().position(|c| c.as_ref().is_some_and(|(owner, column)| *owner == index && column == name))
            };
            let positions = key.iter().map(|column| Some((position(&column.name)?, column.kind)));
            positions.collect::<Option<Vec<(usize, ColumnType)>>>()
        };
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                    shown.push(self.plain(scope, expr));
                }
                SelectItem::Wildcard(options) if plain_options(options) && scope.using.is_empty() && !scope.natural => {
                    for occurrence in 0..scope.tables.len() {
                        match columns(scope, occurrence) {
                            Some(columns) => shown.extend(columns),
                            None => return found(&shown),
                        }
                    }
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options)
                    if plain_options(options) =>
                {
                    let Some(alias) = self.parts(name).and_then(|mut parts| parts.pop()) else { return found(&shown) };
                    let mut named =
                        (0..scope.tables.len()).filter(|i| scope.tables[*i].alias.eq_ignore_ascii_case(&alias));
                    match (named.next().and_then(|occurrence| columns(scope, occurrence)), named.next()) {
                        (Some(columns), None) => shown.extend(columns),
                        _ => return found(&shown),
                    }
                }
                // Behind columns whose number is not known no place is.
                _ => return found(&shown),
            }
        }
        found(&shown)
    }

    fn plain(&self, scope: &Scope<'_>, expr: &Expr) -> Option<(usize, Vec<u8>)> {
        // A column of USING is that of the one table or of the other.
        scope.column(self, expr).filter(|(_, column)| !scope.using.iter().any(|u| u.eq_ignore_ascii_case(column)))
    }
}

type Shown = Vec<Option<(usize, Vec<u8>)>>;

/// The columns of `t.*`.
fn columns(scope: &Scope<'_>, occurrence: usize) -> Option<Shown> {
    let (_, table) = scope.tables[occurrence].table.as_ref()?;
    let shown = table.columns.iter().filter(|column| !column.hidden);
    Some(shown.map(|column| Some((occurrence, column.name.clone()))).collect())
}

fn plain_options(options: &WildcardAdditionalOptions) -> bool {
    options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
}

/// Whether the order may be by the place of a column in the answer.
fn positional(order: Option<&OrderBy>) -> bool {
    match order.map(|order| &order.kind) {
        None => false,
        Some(OrderByKind::All(_)) => true,
        Some(OrderByKind::Expressions(by)) => by.iter().any(|by| matches!(by.expr, Expr::Value(_))),
    }
}
