//! What the relay sees, for people who watch: a line of JSON for each statement and each update, at a socket that only the relay's user may open.
//!
//! Where nobody watches, nothing is made. A watcher that reads too slowly misses lines, and is told how many.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use verbena_statements::{Analysis, Name, Names, Storable, Whose};

use crate::explain::said;

/// Bytes of a statement that are shown.
const SHOWN: usize = 2_000;
/// Lines that wait for a watcher.
const WAITING: usize = 4_096;
/// Watchers at one time.
const WATCHERS: usize = 16;

/// What a watcher is shown, a line of JSON each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Watched {
    /// A statement came.
    Statement {
        /// Its text, or the beginning of it.
        statement: String,
        /// The fill that it says it is of.
        tag: Option<String>,
        /// How exactly it is known.
        named_by: NamedBy,
        /// What it reads, before the rows that it finds.
        reads: Vec<String>,
        /// What it touches.
        touches: Vec<String>,
        /// It is held until every home knows.
        is_held: bool,
        /// Why a page that shows its answer is not stored.
        not_stored: Option<String>,
        /// Why it reads or touches everything.
        reasons: Vec<String>,
    },
    /// An update was begun for commits that came together, or was not.
    Update {
        /// The commits.
        commits: usize,
        /// What they touch.
        touches: Vec<String>,
        /// `begun`, or why not.
        result: String,
        /// How long the homes took.
        micros: u64,
    },
    /// The database has answered them.
    Ended {
        /// `answered`, `unsent`, `unknown`.
        outcome: String,
        /// Every home knows it.
        is_confirmed: bool,
    },
    /// This watcher was too slow.
    Missed {
        /// Lines that it was not shown.
        lines: usize,
    },
}

/// How exactly a statement is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NamedBy {
    /// It reads and touches nothing.
    Nothing,
    /// By rows and values.
    Rows,
    /// By a table: of its rows nothing is known.
    Table,
    /// By nothing less than everything.
    Everything,
}

impl NamedBy {
    /// As lines of people have it.
    pub fn name(self) -> &'static str {
        match self {
            NamedBy::Nothing => "nothing",
            NamedBy::Rows => "rows",
            NamedBy::Table => "table",
            NamedBy::Everything => "everything",
        }
    }
}

/// The socket of those who watch, beside the helper's own socket.
pub fn watch_socket(helper: &Path) -> PathBuf {
    helper.with_extension("watch.sock")
}

/// Who watches.
#[derive(Default)]
pub(crate) struct Watchers {
    count: AtomicUsize,
    all: Mutex<Vec<Watcher>>,
}

struct Watcher {
    lines: Sender<Arc<str>>,
    missed: usize,
}

impl Watchers {
    pub fn are_there(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// The beginning of a text, if anybody is to be shown it.
    pub fn text(&self, text: &[u8]) -> Option<String> {
        self.are_there().then(|| String::from_utf8_lossy(&text[..text.len().min(SHOWN)]).into_owned())
    }

    pub fn tell(&self, what: &Watched) {
        let Some(line) = line(what) else { return };
        let mut all = self.all.lock();
        all.retain_mut(|watcher| watcher.tell(&line));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// A new watcher; nothing where there are as many as may be.
    fn join(&self) -> Option<Receiver<Arc<str>>> {
        let mut all = self.all.lock();
        all.retain(|watcher| !watcher.lines.is_closed());
        if all.len() >= WATCHERS {
            return None;
        }
        let (lines, receiver) = channel(WAITING);
        all.push(Watcher { lines, missed: 0 });
        self.count.store(all.len(), Ordering::Relaxed);
        Some(receiver)
    }

    /// Serves those who connect.
    pub async fn serve(self: Arc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if let Some(lines) = self.join() {
                        tokio::spawn(show(stream, lines));
                    }
                }
                // Too many open files, say.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn show(mut stream: UnixStream, mut lines: Receiver<Arc<str>>) {
    let (mut reads, mut writes) = stream.split();
    loop {
        let mut byte = [0];
        tokio::select! {
            line = lines.recv() => match line {
                Some(line) if writes.write_all(line.as_bytes()).await.is_ok() => {}
                _ => return,
            },
            // It says nothing, so it has gone.
            _ = reads.read(&mut byte) => return,
        }
    }
}

fn line(what: &Watched) -> Option<Arc<str>> {
    let mut text = serde_json::to_string(what).ok()?;
    text.push('\n');
    Some(text.into())
}

impl Watcher {
    /// False when it has gone.
    fn tell(&mut self, text: &Arc<str>) -> bool {
        if self.missed > 0
            && self.lines.capacity() > 1
            && let Some(missed) = line(&Watched::Missed { lines: self.missed })
            && self.lines.try_send(missed).is_ok()
        {
            self.missed = 0;
        }
        if self.missed > 0 || self.lines.try_send(text.clone()).is_err() {
            self.missed += 1;
        }
        !self.lines.is_closed()
    }
}

/// What is shown of a statement.
pub(crate) fn statement(text: String, analysis: &Analysis, whose: Whose, is_held: bool) -> Watched {
    let reads = &analysis.reads;
    let start = reads.bounded(reads.start());
    Watched::Statement {
        statement: text,
        tag: match whose {
            Whose::Tagged(tag) => Some(format!("{tag:016x}")),
            Whose::Anybody => None,
        },
        named_by: named_by(&start, !reads.keys().is_empty()).max(named_by(&analysis.touches, false)),
        reads: said(&start),
        touches: said(&analysis.touches),
        is_held,
        not_stored: not_stored(analysis.storable),
        reasons: analysis.reasons.clone(),
    }
}

/// Why a page that shows an answer is not stored, if it is so.
pub(crate) fn not_stored(storable: Storable) -> Option<String> {
    match storable {
        Storable::Yes | Storable::AsTheStatementBefore | Storable::Setting => None,
        Storable::Time => Some("it shows the time".into()),
        Storable::No(why) => Some(why.into()),
    }
}

/// How exactly names say it.
fn named_by(names: &Names, has_keys: bool) -> NamedBy {
    let Names::Of(tables) = names else { return NamedBy::Everything };
    let is_exact = |name: &Name| matches!(name, Name::Row(_) | Name::Value(..));
    let is_known = |names: &BTreeSet<Name>| has_keys || names.iter().any(is_exact);
    match tables.values().all(is_known) {
        true if tables.is_empty() => NamedBy::Nothing,
        true => NamedBy::Rows,
        false => NamedBy::Table,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_watcher_is_told_how_much_it_missed_and_one_that_has_gone_is_forgotten() {
        let watchers = Watchers::default();
        let ended = Watched::Ended { outcome: "answered".into(), is_confirmed: true };
        let tell = |lines: usize| (0..lines).for_each(|_| watchers.tell(&ended));
        assert!(watchers.text(b"SELECT 1").is_none(), "nobody watches");
        let mut lines = watchers.join().unwrap();
        assert_eq!(watchers.text(b"SELECT 1").as_deref(), Some("SELECT 1"));
        tell(WAITING + 3);
        for _ in 0..WAITING {
            assert!(lines.try_recv().unwrap().contains("answered"));
        }
        tell(1);
        let missed: Watched = serde_json::from_str(&lines.try_recv().unwrap()).unwrap();
        assert_eq!(missed, Watched::Missed { lines: 3 });
        assert!(lines.try_recv().unwrap().contains("answered"));
        drop(lines);
        tell(1);
        assert!(!watchers.are_there());
        let all: Vec<_> = (0..WATCHERS).map(|_| watchers.join().unwrap()).collect();
        assert!(watchers.join().is_none());
        drop(all);
        assert!(watchers.join().is_some());
    }
}
