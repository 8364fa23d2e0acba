//! What INSERT, UPDATE and DELETE touch (rules Q15, Q16 and Q18).

use std::collections::BTreeSet;

use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, Insert, ObjectName, OnConflict, OnConflictAction, OnInsert,
    Query, SetExpr, SqliteOnConflict, Statement, TableFactor, TableObject, TableWithJoins, Update, UpdateTableFromKind,
};

use crate::plan::{Condition, Effect, Keys, PlannedChange, Source, Target};
use crate::planner::{Flow, Named, Planner, refuse};
use crate::scope::{Scope, literal};
use crate::{Column, Table, Trigger};

/// The columns that an INSERT names, and its rows.
type Inserted = (Vec<Vec<u8>>, Vec<Vec<Source>>);

/// What happens to rows of a table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Event<'c> {
    Insert,
    /// An update of these columns.
    Update(&'c [Vec<u8>]),
    Delete,
    /// A foreign key changes the rows in some way.
    Follow,
}

impl<'s> Planner<'s> {
    pub(crate) fn insert(&mut self, insert: &Insert) -> Flow {
        let TableObject::TableName(name) = &insert.table else { return refuse("an INSERT into something odd") };
        let odd = insert.partitioned.is_some()
            || insert.overwrite
            || insert.by_name
            || insert.overriding.is_some()
            || insert.output.is_some()
            || insert.multi_table_insert_type.is_some()
            || !insert.after_columns.is_empty()
            || insert.settings.is_some()
            || insert.format_clause.is_some();
        let (name, table) = match self.written(name) {
            Some(found) if !odd => found,
            _ => return refuse("an INSERT that is not understood"),
        };
        let Some((named, rows)) = self.inserted(insert, table) else {
            return refuse("columns that are not understood");
        };
        let keys = insert_keys(table, &named, &rows);
        let targets = table.columns.iter().map(target).collect();
        let place = |column: &Column| named.iter().position(|name| *name == column.name);
        let places: Vec<Option<usize>> = table.columns.iter().map(place).collect();
        let value = |row: &Vec<Source>, place: &Option<usize>| {
            place.and_then(|place| row.get(place).copied()).unwrap_or(Source::Unknown)
        };
        let values = rows.iter().map(|row| places.iter().map(|place| value(row, place)).collect()).collect();
        self.touch(&name, table, PlannedChange::Insert { targets, rows: values });
        self.fire(table, Event::Insert)?;
        let replaces = insert.replace_into || insert.or == Some(SqliteOnConflict::Replace);
        let assignments = match &insert.on {
            None => None,
            Some(OnInsert::DuplicateKeyUpdate(assignments)) => Some(assignments),
            Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoNothing, .. })) => None,
            Some(OnInsert::OnConflict(OnConflict { action: OnConflictAction::DoUpdate(update), .. })) => {
                Some(&update.assignments)
            }
            Some(_) => return refuse("an INSERT that is not understood"),
        };
        let columns = match assignments {
            Some(assignments) => match self.assigned(table, assignments) {
                Some(columns) => columns,
                None => return refuse("columns that are not understood"),
            },
            None if replaces => table.columns.iter().map(|column| column.name.clone()).collect(),
            None => return Flow::Continue(()),
        };
        self.fire(table, Event::Update(&columns))?;
        self.touch(&name, table, PlannedChange::Update { columns, keys: keys.clone() });
        self.touch(&name, table, PlannedChange::Delete { keys });
        self.fire(table, Event::Delete)
    }

    /// The columns that an INSERT names, and its rows.
    fn inserted(&self, insert: &Insert, table: &Table) -> Option<Inserted> {
        let source = |expr: &Expr| if self.blind { Source::Unknown } else { literal(expr).unwrap_or(Source::Unknown) };
        if !insert.assignments.is_empty() {
            let mut names = Vec::new();
            for assignment in &insert.assignments {
                names.push(self.assignment(table, assignment)?.pop()?);
            }
            return Some((names, vec![insert.assignments.iter().map(|a| source(&a.value)).collect()]));
        }
        let names: Vec<Vec<u8>> = if insert.columns.is_empty() {
            table.columns.iter().filter(|column| !column.hidden).map(|column| column.name.clone()).collect()
        } else {
            insert.columns.iter().map(|name| self.column_of(table, name)).collect::<Option<_>>()?
        };
        let rows = match insert.source.as_deref() {
            Some(query) => match plain_values(query) {
                Some(rows) => rows.iter().map(|row| row.content.iter().map(source).collect()).collect(),
                None => vec![Vec::new()],
            },
            None => vec![Vec::new()],
        };
        let all_given = |row: &Vec<Source>| row.is_empty() || row.len() == names.len();
        rows.iter().all(all_given).then_some((names, rows))
    }

    pub(crate) fn update(&mut self, update: &Update) -> Flow {
        if update.output.is_some() || update.settings.is_some() || update.on_cluster.is_some() {
            return refuse("an UPDATE that is not understood");
        }
        let mut scope = Scope::default();
        scope.add(self, &update.table)?;
        let joined = !update.table.joins.is_empty();
        match &update.from {
            None => {}
            Some(UpdateTableFromKind::BeforeSet(from) | UpdateTableFromKind::AfterSet(from)) => {
                for from in from {
                    scope.add(self, from)?;
                }
            }
        }
        let targets: BTreeSet<usize> = if joined { self.updated(&scope, &update.assignments) } else { [0].into() };
        for index in targets {
            let Some(occurrence) = scope.tables.get(index) else { return refuse("an UPDATE of no table") };
            let Some((name, table)) = occurrence.table.clone() else {
                return refuse("an UPDATE of something else than a table");
            };
            if self.partition(&update.table.relation) {
                return refuse("an UPDATE through a name that is not the table's");
            }
            if joined || update.or == Some(SqliteOnConflict::Replace) {
                let columns: Vec<Vec<u8>> = table.columns.iter().map(|column| column.name.clone()).collect();
                self.touch(&name, table, PlannedChange::Unknown);
                self.fire(table, Event::Update(&columns))?;
                self.fire(table, Event::Delete)?;
                continue;
            }
            let Some(columns) = self.assigned(table, &update.assignments) else {
                return refuse("columns that are not understood");
            };
            let keys = keys(table, &scope.conditions(self, update.selection.as_ref(), index));
            self.fire(table, Event::Update(&columns))?;
            self.touch(&name, table, PlannedChange::Update { columns, keys });
        }
        Flow::Continue(())
    }

    /// The tables of a join of which a column is assigned; all where that is not clear.
    fn updated(&self, scope: &Scope<'_>, assignments: &[Assignment]) -> BTreeSet<usize> {
        let all = || (0..scope.tables.len()).filter(|index| scope.tables[*index].table.is_some()).collect();
        let mut targets = BTreeSet::new();
        for assignment in assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else { return all() };
            let Some(mut parts) = self.parts(name) else { return all() };
            let Some(column) = parts.pop() else { return all() };
            match scope.owners(parts.pop().as_deref(), &column).as_slice() {
                [owner] => targets.insert(*owner),
                _ => return all(),
            };
        }
        targets
    }

    pub(crate) fn delete(&mut self, delete: &Delete) -> Flow {
        if delete.output.is_some() || delete.settings.is_some() || delete.on_cluster.is_some() {
            return refuse("a DELETE that is not understood");
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let mut scope = Scope::default();
        for from in from.iter().chain(delete.using.iter().flatten()) {
            scope.add(self, from)?;
        }
        let plain = |from: &[TableWithJoins]| matches!(from, [one] if one.joins.is_empty());
        if delete.tables.is_empty() && delete.using.is_none() && plain(from) {
            let Some((name, table)) = scope.tables[0].table.clone() else {
                return refuse("a DELETE from something else than a table");
            };
            let keys = keys(table, &scope.conditions(self, delete.selection.as_ref(), 0));
            self.touch(&name, table, PlannedChange::Delete { keys });
            return self.fire(table, Event::Delete);
        }
        // Which of several tables loses rows does not matter: each of them is touched.
        for occurrence in &scope.tables {
            if let Some((name, table)) = occurrence.table.clone() {
                self.touch(&name, table, PlannedChange::Unknown);
                self.fire(table, Event::Delete)?;
            }
        }
        let known = |name: &ObjectName| {
            let alias = self.parts(name).and_then(|mut parts| parts.pop());
            scope
                .tables
                .iter()
                .any(|o| o.table.is_some() && alias.as_ref().is_some_and(|a| o.alias.eq_ignore_ascii_case(a)))
        };
        if delete.tables.iter().all(known) { Flow::Continue(()) } else { refuse("a DELETE from an unknown table") }
    }

    /// The table that a name stands for, if it is one.
    fn written(&mut self, name: &ObjectName) -> Option<(Vec<u8>, &'s Table)> {
        match self.resolve(name) {
            Named::Table(id) => self.table(&id).map(|table| (id, table)),
            _ => None,
        }
    }

    fn partition(&self, relation: &TableFactor) -> bool {
        !matches!(relation, TableFactor::Table { .. } | TableFactor::NestedJoin { .. })
    }

    fn column_of(&self, table: &Table, name: &ObjectName) -> Option<Vec<u8>> {
        let column = self.parts(name)?.pop()?;
        table.column(&column).map(|column| column.name.clone())
    }

    fn assignment(&self, table: &Table, assignment: &Assignment) -> Option<Vec<Vec<u8>>> {
        match &assignment.target {
            AssignmentTarget::ColumnName(name) => Some(vec![self.column_of(table, name)?]),
            AssignmentTarget::Tuple(names) => names.iter().map(|name| self.column_of(table, name)).collect(),
        }
    }

    /// The columns that assignments change, those that follow them included.
    fn assigned(&self, table: &Table, assignments: &[Assignment]) -> Option<Vec<Vec<u8>>> {
        let mut columns: BTreeSet<Vec<u8>> = BTreeSet::new();
        for assignment in assignments {
            columns.extend(self.assignment(table, assignment)?);
        }
        columns.extend(table.columns.iter().filter(|column| column.follows).map(|column| column.name.clone()));
        Some(columns.into_iter().collect())
    }

    fn touch(&mut self, name: &[u8], table: &Table, change: PlannedChange) {
        self.handled.insert(name.to_vec());
        self.plan.writes_with(if table.immediate { Effect::AtOnce } else { Effect::WithTransaction });
        self.plan.writes.push((name.to_vec(), change));
    }

    /// What else happens when rows of a table change.
    fn fire(&mut self, table: &'s Table, event: Event<'_>) -> Flow {
        self.follow(table, event, &mut BTreeSet::new())
    }

    fn follow(&mut self, table: &'s Table, event: Event<'_>, seen: &mut BTreeSet<Vec<u8>>) -> Flow {
        if self.rules.triggers {
            for trigger in table.triggers.iter().filter(|trigger| fires(trigger, event)) {
                let Some(body) = &trigger.body else { return refuse("a trigger that is not SQL") };
                self.inside(body, |statement| {
                    let written =
                        matches!(statement, Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_));
                    written || matches!(statement, Statement::Query(_))
                })?;
            }
        }
        if !self.rules.cascades {
            return Flow::Continue(());
        }
        let keyed = |columns: &[Vec<u8>]| {
            let keys = std::iter::once(&table.primary).chain(&table.unique);
            keys.flatten().any(|column| columns.contains(column))
        };
        for cascade in &table.cascades {
            let follows = match event {
                Event::Insert => false,
                Event::Update(columns) => cascade.on_update && keyed(columns),
                Event::Delete => cascade.on_delete,
                Event::Follow => true,
            };
            if follows && seen.insert(cascade.child.clone()) {
                let Some(child) = self.table(&cascade.child) else {
                    return refuse("an unknown table of a foreign key");
                };
                self.touch(&cascade.child, child, PlannedChange::Unknown);
                self.follow(child, Event::Follow, seen)?;
            }
        }
        Flow::Continue(())
    }
}

fn fires(trigger: &Trigger, event: Event<'_>) -> bool {
    match event {
        Event::Insert => trigger.insert,
        Event::Update(_) => trigger.update,
        Event::Delete => trigger.delete,
        Event::Follow => trigger.update || trigger.delete,
    }
}

/// The rows of VALUES, if there is nothing around them.
fn plain_values(query: &Query) -> Option<&[sqlparser::ast::Parens<Vec<Expr>>]> {
    match query.body.as_ref() {
        SetExpr::Values(values) if query.with.is_none() && query.order_by.is_none() => Some(&values.rows),
        _ => None,
    }
}

fn target(column: &Column) -> Target {
    Target {
        column: column.name.clone(),
        kind: column.kind,
        width: column.width,
        unsigned: column.unsigned,
        numbered: column.numbered,
    }
}

/// The keys of the rows that an INSERT can conflict with. With another unique key it can be any row.
fn insert_keys(table: &Table, named: &[Vec<u8>], rows: &[Vec<Source>]) -> Keys {
    let key = table.key().filter(|_| table.unique.is_empty())?;
    let mut keys = Vec::new();
    for row in rows {
        let value = |column: &&Column| {
            let place = named.iter().position(|name| *name == column.name)?;
            Some((column.kind, *row.get(place)?))
        };
        keys.push(key.iter().map(value).collect::<Option<Vec<_>>>()?);
    }
    Some(keys)
}

/// The keys of the rows that conditions leave.
fn keys(table: &Table, conditions: &[Condition]) -> Keys {
    let key = table.key()?;
    let on = |column: &Column| conditions.iter().find(|condition| condition.column == column.name);
    if let [column] = key.as_slice() {
        return Some(on(column)?.sources.iter().map(|source| vec![(column.kind, *source)]).collect());
    }
    let single = |column: &&Column| match on(column)?.sources.as_slice() {
        [source] => Some((column.kind, *source)),
        _ => None,
    };
    Some(vec![key.iter().map(single).collect::<Option<Vec<_>>>()?])
}
