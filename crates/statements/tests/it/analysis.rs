//! Statements and their names, one by one.

use verbena_statements::{
    Analyser, Analysis, Cascade, Charset, Column, ColumnType, Dialect, Effect, Literal, MAX_NAMES, Name, Names,
    Product, Schema, Session, Side, Step, Storable, Table, Trigger,
};

pub fn column(name: &str, kind: ColumnType) -> Column {
    Column::new(name.as_bytes(), kind)
}

fn key(name: &str) -> Column {
    Column { nullable: false, numbered: true, width: 18, ..column(name, ColumnType::Integer) }
}

/// Posts with a slug, their authors, words about them, a log without transactions, and a view.
pub fn blog(database: &str) -> Schema {
    use ColumnType::{Bytes, Integer, Other};
    let table = |columns: Vec<Column>| Table { primary: vec![columns[0].name.clone()], columns, ..Table::default() };
    let body = Some(b"insert into log (line) values (new.title);".to_vec());
    let posts = Table {
        unique: vec![vec![b"slug".to_vec()]],
        triggers: vec![Trigger { insert: false, update: true, delete: false, body }],
        cascades: vec![Cascade {
            child: Schema::name(database.as_bytes(), b"meta"),
            on_delete: true,
            on_update: false,
        }],
        ..table(vec![
            key("id"),
            Column { width: 20, ..column("slug", Bytes) },
            column("author", Integer),
            column("title", Bytes),
            column("score", Other),
        ])
    };
    let mut schema = Schema { search: vec![database.as_bytes().to_vec()], ..Schema::default() };
    let word = Column { nullable: false, ..column("word", Bytes) };
    let post = Column { nullable: false, ..column("post", Integer) };
    let meta =
        Table { primary: vec![b"post".to_vec(), b"word".to_vec()], ..table(vec![post, word, column("value", Bytes)]) };
    let log = Table { immediate: true, primary: vec![], ..table(vec![column("line", Bytes)]) };
    for (name, table) in [
        ("posts", posts),
        ("users", table(vec![key("id"), column("name", Bytes)])),
        ("meta", meta),
        ("log", log),
        ("remote", Table { foreign: true, ..table(vec![key("id")]) }),
    ] {
        schema.tables.insert(Schema::name(database.as_bytes(), name.as_bytes()), table);
    }
    schema
        .views
        .insert(Schema::name(database.as_bytes(), b"recent"), b"select id, title from posts where score > 3".to_vec());
    schema
}

fn schema_of(product: Product) -> Schema {
    blog(match product {
        Product::Sqlite => "main",
        Product::PostgreSql => "public",
        Product::MySql | Product::MariaDb => "blog",
    })
}

pub fn look(product: Product, sql: &str) -> Analysis {
    Analyser::new(product, schema_of(product)).analyse(&Dialect::new(product), sql.as_bytes(), &[])
}

fn maria(sql: &str) -> Analysis {
    look(Product::MariaDb, sql)
}

fn shown(names: impl IntoIterator<Item = (Vec<u8>, Name)>) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut shown: Vec<String> = names
        .into_iter()
        .map(|(table, name)| {
            let table = text(table.rsplit(|byte| *byte == 0).next().unwrap_or_default());
            match name {
                Name::Table => table,
                Name::Rows => format!("{table}:rows"),
                Name::Values => format!("{table}:values"),
                Name::Gone => format!("{table}:gone"),
                Name::Window => format!("{table}:window"),
                Name::New(column) => format!("{table}.{}:new", text(&column)),
                Name::Moved(column) => format!("{table}.{}:moved", text(&column)),
                Name::Value(column, value) => format!("{table}.{}={}", text(&column), text(&value)),
                Name::Row(key) => format!("{table}.key={}", text(&key)),
                Name::Any => format!("{table}:any"),
            }
        })
        .collect();
    shown.sort();
    shown
}

fn reads(analysis: &Analysis) -> String {
    match analysis.reads.is_everything() {
        true => "everything".to_owned(),
        false => shown(analysis.reads.start().into_iter().chain(analysis.reads.end())).join(" "),
    }
}

fn touches(analysis: &Analysis) -> String {
    match &analysis.touches {
        Names::Everything => "everything".to_owned(),
        Names::Of(tables) => {
            let names = tables.iter().flat_map(|(table, names)| names.iter().map(|name| (table.clone(), name.clone())));
            // The name of all writes is in each.
            shown(names.filter(|(_, name)| *name != Name::Any)).join(" ")
        }
    }
}

#[test]
fn a_read_by_a_key() {
    let read = maria("SELECT * FROM posts WHERE id = 7");
    assert_eq!(reads(&read), "posts posts.id:moved posts.id:new posts.id=7");
    assert_eq!(read.reads.keys(), [vec![0]]);
    assert_eq!((read.storable, read.effect, read.step), (Storable::Yes, Effect::None, Step::None));
    assert_eq!(touches(&read), "");
    let mut found = read.reads.clone();
    let row = found.row(0, &[Some(Literal::Number(b"07"))]);
    assert_eq!(shown(row), ["posts.key=7"]);
    assert_eq!(shown(found.end()), [""; 0], "the one row that can match was found");
}

#[test]
fn reads_of_one_table() {
    let cases = [
        ("select id, title from posts", "posts posts:rows"),
        ("select title from posts where author = 3", "posts posts.author:new posts.author=3 posts:gone posts:values"),
        (
            "select id from posts where author = 3 and slug = 'a\\'b' order by title limit 3",
            "posts posts.author:moved posts.slug:moved posts.slug:new posts.slug=a'b posts.title:moved posts:window",
        ),
        ("select id from posts where author = 3 or id = 4", "posts posts.author:moved posts.id:moved posts:rows"),
        ("select id from posts where (author = -3)", "posts posts.author:moved posts.author:new posts.author=-3"),
        ("select id from posts where author = 3.0", "posts posts.author:moved posts:rows"),
        ("select id from posts where slug = 7", "posts posts.slug:moved posts:rows"),
        (
            "select id from posts where author in (2, '1', 02)",
            "posts posts.author:moved posts.author:new posts.author=1 posts.author=2",
        ),
        ("select id from posts where author = 1 || score", "posts posts.author:moved posts.score:moved posts:rows"),
        (
            "select count(*) from posts where author = 1",
            "posts posts.author:new posts.author=1 posts:gone posts:values posts:window",
        ),
        ("select id, title as t from posts order by t", "posts posts.id:moved posts.title:moved posts:rows"),
        ("select * from recent", "posts posts:gone posts:rows posts:values posts:window"),
        ("select * from recent where id = 1", "posts posts:gone posts:rows posts:values posts:window"),
    ];
    for (sql, expected) in cases {
        assert_eq!(reads(&maria(sql)), expected, "{sql}");
    }
}

#[test]
fn reads_of_several_tables() {
    let cases = [
        (
            "select p.id, u.* from posts p join users u on u.id = p.author where p.slug = 'x'",
            "posts posts.author:moved posts.slug:moved posts.slug:new posts.slug=x users users.id:moved users:rows",
        ),
        (
            "select p.id from posts p left join meta m on m.post = p.id and m.word = 'w'",
            "meta meta.word:new meta.word=w meta:gone meta:values posts posts.id:moved posts:rows",
        ),
        (
            "select p.id from posts p left join meta m on p.slug = 'w' and m.post = p.id",
            "meta meta:gone meta:rows meta:values posts posts.id:moved posts.slug:moved posts:rows",
        ),
        (
            "select id from posts where id in (select post from meta where word = 'w')",
            "meta meta.word:new meta.word=w meta:gone meta:values meta:window posts posts.id:moved posts:rows",
        ),
        (
            "select name from users union select slug from posts",
            "posts posts:gone posts:rows posts:values posts:window users users:gone users:rows users:values users:window",
        ),
        ("with posts as (select * from posts) select * from posts", "posts posts:any"),
    ];
    for (sql, expected) in cases {
        assert_eq!(reads(&maria(sql)), expected, "{sql}");
    }
    // A key of two columns, and a join whose star has both keys.
    let read = maria("select * from meta m, posts p where m.post = p.id");
    assert_eq!(read.reads.keys(), [vec![0, 1], vec![3]]);
    assert!(maria("select * from meta natural join posts").reads.keys().is_empty());
}

#[test]
fn writes() {
    let cases = [
        ("insert into users (name) values ('a'), ('b')", "users.id:new users.name=a users.name=b users:rows"),
        ("insert into users set id = 0, name = concat('a', 'b')", "users.id:new users.name:new users:rows"),
        ("insert into users select id, title from posts", "users.id:new users.name:new users:rows"),
        (
            "replace into meta values (1, 'a', 'b')",
            "meta.post:moved meta.post=1 meta.value:moved meta.value=b meta.word:moved meta.word=a meta.key=\0\0\0\u{1}1\0\0\0\u{1}a meta:gone meta:rows meta:values meta:window",
        ),
        ("update users set name = 'c' where id = '7' limit 1", "users.key=7 users.name:moved users:values"),
        ("update users set name = 'c' where id in (7, 8)", "users.key=7 users.key=8 users.name:moved users:values"),
        ("update users set name = 'c' where id = 7 or name = 'd'", "users users.name:moved users:values"),
        ("update users set name = 'c' where id = '7a'", "users users.name:moved users:values"),
        ("update users join meta on post = users.id set name = 'c'", "users"),
        ("delete from users where id = 7", "users.key=7 users:gone users:window"),
        ("delete users from users, meta where users.id = meta.post", "meta users"),
        ("update posts set score = 1 where id = 7", "log.line:new log:rows posts.key=7 posts.score:moved posts:values"),
        ("delete from posts where id = 7", "meta posts.key=7 posts:gone posts:window"),
        ("truncate table users", "users"),
        ("load data local infile 'x' into table users", "users"),
        ("insert into users (id) select 1 from nothing", "everything"),
        ("update recent set title = 'x'", "everything"),
        ("insert into remote values (1)", "everything"),
        ("alter table users add column x int", " users"),
        ("drop index a on users", " users"),
        ("create table fresh (a int)", ""),
        ("rename table users to people", "everything"),
        ("call f()", "everything"),
        ("execute immediate 'delete from users'", "everything"),
    ];
    for (sql, expected) in cases {
        let analysis = maria(sql);
        let mut shown: Vec<&str> = expected.split(' ').collect();
        shown.sort_unstable();
        let found = touches(&analysis);
        let mut found: Vec<&str> = found.split(' ').collect();
        found.sort_unstable();
        assert_eq!(found, shown, "{sql}: {:?}", analysis.reasons);
        assert!(analysis.is_held(false), "{sql}");
    }
    let wide = "x".repeat(21);
    let cut = format!("insert into posts (slug) values ('{wide}')");
    assert!(touches(&maria(&cut)).contains("posts.slug:new"), "the column may store another text");
}

#[test]
fn on_duplicate_key_is_three_writes() {
    let write =
        maria("insert into posts (slug, title) values ('a', 'b') on duplicate key update title = values(title)");
    // The slug is another unique key, so the row is not known.
    for name in
        ["posts", "posts:rows", "posts:values", "posts:gone", "posts.slug=a", "posts.title:moved", "log:rows", "meta"]
    {
        assert!(touches(&write).split(' ').any(|found| found == name), "{name} in {}", touches(&write));
    }
}

#[test]
fn transactions_and_what_takes_effect_by_itself() {
    use Step::{Begin, Commit, Prepare, Rollback, Savepoint};
    let cases = [
        ("begin", Begin),
        ("start transaction with consistent snapshot", Begin),
        ("begin not atomic select 1; end", Commit),
        ("commit and chain", Commit),
        ("rollback", Rollback),
        ("rollback to savepoint a", Savepoint),
        ("savepoint `a`", Savepoint),
        ("release savepoint a", Savepoint),
        ("xa start 'a'", Begin),
        ("xa prepare 'a'", Prepare),
        ("xa commit 'a'", Commit),
        ("set autocommit = 1", Commit),
        ("set autocommit=0", Step::None),
        ("set @@session.autocommit = on", Commit),
        ("set @autocommit = 1", Step::None),
        ("lock tables users write", Commit),
        ("unlock tables", Commit),
        ("create index a on users (name)", Commit),
        ("select 1", Step::None),
    ];
    for (sql, step) in cases {
        assert_eq!(maria(sql).step, step, "{sql}");
    }
    let held = |sql: &str| (maria(sql).is_held(false), maria(sql).is_held(true));
    assert_eq!(held("update users set name = 'a'"), (true, false));
    assert_eq!(held("insert into log values ('a')"), (true, true), "no transactions");
    assert_eq!(held("update posts set title = 'a'"), (true, true), "a trigger writes the log");
    assert_eq!(held("begin"), (false, true), "MySQL commits what was open");
    assert_eq!(held("select 1; commit"), (true, true));
    assert_eq!(held("select * from posts for update"), (false, false));
    let postgres = |sql: &str| look(Product::PostgreSql, sql);
    assert_eq!((postgres("prepare transaction 'a'").step, postgres("commit prepared 'a'").step), (Prepare, Commit));
    assert_eq!(postgres("drop table users").step, Step::None, "with its transaction");
}

#[test]
fn what_is_not_a_table() {
    let cases = [
        ("select now()", Storable::Time),
        ("select id from posts where score < current_timestamp", Storable::Time),
        ("select rand()", Storable::No("chance")),
        ("select last_insert_id()", Storable::No("the connection or the user")),
        ("select @x", Storable::No("a variable of the session")),
        ("select @@session.sql_mode, version()", Storable::Setting),
        ("select @@global.sql_mode, @@global.read_only, @@read_only", Storable::Yes),
        ("select @@global.uptime", Storable::No("a variable of the session")),
        ("select @@insert_id", Storable::No("a variable of the session")),
        ("select found_rows()", Storable::AsTheStatementBefore),
        ("select lower(title), if(score, 1, 2) from posts", Storable::Yes),
        ("show full columns from posts", Storable::Yes),
        ("show variables like 'sql_mode'", Storable::Setting),
        ("show processlist", Storable::No("the state of the server")),
        ("select * from information_schema.columns", Storable::Yes),
        ("select * from information_schema.processlist", Storable::No("the server's own tables")),
    ];
    for (sql, storable) in cases {
        let analysis = maria(sql);
        assert_eq!(analysis.storable, storable, "{sql}");
        assert!(!analysis.reads.is_everything() && touches(&analysis).is_empty(), "{sql}: {:?}", analysis.reasons);
    }
    for sql in [
        "select f(1)",
        "select a.b(1)",
        "select id from posts where f(id) = 1",
        "select * from remote",
        "select * from nothing",
    ] {
        let analysis = maria(sql);
        assert_eq!((reads(&analysis).as_str(), touches(&analysis).as_str()), ("everything", "everything"), "{sql}");
    }
    let mut schema = schema_of(Product::PostgreSql);
    schema.routines.insert(b"lower".to_vec());
    let mut analyser = Analyser::new(Product::PostgreSql, schema);
    let mut all =
        |sql: &str| analyser.analyse(&Dialect::new(Product::PostgreSql), sql.as_bytes(), &[]).reads.is_everything();
    assert!(all("select lower(title) from posts"), "the database has its own");
    assert!(all("select p.f from posts p"), "a call of f");
    assert!(all("select id from posts where id OPERATOR(x.=) 1"));
    assert!(!all("select p.id::text from posts p"));
}

#[test]
fn postgres_reads_the_time_in_a_text() {
    let postgres = |sql: &str| look(Product::PostgreSql, sql).storable;
    assert_eq!(postgres("select id from posts where score > ' NOW '"), Storable::Time);
    assert_eq!(postgres("select id from posts where score > '2020-01-01'"), Storable::Yes);
    assert_eq!(postgres("select current_user"), Storable::No("the connection or the user"));
}

#[test]
fn postgres_folds_names_and_has_its_own_statements() {
    let postgres = |sql: &str| look(Product::PostgreSql, sql);
    assert_eq!(reads(&postgres("SELECT ID FROM Posts WHERE Author = $1")), "posts posts.author:moved posts:rows");
    assert!(postgres("SELECT * FROM \"Posts\"").reads.is_everything());
    assert_eq!(reads(&postgres("table users")), "users users:any");
    assert_eq!(touches(&postgres("copy users (name) from stdin")), "users");
    assert_eq!(
        touches(&postgres("insert into users (id, name) values (3, 'a') on conflict (id) do nothing")),
        "users.id=3 users.name=a users:rows"
    );
    assert_eq!(
        touches(&postgres("with gone as (delete from users where id = 3 returning *) select * from gone")),
        "users.key=3 users:gone users:window"
    );
    assert_eq!(
        reads(&postgres("select id from posts where author = 3 for no key update skip locked")),
        "posts posts.author:moved posts.author:new posts.author=3"
    );
    assert_eq!(touches(&postgres("do $$ begin delete from users; end $$")), "everything");
    assert_eq!(touches(&postgres("select 1 into t")), "everything");
}

#[test]
fn executable_comments() {
    let mut dialect = Dialect::new(Product::MariaDb);
    let mut with = |version, sql: &str| {
        dialect.version = version;
        let analysis =
            Analyser::new(Product::MariaDb, schema_of(Product::MariaDb)).analyse(&dialect, sql.as_bytes(), &[]);
        reads(&analysis)
    };
    let both =
        "posts posts:gone posts:rows posts:values posts:window users users:gone users:rows users:values users:window";
    let union = "select id from posts /*M!100100 union select id from users */";
    assert_eq!(with(Some(101_119), union), both);
    assert_eq!(with(Some(100_000), union), "posts posts:rows");
    assert_eq!(with(None, union), "everything");
    assert_eq!(with(None, "select id from posts /*! union select id from users */"), both);
    assert_eq!(with(Some(101_119), "select id from posts /*!80000 union select id from users */"), "posts posts:rows");
    assert_eq!(with(None, "select /* a */ id -- b\n from # c\n posts"), "posts posts:rows");
    assert_eq!(with(None, "select id from posts /*! union select id from users"), "everything");
}

#[test]
fn bad_input_is_everything() {
    let deep = format!("select {}1{}", "(".repeat(70), ")".repeat(70));
    let long = format!("select id from posts where author = 1 {}", "or author = 1 ".repeat(2_000));
    let nots = format!("select {} 1", "not ".repeat(2_000));
    let huge = format!("select '{}'", "x".repeat(16 << 20));
    for sql in [
        deep.as_str(),
        &long,
        &nots,
        &huge,
        "select 'a",
        "select /* a",
        "select \0",
        "select 1a",
        "explode",
        "select é from posts",
    ] {
        let analysis = maria(sql);
        let start = &sql[..sql.len().min(40)];
        assert_eq!((reads(&analysis).as_str(), touches(&analysis).as_str()), ("everything", "everything"), "{start}");
        assert!(analysis.is_held(true) && !analysis.reasons.is_empty(), "{start}");
    }
    let dialect = Dialect { charset: Charset::Other, ..Dialect::new(Product::MariaDb) };
    let mut analyser = Analyser::new(Product::MariaDb, schema_of(Product::MariaDb));
    assert!(analyser.analyse(&dialect, b"select 1", &[]).reads.is_everything());
    assert!(analyser.analyse(&Dialect::new(Product::Sqlite), b"select 1", &[]).reads.is_everything());
    assert_eq!(reads(&maria("")), "");
}

#[test]
fn bytes_that_are_no_text_have_names() {
    let mut analyser = Analyser::new(Product::MariaDb, schema_of(Product::MariaDb));
    let sql = b"insert into users (name) values ('\xff\\0''')";
    let touched = analyser.analyse(&Dialect::new(Product::MariaDb), sql, &[]).touches;
    let value = Name::Value(b"name".to_vec(), b"\xff\0'".to_vec());
    let name = [(Schema::name(b"blog", b"users"), value)];
    assert!(touched.meets(&Names::bounded(Default::default(), Side::Read, name)));
}

#[test]
fn several_statements_are_all_of_them() {
    let analysis = maria("select id from posts; update users set name = 'a' where id = 1;; begin");
    assert_eq!(reads(&analysis), "posts posts:gone posts:rows posts:values");
    assert_eq!(touches(&analysis), "users.key=1 users.name:moved users:values");
    assert!(analysis.reads.keys().is_empty(), "the answers are not told apart");
    assert_eq!(touches(&maria("select 1; nonsense")), "everything");
}

#[test]
fn sessions() {
    let session = |sql: &str| maria(sql).session;
    let variable = |name: &str, value: &str| Session::Variable(name.into(), value.into());
    assert_eq!(session("SET NAMES 'utf8mb4'"), [Session::Charset(b"utf8mb4".to_vec())]);
    assert_eq!(session("use `blog`"), [Session::Database(b"blog".to_vec())]);
    assert_eq!(
        session("SET SESSION sql_mode='A,B', @x := 3, @@time_zone = 'UTC'"),
        [variable("sql_mode", "'A,B'"), variable("@x", "3"), variable("time_zone", "'UTC'")]
    );
    assert_eq!(touches(&maria("set global max_connections = 3")), "everything");
    assert_eq!(touches(&maria("set @x = f(1)")), "everything");
    assert_eq!(reads(&maria("set @x = (select max(id) from users)")), "users users:any");
    assert_eq!(look(Product::PostgreSql, "set search_path to a, b").session, [variable("search_path", "a, b")]);
}

#[test]
fn more_rows_than_names_still_meet_each_write() {
    let mut analyser = Analyser::new(Product::MariaDb, schema_of(Product::MariaDb));
    let dialect = Dialect::new(Product::MariaDb);
    let mut read = analyser.analyse(&dialect, b"select id from users", &[]).reads;
    let mut names = read.start();
    for id in 0..MAX_NAMES + 50 {
        names.extend(read.row(0, &[Some(Literal::Number(id.to_string().as_bytes()))]));
    }
    names.extend(read.end());
    let page = read.bounded(names);
    for sql in [
        "update users set name = 'a' where id = 3",
        "delete from users where id = 3",
        "insert into users (name) values ('a')",
        "truncate users",
    ] {
        assert!(page.meets(&analyser.analyse(&dialect, sql.as_bytes(), &[]).touches), "{sql}");
    }
    assert!(!page.meets(&analyser.analyse(&dialect, b"update meta set value = 'a'", &[]).touches));
}
