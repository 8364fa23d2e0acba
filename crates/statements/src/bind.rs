//! A plan with the values of one statement.

use crate::plan::{Condition, Keys, Plan, PlannedChange, PlannedRead, Source, Storable, Target};
use crate::shape::Slot;
use crate::value::canonical;
use crate::{Change, ColumnType, Equality, Literal, Name, Read, Rules, Write};

/// The values of a statement.
pub(crate) struct Values<'a> {
    pub rules: Rules,
    pub slots: &'a [Slot<'a>],
    pub parameters: &'a [Option<Literal<'a>>],
}

/// A table that is read, and where the answer carries its primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BoundRead {
    pub read: Read,
    pub key: Option<Vec<(usize, ColumnType)>>,
}

impl Values<'_> {
    fn literal(&self, index: usize) -> Option<Literal<'_>> {
        match self.slots.get(index)? {
            Slot::Number(digits) => Some(Literal::Number(digits)),
            Slot::Text(text) => Some(Literal::Text(text)),
            Slot::Parameter(index) => self.parameters.get(*index).copied().flatten(),
            Slot::Unknown => None,
        }
    }

    /// The name of a value for a column, if it has one.
    fn value(&self, kind: ColumnType, source: Source) -> Option<Vec<u8>> {
        let Source::Slot { index, negative } = source else { return None };
        let literal = self.literal(index)?;
        let form = canonical(self.rules, kind, literal)?;
        match literal {
            _ if !negative || form == b"0" => Some(form),
            Literal::Number(_) if !form.starts_with(b"-") => Some([b"-", form.as_slice()].concat()),
            _ => None,
        }
    }

    /// Likewise, if the column stores the value as it is.
    fn stored(&self, target: &Target, source: Source) -> Option<Vec<u8>> {
        let form = self.value(target.kind, source)?;
        if !self.rules.fits {
            return Some(form);
        }
        let negative = target.kind == ColumnType::Integer && form.starts_with(b"-");
        let fits = form.len() - usize::from(negative) <= target.width && !(negative && target.unsigned);
        (fits && !(target.numbered && form == b"0")).then_some(form)
    }

    fn equality(&self, condition: &Condition) -> Option<Equality> {
        let values = condition.sources.iter().map(|source| self.value(condition.kind, *source));
        let mut values = values.collect::<Option<Vec<Vec<u8>>>>()?;
        values.sort_unstable();
        values.dedup();
        Some(Equality { column: condition.column.clone(), values, unique: condition.unique })
    }

    fn read(&self, planned: &PlannedRead) -> BoundRead {
        let read = Read {
            table: planned.table.clone(),
            equality: planned.conditions.iter().find_map(|condition| self.equality(condition)),
            deciding: planned.deciding.clone(),
            window: planned.window,
            rows: planned.key.as_ref().map(|_| Vec::new()),
        };
        BoundRead { read, key: planned.key.clone() }
    }

    pub fn reads(&self, plan: &Plan) -> Vec<BoundRead> {
        plan.reads.iter().map(|planned| self.read(planned)).collect()
    }

    fn keys(&self, keys: &Keys) -> Option<Vec<Vec<u8>>> {
        let key = |parts: &Vec<(ColumnType, Source)>| {
            let parts = parts.iter().map(|(kind, source)| self.value(*kind, *source));
            Some(row_key(&parts.collect::<Option<Vec<_>>>()?))
        };
        keys.as_ref()?.iter().map(key).collect()
    }

    /// The names that the writes of a plan touch.
    pub fn touches(&self, plan: &Plan) -> Vec<(Vec<u8>, Name)> {
        let mut names = Vec::new();
        for (table, change) in &plan.writes {
            let mut add = |change| names.extend(Write { table: table.clone(), change }.names(self.rules));
            match change {
                PlannedChange::Insert { targets, rows } => rows.iter().for_each(|row| {
                    let columns = targets.iter().zip(row);
                    let column =
                        |(target, source): (&Target, &Source)| (target.column.clone(), self.stored(target, *source));
                    add(Change::Insert(columns.map(column).collect()));
                }),
                PlannedChange::Update { columns, keys } => add(Change::Update(columns.clone(), self.keys(keys))),
                PlannedChange::Delete { keys } => add(Change::Delete(self.keys(keys))),
                PlannedChange::Unknown => add(Change::Unknown),
            }
        }
        names
    }

    /// PostgreSQL reads the text 'now' as the time, wherever a time is compared with it.
    pub fn storable(&self, plan: &Plan, postgres: bool) -> Storable {
        const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];
        let is_time = |text: &[u8]| {
            text.len() < 64
                && WORDS.iter().any(|word| text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word)))
        };
        let says_time = |index| matches!(self.literal(index), Some(Literal::Text(text)) if is_time(text));
        if postgres && (0..self.slots.len()).any(says_time) { plan.storable.max(Storable::Time) } else { plan.storable }
    }
}

/// The name of a row by the values of its primary key. Several have their lengths before them.
pub(crate) fn row_key(parts: &[Vec<u8>]) -> Vec<u8> {
    match parts {
        [one] => one.clone(),
        parts => {
            let part = |part: &Vec<u8>| [&(part.len() as u32).to_be_bytes()[..], part].concat();
            parts.iter().flat_map(part).collect()
        }
    }
}
