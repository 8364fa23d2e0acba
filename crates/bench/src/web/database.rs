//! `database`: an application whose pages are made by SQL over many rows of a database, and whose updates change it.
//!
//! ```text
//! GET  /page/DEPENDENCIES/PAGE    reads ROWS rows of the page's objects; says that it is made of them
//! POST /update/OBJECT             changes half of an object's rows in a transaction; answers with its new version
//! ```
//!
//! Whatever its number of dependencies, a page costs the same work.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Response, StatusCode};
use rusqlite::{OptionalExtension, TransactionBehavior};
use verbena_client::Updates;

use super::application::{Connections, Part, bracketed, made_of, told};
use super::requests::{OBJECTS, PAGE_BYTES, objects};
use super::threads;

pub(crate) const ROLE: &str = "database";

/// Rows that a page is made from, and that each object has.
const ROWS: u32 = 1_024;

/// Lines of a page, at least one of each object.
const LINES: u32 = 64;

const SCHEMA: &str = "
CREATE TABLE object (id INTEGER PRIMARY KEY, version INTEGER NOT NULL);
CREATE TABLE item (
    object INTEGER NOT NULL,
    id INTEGER NOT NULL,
    price_cents INTEGER NOT NULL,
    sold INTEGER NOT NULL,
    PRIMARY KEY (object, id)
) WITHOUT ROWID;
";

/// What sells best of an object's items, and what was sold of all.
const PAGE: &str = "
SELECT id, price_cents, sold, price_cents * sold AS turnover, sum(price_cents * sold) OVER () FROM item
WHERE object = ?1 AND id < ?2 ORDER BY turnover DESC, id LIMIT ?3
";

/// Makes a database with its first contents, in one file that can be copied.
pub(crate) fn fill(file: &Path) -> Result<(), String> {
    Database::open(file).map(drop).map_err(|error| format!("{}: {error}", file.display()))
}

pub(super) fn serve(arguments: &[String]) -> Result<(), String> {
    let part: Part = threads::part(ROLE, arguments)?;
    let database = Database::open(&part.file).map_err(|error| format!("{}: {error}", part.file.display()))?;
    let application = Arc::new(Application { database, helper: part.helper.map(Updates::at) });
    threads::serve(part.listen, part.threads, move |request| {
        let application = Arc::clone(&application);
        async move { application.answer(request.method(), request.uri().path()).await }
    })
}

struct Application {
    database: Database,
    helper: Option<Updates>,
}

impl Application {
    async fn answer(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let words: Vec<&str> = path.split('/').skip(1).collect();
        let number = |word: &str| word.parse::<u32>().ok().filter(|number| *number < OBJECTS);
        let answer = match (method, &words[..]) {
            (&Method::GET, ["page", dependencies, page]) => match (number(dependencies), number(page)) {
                (Some(dependencies @ 1..=LINES), Some(page)) => self.page(path, dependencies, page),
                _ => return told(StatusCode::NOT_FOUND, "no such page\n".to_owned()),
            },
            (&Method::POST, ["update", object]) => match number(object) {
                Some(object) => self.update(object).await,
                None => return told(StatusCode::NOT_FOUND, "no such object\n".to_owned()),
            },
            _ => return told(StatusCode::NOT_FOUND, "no such address\n".to_owned()),
        };
        answer.unwrap_or_else(|reason| told(StatusCode::SERVICE_UNAVAILABLE, reason))
    }

    fn page(&self, path: &str, dependencies: u32, page: u32) -> Result<Response<Full<Bytes>>, String> {
        let body = self.database.page(path, dependencies, page).map_err(|error| error.to_string())?;
        made_of(body, objects(dependencies, page).map(name))
    }

    async fn update(&self, object: u32) -> Result<Response<Full<Bytes>>, String> {
        bracketed(self.helper.as_ref(), name(object), || self.database.update(object)).await
    }
}

/// What an object is called between the application and the helper.
fn name(object: u32) -> String {
    format!("object:{object}")
}

struct Database(Connections);

impl Database {
    fn open(file: &Path) -> rusqlite::Result<Self> {
        let database = Database(Connections::to(file));
        database.0.with(|connection| {
            let filling = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let there = filling
                .query_row("SELECT 1 FROM sqlite_schema WHERE name = 'item'", [], |row| row.get::<_, u32>(0))
                .optional()?;
            if there.is_none() {
                filling.execute_batch(SCHEMA)?;
                let counted = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)";
                filling.execute(&format!("{counted} INSERT INTO object SELECT i, 1 FROM n"), [OBJECTS])?;
                // Prices and sales that look like chance and are the same in every database.
                let items = format!(
                    "{counted} INSERT INTO item SELECT object.id, i, 100 + (object.id * 7919 + i * 104729) % 9973,
                     (object.id * 613 + i * 7907) % 89 FROM object, n"
                );
                filling.execute(&items, [ROWS])?;
            }
            filling.commit()
        })?;
        Ok(database)
    }

    /// A page, in one state of the database.
    fn page(&self, path: &str, dependencies: u32, page: u32) -> rusqlite::Result<String> {
        self.0.with(|connection| {
            let reading = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
            let mut text = format!("{path}\n");
            {
                let mut version = reading.prepare_cached("SELECT version FROM object WHERE id = ?1")?;
                for object in objects(dependencies, page) {
                    let version: i64 = version.query_row([object], |row| row.get(0))?;
                    text.push_str(&format!("{version} "));
                }
                text.push_str("\n<table>\n");
                let mut items = reading.prepare_cached(PAGE)?;
                let (rows, lines) = (ROWS / dependencies, (LINES / dependencies).max(1));
                for object in objects(dependencies, page) {
                    let mut items = items.query([object, rows, lines])?;
                    while let Some(item) = items.next()? {
                        let of = |at| item.get::<_, i64>(at);
                        let (id, price, sold, turnover, all) = (of(0)?, of(1)?, of(2)?, of(3)?, of(4)?);
                        let share = 100.0 * turnover as f64 / all.max(1) as f64;
                        text.push_str(&format!(
                            "<tr><td>{object}-{id}</td><td>{price}</td><td>{sold}</td><td>{turnover}</td><td>{share:.3}%</td></tr>\n"
                        ));
                    }
                }
            }
            reading.commit()?;
            text.truncate(PAGE_BYTES);
            text.extend(std::iter::repeat_n(' ', PAGE_BYTES - text.len()));
            Ok(text)
        })
    }

    /// Sells one of half of an object's items; the object's version after that.
    fn update(&self, object: u32) -> rusqlite::Result<i64> {
        self.0.with(|connection| {
            let writing = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            writing
                .prepare_cached("UPDATE item SET sold = sold + 1 WHERE object = ?1 AND id % 2 = 0")?
                .execute([object])?;
            let version = writing
                .prepare_cached("UPDATE object SET version = version + 1 WHERE id = ?1 RETURNING version")?
                .query_row([object], |row| row.get(0))?;
            writing.commit()?;
            Ok(version)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_the_updates_of_its_objects_and_of_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("db")).unwrap();
        let page = |dependencies, page| database.page("/p", dependencies, page).unwrap();
        let before = page(2, 0);
        assert_eq!(before.len(), PAGE_BYTES);
        assert!(before.starts_with("/p\n1 1 \n<table>"), "{before}");
        // Of page 0 they are 0 and 37.
        assert_eq!(
            [database.update(37).unwrap(), database.update(37).unwrap(), database.update(1).unwrap()],
            [2, 3, 2]
        );
        let after = page(2, 0);
        assert!(after.starts_with("/p\n1 3 \n"), "{after}");
        assert_ne!(after[10..], before[10..], "its rows changed too");
        assert_eq!(page(1, 0).lines().nth(1), Some("1 "));
        // Opened again it is what it was.
        let again = Database::open(&folder.path().join("db")).unwrap();
        assert_eq!(again.page("/p", 2, 0).unwrap(), after);
        assert!([1, 64].iter().all(|dependencies| page(*dependencies, 3).matches("<tr>").count() > 50));
    }
}
