//! Real servers, each with a database of the test's own.

use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Row};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use verbena_database::Address;
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::postgresql::Postgresql;
use verbena_testkit::programs::output;

pub type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// A server and a connection to it.
pub enum Engine {
    PostgreSql { server: Arc<Postgresql>, client: Client },
    MariaDb { server: Arc<Mariadb>, connection: Conn },
}

impl Engine {
    /// PostgreSQL, where it is installed.
    pub async fn postgresql() -> Option<Engine> {
        let server = Postgresql::get()?;
        output(&mut server.psql("CREATE DATABASE oracle"));
        let mut config = tokio_postgres::Config::new();
        config.user("app").password("secret").dbname("oracle").host_path(server.directory.path());
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let begin = "CREATE COLLATION pg_catalog.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false); \
                     SET client_min_messages = error; SET search_path = s; SET statement_timeout = '20s'";
        client.batch_execute("SET allow_system_table_mods = on").await.unwrap();
        client.batch_execute(begin).await.unwrap();
        Some(Engine::PostgreSql { server, client })
    }

    /// MariaDB, where it is installed.
    pub async fn mariadb() -> Option<Engine> {
        let server = Mariadb::get()?;
        output(server.client().args(["-e", "CREATE DATABASE IF NOT EXISTS s"]));
        let options = OptsBuilder::default().user(Some("root")).socket(Some(server.socket().display().to_string()));
        let mut connection = Conn::new(options).await.unwrap();
        connection.query_drop("SET NAMES utf8mb4").await.unwrap();
        Some(Engine::MariaDb { server, connection })
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self, Engine::PostgreSql { .. })
    }

    /// Where the catalog is read.
    pub fn address(&self) -> Address {
        let text = match self {
            Engine::PostgreSql { server, .. } => {
                format!("postgres://app:secret@localhost/oracle?socket={}", server.directory.path().display())
            }
            Engine::MariaDb { server, .. } => format!("mysql://root@localhost?socket={}", server.socket().display()),
        };
        text.parse().unwrap()
    }

    /// The answer, or why there is none.
    pub async fn ask(&mut self, sql: &str) -> Result<Rows, String> {
        match self {
            Engine::PostgreSql { client, .. } => {
                let messages = client.simple_query(sql).await.map_err(|error| {
                    error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
                })?;
                let mut rows = Rows::new();
                for message in messages {
                    if let SimpleQueryMessage::Row(row) = message {
                        rows.push((0..row.len()).map(|at| row.get(at).map(|text| text.as_bytes().to_vec())).collect());
                    }
                }
                Ok(rows)
            }
            Engine::MariaDb { connection, .. } => {
                let rows: Vec<Row> = connection.query(sql).await.map_err(|error| error.to_string())?;
                let cell = |value| match value {
                    mysql_async::Value::NULL => None,
                    mysql_async::Value::Bytes(bytes) => Some(bytes),
                    other => Some(other.as_sql(true).into_bytes()),
                };
                Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(cell).collect()).collect())
            }
        }
    }

    /// Does what must succeed.
    pub async fn make(&mut self, sql: &str) {
        if let Err(error) = self.ask(sql).await {
            panic!("{error}: {sql}");
        }
    }

    /// Away with the schema of before.
    pub async fn clear(&mut self) {
        if self.is_postgres() {
            self.make("DROP SCHEMA IF EXISTS s CASCADE").await;
            self.make("CREATE SCHEMA s").await;
        } else {
            self.make("DROP DATABASE IF EXISTS s").await;
            self.make("CREATE DATABASE s").await;
            self.make("USE s").await;
        }
    }
}
