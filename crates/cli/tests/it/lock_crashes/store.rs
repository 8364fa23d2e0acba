//! A store of two numbers that whoever holds a lock increments: one compares tokens and refuses a smaller one (rule L7), the other does not.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use verbena_client::wire::LockMode;

use super::client::{say, told};
use super::session::{Place, Session};

pub const LOCK: &str = "store";
const PATIENCE: Duration = Duration::from_secs(30);

fn open(directory: &Path) -> Connection {
    let store = Connection::open(directory.join("store.db")).unwrap();
    store.busy_timeout(PATIENCE).unwrap();
    store
}

/// A new one, in which both are 0.
pub fn make(directory: &Path) {
    open(directory)
        .execute_batch(
            "CREATE TABLE guarded (value INTEGER NOT NULL, token INTEGER NOT NULL);
             CREATE TABLE plain (value INTEGER NOT NULL);
             INSERT INTO guarded VALUES (0, 0); INSERT INTO plain VALUES (0);",
        )
        .unwrap();
}

/// The guarded number and the other one.
pub fn numbers(directory: &Path) -> (i64, i64) {
    let read = |store: &Connection, sql| store.query_row(sql, [], |row| row.get(0)).unwrap();
    let store = open(directory);
    (read(&store, "SELECT value FROM guarded"), read(&store, "SELECT value FROM plain"))
}

/// Each time that it is told anything: takes the lock, reads both, looks whether it holds the lock, and says `checked`. When it is told to go on it writes, and says what the
/// guarded store did, `wrote` or `refused`, and whether the lock is its own still, `held` or `lost`.
pub fn play(place: &Place, node: &str, directory: &Path) {
    let store = open(directory);
    while told().is_some() {
        let mut session = Session::connect(place, node, "writer").unwrap();
        let held = session.acquire(LOCK, LockMode::Exclusive, Some(PATIENCE)).unwrap();
        let (guarded, plain) = numbers(directory);
        assert!(session.look(&held), "it has only just got it");
        say("checked");
        told().expect("it is told to go on");
        // SQL has no numbers without a sign; a token is below 2^63 for as long as there were fewer than 2^31 views.
        let token = i64::try_from(held.hold.token()).unwrap();
        let update = "UPDATE guarded SET value = ?1, token = ?2 WHERE token <= ?2";
        let written = store.execute(update, params![guarded + 1, token]).unwrap();
        store.execute("UPDATE plain SET value = ?1", [plain + 1]).unwrap();
        let is_held = session.look(&held);
        say(match (written, is_held) {
            (1, true) => "wrote held",
            (1, false) => "wrote lost",
            (_, true) => "refused held",
            (_, false) => "refused lost",
        });
        // Its helper may be stopped.
        let _ = session.release(held);
    }
}
