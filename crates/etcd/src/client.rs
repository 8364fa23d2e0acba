//! The thread that speaks with etcd, and how it is asked.

mod endpoints;
mod keys;
mod register;
mod trouble;

use std::cell::OnceCell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;
use verbena_cluster::{Answer, KeeperRecord, Question};
use verbena_terms::{Rank, ViewNumber};

use crate::config::{Deadlines, EtcdConfig};
use crate::error::{Error, Result};
use endpoints::Endpoints;
use keys::Keys;
use register::Register;

/// Asks etcd, on a thread of its own. Dropped, it ends that thread without waiting for what is under way: those closures are dropped uncalled.
pub struct Etcd {
    asks: Option<mpsc::Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
    deadlines: Deadlines,
}

/// One thing to be found out, by a moment.
struct Ask {
    what: What,
    until: Instant,
}

enum What {
    Answer(Question, Reply<Answer>),
    Name(Rank, Reply<Option<String>>),
    Views(ViewNumber, usize, Reply<Vec<KeeperRecord>>),
}

type Reply<T> = Box<dyn FnOnce(Result<T>) + Send>;

/// Questions that wait or are under way; further ones are refused. The caller that runs the election asks one of
/// each kind at a time.
const MOST_ASKED: usize = 64;

/// How much longer than its deadline a blocking call waits for the thread to say so.
const GRACE: Duration = Duration::from_secs(1);

impl Etcd {
    /// Begins, without waiting for etcd. The files that the configuration names are read, now and for each connection.
    ///
    /// # Errors
    /// The key that cannot be as it is, or that the thread cannot be had.
    pub fn start(config: &EtcdConfig, deadlines: Deadlines) -> Result<Self> {
        config.usable()?;
        let failed = |error: std::io::Error| Error::System {
            what: "begin the thread that asks etcd",
            reason: error.to_string(),
        };
        let endpoints = Endpoints::new(config, deadlines.attempt)?;
        let keys = Keys::new(&config.prefix);
        let runtime =
            runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build().map_err(failed)?;
        let (asks, asked) = mpsc::channel(MOST_ASKED);
        let thread = std::thread::Builder::new().name("verbena-etcd".into()).spawn(move || {
            LocalSet::new().block_on(&runtime, attend(asked, endpoints, keys));
            // A name that is being looked up in the DNS is not waited for.
            runtime.shutdown_background();
        });
        Ok(Etcd { asks: Some(asks), thread: Some(thread.map_err(failed)?), deadlines })
    }

    /// Asks the register. Never blocks; `answered` is called once, on the thread that asks etcd and must not block it, by the deadline of a question.
    /// Where too much is under way it is called at once, on this thread.
    pub fn ask(&self, question: Question, answered: impl FnOnce(Result<Answer>) + Send + 'static) {
        self.put(What::Answer(question, Box::new(answered)), self.deadlines.question);
    }

    /// Asks the register and waits for at most `allowed`. For starts and command lines.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn ask_now(&self, question: Question, allowed: Duration) -> Result<Answer> {
        self.wait(allowed, |reply| What::Answer(question, reply))
    }

    /// Finds out which node's incarnation has a rank; `None` where no node has it, or too many had one since. As
    /// [`ask`](Self::ask).
    pub fn name(&self, rank: Rank, answered: impl FnOnce(Result<Option<String>>) + Send + 'static) {
        self.put(What::Name(rank, Box::new(answered)), self.deadlines.question);
    }

    /// The views that were made, from the number `from` on, at most `limit`, each in the record that it was stored by last. Waits for at most
    /// `allowed`.
    ///
    /// # Errors
    /// Why there is no answer.
    pub fn views(&self, from: ViewNumber, limit: usize, allowed: Duration) -> Result<Vec<KeeperRecord>> {
        self.wait(allowed, |reply| What::Views(from, limit, reply))
    }

    fn put(&self, what: What, allowed: Duration) {
        let asks = self.asks.as_ref().expect("invariant: taken only when this is dropped");
        if let Err(refused) = asks.try_send(Ask { what, until: Instant::now() + allowed }) {
            refuse(refused.into_inner().what);
        }
    }

    fn wait<T: Send + 'static>(&self, allowed: Duration, what: impl FnOnce(Reply<T>) -> What) -> Result<T> {
        let (tell, told) = sync_channel(1);
        // The receiver is gone if this call has given up.
        let reply = Box::new(move |outcome| drop(tell.send(outcome)));
        self.put(what(reply), allowed);
        told.recv_timeout(allowed + GRACE)
            .unwrap_or_else(|_| Err(Error::Unanswered { why: "the thread that asks it did not get to it".into() }))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that asks etcd panicked");
        }
    }
}

/// Attends to questions until all senders are gone.
async fn attend(mut asked: mpsc::Receiver<Ask>, endpoints: Endpoints, keys: Keys) {
    let shared = Rc::new((endpoints, keys, OnceCell::new()));
    let mut under_way = JoinSet::new();
    loop {
        tokio::select! {
            ask = asked.recv() => match ask {
                None => return,
                Some(ask) if under_way.len() < MOST_ASKED => {
                    let shared = shared.clone();
                    under_way.spawn_local(async move { answer(ask, &shared.0, &shared.1, &shared.2).await });
                }
                Some(ask) => refuse(ask.what),
            },
            Some(ended) = under_way.join_next() => {
                if let Err(error) = ended && let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
            }
        }
    }
}

async fn answer(ask: Ask, endpoints: &Endpoints, keys: &Keys, era: &OnceCell<NonZeroU32>) {
    let register = Register::new(endpoints, keys, era, ask.until);
    match ask.what {
        What::Answer(question, reply) => reply(register.answer(&question).await),
        What::Name(rank, reply) => reply(register.name(rank).await),
        What::Views(from, limit, reply) => reply(register.views(from, limit).await),
    }
}

fn refuse(what: What) {
    let error = Error::Unanswered { why: format!("{MOST_ASKED} questions are under way already") };
    match what {
        What::Answer(_, reply) => reply(Err(error)),
        What::Name(_, reply) => reply(Err(error)),
        What::Views(_, _, reply) => reply(Err(error)),
    }
}
