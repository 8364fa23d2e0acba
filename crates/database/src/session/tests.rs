//! What a session of MySQL holds of the catalog, command by command.

use verbena_metrics::Registry;
use verbena_relay::Answer;
use verbena_statements::{FillRules, Product as Server};

use super::*;
use crate::address::Product;
use crate::catalog::Catalog;
use crate::search::Paths;

fn catalog() -> Catalog {
    let dialect = Dialect::new(Server::MariaDb);
    Catalog { dialect, schema: Arc::default(), paths: Paths::default(), fingerprint: None }
}

/// While the catalog is not known each read of a table may call functions for all that is known, and is held like a write. If it kept the catalog unknown as well, then slow reads that overlap
/// would do so for as long as they come.
#[test]
fn a_read_while_the_catalog_is_unknown_does_not_keep_it_unknown() {
    let known = Arc::new(Known::new(Product::MySql));
    known.learnt(1, catalog());
    let statements = Registry::new().family("verbena_database_statements_total", "Statements.", ["names"], 4).unwrap();
    let fills = Arc::new(Mutex::new(Fills::new(FillRules::default())));
    let (watchers, takes_turns) = (Arc::default(), false);
    let shared = Arc::new(Shared { known: known.clone(), fills, statements, watchers, takes_turns });
    let state = State { transaction: Transaction::Closed, autocommit: true, flags: 0 };
    let mut number = 0;
    let mut ask = |text: &str| {
        let mut session = Session::new(shared.clone());
        number += 1;
        let command = Command { number, kind: Kind::Statements, bytes: text.as_bytes(), is_whole: true };
        let is_held = matches!(session.judge(&command, Some(&state)), Verdict::Hold(_));
        (session, number, is_held)
    };
    let learn = || {
        known.learnt(known.version(), catalog());
        known.is_known()
    };
    for (text, keeps_unknown) in [
        ("SELECT f(1) FROM anything", false),
        ("INSERT INTO anything VALUES (f(1))", false),
        ("UPDATE anything SET a = f(1)", false),
        ("DELETE FROM anything WHERE f(a)", false),
        ("CALL p()", true),
        ("SELECT 1; CALL p()", true),
        ("ALTER TABLE anything ADD b INT", true),
    ] {
        known.moved();
        assert!(!known.is_known());
        let (mut session, number, is_held) = ask(text);
        assert!(is_held, "{text}");
        assert_eq!(learn(), !keeps_unknown, "{text}, under way");
        session.answered(number, &Answer { is_error: false, state: Some(state) });
        drop(session);
        assert_eq!(known.is_known(), !keeps_unknown, "{text}, answered");
        assert!(learn(), "{text}");
    }
}
