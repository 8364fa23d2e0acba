//! The section `[database]` of the configuration file.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use verbena_listening::{CertificateError, Certificates, Files};
use verbena_terms::{Contradiction, Lapse, section};

use crate::address::{Address, Product};
use crate::error::DatabaseError;
use crate::trust::Trust;

/// What reads do while an update of their tables is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// Nothing: a page that was made meanwhile is not stored.
    #[default]
    Bracketed,
    /// They wait for it, and updates for them (dissertation section 5.2, Table 5.1).
    Serialised,
}

section! {
    /// The database behind the application, where a relay on its wire tells the caches what pages depend on.
    pub struct DatabaseConfig as "database", checked by DatabaseConfig::check {
        /// The database: `mysql://USER@HOST:PORT` or `postgres://USER@HOST:PORT/DATABASE`, with `?socket=/PATH` where it is reached by a socket, and `?ssl-mode=VERIFY_IDENTITY` (MySQL) or `?sslmode=verify-full` (PostgreSQL) where by TLS. The user reads the catalog (tables, keys, views, triggers), nothing else; the
        /// application logs in as ever. Without a user nothing is known of the tables, and every page depends on everything.
        ///
        /// Set: a proxy runs a relay, to be written into the application's configuration in the place of the database. Not set: none runs.
        pub to: Option<String> as "URL" = None,
        /// The password of that user, the first line of a file that only this user reads. It may also stand in the address, where other users may see it.
        pub password_file: Option<PathBuf> as "FILE" = None,
        /// Where the application reaches the relay instead of the database.
        ///
        /// Not set: on loopback, at the port after the database's.
        pub listen: Option<SocketAddr> as "ADDRESS" = None,
        /// Pages are made of the database alone: of nothing that the application keeps beside it from one request to the next (a variable, a file, memcached, APCu), and that is
        /// not in what it reads there. This is a promise; what rests on it is in docs/howto/dependencies-from-sql.md. With it pages have lists of what they depend on; without it each depends on everything.
        pub complete: bool as "BOOL" = false,
        /// Read the database's own log of changes, and purge what went around the relay a moment after it took effect: a weaker net, for what another connection than the relay's has changed. MySQL and MariaDB:
        /// `binlog_format = ROW`, and the privileges REPLICATION SLAVE and BINLOG MONITOR (REPLICATION CLIENT) for the user of `to`. PostgreSQL: `wal_level = logical`, the role's attribute REPLICATION, and a publication `verbena`.
        pub capture: bool as "BOOL" = false,
        /// The relay's certificate for clients that ask for TLS, PEM, followed by those of its authorities. It is read again when it changes, and that of `tls_key`; connections stay. Clients that ask for none are served too.
        ///
        /// Not set: the relay speaks no TLS with clients.
        pub tls_cert: Option<PathBuf> as "FILE" = None,
        /// The private key of `tls_cert`, PEM.
        pub tls_key: Option<PathBuf> as "FILE" = None,
        /// The authorities that may vouch for the certificate of a database that is reached by TLS, PEM, and no others.
        ///
        /// Not set: the authorities of the system.
        pub tls_ca: Option<PathBuf> as "FILE" = None,
        /// `bracketed`: an update is announced to the caches around its commit, and no statement waits for another. `serialised`: the papers' way besides, in which statements that read
        /// a table outside of a transaction and commits that write it take turns. The promise is the same; statements are slower.
        pub scheme: Scheme as "SCHEME" = Scheme::Bracketed,
        /// With `serialised`: the longest that a statement or a commit waits for its turn. Then it goes on without.
        pub longest_turn: Lapse as "TIME" = Lapse::seconds(1),
    }
}

impl DatabaseConfig {
    /// The database, with the password of its file; none where no relay is to run.
    ///
    /// # Errors
    /// It is no address, or the file cannot be read.
    pub fn address(&self) -> Result<Option<Address>, DatabaseError> {
        let setting = |key, problem| DatabaseError::Setting { key, problem };
        let Some(to) = &self.to else { return Ok(None) };
        let mut address: Address = to.parse().map_err(|problem| setting("to", problem))?;
        if let Some(file) = &self.password_file {
            let text = fs::read_to_string(file)
                .map_err(|error| setting("password_file", format!("{}: {error}", file.display())))?;
            address.password = text.lines().next().map(str::to_owned);
        }
        if address.encrypts {
            let trust = Trust::new(self.tls_ca.as_deref(), &address.host);
            address.trust = Some(Arc::new(trust.map_err(|problem| setting("tls_ca", problem))?));
        }
        Ok(Some(address))
    }

    /// The certificate for clients; none where the relay speaks no TLS with them.
    ///
    /// # Errors
    /// It cannot be used.
    pub(crate) fn certificates(&self) -> Result<Option<Arc<Certificates>>, DatabaseError> {
        let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) else { return Ok(None) };
        let files = Files { certificate: certificate.clone(), key: key.clone() };
        let wrong = |error| match error {
            CertificateError::File { key, problem } => DatabaseError::Setting { key, problem },
            CertificateError::Tls(problem) => DatabaseError::Setting { key: "tls_cert", problem },
        };
        Ok(Some(Certificates::open(vec![files]).map_err(wrong)?))
    }

    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let to = self.to.as_ref().map(|to| to.parse::<Address>());
        match &to {
            Some(Err(problem)) => found.push(Contradiction::new("to", problem.clone())),
            Some(Ok(address)) if address.user.is_none() && self.complete => {
                let problem = "without a user in database.to nothing is known of the tables, so no page has a list: write USER@ before the host";
                found.push(Contradiction::new("complete", problem));
            }
            Some(Ok(address)) if address.password.is_some() && self.password_file.is_some() => {
                found
                    .push(Contradiction::new("password_file", "database.to has a password too: leave one of them out"));
            }
            None if self.complete => found.push(Contradiction::new("complete", "no relay runs without database.to")),
            None if self.listen.is_some() => {
                found.push(Contradiction::new("listen", "no relay runs without database.to"))
            }
            _ => {}
        }
        match &to {
            None if self.capture => found.push(Contradiction::new("capture", "no relay runs without database.to")),
            Some(Ok(address)) if self.capture && address.user.is_none() => {
                let problem =
                    "without a user in database.to the database's log cannot be read: write USER@ before the host";
                found.push(Contradiction::new("capture", problem));
            }
            _ => {}
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            let (key, other) = if self.tls_cert.is_some() { ("tls_key", "tls_cert") } else { ("tls_cert", "tls_key") };
            found.push(Contradiction::new(
                key,
                format!("it is not set, and {other} needs it: a certificate and its private key go together"),
            ));
        }
        match &to {
            None if self.tls_cert.is_some() => {
                found.push(Contradiction::new("tls_cert", "no relay runs without database.to"))
            }
            Some(Ok(address)) if self.tls_ca.is_some() && !address.encrypts => {
                let mode = match address.product {
                    Product::MySql => "?ssl-mode=VERIFY_IDENTITY",
                    Product::PostgreSql => "?sslmode=verify-full",
                };
                let problem = format!("the database is not asked for TLS: write {mode} behind database.to");
                found.push(Contradiction::new("tls_ca", problem));
            }
            None if self.tls_ca.is_some() => {
                found.push(Contradiction::new("tls_ca", "no relay runs without database.to"))
            }
            _ => {}
        }
        if to.is_none() && self.scheme == Scheme::Serialised {
            found.push(Contradiction::new("scheme", "no relay runs without database.to"));
        }
        if self.longest_turn != Lapse::seconds(1) && self.scheme != Scheme::Serialised {
            found.push(Contradiction::new(
                "longest_turn",
                "statements wait for turns only with database.scheme = \"serialised\"",
            ));
        }
        found
    }
}
