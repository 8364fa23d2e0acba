//! The page protocol at work in one node: a service of the crate `service`, and the handle that proxies and applications use.
//!
//! This module decides nothing. The driver feeds events to the [`Home`](crate::Home) and the [`Updater`](crate::Updater), which are one [machine](protocol) here,
//! and carries out their actions in order. A hit does not involve the driver: [`Content::read`] posts a read of the words from the thread of the request, and
//! [`Content::lease`] is two loads.

mod batches;
mod config;
mod host;
mod introduction;
mod members;
mod protocol;
mod regions;
mod requests;
mod routes;
#[cfg(feature = "testing")]
mod stepped;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::oneshot;
use verbena_cluster::{Lease, LeaseWord, View};
use verbena_fabric::Fabric;
use verbena_service::executor::{Admission, Executor};
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use crate::change::Change;
use crate::home::{HomeCounts, HomeLimits, KeptOut};
use crate::names::{Names, PageId, Scope};
use crate::record::{NoRecords, Records};
use crate::rules::Rules;
use crate::updater::{BeginError, Outcome, UpdateId, UpdaterCounts, UpdaterLimits};
use crate::wire::{Register, Registered};

pub use config::{KeyError, PagesConfig};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use introduction::exercise as exercise_introduction;
use requests::{Command, RequestTable};
use routes::Routes;
pub use routes::{Reading, ReadingLast};
#[cfg(feature = "testing")]
pub use stepped::Stepped;

/// Commands that may wait for the driver. One more is refused with [`Refused::Overloaded`].
const COMMANDS: usize = 8192;

/// How long a read of words may take before the request goes to the origin: far longer than such a read takes, far shorter than a client
/// waits for a page.
const READ_DEADLINE: Duration = Duration::from_millis(100);

/// What a node brings to the protocol.
#[derive(Clone, Debug)]
pub struct Options {
    /// The names' key, the same at every node.
    pub names: Names,
    /// Bounds of the home.
    pub home: HomeLimits,
    /// Bounds of the updater.
    pub updater: UpdaterLimits,
}

/// Why a request to the service came to nothing. An update that was refused was not forwarded to the application (503).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It could not begin before its deadline: a home did not acknowledge, or this node has no lease in a view in effect.
    #[error("the update could not begin in time: a home does not answer, or this node has no lease")]
    NotBegun,
    /// As many as may be are open, or the node is leaving.
    #[error(transparent)]
    NotTaken(#[from] BeginError),
    /// Its commands do not get through.
    #[error("the service has {COMMANDS} commands waiting")]
    Overloaded,
    /// The service is stopping.
    #[error("the service has stopped")]
    Stopped,
}

/// How an answered update ends (rule P7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Give the application's answer to the client.
    Answer,
    /// Close the connection without one: it could not be confirmed that every home held the update until now.
    Close,
}

/// How a node's part of the protocol is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// As a home.
    pub home: HomeCounts,
    /// As an updater.
    pub updater: UpdaterCounts,
    /// Updates that this node has begun at every home, since the service started.
    pub begun: u64,
    /// Messages and regions of peers that could not be used and were dropped, since the service started.
    pub unusable: u64,
}

/// The way back to the cluster. A call that comes too late is of another view or incarnation and must have no
/// effect. Calls come on the thread that drives the service, and must not block.
pub trait Membership: Send + 'static {
    /// This node may acknowledge the view, as far as pages go (rule P5).
    fn prepared(&self, view: ViewNumber);

    /// This home has settled a departed incarnation (rules C3, P6).
    fn settled(&self, who: Incarnation);

    /// The answer to [`Content::close`]: nothing is left to be waited for. Not `at_rest`: an update of unknown outcome is open.
    fn closed(&self, at_rest: bool);
}

/// A node's part in the protocol. Cheap to clone; the service's thread ends when the last clone is gone.
///
/// The service's thread runs what callers ask, not the caller's: a thread that serves hits is not held up by what a home does.
#[derive(Clone)]
pub struct Content {
    shared: Arc<Shared>,
    runner: Arc<Runner>,
}

/// What the driver shares with every holder of a [`Content`].
struct Shared {
    clock: Arc<dyn Clock>,
    /// Known from the first incarnation on.
    lease: OnceLock<Arc<LeaseWord>>,
    /// As the driver last said, but for what is counted in words of its own.
    counts: Mutex<Counts>,
    kept_out: Mutex<Vec<KeptOut>>,
    begun: AtomicU64,
    /// This node's incarnation, as a word.
    identity: AtomicU64,
    routes: ArcSwap<Routes>,
    names: Names,
    admission: Arc<Admission>,
}

/// What runs the commands.
enum Runner {
    Executor(Executor<RequestTable>),
    /// A simulation takes them from here.
    #[cfg(feature = "testing")]
    Queue(stepped::Queue),
}

impl Content {
    /// Starts the service and its thread. Nothing can be read and no update begins before [`life_begins`](Self::life_begins).
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(options: Options) -> verbena_fabric::Result<Content> {
        Content::start_with_records(options, Box::new(NoRecords))
    }

    /// As [`start`](Self::start), with the records that the nodes of this machine keep of their open updates (rule P6).
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start_with_records(options: Options, records: Box<dyn Records>) -> verbena_fabric::Result<Content> {
        let (shared, table) = request_table(options, Rules::ALL, Arc::new(BootClock), records);
        let executor = Executor::start("content", table)?;
        Ok(Content { shared, runner: Arc::new(Runner::Executor(executor)) })
    }

    /// The names of pages and dependencies.
    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    /// The time that everything here is judged by.
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// This node's incarnation at the moment.
    pub fn identity(&self) -> Incarnation {
        Incarnation::from_word(self.shared.identity.load(Ordering::SeqCst))
    }

    /// What this node may do: to be looked at after the words are in hand and a [`now`](Self::now) was taken (rule P1).
    pub fn lease(&self) -> Lease {
        self.shared.lease()
    }

    /// Posts a read of a page's words in the view that this node acts in. After the request arrived, or it proves nothing. `None`
    /// if there is no view, no home, or no way to it.
    pub fn read(&self, page: PageId) -> Option<Reading> {
        let view = self.shared.lease().acknowledged;
        self.shared.routes.load().read(page, view, self.now() + READ_DEADLINE)
    }

    /// Asks a page's home whether the page may be stored (rule P2). `None` if no answer will come.
    pub async fn register(&self, register: Register) -> Option<Registered> {
        self.asked(|reply| Command::Register { register, reply }).ok()?.await.ok()
    }

    /// Posts a read of what the last updates of a page left (rule H3): after it was seen that a copy has moved, if that copy would be used.
    pub fn read_last_changes(&self, page: PageId) -> Option<ReadingLast> {
        let view = self.shared.lease().acknowledged;
        self.shared.routes.load().read_last_changes(page, view, self.now() + READ_DEADLINE)
    }

    /// Begins an update at every home, of what the application changes. When the ticket is here, and not before, it may be forwarded (rule P3).
    ///
    /// # Errors
    /// It is refused: the application must not get it.
    pub async fn begin(&self, scope: Scope) -> Result<Ticket, Refused> {
        self.begin_as(Change::Write, scope).await
    }

    /// The same of an update that says this of the copies that it touches (rule H3).
    ///
    /// # Errors
    /// As with [`begin`](Self::begin).
    pub async fn begin_as(&self, change: Change, scope: Scope) -> Result<Ticket, Refused> {
        let answer = self.asked(|reply| Command::Begin { scope, change, reply })?;
        let mut beginning = Beginning { answer, content: self.clone() };
        let id = (&mut beginning.answer).await.map_err(|_| Refused::Stopped)??;
        self.shared.begun.fetch_add(1, Ordering::Relaxed);
        Ok(self.ticket(id))
    }

    /// An update that writes nothing: when it is here, every home has acknowledged it, and no copy that it touches is a hit any more (rule H2). What it says of them
    /// is what they may be used for from then on (rule H3).
    ///
    /// # Errors
    /// As with [`begin`](Self::begin): nothing is purged then.
    pub async fn purge(&self, change: Change, scope: Scope) -> Result<(), Refused> {
        self.begin_as(change, scope).await.map(Ticket::purged)
    }

    /// How it was a moment ago.
    pub fn counts(&self) -> Counts {
        Counts { begun: self.shared.begun.load(Ordering::Relaxed), ..*self.shared.counts.lock() }
    }

    /// What the updates of departed nodes keep out of the cache at this home, as of a moment ago (rule P6).
    pub fn kept_out(&self) -> Vec<KeptOut> {
        self.shared.kept_out.lock().clone()
    }

    /// The cluster has a newer view. The service calls `membership` when this node may acknowledge it as far as pages go
    /// (rule P5).
    pub fn view_learnt(&self, view: Arc<View>, membership: impl Membership) {
        self.runner.submit(Command::View { view, membership: Box::new(membership) });
    }

    /// A member's lease has run out before it acknowledged the newest view.
    pub fn member_out(&self, incarnation: Incarnation) {
        self.runner.submit(Command::Gone(incarnation));
    }

    /// The node is about to leave: updates are refused from now on. The service calls `membership` when those that are open have ended,
    /// and every home knows.
    pub fn close(&self, membership: impl Membership) {
        self.runner.submit(Command::Close(Box::new(membership)));
    }

    /// Starts an incarnation of this node on this fabric, whose incarnation it takes (rule C1). It acts by this lease, which is the
    /// same for all incarnations. Returns when its regions are there.
    ///
    /// # Errors
    /// If they cannot be made.
    pub fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.shared.lease.get_or_init(|| lease.clone());
        self.runner.with(|table| table.driver.start_incarnation(fabric, lease))
    }

    /// Ends the incarnation. Returns when its regions and its fabric are dropped.
    pub fn life_ends(&self) {
        self.runner.with(|table| table.driver.end_incarnation());
    }

    fn ticket(&self, id: UpdateId) -> Ticket {
        Ticket { id: Some(id), content: self.clone() }
    }

    /// Where the answer to a request will be.
    fn asked<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Result<oneshot::Receiver<T>, Refused> {
        self.shared.admission.admit().ok_or(Refused::Overloaded)?;
        let (reply, answer) = oneshot::channel();
        self.runner.submit(command(reply));
        Ok(answer)
    }
}

impl Runner {
    fn submit(&self, command: Command) {
        match self {
            Runner::Executor(executor) => executor.submit_to_thread(command),
            #[cfg(feature = "testing")]
            Runner::Queue(queue) => queue.push(command),
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut RequestTable) -> T) -> T {
        match self {
            Runner::Executor(executor) => executor.with(act),
            #[cfg(feature = "testing")]
            Runner::Queue(_) => unreachable!("Stepped has the driver"),
        }
    }
}

/// What has to be run, between two incarnations, and what it shares with its callers.
fn request_table(
    options: Options,
    rules: Rules,
    clock: Arc<dyn Clock>,
    records: Box<dyn Records>,
) -> (Arc<Shared>, RequestTable) {
    let admission = Arc::new(Admission::new(COMMANDS));
    let shared = Arc::new(Shared {
        clock,
        lease: OnceLock::new(),
        counts: Mutex::default(),
        kept_out: Mutex::default(),
        begun: AtomicU64::new(0),
        identity: AtomicU64::new(0),
        routes: ArcSwap::from_pointee(Routes::default()),
        names: options.names.clone(),
        admission: admission.clone(),
    });
    let driver = host::new(shared.clone(), options, rules, records);
    (shared, RequestTable::new(driver, admission))
}

impl Shared {
    fn lease(&self) -> Lease {
        self.lease.get().map_or(Lease::NONE, |lease| lease.load())
    }
}

/// An update that is to begin. Its caller may go in the moment in which it has begun: then it is not forwarded, and it is
/// over.
struct Beginning {
    answer: oneshot::Receiver<Result<UpdateId, Refused>>,
    content: Content,
}

impl Drop for Beginning {
    fn drop(&mut self) {
        // From here on the driver sees that the caller does not wait.
        self.answer.close();
        if let Ok(Ok(id)) = self.answer.try_recv() {
            self.content.ticket(id).not_sent();
        }
    }
}

/// An update that has begun at every home and may be forwarded. Dropped before it is said what became of it, its outcome is unknown,
/// and it stays open as long as that can matter (rule P6).
#[must_use = "what it touches is not cached until it is finished"]
pub struct Ticket {
    id: Option<UpdateId>,
    content: Content,
}

impl Ticket {
    /// The application has answered, and the answer was read to its end. Says what to do with it (rule P7).
    pub async fn answered(self) -> Finish {
        self.finished(Outcome::Answered).await
    }

    /// The same, and the answer says that nothing was written: what pages are made of is as it was.
    pub async fn refused(self) -> Finish {
        self.finished(Outcome::Refused).await
    }

    async fn finished(mut self, outcome: Outcome) -> Finish {
        let Some(id) = self.id.take() else { return Finish::Close };
        let (reply, finish) = oneshot::channel();
        self.content.runner.submit(Command::Finished { id, outcome, reply: Some(reply) });
        finish.await.unwrap_or(Finish::Close)
    }

    /// It was a purge: there is nothing to be sent, and what it touched stays out.
    fn purged(mut self) {
        self.end(Outcome::Purged);
    }

    /// Not one byte of it was sent.
    pub fn not_sent(mut self) {
        self.end(Outcome::NotSent);
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(id) = self.id.take() {
            self.content.runner.submit(Command::Finished { id, outcome, reply: None });
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.end(Outcome::Unknown);
    }
}
