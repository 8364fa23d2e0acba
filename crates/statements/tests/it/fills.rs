//! What counts for which fill.

use verbena_statements::{Charged, FillRules, Fills, Name, Names, Rules, Side, Whose, Why};

fn row(key: &str) -> Names {
    Names::bounded(Rules::default(), Side::Read, [(b"t".to_vec(), Name::Row(key.into()))])
}

fn rows(keys: &[&str]) -> Charged {
    let names = keys.iter().map(|key| (b"t".to_vec(), Name::Row((*key).into())));
    Charged::Names(Names::bounded(Rules::default(), Side::Read, names))
}

fn fills() -> Fills {
    Fills::new(FillRules::default())
}

#[test]
fn a_read_without_a_tag_counts_for_every_open_fill_and_no_other() {
    let mut fills = fills();
    let before = fills.begin(None);
    assert_eq!(fills.finish(before), rows(&[]));
    let (one, two) = (fills.begin(Some(1)), fills.begin(None));
    fills.read(Whose::Anybody, &row("a"), None);
    let after = fills.begin(None);
    assert_eq!(fills.finish(one), rows(&["a"]));
    fills.read(Whose::Tagged(99), &row("b"), None);
    assert_eq!((fills.finish(two), fills.finish(after)), (rows(&["a", "b"]), rows(&["b"])));
    assert!(fills.is_empty());
    // Off: the page lacks the row.
    let mut fills = Fills::new(FillRules { untagged: false, ..FillRules::default() });
    let fill = fills.begin(None);
    fills.read(Whose::Anybody, &row("a"), None);
    assert_eq!(fills.finish(fill), rows(&[]));
}

#[test]
fn a_tag_of_an_open_fill_narrows() {
    let mut fills = fills();
    let (one, two) = (fills.begin(Some(1)), fills.begin(Some(2)));
    fills.read(Whose::Tagged(1), &row("a"), None);
    fills.wrote(Whose::Tagged(2));
    assert_eq!((fills.finish(one), fills.finish(two)), (rows(&["a"]), Charged::NotStored(Why::Wrote)));
    // The tag of a fill that has ended is nobody's.
    let three = fills.begin(Some(3));
    fills.read(Whose::Tagged(1), &row("b"), None);
    assert_eq!(fills.finish(three), rows(&["b"]));
}

#[test]
fn a_request_that_is_not_stored_has_statements_of_its_own() {
    let mut fills = fills();
    let (fill, other) = (fills.begin(Some(1)), fills.pass(2));
    assert_eq!(fills.len(), 1);
    fills.wrote(Whose::Tagged(2));
    fills.read(Whose::Tagged(2), &row("b"), None);
    assert_eq!(fills.finish(fill), rows(&[]));
    fills.finish(other);
    let fill = fills.begin(Some(3));
    fills.read(Whose::Tagged(2), &row("b"), None);
    assert_eq!(fills.finish(fill), rows(&["b"]), "its tag is nobody's when it is answered");
}

#[test]
fn what_may_be_anothers_doing_says_nothing_of_the_next_answer() {
    let mut fills = fills();
    let alone = fills.begin(Some(1));
    fills.wrote(Whose::Anybody);
    assert_eq!(fills.finish(alone), Charged::NotStored(Why::Wrote), "no other request is under way");
    let (fill, other) = (fills.begin(Some(1)), fills.pass(2));
    fills.wrote(Whose::Anybody);
    assert_eq!(fills.finish(fill), Charged::NotThisTime(Why::Wrote));
    let own = fills.begin(Some(3));
    fills.wrote(Whose::Anybody);
    fills.wrote(Whose::Tagged(3));
    fills.read_unstorable(Whose::Anybody, Why::Volatile);
    assert_eq!(fills.finish(own), Charged::NotStored(Why::Wrote));
    fills.finish(other);
}

#[test]
fn an_old_transaction_shows_the_past_and_is_not_stored() {
    let mut fills = fills();
    let old = fills.tick();
    let fill = fills.begin(None);
    let young = fills.tick();
    fills.read(Whose::Anybody, &row("a"), Some(young));
    fills.read(Whose::Anybody, &row("b"), Some(old));
    assert_eq!(fills.finish(fill), Charged::NotStored(Why::OldSnapshot));
    let mut fills = Fills::new(FillRules { snapshots: false, ..FillRules::default() });
    let old = fills.tick();
    let fill = fills.begin(None);
    fills.read(Whose::Anybody, &row("b"), Some(old));
    assert_eq!(fills.finish(fill), rows(&["b"]), "off: the past is stored");
}

#[test]
fn what_is_known_of_a_fill_only_grows() {
    let mut fills = fills();
    let fill = fills.begin(None);
    fills.read_everything(Whose::Anybody, Why::NotUnderstood);
    fills.read(Whose::Anybody, &row("a"), None);
    fills.read_unstorable(Whose::Anybody, Why::Volatile);
    fills.read_everything(Whose::Anybody, Why::NotUnderstood);
    fills.wrote(Whose::Anybody);
    assert_eq!(fills.finish(fill), Charged::NotStored(Why::Volatile));
    let mut fills = Fills::new(FillRules { own_writes: false, ..FillRules::default() });
    let fill = fills.begin(None);
    fills.wrote(Whose::Anybody);
    assert_eq!(fills.finish(fill), rows(&[]), "off: what is rolled back later is stored");
}

#[test]
fn many_names_collapse_and_many_tables_are_everything() {
    let mut fills = fills();
    let (one, two) = (fills.begin(Some(1)), fills.begin(Some(2)));
    for key in 0..400 {
        fills.read(Whose::Tagged(1), &row(&key.to_string()), None);
        let table = format!("t{key}").into_bytes();
        let names = Names::bounded(Rules::default(), Side::Read, [(table, Name::Rows)]);
        fills.read(Whose::Tagged(2), &names, None);
    }
    let Charged::Names(Names::Of(tables)) = fills.finish(one) else { panic!("one table collapses") };
    assert!(tables.values().map(|names| names.len()).sum::<usize>() <= 256);
    assert!(tables[&b"t".to_vec()].contains(&Name::Any));
    assert_eq!(fills.finish(two), Charged::Everything(Why::TooMany));
}
