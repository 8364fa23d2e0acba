//! Partitions and tables that inherit, as one table with their root (rule Q18).

use std::collections::BTreeMap;

use verbena_statements::{Table, Trigger};

/// A table of the catalog, before it is put under its root.
pub(super) struct Relation {
    pub name: Vec<u8>,
    pub table: Table,
    /// Its parents: of a partition one, of a table that inherits perhaps several.
    pub parents: Vec<u32>,
    pub is_partition: bool,
}

/// How deep tables may stand under each other.
const DEEPEST: usize = 64;

/// The tables by their names, each under its root. What is done to a child is done to the root, so the root has the triggers and foreign keys of all.
///
/// A child with other columns than its root's, and all that is tied together by a table with two parents, is left out: what is not known is everything. A root whose
/// children inherit without being partitions has no key that holds for all of them, so each of its writes is everything.
pub(super) fn rooted(mut relations: BTreeMap<u32, Relation>) -> BTreeMap<Vec<u8>, Table> {
    let mut roots: BTreeMap<u32, Option<u32>> = relations.keys().map(|id| (*id, root(&relations, *id))).collect();
    let torn: Vec<u32> = relations
        .iter()
        .filter(|(id, _)| roots[*id].is_none())
        .flat_map(|(_, relation)| relation.parents.clone())
        .collect();
    // Above a table with two parents nothing is known either.
    let above: Vec<u32> = torn.into_iter().filter_map(|id| roots.get(&id).copied().flatten()).collect();
    for of in roots.values_mut() {
        *of = of.filter(|root| !above.contains(root));
    }
    let named = |table: &Table| table.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    let children: Vec<(u32, u32)> =
        roots.iter().filter_map(|(id, root)| root.filter(|root| root != id).map(|root| (*id, root))).collect();
    for (id, of) in &children {
        let Some(child) = relations.remove(id) else { continue };
        let Some(Relation { name, table: root, .. }) = relations.get_mut(of) else { continue };
        root.triggers.extend(child.table.triggers.iter().cloned());
        root.cascades.extend(child.table.cascades.iter().cloned());
        root.foreign |= child.table.foreign;
        root.by_role |= child.table.by_role;
        // Its own unique keys: rows can conflict on them, and no read is by them.
        root.unique.extend(child.table.unique.iter().map(|_| Vec::new()));
        if child.is_partition {
            // An update may take a row to another partition.
            for trigger in &mut root.triggers {
                *trigger = Trigger { insert: true, update: true, delete: true, ..trigger.clone() };
            }
        } else {
            root.triggers.push(Trigger { insert: true, update: true, delete: true, body: None });
        }
        let is_same = named(root) == named(&child.table);
        let (under, known) = (name.clone(), child.table);
        let table = Table { root: Some(under), ..known };
        relations.insert(*id, Relation { table, ..child });
        if !is_same {
            roots.insert(*id, None);
        }
    }
    relations
        .into_iter()
        .filter(|(id, _)| roots.get(id).copied().flatten().is_some())
        .map(|(_, relation)| (relation.name, relation.table))
        .collect()
}

/// The one table above all; nothing where there are several.
fn root(relations: &BTreeMap<u32, Relation>, id: u32) -> Option<u32> {
    let mut at = id;
    for _ in 0..DEEPEST {
        match relations.get(&at)?.parents.as_slice() {
            [] => return Some(at),
            [parent] => at = *parent,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use verbena_statements::{Column, ColumnType};

    use super::*;

    fn relation(name: &str, columns: &[&str], parents: &[u32], is_partition: bool) -> Relation {
        let columns = columns.iter().map(|name| Column::new(name.as_bytes(), ColumnType::Integer)).collect();
        let table = Table { columns, primary: vec![b"id".to_vec()], ..Table::default() };
        Relation { name: name.into(), table, parents: parents.to_vec(), is_partition }
    }

    #[test]
    fn children_are_their_root_and_what_is_torn_is_left_out() {
        let on = Trigger { insert: true, update: false, delete: false, body: Some(b"delete from x;".to_vec()) };
        let mut leaf = relation("leaf", &["id", "a"], &[2], true);
        leaf.table.triggers.push(on);
        let tables = rooted(
            [
                (1, relation("root", &["id", "a"], &[], false)),
                (2, relation("half", &["id", "a"], &[1], true)),
                (3, leaf),
                (4, relation("turned", &["a", "id"], &[1], true)),
                (5, relation("animal", &["id"], &[], false)),
                (6, relation("dog", &["id", "a"], &[5], false)),
                (7, relation("one", &["id"], &[], false)),
                (8, relation("two", &["id"], &[], false)),
                (9, relation("both", &["id"], &[7, 8], false)),
                (10, relation("below", &["id"], &[9], false)),
                (11, relation("alone", &["id"], &[], false)),
            ]
            .into(),
        );
        let names: Vec<&str> = tables.keys().map(|name| std::str::from_utf8(name).unwrap()).collect();
        assert_eq!(names, ["alone", "animal", "half", "leaf", "root"]);
        let of = |name: &str| &tables[name.as_bytes()];
        assert_eq!(of("leaf").root.as_deref(), Some(&b"root"[..]));
        assert!(of("root").triggers.iter().all(|trigger| trigger.insert && trigger.update && trigger.body.is_some()));
        assert_eq!(of("root").triggers.len(), 1);
        assert!(of("animal").triggers.iter().any(|trigger| trigger.body.is_none()));
        assert!(of("alone").triggers.is_empty());
    }
}
