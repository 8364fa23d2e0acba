//! The catalog of MySQL and MariaDB, from `information_schema`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row, SslOpts};
use verbena_statements::{Cascade, Column, ColumnType, Dialect, Product, Schema, Table, Trigger};

use super::Catalog;
use super::fingerprint::Fingerprint;
use crate::address::Address;
use crate::search::Paths;
use crate::trust::Trust;

/// Databases of the server itself: what is read there is of no table of an application's.
const OWN: &str = "('mysql', 'information_schema', 'performance_schema', 'sys')";

fn encrypted(trust: &Trust) -> SslOpts {
    let authorities = trust.authorities.iter().map(|certificate| certificate.to_vec().into()).collect();
    SslOpts::default().with_root_certs(authorities).with_disable_built_in_roots(true)
}

/// A connection as the relay's own user.
pub(super) async fn connection(address: &Address) -> mysql_async::Result<Conn> {
    let options = OptsBuilder::default()
        .user(address.user.clone())
        .pass(address.password.clone())
        .socket(address.socket.as_ref().map(|path| path.display().to_string()))
        .ip_or_hostname(address.host.clone())
        .tcp_port(address.port)
        .prefer_socket(false)
        .ssl_opts(address.trust.as_deref().map(encrypted));
    Conn::new(options).await
}

pub(super) async fn read(
    address: &Address,
    before: Option<&Fingerprint>,
    is_quiet: impl Fn() -> bool,
) -> mysql_async::Result<Option<Catalog>> {
    let mut connection = connection(address).await?;
    let catalog = read_by(&mut connection, before, is_quiet).await;
    // The catalog is here, or the error is worse.
    let _ = connection.disconnect().await;
    catalog
}

async fn read_by(
    connection: &mut Conn,
    before: Option<&Fingerprint>,
    is_quiet: impl Fn() -> bool,
) -> mysql_async::Result<Option<Catalog>> {
    connection.query_drop("SET NAMES utf8mb4").await?;
    let now = Fingerprint::of_mysql(connection).await?;
    if before.is_some_and(|before| before.is_still(&now)) {
        return Ok(None);
    }
    // What is counted in it has ended, if no change is under way now.
    let fingerprint = is_quiet().then_some(now);
    let row: Option<Row> = connection.query_first("SELECT version(), @@lower_case_table_names, @@sql_mode").await?;
    let [version, folds, mode] = row.map(texts).unwrap_or_default();
    let dialect = dialect(&version, &mode);
    let mut schema = Schema { folds_tables: folds != "0", ..Schema::default() };
    let transactional: BTreeSet<String> = connection
        .query_map("SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES'", |engine: String| engine)
        .await?
        .into_iter()
        .collect();
    let tables = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ifnull(ENGINE, '') FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN {OWN}"
    );
    for row in connection.query::<Row, _>(tables).await? {
        let [database, table, kind, engine] = texts(row);
        if !matches!(&*kind, "BASE TABLE" | "SYSTEM VERSIONED") {
            // Views have their own list; of the rest, such as sequences, nothing is known.
            continue;
        }
        let foreign = ["FEDERATED", "CONNECT", "SPIDER", "MRG_MyISAM", "MRG_MYISAM", "OQGRAPH", "SPHINX", "S3"];
        let is_foreign = engine.is_empty() || foreign.iter().any(|name| engine.eq_ignore_ascii_case(name));
        let made = Table { immediate: !transactional.contains(&engine), foreign: is_foreign, ..Table::default() };
        schema.tables.insert(name(&schema, &database, &table), made);
    }
    columns(connection, &mut schema).await?;
    keys(connection, &mut schema).await?;
    let views = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS WHERE TABLE_SCHEMA NOT IN {OWN}"
    );
    for row in connection.query::<Row, _>(views).await? {
        let [database, view, text] = texts(row);
        schema.views.insert(name(&schema, &database, &view), text.into_bytes());
    }
    triggers(connection, &mut schema).await?;
    cascades(connection, &mut schema).await?;
    Ok(Some(Catalog { dialect, schema: Arc::new(schema), paths: Paths::default(), fingerprint }))
}

fn dialect(version: &str, mode: &str) -> Dialect {
    let is_mariadb = version.contains("MariaDB");
    let product = if is_mariadb { Product::MariaDb } else { Product::MySql };
    let mut parts = version.split(|sign: char| !sign.is_ascii_digit()).filter_map(|part| part.parse::<u32>().ok());
    let number = (parts.next(), parts.next(), parts.next());
    let version = match number {
        (Some(major), Some(minor), Some(patch)) => Some(major * 10_000 + minor * 100 + patch),
        _ => None,
    };
    Dialect {
        version,
        ansi_quotes: mode.contains("ANSI_QUOTES"),
        backslash_escapes: !mode.contains("NO_BACKSLASH_ESCAPES"),
        ..Dialect::new(product)
    }
}

async fn columns(connection: &mut Conn, schema: &mut Schema) -> mysql_async::Result<()> {
    let text = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, ifnull(CHARACTER_MAXIMUM_LENGTH, 0), \
         ifnull(COLLATION_NAME, ''), EXTRA FROM information_schema.COLUMNS WHERE TABLE_SCHEMA NOT IN {OWN} \
         ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
    );
    for row in connection.query::<Row, _>(text).await? {
        let [database, table, column, kind, whole, nullable, longest, collation, extra] = texts(row);
        let at = name(schema, &database, &table);
        let Some(table) = schema.tables.get_mut(&at) else { continue };
        let digits = match &*kind {
            "tinyint" => Some(2),
            "smallint" => Some(4),
            "mediumint" => Some(6),
            "int" => Some(9),
            "bigint" => Some(18),
            _ => None,
        };
        let longest = longest.parse().unwrap_or(0);
        let (compared, width) = match digits {
            Some(digits) => (ColumnType::Integer, digits),
            None if is_by_bytes(&kind, &collation) => (ColumnType::Bytes, longest),
            None => (ColumnType::Other, 0),
        };
        let extra = extra.to_ascii_lowercase();
        table.columns.push(Column {
            nullable: nullable != "NO",
            width,
            unsigned: whole.contains("unsigned"),
            numbered: extra.contains("auto_increment"),
            follows: ["on update", "generated", "virtual", "stored"].iter().any(|word| extra.contains(word)),
            hidden: extra.contains("invisible"),
            ..Column::new(column.as_bytes(), compared)
        });
    }
    Ok(())
}

/// Whether two values are equal only if their bytes are. `utf8mb4_bin` is not: it takes no notice of blanks at the end.
fn is_by_bytes(kind: &str, collation: &str) -> bool {
    let is_text = matches!(kind, "varchar" | "tinytext" | "text" | "mediumtext" | "longtext");
    let is_binary = matches!(kind, "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob");
    is_binary || (is_text && (collation.ends_with("_nopad_bin") || collation.ends_with("_0900_bin")))
}

async fn keys(connection: &mut Conn, schema: &mut Schema) -> mysql_async::Result<()> {
    let text = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, ifnull(COLUMN_NAME, ''), ifnull(SUB_PART, 0) FROM information_schema.STATISTICS \
         WHERE NON_UNIQUE = 0 AND TABLE_SCHEMA NOT IN {OWN} ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"
    );
    // By table and name; nothing is known of a key on an expression, or on the beginning of a text.
    type Keys = BTreeMap<(Vec<u8>, String), Option<Vec<Vec<u8>>>>;
    let mut keys = Keys::new();
    for row in connection.query::<Row, _>(text).await? {
        let [database, table, index, column, part] = texts(row);
        let key = keys.entry((name(schema, &database, &table), index)).or_insert_with(|| Some(Vec::new()));
        match key {
            Some(columns) if part == "0" && !column.is_empty() => columns.push(column.into_bytes()),
            _ => *key = None,
        }
    }
    for ((at, index), columns) in keys {
        let Some(table) = schema.tables.get_mut(&at) else { continue };
        match (columns, &*index) {
            (Some(columns), "PRIMARY") => table.primary = columns,
            (columns, _) => table.unique.push(columns.unwrap_or_default()),
        }
    }
    Ok(())
}

async fn triggers(connection: &mut Conn, schema: &mut Schema) -> mysql_async::Result<()> {
    let text = format!(
        "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, EVENT_MANIPULATION, ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA NOT IN {OWN}"
    );
    // Who may not make triggers of a table does not see those that it has.
    let mine = "concat('\\'', substring_index(current_user(), '@', 1), '\\'@\\'', substring_index(current_user(), '@', -1), '\\'')";
    let privileges = |from: &str, more: &str| {
        format!("SELECT {more} FROM information_schema.{from} WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = {mine}")
    };
    let of_user: Vec<Row> = connection.query(privileges("USER_PRIVILEGES", "1")).await?;
    if of_user.is_empty() {
        let databases: Vec<String> = connection.query(privileges("SCHEMA_PRIVILEGES", "TABLE_SCHEMA")).await?;
        let tables: Vec<(String, String)> =
            connection.query(privileges("TABLE_PRIVILEGES", "TABLE_SCHEMA, TABLE_NAME")).await?;
        let seen: BTreeSet<Vec<u8>> = tables.iter().map(|(database, table)| name(schema, database, table)).collect();
        let begins: Vec<Vec<u8>> =
            databases.iter().map(|database| name(schema, &database.replace('\\', ""), "")).collect();
        for (at, table) in &mut schema.tables {
            if !seen.contains(at) && !begins.iter().any(|database| at.starts_with(database)) {
                table.triggers.push(Trigger { insert: true, update: true, delete: true, body: None });
            }
        }
    }
    for row in connection.query::<Row, _>(text).await? {
        let [database, table, event, text] = texts(row);
        let at = name(schema, &database, &table);
        let Some(table) = schema.tables.get_mut(&at) else { continue };
        table.triggers.push(Trigger {
            insert: event == "INSERT",
            update: event == "UPDATE",
            delete: event == "DELETE",
            body: statements(&text),
        });
    }
    Ok(())
}

/// The statements of a trigger that is one statement. What has branches, loops or variables is not taken apart.
fn statements(text: &str) -> Option<Vec<u8>> {
    let text = text.trim();
    let first = text.split_whitespace().next()?.to_ascii_uppercase();
    matches!(&*first, "INSERT" | "UPDATE" | "DELETE" | "REPLACE")
        .then(|| [text.trim_end_matches(';'), ";"].concat().into_bytes())
}

async fn cascades(connection: &mut Conn, schema: &mut Schema) -> mysql_async::Result<()> {
    let text = format!(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, DELETE_RULE, UPDATE_RULE \
         FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA NOT IN {OWN}"
    );
    for row in connection.query::<Row, _>(text).await? {
        let [database, child, of, parent, on_delete, on_update] = texts(row);
        let follows = |rule: &str| !matches!(rule, "RESTRICT" | "NO ACTION");
        let (child, parent) = (name(schema, &database, &child), name(schema, &of, &parent));
        let cascade = Cascade { child, on_delete: follows(&on_delete), on_update: follows(&on_update) };
        if let Some(parent) = schema.tables.get_mut(&parent)
            && (cascade.on_delete || cascade.on_update)
        {
            parent.cascades.push(cascade);
        }
    }
    Ok(())
}

fn name(schema: &Schema, database: &str, table: &str) -> Vec<u8> {
    let fold = |text: &str| if schema.folds_tables { text.to_lowercase() } else { text.to_owned() };
    Schema::name(fold(database).as_bytes(), fold(table).as_bytes())
}

/// The values of a row as texts; empty where one is NULL or not there.
pub(crate) fn texts<const N: usize>(row: Row) -> [String; N] {
    let mut values = row.unwrap().into_iter();
    std::array::from_fn(|_| match values.next() {
        Some(mysql_async::Value::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Some(mysql_async::Value::Int(number)) => number.to_string(),
        Some(mysql_async::Value::UInt(number)) => number.to_string(),
        _ => String::new(),
    })
}
