//! The section `[database]` of the configuration file.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use verbena_terms::{Contradiction, section};

use crate::address::Address;
use crate::error::DatabaseError;

section! {
    /// The database behind the application, where a relay on its wire tells the caches what pages depend on.
    pub struct DatabaseConfig as "database", checked by DatabaseConfig::check {
        /// The database: `mysql://USER@HOST:PORT` or `postgres://USER@HOST:PORT/DATABASE`, with `?socket=/PATH` where it is reached by a socket. The user reads the catalog (tables, keys, views, triggers), nothing else; the
        /// application logs in as ever. Without a user nothing is known of the tables, and every page depends on everything.
        ///
        /// Set: a proxy runs a relay, to be written into the application's configuration in the place of the database. Not set: none runs.
        pub to: Option<String> as "URL" = None,
        /// The password of that user, the first line of a file that only this user reads. It may also stand in the address, where others may see it.
        pub password_file: Option<PathBuf> as "FILE" = None,
        /// Where the application reaches the relay instead of the database.
        ///
        /// Not set: on loopback, at the port behind the database's.
        pub listen: Option<SocketAddr> as "ADDRESS" = None,
        /// Pages are made of the database alone: of nothing that the application keeps beside it from one request to the next (a variable, a file, memcached, APCu), and that is
        /// not in what it reads there. This is a promise; what rests on it is in docs/howto/dependencies-from-sql.md. With it pages have lists of what they depend on; without it each depends on everything.
        pub complete: bool as "BOOL" = false,
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
        Ok(Some(address))
    }

    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        match self.to.as_ref().map(|to| to.parse::<Address>()) {
            Some(Err(problem)) => found.push(Contradiction::new("to", problem)),
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
        found
    }
}
