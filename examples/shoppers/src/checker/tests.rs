//! Dialogues: what was written and read when, and what must be seen in it.

use super::*;

fn at(millis: u64) -> Moment {
    Moment::after(Duration::from_millis(millis))
}

fn page(commit: i64, rows: &[(&str, i64)]) -> Bytes {
    let rows: String =
        rows.iter().map(|(name, changed)| format!("<p data-row=\"{name}\" data-changed=\"{changed}\">")).collect();
    format!("<html data-commit=\"{commit}\">{rows}</html>").into()
}

#[derive(Default)]
struct Dialogue(Checker);

impl Dialogue {
    fn write(&mut self, commit: i64, row: &str, sent: u64, received: u64) -> Result<(), Violation> {
        self.0.acknowledged(commit, &[row.into()], at(sent), at(received))
    }

    fn product(&mut self, commit: i64, changed: i64, sent: u64, received: u64) -> Result<Checked, Violation> {
        let id = self.0.page("/product/7");
        self.0.answered(id, at(sent), at(received), &page(commit, &[("product:7", changed)]))
    }

    fn category(
        &mut self,
        commit: i64,
        seven: i64,
        eight: i64,
        sent: u64,
        received: u64,
    ) -> Result<Checked, Violation> {
        let id = self.0.page("/category/3");
        let rows = [("category:3", 1), ("product:7", seven), ("product:8", eight)];
        self.0.answered(id, at(sent), at(received), &page(commit, &rows))
    }
}

#[test]
fn a_page_asked_for_after_the_acknowledgement_shows_the_write() {
    let mut d = Dialogue::default();
    d.product(1, 1, 0, 1).unwrap();
    d.write(2, "product:7", 5, 10).unwrap();
    // Asked for before, so it may be old.
    d.product(1, 1, 9, 12).unwrap();
    let stale = d.product(1, 1, 11, 12).unwrap_err();
    assert!(matches!(stale, Violation::Stale { shown: 1, written: 2, .. }), "{stale}");
    assert!(d.product(2, 2, 11, 12).unwrap().soon);
    assert!(!d.product(9, 2, 100, 101).unwrap().soon);
    // A later commit elsewhere changes nothing.
    d.write(10, "product:8", 110, 120).unwrap();
    d.product(2, 2, 130, 131).unwrap();
}

#[test]
fn an_answer_is_not_older_than_one_received_before() {
    let mut d = Dialogue::default();
    d.product(1, 1, 0, 1).unwrap();
    // The write is under way: its answer is not here yet.
    d.product(2, 2, 10, 20).unwrap();
    d.product(1, 1, 19, 21).unwrap();
    let backwards = d.product(1, 1, 21, 22).unwrap_err();
    assert!(matches!(backwards, Violation::Backwards { shown: 1, received: 2, .. }), "{backwards}");
    // Another state of the database, and nothing of the page changed between.
    d.product(4, 2, 23, 24).unwrap();
    d.product(2, 2, 25, 26).unwrap();
}

#[test]
fn a_page_is_one_state() {
    let mut d = Dialogue::default();
    let is_mixed = |result: Result<Checked, Violation>| matches!(result, Err(Violation::Mixed { .. }));
    d.write(2, "product:7", 0, 1).unwrap();
    d.write(3, "product:8", 2, 3).unwrap();
    // New rows on a page of an old commit; old rows on a page of a new one. The requests were sent before the writes.
    assert!(is_mixed(d.category(2, 2, 3, 0, 9)));
    assert!(is_mixed(d.category(3, 2, 1, 0, 9)));
    assert!(is_mixed(d.category(3, 1, 3, 0, 9)));
    d.category(2, 2, 1, 0, 9).unwrap();
    d.category(3, 2, 3, 9, 10).unwrap();
    // Changed by a commit that touched another row.
    assert!(is_mixed(d.category(3, 3, 3, 9, 10)));
    // The same state with another text.
    let id = d.0.page("/product/7");
    d.product(3, 2, 10, 11).unwrap();
    let other = Bytes::from("<html data-commit=\"4\"><p data-row=\"product:7\" data-changed=\"2\">!</html>");
    assert!(is_mixed(d.0.answered(id, at(10), at(11), &other)));
    // One row twice, differently.
    let twice = page(9, &[("product:7", 2), ("product:7", 1)]);
    assert!(is_mixed(d.0.answered(id, at(10), at(11), &twice)));
}

#[test]
fn what_is_acknowledged_later_shows_that_an_earlier_page_was_mixed() {
    let mut d = Dialogue::default();
    d.write(2, "product:9", 0, 1).unwrap();
    d.category(5, 1, 4, 2, 3).unwrap();
    // It says of product 7 that nothing touched it up to 5.
    let mixed = d.write(3, "product:7", 0, 9).unwrap_err();
    assert!(matches!(mixed, Violation::Mixed { .. }), "{mixed}");
    // It says of product 8 that 4 touched it.
    let mixed = d.write(4, "cart:1", 0, 9).unwrap_err();
    assert!(matches!(mixed, Violation::Mixed { .. }), "{mixed}");
}

#[test]
fn commits_come_in_the_order_of_acknowledgements() {
    let mut d = Dialogue::default();
    d.write(5, "product:7", 0, 10).unwrap();
    d.write(4, "product:8", 9, 12).unwrap();
    assert!(d.write(3, "product:9", 11, 13).is_err());
    assert!(d.write(5, "product:9", 9, 14).is_err());
}

#[test]
fn a_page_without_its_subject_is_none() {
    let mut d = Dialogue::default();
    let id = d.0.page("/product/8");
    let other = d.0.answered(id, at(0), at(1), &page(1, &[("product:7", 1)])).unwrap_err();
    assert!(matches!(other, Violation::Malformed { .. }), "{other}");
    let front = d.0.page("/");
    d.0.answered(front, at(0), at(1), &page(1, &[("catalogue", 1)])).unwrap();
}

/// A write whose answer was lost is seen on pages, and holds from then on for each of them.
#[test]
fn a_lost_write_is_either() {
    let mut d = Dialogue::default();
    d.write(2, "product:8", 0, 1).unwrap();
    d.product(2, 1, 2, 3).unwrap();
    d.product(3, 3, 4, 5).unwrap();
    assert!(matches!(d.product(2, 1, 6, 7), Err(Violation::Backwards { .. })));
    assert!(matches!(d.category(3, 1, 2, 6, 7), Err(Violation::Mixed { .. })));
}
