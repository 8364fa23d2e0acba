//! The catalog of PostgreSQL, from `pg_catalog`, in one snapshot.

use std::collections::BTreeMap;
use std::path::Path as File;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};
use verbena_statements::{Cascade, Column, ColumnType, Dialect, Product, Schema, Table, Trigger};

use super::encrypted::Encrypted;
use super::fingerprint::Fingerprint;
use super::partitions::{Relation, rooted};
use super::{Catalog, CatalogError};
use crate::address::{Address, postgres_socket};
use crate::search::{Paths, path};

type Result<T> = std::result::Result<T, CatalogError>;

/// Schemas of the server itself, of its temporary tables and of what stands beside long rows.
const OWN: &str = r"(n.nspname LIKE 'pg\_%' OR n.nspname = 'information_schema')";
/// The types of `pg_type` whose values have names.
const INTEGERS: [(&str, usize); 3] = [("21", 4), ("23", 9), ("20", 18)];
const TEXT: &str = "25";
const VARCHAR: &str = "1043";
const UUID: &str = "2950";
/// Bits of `tgtype` (src/include/catalog/pg_trigger.h).
const ON_INSERT: u32 = 1 << 2;
const ON_DELETE: u32 = 1 << 3;
const ON_UPDATE: u32 = 1 << 4;

/// A connection as the relay's own user, and the task that carries it: it ends with the client, which is told what goes wrong.
pub(super) async fn connection(address: &Address) -> Result<(Client, JoinHandle<()>)> {
    let user = address.user.clone().unwrap_or_default();
    let mut config = Config::new();
    config.user(&user).dbname(address.database.as_ref().unwrap_or(&user)).application_name("verbena");
    match &address.socket {
        Some(socket) => {
            let (directory, port) =
                postgres_socket(socket).ok_or_else(|| CatalogError::Socket(socket.display().to_string()))?;
            config.host_path::<&File>(directory).port(port);
        }
        None => {
            config.host(&address.host).port(address.port);
        }
    }
    if let Some(password) = &address.password {
        config.password(password);
    }
    let connected = match &address.trust {
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            (client, tokio::spawn(async move { _ = connection.await }))
        }
        Some(trust) => {
            config.ssl_mode(SslMode::Require);
            let (client, connection) = config.connect(Encrypted(trust.clone())).await?;
            (client, tokio::spawn(async move { _ = connection.await }))
        }
    };
    Ok(connected)
}

pub(super) async fn read(address: &Address, before: Option<&Fingerprint>) -> Result<Option<Catalog>> {
    let (client, connection) = connection(address).await?;
    let catalog = read_by(&client, before).await;
    drop(client);
    let _ = connection.await;
    catalog
}

async fn read_by(client: &Client, before: Option<&Fingerprint>) -> Result<Option<Catalog>> {
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    // The text of a view waits for locks on its tables; a server process that nobody waits for must not stay.
    client.batch_execute("SET LOCAL lock_timeout = '4s'; SET LOCAL statement_timeout = '8s'").await?;
    let now = Fingerprint::of_postgres(client).await?;
    if before.is_some_and(|before| before.is_still(&now)) {
        return Ok(None);
    }
    let mut paths = paths(client).await?;
    // So that the texts of views name the schema of each table.
    client.batch_execute("SET LOCAL search_path = pg_catalog").await?;
    let settings = "SELECT current_setting('server_version_num'), current_database()";
    let rows = rows(client, settings).await?;
    let [version, database] = rows.into_iter().next().unwrap_or_default();
    paths.database = database.into_bytes();
    let mut relations = relations(client).await?;
    columns(client, &mut relations).await?;
    keys(client, &mut relations).await?;
    triggers(client, &mut relations).await?;
    cascades(client, &mut relations).await?;
    let mut schema = Schema { tables: rooted(relations), ..Schema::default() };
    let views = format!(
        "SELECT n.nspname, c.relname, pg_get_viewdef(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind = 'v' AND NOT {OWN}"
    );
    for [space, view, text] in self::rows(client, &views).await? {
        schema.views.insert(Schema::name(space.as_bytes(), view.as_bytes()), text.into_bytes());
    }
    // An immutable one depends on its arguments alone, as a built-in one of this name does.
    let routines = format!(
        "SELECT DISTINCT lower(p.proname) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
         WHERE p.provolatile <> 'i' AND NOT {OWN}"
    );
    schema.routines = self::rows(client, &routines).await?.into_iter().map(|[name]| name.into_bytes()).collect();
    let fires = "SELECT 1 FROM pg_event_trigger WHERE evtenabled <> 'D'";
    schema.definitions_fire = !self::rows::<1>(client, fires).await?.is_empty();
    let dialect = Dialect { version: version.parse().ok(), ..Dialect::new(Product::PostgreSql) };
    Ok(Some(Catalog { dialect, schema: Arc::new(schema), paths, fingerprint: Some(now) }))
}

/// The values of each row as texts; empty where one is NULL.
pub(crate) async fn rows<const N: usize>(client: &Client, text: &str) -> Result<Vec<[String; N]>> {
    let mut rows = Vec::new();
    for message in client.simple_query(text).await? {
        if let SimpleQueryMessage::Row(row) = message {
            let value = |at| row.try_get(at).ok().flatten().unwrap_or_default().to_owned();
            rows.push(std::array::from_fn(value));
        }
    }
    Ok(rows)
}

async fn paths(client: &Client) -> Result<Paths> {
    let mut paths = Paths::default();
    let mine = "SELECT reset_val, source FROM pg_catalog.pg_settings WHERE name = 'search_path'";
    for [text, source] in rows(client, mine).await? {
        // Otherwise it is of this user, and what others have is not known.
        if !matches!(&*source, "database" | "user" | "database user" | "client" | "session") {
            paths.global = path(text.as_bytes());
        }
    }
    let set = "SELECT coalesce(r.rolname, ''), s.setdatabase <> 0, split_part(c, '=', 1), substr(c, strpos(c, '=') + 1) \
         FROM pg_catalog.pg_db_role_setting s LEFT JOIN pg_catalog.pg_roles r ON r.oid = s.setrole CROSS JOIN unnest(s.setconfig) c \
         WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())) \
         AND split_part(c, '=', 1) IN ('search_path', 'role', 'session_replication_role')";
    for [role, here, name, value] in rows(client, set).await? {
        let role = Some(role.into_bytes()).filter(|role| !role.is_empty());
        if name == "search_path" {
            paths.settings.insert((role, here == "t"), path(value.as_bytes()));
        } else {
            paths.odd.insert(role);
        }
    }
    let roles = "SELECT rolname FROM pg_catalog.pg_roles WHERE rolcanlogin";
    paths.roles = rows(client, roles).await?.into_iter().map(|[name]| name.into_bytes()).collect();
    let schemas = format!("SELECT n.nspname FROM pg_catalog.pg_namespace n WHERE NOT {OWN}");
    paths.schemas = rows(client, &schemas).await?.into_iter().map(|[name]| name.into_bytes()).collect();
    let denied = format!(
        "SELECT r.rolname, n.nspname FROM pg_catalog.pg_roles r CROSS JOIN pg_catalog.pg_namespace n \
         WHERE r.rolcanlogin AND NOT {OWN} AND NOT has_schema_privilege(r.oid, n.oid, 'USAGE')"
    );
    let denied = rows(client, &denied).await?;
    paths.denied = denied.into_iter().map(|[role, schema]| (role.into_bytes(), schema.into_bytes())).collect();
    Ok(paths)
}

async fn relations(client: &Client) -> Result<BTreeMap<u32, Relation>> {
    let text = format!(
        "SELECT c.oid, n.nspname, c.relname, c.relkind, c.relrowsecurity, c.relispartition \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'f', 'm') AND NOT {OWN}"
    );
    let mut relations = BTreeMap::new();
    for [id, space, name, kind, security, partition] in rows(client, &text).await? {
        let table = Table { foreign: kind == "f", by_role: security == "t", ..Table::default() };
        let name = Schema::name(space.as_bytes(), name.as_bytes());
        let relation = Relation { name, table, parents: Vec::new(), is_partition: partition == "t" };
        relations.insert(number(&id), relation);
    }
    for [child, parent] in rows(client, "SELECT inhrelid, inhparent FROM pg_inherits").await? {
        if let Some(child) = relations.get_mut(&number(&child)) {
            child.parents.push(number(&parent));
        }
    }
    Ok(relations)
}

async fn columns(client: &Client, relations: &mut BTreeMap<u32, Relation>) -> Result<()> {
    let text = "SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated <> '', \
         coalesce(c.collisdeterministic, true) \
         FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation \
         WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attrelid, a.attnum";
    for [id, name, kind, modifier, needed, generated, is_deterministic] in rows(client, text).await? {
        let Some(relation) = relations.get_mut(&number(&id)) else { continue };
        let (kind, width) = match &*kind {
            UUID => (ColumnType::Uuid, usize::MAX),
            // A collation that is not deterministic finds equal what differs in bytes.
            TEXT if is_deterministic == "t" => (ColumnType::Bytes, usize::MAX),
            // The modifier is the length in characters, and four; blanks beyond it are cut.
            VARCHAR if is_deterministic == "t" => {
                let longest = modifier.parse::<usize>().map_or(usize::MAX, |modifier| modifier.saturating_sub(4));
                (ColumnType::Bytes, longest)
            }
            other => match INTEGERS.iter().find(|(id, _)| *id == other) {
                Some((_, digits)) => (ColumnType::Integer, *digits),
                None => (ColumnType::Other, 0),
            },
        };
        relation.table.columns.push(Column {
            nullable: needed != "t",
            width,
            follows: generated == "t",
            ..Column::new(name.as_bytes(), kind)
        });
    }
    Ok(())
}

async fn keys(client: &Client, relations: &mut BTreeMap<u32, Relation>) -> Result<()> {
    // What is unique in another sense than that of `=` on the column is unique for nobody who reads.
    let text = "SELECT i.indexrelid, i.indrelid, i.indisprimary, \
         CASE WHEN i.indpred IS NULL AND i.indisvalid AND i.indcollation[k.n - 1] = a.attcollation \
         AND (o.opcdefault OR o.opcname LIKE '%pattern_ops') THEN a.attname END \
         FROM pg_index i CROSS JOIN generate_series(1, i.indnkeyatts) k(n) \
         LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n - 1] AND a.attnum > 0 \
         LEFT JOIN pg_opclass o ON o.oid = i.indclass[k.n - 1] \
         WHERE i.indisunique ORDER BY i.indexrelid, k.n";
    type Key = (u32, bool, Option<Vec<Vec<u8>>>);
    let mut keys: BTreeMap<u32, Key> = BTreeMap::new();
    for [index, id, primary, column] in rows(client, text).await? {
        let (_, _, columns) =
            keys.entry(number(&index)).or_insert_with(|| (number(&id), primary == "t", Some(Vec::new())));
        match columns {
            Some(columns) if !column.is_empty() => columns.push(column.into_bytes()),
            _ => *columns = None,
        }
    }
    for (id, is_primary, columns) in keys.into_values() {
        let Some(Relation { table, .. }) = relations.get_mut(&id) else { continue };
        match columns {
            Some(columns) if is_primary => table.primary = columns,
            columns => table.unique.push(columns.unwrap_or_default()),
        }
    }
    Ok(())
}

async fn triggers(client: &Client, relations: &mut BTreeMap<u32, Relation>) -> Result<()> {
    let text = "SELECT t.tgrelid, t.tgtype, p.prosrc, \
         l.lanname = 'plpgsql' AND p.proconfig IS NULL AND NOT p.prosecdef \
         FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang \
         WHERE NOT t.tgisinternal AND t.tgenabled <> 'D'";
    for [id, kind, text, is_plain] in rows(client, text).await? {
        let Some(Relation { table, .. }) = relations.get_mut(&number(&id)) else { continue };
        let has = |bit| number(&kind) & bit != 0;
        let body = if is_plain == "t" { statements(&text) } else { None };
        table.triggers.push(Trigger { insert: has(ON_INSERT), update: has(ON_UPDATE), delete: has(ON_DELETE), body });
    }
    let rules = "SELECT ev_class, ev_type FROM pg_rewrite WHERE rulename <> '_RETURN' AND ev_enabled <> 'D'";
    for [id, event] in rows(client, rules).await? {
        let Some(Relation { table, .. }) = relations.get_mut(&number(&id)) else { continue };
        let is = |number: &str| event == number;
        table.triggers.push(Trigger { update: is("2"), insert: is("3"), delete: is("4"), body: None });
    }
    Ok(())
}

/// The statements of a function of a trigger in PL/pgSQL that is nothing but statements. What declares, assigns, branches or loops is not taken apart.
fn statements(text: &str) -> Option<Vec<u8>> {
    let has = |word: &str| {
        text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_')
            .any(|part| part.eq_ignore_ascii_case(word))
    };
    // What has a comment or another quote may hide where it ends; RETURNING may assign to the row.
    let is_odd =
        text.contains("--") || text.contains("/*") || text.contains('$') || text.contains('#') || text.contains('\\');
    if is_odd || has("declare") || has("returning") || has("exception") {
        return None;
    }
    let strip = |text: &str, word: &str| {
        let at = text.len().checked_sub(word.len())?;
        let (before, last) = (text.get(..at)?, text.get(at..)?);
        last.eq_ignore_ascii_case(word).then(|| before.trim_end().to_owned())
    };
    let text = text.trim();
    let first = text.get(..5).filter(|word| word.eq_ignore_ascii_case("begin"))?;
    let rest = text.get(first.len()..).filter(|rest| rest.starts_with(|sign: char| sign.is_ascii_whitespace()))?;
    let body = strip(rest.trim_end_matches(';').trim_end(), "end")?;
    let body = body.strip_suffix(';')?.trim_end();
    let body = ["new", "old", "null"].iter().find_map(|row| strip(body, row))?;
    let body = strip(&body, "return")?;
    let body = body.trim();
    (body.is_empty() || body.ends_with(';')).then(|| body.as_bytes().to_vec())
}

async fn cascades(client: &Client, relations: &mut BTreeMap<u32, Relation>) -> Result<()> {
    let text = "SELECT conrelid, confrelid, confdeltype, confupdtype FROM pg_constraint WHERE contype = 'f'";
    let ids: BTreeMap<u32, u32> =
        relations.iter().filter_map(|(id, relation)| Some((*id, *relation.parents.first()?))).collect();
    for [child, parent, on_delete, on_update] in rows(client, text).await? {
        let follows = |rule: &str| !matches!(rule, "a" | "r");
        let mut child = number(&child);
        while let Some(above) = ids.get(&child) {
            child = *above;
        }
        let Some(child) = relations.get(&child).map(|relation| relation.name.clone()) else { continue };
        let cascade = Cascade { child, on_delete: follows(&on_delete), on_update: follows(&on_update) };
        if let Some(parent) = relations.get_mut(&number(&parent))
            && (cascade.on_delete || cascade.on_update)
        {
            parent.table.cascades.push(cascade);
        }
    }
    Ok(())
}

fn number(text: &str) -> u32 {
    text.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_that_is_nothing_but_statements_is_taken_apart() {
        let of = |text: &str| statements(text).map(|body| String::from_utf8(body).unwrap());
        assert_eq!(
            of("\nBEGIN\n insert into a values (new.id); delete from b;\n RETURN NEW;\nEND;\n").unwrap(),
            "insert into a values (new.id); delete from b;"
        );
        assert_eq!(of("begin return null; end").unwrap(), "");
        for odd in [
            "declare x int; begin return new; end",
            "begin insert into a values (1) returning id into new.a; return new; end",
            "begin return; end",
            "begin delete from a; return (1, 2); end",
            "beginning; return new; end",
            "begin delete from a -- b\n; return new; end",
            "begin execute 'delete from a' return new; end",
        ] {
            assert_eq!(of(odd), None, "{odd}");
        }
    }
}
