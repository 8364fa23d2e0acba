//! The database file: its schema, its first contents, and one transaction for each page and each change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};
use thiserror::Error;

/// Why a page or a change could not be had.
#[derive(Debug, Error)]
pub enum Error {
    /// SQLite refused.
    #[error("database {path}: {reason}")]
    Database {
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        reason: rusqlite::Error,
    },
    /// There is no such row.
    #[error("no {what} {id}")]
    Missing {
        /// "product", "category" ...
        what: &'static str,
        /// Its number.
        id: i64,
    },
    /// The shop does not make such a change now: too little in stock, an empty cart, a price below nothing.
    #[error("{0}")]
    Refused(String),
    /// The change touches other data than it was announced with; it was not made.
    #[error("the data changed meanwhile")]
    NotAsAnnounced,
}

impl Error {
    /// Whether it is sure that nothing was written.
    pub fn nothing_written(&self) -> bool {
        match self {
            // Waited for the other writers, and gave up before the transaction began.
            Error::Database { reason, .. } => {
                matches!(reason.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
            }
            Error::Missing { .. } | Error::Refused(_) | Error::NotAsAnnounced => true,
        }
    }
}

/// How long a write waits for those before it.
const PATIENCE: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS clock (commit_number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS category (id INTEGER PRIMARY KEY, name TEXT NOT NULL, changed INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS product (
    id INTEGER PRIMARY KEY,
    category INTEGER NOT NULL REFERENCES category(id),
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    price_cents INTEGER NOT NULL CHECK (price_cents >= 0),
    stock INTEGER NOT NULL CHECK (stock >= 0),
    sold INTEGER NOT NULL DEFAULT 0,
    changed INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS product_by_category ON product(category);
CREATE TABLE IF NOT EXISTS cart (customer INTEGER PRIMARY KEY, changed INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS cart_line (
    customer INTEGER NOT NULL,
    product INTEGER NOT NULL REFERENCES product(id),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    PRIMARY KEY (customer, product)
);
CREATE TABLE IF NOT EXISTS sale (
    id INTEGER PRIMARY KEY,
    customer INTEGER NOT NULL,
    product INTEGER NOT NULL REFERENCES product(id),
    quantity INTEGER NOT NULL,
    price_cents INTEGER NOT NULL
);
";

/// Categories that a new shop has.
const CATEGORIES: [&str; 8] = ["Books", "Garden", "Kitchen", "Lamps", "Music", "Paper", "Tools", "Toys"];
/// Products that a new shop has in each category.
const PRODUCTS_EACH: i64 = 25;

/// A shop's database. Cheap to clone; connections are made as they are needed and used again.
#[derive(Clone)]
pub struct Database {
    path: Arc<PathBuf>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Database {
    /// Opens the file, or makes it with its first contents. Safe to do from several processes at once.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let database = Database { path: Arc::new(path.to_owned()), idle: Arc::default() };
        database.with_connection(|connection| {
            use_log(connection)?;
            let filling = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            filling.execute_batch(SCHEMA)?;
            let rows: i64 = filling.query_row("SELECT count(*) FROM clock", [], |row| row.get(0))?;
            if rows == 0 {
                fill(&filling)?;
            }
            filling.commit().map_err(Failure::from)
        })?;
        Ok(database)
    }

    /// Runs `work` in one read transaction: everything it sees is one state of the database. Gives the number of that state as well.
    pub fn read<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>) -> Result<(i64, T), Error> {
        self.with_connection(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
            let state = transaction.query_row("SELECT commit_number FROM clock", [], |row| row.get(0))?;
            Ok((state, work(&transaction)?))
        })
    }

    /// Runs `work` in one write transaction, and gives the number of the commit. `work` gets that number.
    pub fn write<T>(&self, work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, Failure>) -> Result<(i64, T), Error> {
        self.with_connection(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let number = transaction.query_row(
                "UPDATE clock SET commit_number = commit_number + 1 RETURNING commit_number",
                [],
                |row| row.get(0),
            )?;
            let done = work(&transaction, number)?;
            transaction.commit()?;
            Ok((number, done))
        })
    }

    fn with_connection<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, Failure>) -> Result<T, Error> {
        let idle = self.idle.lock().pop();
        let result = idle.map_or_else(|| connect(&self.path), Ok).map_err(Failure::from).and_then(|mut connection| {
            let result = work(&mut connection);
            self.idle.lock().push(connection);
            result
        });
        result.map_err(|failure| match failure {
            Failure::Database(reason) => Error::Database { path: self.path.to_path_buf(), reason },
            Failure::Shop(error) => error,
        })
    }
}

/// What goes wrong inside a transaction: it is rolled back.
#[derive(Debug)]
pub enum Failure {
    /// SQLite refused.
    Database(rusqlite::Error),
    /// The shop did.
    Shop(Error),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Database(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Shop(error)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Switches to the write-ahead log. For that SQLite takes the file for itself, and does not wait while another process does the same.
fn use_log(connection: &Connection) -> rusqlite::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            done => return done,
        }
    }
}

fn fill(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute("INSERT INTO clock VALUES (1)", [])?;
    let mut category = transaction.prepare("INSERT INTO category (id, name, changed) VALUES (?1, ?2, 1)")?;
    let mut product = transaction.prepare(
        "INSERT INTO product (category, name, text, price_cents, stock, changed) VALUES (?1, ?2, ?3, ?4, ?5, 1)",
    )?;
    for (id, name) in (1..).zip(CATEGORIES) {
        category.execute((id, name))?;
        for number in 1..=PRODUCTS_EACH {
            let text = format!("{name} number {number}. ").repeat(12);
            let price = 199 + (id * 7919 + number * 104_729) % 20_000;
            product.execute((id, format!("{name} {number}"), text, price, 20 + number % 50))?;
        }
    }
    Ok(())
}
