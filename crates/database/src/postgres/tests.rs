//! What a session holds and what it charges, message by message.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use verbena_metrics::Registry;
use verbena_relay::Format;
use verbena_statements::{Charged, Column, ColumnType, FillRules, Fills, Name, Product as Server, Schema, Table};

use super::*;
use crate::address::Product;
use crate::catalog::{Catalog, Known};
use crate::search::{Paths, path};

struct Talk {
    session: Session,
    shared: Arc<Shared>,
    number: u64,
}

/// A table `t (id int primary key, a text)` in `public`, and another one of this name in `app`.
fn catalog() -> Catalog {
    let id = Column { nullable: false, ..Column::new(b"id", ColumnType::Integer) };
    let columns = vec![id, Column::new(b"a", ColumnType::Bytes)];
    let table = Table { columns, primary: vec![b"id".to_vec()], ..Table::default() };
    let mut schema = Schema::default();
    for space in [&b"public"[..], b"app"] {
        schema.tables.insert(Schema::name(space, b"t"), table.clone());
    }
    let names = |all: &[&str]| all.iter().map(|name| name.as_bytes().to_vec()).collect::<BTreeSet<_>>();
    let paths = Paths {
        database: b"shop".to_vec(),
        schemas: names(&["public", "app"]),
        global: path(b"\"$user\", public"),
        roles: names(&["me"]),
        ..Paths::default()
    };
    Catalog { dialect: Dialect::new(Server::PostgreSql), schema: Arc::new(schema), paths, fingerprint: None }
}

impl Talk {
    fn new() -> Talk {
        Talk::with(false)
    }

    fn with(takes_turns: bool) -> Talk {
        let known = Arc::new(Known::new(Product::PostgreSql));
        known.learnt(1, catalog());
        let statements =
            Registry::new().family("verbena_database_statements_total", "Statements.", ["names"], 4).unwrap();
        let fills = Arc::new(Mutex::new(Fills::new(FillRules::default())));
        let shared = Arc::new(Shared { known, fills, statements, watchers: Arc::default(), takes_turns });
        let mut session = Session::new(shared.clone());
        session.login(&Login { user: b"me".to_vec(), database: Some(b"shop".to_vec()), ..Login::default() });
        session.setting(b"client_encoding", b"UTF8");
        session.setting(b"standard_conforming_strings", b"on");
        Talk { session, shared, number: 0 }
    }

    /// The tables at which a message waits for its turn.
    fn turn(&mut self, kind: Kind, bytes: &[u8], state: Option<Transaction>) -> Option<Tables> {
        self.number += 1;
        let command = Command { number: self.number, kind, bytes, is_whole: true };
        let state = state.map(|transaction| State { transaction, autocommit: true, flags: 0 });
        match self.session.judge(&command, state.as_ref()) {
            Verdict::Hold(Bracketed::Read(tables)) => Some(tables),
            Verdict::Hold(Bracketed::Commit(..)) | Verdict::Pass | Verdict::Tell => None,
        }
    }

    /// Whether a message is held; with a state all before it are answered.
    fn judge(&mut self, kind: Kind, bytes: &[u8], state: Option<Transaction>) -> Option<Names> {
        self.number += 1;
        self.again(kind, bytes, state)
    }

    fn again(&mut self, kind: Kind, bytes: &[u8], state: Option<Transaction>) -> Option<Names> {
        let command = Command { number: self.number, kind, bytes, is_whole: true };
        let state = state.map(|transaction| State { transaction, autocommit: true, flags: 0 });
        match self.session.judge(&command, state.as_ref()) {
            Verdict::Hold(Bracketed::Commit(names, _)) => Some(names),
            Verdict::Hold(Bracketed::Read(_)) | Verdict::Pass | Verdict::Tell => None,
        }
    }

    fn answer(&mut self, number: u64, is_error: bool, state: Option<Transaction>) {
        let state = state.map(|transaction| State { transaction, autocommit: true, flags: 0 });
        self.session.answered(number, &Answer { is_error, state });
    }

    /// A whole Query and its answer; says what was held.
    fn query(&mut self, sql: &str, before: Transaction, after: Transaction) -> Option<Names> {
        let held = self.judge(Kind::Statements, &[sql.as_bytes(), b"\0"].concat(), Some(before));
        self.answer(self.number, false, Some(after));
        held
    }

    /// Parse, Bind and Execute, sent at once; says what the Execute is held with.
    fn execute(&mut self, sql: &str, types: &[u32], values: &[&[u8]], format: u16) -> Option<Names> {
        let list = |parts: Vec<Vec<u8>>| [(parts.len() as u16).to_be_bytes().to_vec(), parts.concat()].concat();
        let types = list(types.iter().map(|kind| kind.to_be_bytes().to_vec()).collect());
        let value = |bytes: &&[u8]| [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat();
        let formats = list(vec![format.to_be_bytes().to_vec()]);
        let values = list(values.iter().map(value).collect());
        assert_eq!(self.judge(Kind::Prepare, &[b"s\0", sql.as_bytes(), b"\0", &types].concat(), None), None);
        assert_eq!(self.judge(Kind::Bind, &[b"\0s\0", &formats[..], &values, &formats].concat(), None), None);
        self.judge(Kind::Execute, b"\0\0\0\0\0", None)
    }

    /// The last messages are answered without a ReadyForQuery.
    fn answered(&mut self, messages: u64) {
        for number in self.number - messages + 1..=self.number {
            self.answer(number, false, None);
        }
    }

    /// The end of a pipeline.
    fn sync(&mut self) {
        let state = if self.session.was_open { Transaction::Open } else { Transaction::Closed };
        self.judge(Kind::Sync, b"", Some(state));
        self.answer(self.number, false, Some(state));
    }

    fn charged(&mut self, during: impl FnOnce(&mut Talk)) -> Charged {
        let fill = self.shared.fills.lock().begin(None);
        during(self);
        let charged = self.shared.fills.lock().finish(fill);
        self.sync();
        charged
    }
}

fn has(charged: &Charged, space: &[u8], name: &Name) -> bool {
    let Charged::Names(Names::Of(tables)) = charged else { panic!("{charged:?}") };
    tables.get(&Schema::name(space, b"t")).is_some_and(|names| names.contains(name))
}

use Transaction::{Closed, Failed, Open};

const INSERT: &str = "INSERT INTO t (id) VALUES (1)";

#[test]
fn a_read_outside_of_a_transaction_waits_for_its_turn_where_statements_take_turns() {
    let mut talk = Talk::with(true);
    let read = &b"SELECT a FROM t WHERE id = 1\0"[..];
    let table = || Some(Tables::Of([Schema::name(b"public", b"t")].into()));
    // It is judged again when what was sent before it is answered.
    assert_eq!(talk.turn(Kind::Statements, read, None), table());
    assert_eq!(talk.turn(Kind::Statements, read, Some(Closed)), table());
    talk.answer(talk.number, false, Some(Closed));
    assert_eq!(talk.turn(Kind::Statements, b"SELECT 1\0", Some(Closed)), None, "it reads no table");
    talk.answer(talk.number, false, Some(Closed));
    talk.query("BEGIN", Closed, Open);
    assert_eq!(talk.turn(Kind::Statements, read, Some(Open)), None, "it may hold what the update waits for");
    assert_eq!(Talk::new().turn(Kind::Statements, read, Some(Closed)), None, "nothing takes turns");
}

#[test]
fn a_query_is_held_outside_of_a_block_and_a_commit_inside() {
    let mut talk = Talk::new();
    assert!(talk.query(INSERT, Closed, Closed).is_some());
    assert_eq!(talk.query("SELECT * FROM t", Closed, Closed), None);
    assert_eq!(talk.query("BEGIN", Closed, Open), None);
    assert_eq!(talk.query("COMMIT", Open, Closed), None, "nothing was written");
    talk.query("BEGIN", Closed, Open);
    assert_eq!(talk.query(INSERT, Open, Open), None);
    assert!(talk.query("COMMIT", Open, Closed).is_some());
    talk.query("BEGIN", Closed, Open);
    talk.query(INSERT, Open, Open);
    assert_eq!(talk.query("ROLLBACK", Open, Closed), None);
    assert!(talk.query("COMMIT PREPARED 'x'", Closed, Closed).is_some());
}

#[test]
fn what_a_pipeline_writes_is_held_at_its_sync() {
    let mut talk = Talk::new();
    assert_eq!(talk.execute(INSERT, &[], &[], 0), None);
    assert!(talk.judge(Kind::Sync, b"", None).is_some(), "the pipeline is cut");
    for number in 1..=3 {
        talk.answer(number, false, None);
    }
    assert!(talk.again(Kind::Sync, b"", Some(Closed)).is_some());
    talk.answer(talk.number, false, Some(Closed));
    assert_eq!(talk.judge(Kind::Sync, b"", Some(Closed)), None, "it is visible");
    talk.answer(talk.number, false, Some(Closed));
    // A Sync that was sent before it is not answered for what follows.
    assert_eq!(talk.judge(Kind::Sync, b"", Some(Closed)), None);
    let early = talk.number;
    talk.execute(INSERT, &[], &[], 0);
    talk.answer(early, false, Some(Closed));
    talk.answered(3);
    assert!(talk.judge(Kind::Sync, b"", Some(Closed)).is_some());
    talk.answer(talk.number, false, Some(Closed));
    // A Query ends what was executed before it.
    talk.execute(INSERT, &[], &[], 0);
    talk.answered(3);
    assert!(talk.query("SELECT 1", Closed, Closed).is_some());
}

#[test]
fn in_a_block_nothing_is_held_or_cut_before_its_commit() {
    let mut talk = Talk::new();
    talk.query("BEGIN", Closed, Open);
    assert_eq!(talk.execute(INSERT, &[], &[], 0), None);
    assert_eq!(talk.judge(Kind::Sync, b"", None), None);
    for number in talk.number - 3..talk.number {
        talk.answer(number, false, None);
    }
    talk.answer(talk.number, false, Some(Open));
    assert!(talk.execute("COMMIT", &[], &[], 0).is_some());
    for number in talk.number - 2..talk.number {
        talk.answer(number, false, None);
    }
    assert!(talk.again(Kind::Execute, b"\0\0\0\0\0", Some(Open)).is_some());
    talk.answered(1);
    // What comes after it in the same pipeline is in no block, whatever the server said last.
    talk.execute(INSERT, &[], &[], 0);
    talk.answered(3);
    assert!(talk.judge(Kind::Sync, b"", Some(Open)).is_some());
    talk.answer(talk.number, false, Some(Closed));
    // And a block that a pipeline began is one.
    talk.execute("BEGIN", &[], &[], 0);
    talk.answered(3);
    talk.execute(INSERT, &[], &[], 0);
    talk.answered(3);
    assert_eq!(talk.judge(Kind::Sync, b"", Some(Closed)), None);
}

#[test]
fn a_read_is_charged_with_its_values_and_its_rows() {
    let read = "SELECT id, a FROM t WHERE id = $1";
    let value = Name::Value(b"id".to_vec(), b"7".to_vec());
    let seven = 7_i32.to_be_bytes();
    let mut talk = Talk::new();
    let charged = talk.charged(|talk| {
        talk.execute(read, &[23], &[&seven], 1);
        let row = [&b"\0\x02\0\0\0\x04"[..], &seven, b"\0\0\0\x01x"].concat();
        let row = Row { bytes: &row, format: Format::Postgres, is_whole: true };
        talk.session.row(talk.number, &row);
        talk.answered(3);
    });
    assert!(has(&charged, b"public", &value) && has(&charged, b"public", &Name::Row(b"7".to_vec())));
    assert!(!has(&charged, b"public", &Name::New(b"id".to_vec())), "its row was found");
    // As text without a type; the type is then that of the column, as the parameter is there once.
    let charged = talk.charged(|talk| drop(talk.execute(read, &[], &[b"7"], 0)));
    assert!(has(&charged, b"public", &value));
    // In binary without a type, or where another place decides on the type, it has no name.
    for (sql, bytes, format) in [(read, &seven[..], 1), ("SELECT id FROM t WHERE 1.5 < $1 AND id = $1", b"7", 0)] {
        let charged = talk.charged(|talk| drop(talk.execute(sql, &[], &[bytes], format)));
        assert!(has(&charged, b"public", &Name::Rows), "{sql}");
    }
    // The server says the type.
    talk.execute(read, &[], &[&seven], 1);
    talk.judge(Kind::Describe, b"Ss\0", None);
    talk.session.parameters(talk.number, &[23]);
    talk.sync();
    let bind = [&b"\0s\0\0\x01\0\x01\0\x01\0\0\0\x04"[..], &seven, b"\0\0"].concat();
    let charged = talk.charged(|talk| {
        talk.judge(Kind::Bind, &bind, None);
        talk.judge(Kind::Execute, b"\0\0\0\0\0", None);
    });
    assert!(has(&charged, b"public", &value));
}

#[test]
fn a_transaction_that_is_older_than_a_fill_may_show_the_past() {
    let mut talk = Talk::new();
    talk.query("BEGIN", Closed, Open);
    let charged = talk.charged(|talk| drop(talk.query("SELECT id FROM t", Open, Open)));
    assert_eq!(charged, Charged::NotStored(Why::OldSnapshot));
    talk.query("COMMIT", Open, Closed);
    let charged = talk.charged(|talk| drop(talk.query("SELECT id FROM t", Closed, Closed)));
    assert!(has(&charged, b"public", &Name::Rows));
    talk.session.setting(b"in_hot_standby", b"on");
    let charged = talk.charged(|talk| drop(talk.query("SELECT id FROM t", Closed, Closed)));
    assert_eq!(charged, Charged::NotStored(Why::OldSnapshot));
}

#[test]
fn what_another_request_wrote_on_the_connection_is_not_shown_in_a_page_that_is_stored() {
    let mut talk = Talk::new();
    let other = talk.shared.fills.lock().pass(7);
    let fill = talk.shared.fills.lock().begin(Some(8));
    talk.query("BEGIN /* verbena_fill='0000000000000007' */", Closed, Open);
    talk.query("SELECT id FROM t /* verbena_fill='0000000000000008' */", Open, Open);
    talk.query("UPDATE t SET a = 'x' WHERE id = 1 /* verbena_fill='0000000000000007' */", Open, Open);
    let charged = |talk: &Talk, fill| talk.shared.fills.lock().finish(fill);
    assert!(has(&charged(&talk, fill), b"public", &Name::Rows), "it read before the write");
    talk.query("ROLLBACK", Open, Closed);
    let fill = talk.shared.fills.lock().begin(Some(9));
    talk.query("BEGIN /* verbena_fill='0000000000000007' */", Closed, Open);
    talk.query("UPDATE t SET a = 'x' WHERE id = 1 /* verbena_fill='0000000000000007' */", Open, Open);
    talk.query("SELECT id FROM t /* verbena_fill='0000000000000009' */", Open, Open);
    assert_eq!(charged(&talk, fill), Charged::NotStored(Why::Wrote), "it may be rolled back");
    charged(&talk, other);
}

#[test]
fn tables_are_those_of_the_search_path_also_after_a_rollback() {
    let mut talk = Talk::new();
    let space = |talk: &mut Talk, state| -> Vec<Vec<u8>> {
        let charged = talk.charged(|talk| drop(talk.query("SELECT id FROM t", state, state)));
        match charged {
            Charged::Names(Names::Of(tables)) => tables.keys().map(|name| name[..3].to_vec()).collect(),
            other => panic!("{other:?}"),
        }
    };
    let (public, app) = (vec![b"pub".to_vec()], vec![b"app".to_vec()]);
    assert_eq!(space(&mut talk, Closed), public);
    talk.query("SET search_path = app, public", Closed, Closed);
    assert_eq!(space(&mut talk, Closed), app);
    for end in ["ROLLBACK", "COMMIT"] {
        talk.query("BEGIN", Closed, Open);
        talk.query("SET search_path = public", Open, Open);
        talk.query(end, Open, Closed);
        assert_eq!(space(&mut talk, Closed), if end == "COMMIT" { public.clone() } else { app.clone() });
    }
    talk.query("SET search_path = app", Closed, Closed);
    talk.query("BEGIN", Closed, Open);
    talk.query("SET LOCAL search_path = public", Open, Open);
    talk.query("COMMIT", Open, Closed);
    assert_eq!(space(&mut talk, Closed), app);
    // A commit of a transaction that has failed is none.
    talk.query("BEGIN", Closed, Open);
    talk.query("SET search_path = public", Open, Open);
    talk.judge(Kind::Statements, b"SELECT 1/0\0", Some(Open));
    talk.answer(talk.number, true, Some(Failed));
    talk.query("COMMIT", Failed, Closed);
    assert_eq!(space(&mut talk, Closed), app);
    talk.query("SELECT set_config('search_path', 'public', false)", Closed, Closed);
    assert_eq!(space(&mut talk, Closed), public);
    talk.query("SET search_path = app", Closed, Closed);
    talk.query("DISCARD ALL", Closed, Closed);
    assert_eq!(space(&mut talk, Closed), public);
    // What is not followed: everything.
    talk.query("SET ROLE other", Closed, Closed);
    let charged = talk.charged(|talk| drop(talk.query("SELECT id FROM t", Closed, Closed)));
    assert!(matches!(charged, Charged::NotStored(_)), "{charged:?}");
    assert!(talk.query("SELECT id FROM t", Closed, Closed) == Some(Names::Everything));
}

#[test]
fn while_the_catalog_changes_nothing_is_known_of_it() {
    let mut talk = Talk::new();
    let id = |talk: &mut Talk| talk.query("UPDATE t SET a = 'x' WHERE id = 1", Closed, Closed);
    assert!(id(&mut talk).is_some_and(|names| names != Names::Everything));
    talk.judge(Kind::Statements, b"ALTER TABLE t ADD COLUMN b int\0", Some(Closed));
    let known = talk.shared.known.clone();
    let tables = || {
        known
            .looking(|_| Some(vec![b"public".to_vec()]))
            .analyser
            .lock()
            .analyse(&Dialect::new(Server::PostgreSql), b"SELECT id FROM t", &[])
            .reads
            .is_everything()
    };
    assert!(tables(), "it is under way");
    talk.answer(talk.number, false, Some(Closed));
    assert!(tables(), "and is read again");
    known.learnt(2, catalog());
    assert!(!tables());
}
