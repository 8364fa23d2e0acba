//! The bound on names, and their bytes.

use std::collections::HashSet;

use verbena_statements::{Change, MAX_NAMES, Name, Names, Read, Rules, Side, Write};

fn read(table: &[u8], rows: usize) -> Read {
    let rows = Some((0..rows).map(|row| row.to_string().into_bytes()).collect());
    Read { table: table.to_vec(), equality: None, deciding: vec![], window: false, rows }
}

fn writes(key: &[u8]) -> [Change; 4] {
    let keys = Some(vec![key.to_vec()]);
    [
        Change::Insert(vec![(b"k".to_vec(), Some(key.to_vec()))]),
        Change::Update(vec![b"a".to_vec()], keys.clone()),
        Change::Delete(keys),
        Change::Unknown,
    ]
}

fn missed(rules: Rules) -> usize {
    let page = read(b"large", 400).names(rules).into_iter().chain(read(b"small", 3).names(rules));
    let page = Names::bounded(rules, Side::Read, page);
    let Names::Of(tables) = &page else { panic!("one table collapses, not all") };
    assert!(tables.values().map(|names| names.len()).sum::<usize>() <= MAX_NAMES);
    assert!(tables[&b"small".to_vec()].contains(&Name::Row(b"2".to_vec())), "the largest table collapses first");
    writes(b"399")
        .into_iter()
        .map(|change| Write { table: b"large".to_vec(), change })
        .filter(|write| !page.meets(&Names::bounded(rules, Side::Write, write.names(rules))))
        .count()
}

#[test]
fn a_read_that_collapsed_still_meets_each_write_of_its_table() {
    assert_eq!(missed(Rules::default()), 0);
    assert_eq!(missed(Rules { collapse: false, ..Rules::default() }), 3, "the insert, the update and the delete");
}

#[test]
fn a_write_that_collapsed_meets_each_read_of_its_table() {
    let rules = Rules::default();
    let keys = (0..1000_u32).map(|key| key.to_string().into_bytes()).collect();
    let write = Write { table: b"t".to_vec(), change: Change::Delete(Some(keys)) };
    let touched = Names::bounded(rules, Side::Write, write.names(rules));
    assert!(touched.meets(&Names::bounded(rules, Side::Read, read(b"t", 0).names(rules))));
    assert!(!touched.meets(&Names::bounded(rules, Side::Read, read(b"u", 5).names(rules))));
}

#[test]
fn too_many_tables_are_everything() {
    let names = (0..=MAX_NAMES).map(|table| (table.to_string().into_bytes(), Name::Table));
    assert_eq!(Names::bounded(Rules::default(), Side::Read, names), Names::Everything);
}

#[test]
fn no_two_names_have_the_same_bytes() {
    let parts: [&[u8]; 4] = [b"", b"a", b"aa", b"\0\0\0\x01a"];
    let (mut seen, mut count) = (HashSet::new(), 0);
    for table in parts {
        for one in parts {
            let mut names = vec![Name::New(one.to_vec()), Name::Moved(one.to_vec()), Name::Row(one.to_vec())];
            names.extend(parts.map(|value| Name::Value(one.to_vec(), value.to_vec())));
            for name in names {
                count += 1;
                assert!(seen.insert(name.bytes(table)), "{name:?} of {table:?}");
            }
        }
    }
    assert_eq!(count, 112);
}
