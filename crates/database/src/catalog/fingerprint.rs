//! Whether the catalog is still the one that was read, without reading it again.
//!
//! A statement that is not understood may have changed it, and an application may send one with each request. PostgreSQL keeps its catalog in tables, whose row versions
//! are summed up in the snapshot in which the catalog was read. MariaDB and MySQL count the statements of each kind that they have begun, also those within procedures. There the
//! counts are read before the catalog: a change that is counted and not finished then would be missed, so the counts hold only if none was under way afterwards, and none had ended since before
//! ([`Known`](super::Known) looks).

use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use tokio_postgres::Client;

use super::CatalogError;
use super::postgres::rows;

/// The tables of PostgreSQL's catalog from which ours is made.
const TABLES: [&str; 17] = [
    "pg_attrdef",
    "pg_attribute",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_database",
    "pg_db_role_setting",
    "pg_enum",
    "pg_event_trigger",
    "pg_index",
    "pg_inherits",
    "pg_namespace",
    "pg_policy",
    "pg_proc",
    "pg_rewrite",
    "pg_trigger",
    "pg_type",
];
/// The statements of MySQL that leave the catalog as it is, of those whose counters begin as those do that change it.
const KEPT: [&str; 2] = ["com_create_temporary_table", "com_drop_temporary_table"];
/// How exactly a server says since when it counts.
const EXACT: Duration = Duration::from_secs(2);

/// What tells one state of the catalog from another.
#[derive(Clone, Debug)]
pub(crate) struct Fingerprint {
    text: String,
    /// MySQL: how long the server counted when the clock was so.
    counts: Option<(Duration, Instant)>,
}

impl Fingerprint {
    /// Of PostgreSQL, in the snapshot of the transaction.
    pub async fn of_postgres(client: &Client) -> Result<Fingerprint, CatalogError> {
        let tables = TABLES.map(|table| {
            format!("SELECT '{table}', count(*), coalesce(sum(hashtextextended(xmin::text || ' ' || ctid::text, 0)), 0) FROM pg_catalog.{table}")
        });
        let roles = "SELECT 'roles', count(*), coalesce(sum(hashtextextended(rolname || rolcanlogin::text || rolsuper::text || rolbypassrls::text, 0)), 0) FROM pg_catalog.pg_roles";
        let members = "SELECT 'members', count(*), coalesce(sum(hashtextextended(xmin::text || ' ' || ctid::text, 0)), 0) FROM pg_catalog.pg_auth_members";
        let path = "SELECT 'path', 0, hashtextextended(reset_val || source, 0) FROM pg_catalog.pg_settings WHERE name = 'search_path'";
        let all = [tables.join(" UNION ALL "), roles.into(), members.into(), path.into()].join(" UNION ALL ");
        let found: Vec<[String; 3]> = rows(client, &all).await?;
        Ok(Fingerprint { text: found.concat().join(" "), counts: None })
    }

    /// Of MySQL and MariaDB.
    pub async fn of_mysql(connection: &mut Conn) -> mysql_async::Result<Fingerprint> {
        let asked = Instant::now();
        let counters: Vec<(String, String)> = connection
            .query_map(
                "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name IN ('Uptime', 'Uptime_since_flush_status')",
                |row: Row| mysql_async::from_row(row),
            )
            .await?;
        let since = counters.iter().filter(|(name, _)| name.starts_with("Uptime"));
        let since = since.filter_map(|(_, seconds)| seconds.parse().ok()).min().unwrap_or(0);
        let changes = counters.iter().filter(|(name, _)| changes(&name.to_ascii_lowercase()));
        let text: Vec<String> = changes.map(|(name, count)| format!("{name}={count}")).collect();
        Ok(Fingerprint { text: text.join(" "), counts: Some((Duration::from_secs(since), asked)) })
    }

    /// Whether the catalog is the same now as then: nothing was changed, and the counters were not set back.
    pub fn is_still(&self, now: &Fingerprint) -> bool {
        let counts_on = match (self.counts, now.counts) {
            (Some((then_for, then)), Some((now_for, now))) => {
                let passed = now.saturating_duration_since(then);
                then_for > EXACT && now_for + EXACT >= then_for + passed
            }
            _ => true,
        };
        !self.text.is_empty() && self.text == now.text && counts_on
    }
}

/// Whether a counter is of statements that may change the catalog.
fn changes(counter: &str) -> bool {
    let beginnings = [
        "com_alter",
        "com_create",
        "com_drop",
        "com_rename",
        "com_grant",
        "com_revoke",
        "com_install",
        "com_uninstall",
    ];
    beginnings.iter().any(|beginning| counter.starts_with(beginning)) && !KEPT.contains(&counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_were_set_back_prove_nothing() {
        let at = Instant::now();
        let of = |text: &str, seconds, passed| Fingerprint {
            text: text.into(),
            counts: Some((Duration::from_secs(seconds), at + Duration::from_secs(passed))),
        };
        let then = of("Com_alter_table=0", 100, 0);
        assert!(then.is_still(&of("Com_alter_table=0", 160, 60)));
        assert!(!then.is_still(&of("Com_alter_table=1", 160, 60)));
        assert!(!then.is_still(&of("Com_alter_table=0", 50, 60)), "the server was started again");
        assert!(!of("Com_alter_table=0", 1, 0).is_still(&of("Com_alter_table=0", 1, 0)), "it may have been just now");
        assert!(!of("", 100, 0).is_still(&of("", 160, 60)), "a server that shows no counters");
        assert!(changes("com_create_trigger") && !changes("com_create_temporary_table") && !changes("com_select"));
    }
}
