//! What is PostgreSQL's own, and what several statements in one command are.

use verbena_statements::{
    Analyser, Analysis, Charset, Column, ColumnType, Dialect, Effect, Literal, Names, Product, Schema, Session, Step,
    Table, Trigger,
};

use crate::analysis::{blog, column};

const POSTGRES: Product = Product::PostgreSql;

fn analysed(schema: Schema, sql: &str) -> Analysis {
    Analyser::new(POSTGRES, schema).analyse(&Dialect::new(POSTGRES), sql.as_bytes(), &[])
}

fn pg(sql: &str) -> Analysis {
    analysed(blog("public"), sql)
}

#[test]
fn settings_by_each_of_their_ways() {
    let set = |name: &str, value: &str| vec![Session::Variable(name.into(), value.into())];
    assert_eq!(pg("SET search_path TO a, \"B\"").session, set("search_path", "a, \"B\""));
    assert_eq!(pg("select set_config('TimeZone', 'UTC', false)").session, set("timezone", "UTC"));
    assert_eq!(pg("RESET search_path").session, set("search_path", "default"));
    assert_eq!(pg("RESET ALL").session, set("all", "default"));
    assert_eq!(pg("DISCARD ALL").session, [Session::Reset]);
    let local = [Session::Local(b"search_path".into(), b"a".into())];
    assert_eq!(pg("SET LOCAL search_path = a").session, local);
    assert_eq!(pg("SELECT set_config('search_path', 'a', true)").session, local);
    assert!(pg("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY").session.iter().all(|s| *s != Session::Unknown));
    for odd in [
        "SET ROLE x",
        "SET session_replication_role = replica",
        "RESET ROLE",
        "DISCARD TEMP",
        "SET SESSION AUTHORIZATION x",
        "CALL p()",
    ] {
        assert_eq!(pg(odd).session, [Session::Unknown], "{odd}");
    }
    for odd in
        ["SELECT set_config($1, 'a', false)", "SELECT set_config('a', 'b', false), 1", "SET TRANSACTION SNAPSHOT '1'"]
    {
        assert_eq!(pg(odd).touches, Names::Everything, "{odd}");
    }
}

#[test]
fn what_is_not_understood_writes_with_its_transaction_and_leaves_the_session() {
    for sql in ["SELECT mine()", "SELECT * FROM nowhere", "INSERT INTO nowhere VALUES (1)"] {
        let analysis = pg(sql);
        assert_eq!((&analysis.touches, analysis.effect), (&Names::Everything, Effect::WithTransaction), "{sql}");
        assert_eq!((analysis.step, analysis.session.len()), (Step::None, 0), "{sql}");
        assert_eq!((analysis.is_held(false), analysis.is_held(true)), (true, false), "{sql}");
    }
    // A definition leaves the session too, unless the table is a temporary one.
    for (sql, leaves) in [
        ("INSERT INTO users (id) OVERRIDING USER VALUE VALUES (7)", true),
        ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", true),
        ("CREATE TEMP TABLE t AS SELECT 1", false),
        ("CREATE TEMPORARY TABLE t (a int)", false),
        ("SELECT 1 AS a INTO TEMP t", false),
        ("DO 'BEGIN END'", false),
    ] {
        assert_eq!(pg(sql).session.is_empty(), leaves, "{sql}");
        assert!(pg(sql).touches == Names::Everything || sql.contains("(a int)"), "{sql}");
    }
    assert_eq!(pg("CREATE INDEX CONCURRENTLY i ON posts (title)").effect, Effect::AtOnce);
}

#[test]
fn a_prepared_transaction_may_have_written_anything() {
    for (product, sql) in [(POSTGRES, "COMMIT PREPARED 'x'"), (Product::MariaDb, "XA COMMIT 'x'")] {
        let analysis = Analyser::new(product, blog("public")).analyse(&Dialect::new(product), sql.as_bytes(), &[]);
        assert_eq!(analysis.touches, Names::Everything, "{sql}");
        assert!(analysis.is_held(true) && analysis.is_held(false), "{sql}");
    }
    assert_eq!(pg("ROLLBACK PREPARED 'x'").touches, Names::none());
}

#[test]
fn in_one_command_a_write_may_stand_outside_of_the_transaction() {
    let posts = "INSERT INTO posts (id) VALUES (1)";
    for sql in [format!("ROLLBACK; {posts}"), format!("{posts}; BEGIN"), format!("{posts}; ROLLBACK; {posts}")] {
        assert!(pg(&sql).is_held(true) && pg(&sql).is_held(false), "{sql}");
    }
    assert!(!pg("ROLLBACK").is_held(true));
    assert!(!pg("BEGIN; SELECT 1").is_held(false));
}

#[test]
fn a_uuid_is_the_same_in_each_of_its_forms() {
    let mut schema = blog("public");
    let key = Column { nullable: false, ..column("id", ColumnType::Uuid) };
    let table =
        Table { columns: vec![key, column("a", ColumnType::Bytes)], primary: vec![b"id".to_vec()], ..Table::default() };
    schema.tables.insert(Schema::name(b"public", b"things"), table);
    let whole = "6F9619FF-8B86-D011-B42D-00CF4FC964FF";
    let read = analysed(schema.clone(), &format!("SELECT a FROM things WHERE id = '{whole}'"));
    let reads = read.reads.bounded([read.reads.start(), read.reads.end()].concat());
    let update =
        |id: &str| analysed(schema.clone(), &format!("INSERT INTO things (id, a) VALUES ('{id}', 'x')")).touches;
    assert!(reads.meets(&update(&whole.to_lowercase().replace('-', ""))));
    assert!(reads.meets(&update(&format!("{{{whole}}}"))), "a form that has no name");
    assert!(!reads.meets(&update("6f9619ff8b86d011b42d00cf4fc964fe")));
}

#[test]
fn a_text_in_pieces_and_a_parameter_that_is_converted_have_no_name() {
    assert_eq!(pg("SELECT id FROM users WHERE name = 'a'\n'b'").touches, Names::Everything);
    assert_eq!(pg("SELECT id FROM users WHERE name = E'a\\''\n'b'").touches, Names::Everything);
    let read = |charset, value: &[u8]| {
        let dialect = Dialect { charset, ..Dialect::new(POSTGRES) };
        let sql = b"SELECT id FROM users WHERE name = $1";
        let read = Analyser::new(POSTGRES, blog("public")).analyse(&dialect, sql, &[Some(Literal::Text(value))]).reads;
        read.bounded(read.start())
    };
    assert_eq!(read(Charset::Utf8, b"a"), read(Charset::AsciiCompatible, b"a"));
    assert_ne!(read(Charset::Utf8, b"\xC3\xA1"), read(Charset::AsciiCompatible, b"\xC3\xA1"));
}

#[test]
fn definitions_reach_what_they_hide_and_what_fires() {
    let mut schema = blog("public");
    schema.search = vec![b"app".to_vec(), b"public".to_vec()];
    let read = analysed(schema.clone(), "SELECT name FROM users");
    let reads = read.reads.bounded(read.reads.start());
    assert!(reads.meets(&analysed(schema.clone(), "CREATE TABLE app.users (id int)").touches));
    assert!(!reads.meets(&analysed(schema.clone(), "CREATE TABLE app.others (id int)").touches));
    let truncate = "TRUNCATE users";
    assert_ne!(analysed(schema.clone(), truncate).touches, Names::Everything);
    let silent = Trigger { insert: false, update: false, delete: false, body: None };
    schema.tables.get_mut(&Schema::name(b"public", b"users")).unwrap().triggers.push(silent);
    assert_eq!(analysed(schema.clone(), truncate).touches, Names::Everything);
    schema.definitions_fire = true;
    assert_eq!(analysed(schema, "ALTER TABLE users ADD COLUMN x int").touches, Names::Everything);
}
