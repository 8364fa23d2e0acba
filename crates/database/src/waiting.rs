//! Statements and commits that wait for their turn: [`Turns`] with the clock and those that wait.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use verbena_metrics::{Counter, Family, Registry, RegistryError};

use crate::turns::{Id, Purpose, Tables, Turns};

/// Where they wait.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// The longest that one waits.
    limit: Duration,
    /// By what they were for, and how they were had.
    counted: Family<Counter, 2>,
}

#[derive(Default)]
struct State {
    turns: Turns,
    waiting: HashMap<Id, oneshot::Sender<()>>,
    /// Reads that had their turn at once or waited for it, and when they asked.
    reads: VecDeque<(Instant, Id)>,
}

/// A read has its turn for this many limits: its client may have gone, or take nothing of a long answer.
const READS_LAST: u32 = 10;

/// A turn, or that one was waited for in vain. Dropped, it is the next one's.
pub(crate) struct Turn {
    of: Arc<Queue>,
    id: Id,
}

impl Queue {
    /// Nobody waits for longer than `limit`.
    pub fn new(limit: Duration, registry: &Registry) -> Result<Arc<Queue>, RegistryError> {
        let counted = registry.family(
            "verbena_database_turns_total",
            "Turns of reads and updates at tables, where database.scheme is serialised, by how they were had: at once, after waiting, or not at all, because the wait was too long.",
            ["for", "had"],
            8,
        )?;
        let queue = Arc::new(Queue { state: Mutex::default(), limit, counted });
        let waiting = queue.clone();
        registry.gauge_from(
            "verbena_database_turns_waiting",
            "Statements and commits that wait for their turn, where database.scheme is serialised.",
            move || waiting.state.lock().waiting.len() as f64,
        )?;
        Ok(queue)
    }

    /// Waits for a turn.
    pub async fn turn(self: &Arc<Self>, purpose: Purpose, tables: Tables) -> Turn {
        let (turn, waits) = self.ask(purpose, tables);
        let had = match waits {
            None => "at once",
            Some(waits) => match timeout(self.limit, waits).await {
                Ok(_) => "after waiting",
                Err(_) => {
                    self.give_up(turn.id, purpose);
                    "not"
                }
            },
        };
        let had = if self.state.lock().turns.is_without(turn.id) { "not" } else { had };
        self.counted.with([if purpose.is_update() { "update" } else { "read" }, had]).increment();
        turn
    }

    fn ask(self: &Arc<Self>, purpose: Purpose, tables: Tables) -> (Turn, Option<oneshot::Receiver<()>>) {
        self.end_long_reads();
        let state = &mut *self.state.lock();
        let (id, is_ready) = state.turns.ask(purpose, tables);
        let turn = Turn { of: self.clone(), id };
        if !purpose.is_update() {
            state.reads.push_back((Instant::now(), id));
        }
        if is_ready {
            return (turn, None);
        }
        let (sender, waits) = oneshot::channel();
        state.waiting.insert(id, sender);
        (turn, Some(waits))
    }

    /// It waited too long, and goes on. Reads that came behind an update wait for it all the same.
    fn give_up(&self, id: Id, purpose: Purpose) {
        let state = &mut *self.state.lock();
        match purpose.is_update() {
            true => drop(state.waiting.remove(&id)),
            false => state.done(id),
        }
    }

    /// No update waits for reads that last too long.
    fn end_long_reads(&self) {
        let state = &mut *self.state.lock();
        while let Some((_, id)) = state.reads.pop_front_if(|(asked, _)| asked.elapsed() > self.limit * READS_LAST) {
            state.done(id);
        }
    }

    fn done(&self, id: Id) {
        self.state.lock().done(id);
    }
}

impl State {
    fn done(&mut self, id: Id) {
        self.waiting.remove(&id);
        if let Ok(place) = self.reads.binary_search_by_key(&id, |(_, id)| *id) {
            self.reads.remove(place);
        }
        for ready in self.turns.done(id) {
            if let Some(waits) = self.waiting.remove(&ready) {
                // One that has gone gives its turn back as it goes.
                let _ = waits.send(());
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.done(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(table: &str) -> Tables {
        Tables::Of([table.as_bytes().to_vec()].into())
    }

    fn run(limit: Duration, of: impl AsyncFnOnce(Arc<Queue>)) -> Registry {
        let registry = Registry::new();
        let queue = Queue::new(limit, &registry).unwrap();
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(of(queue));
        registry
    }

    fn had(registry: &Registry, purpose: &str, had: &str) -> u64 {
        let counted = registry.snapshot_of(&["verbena_database_turns_total"], verbena_terms::Time::ZERO);
        counted.counter("verbena_database_turns_total", &[("for", purpose), ("had", had)]).unwrap_or(0)
    }

    #[test]
    fn what_waits_for_too_long_goes_on_and_an_update_is_waited_for_all_the_same() {
        let registry = run(Duration::from_millis(50), async |queue| {
            let reads = queue.turn(Purpose::Read, of("t")).await;
            let update = queue.turn(Purpose::Update, of("t")).await;
            let behind = queue.turn(Purpose::Read, of("t")).await;
            drop(reads);
            let late = queue.turn(Purpose::Read, of("t"));
            let ended = async { drop(update) };
            let (late, ()) = tokio::join!(late, ended);
            drop((behind, late));
            drop(queue.turn(Purpose::Update, of("t")).await);
        });
        let all = [
            ("read", "at once", 1),
            ("update", "not", 1),
            ("read", "not", 1),
            ("read", "after waiting", 1),
            ("update", "at once", 1),
        ];
        all.into_iter()
            .for_each(|(purpose, kind, times)| assert_eq!(had(&registry, purpose, kind), times, "{purpose} {kind}"));
    }

    #[test]
    fn a_read_that_lasts_too_long_has_its_turn_no_more() {
        let registry = run(Duration::from_millis(5), async |queue| {
            let reads = queue.turn(Purpose::Read, of("t")).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
            drop(queue.turn(Purpose::Update, of("t")).await);
            drop(reads);
        });
        assert_eq!((had(&registry, "update", "at once"), had(&registry, "update", "not")), (1, 0));
    }

    #[test]
    fn a_client_that_goes_while_it_waits_leaves_its_place() {
        let registry = run(Duration::from_secs(1), async |queue| {
            let reads = queue.turn(Purpose::Read, of("t")).await;
            let update = tokio::spawn({
                let queue = queue.clone();
                async move { drop(queue.turn(Purpose::Update, of("t")).await) }
            });
            tokio::task::yield_now().await;
            update.abort();
            assert!(update.await.unwrap_err().is_cancelled());
            drop(queue.turn(Purpose::Read, of("t")).await);
            drop(reads);
        });
        assert_eq!((had(&registry, "read", "at once"), had(&registry, "read", "not")), (2, 0));
    }
}
