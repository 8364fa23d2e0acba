//! The logs of reads of one node: the region of its relay, and those of the relays of other nodes that its proxy reads.
//!
//! A thread asks relays for their keys and opens their regions. A fill does not come near it: [`ReadLogs::begin`] and [`Watching::finish`] post from the thread of the request.
//!
//! **Which relays there are** is in the view: a relay's member has the role for it. A relay passes statements only when a view that has it is in effect
//! ([`Recorder::may_pass`]), so every proxy that may store pages knows of it. One that died, or that the others have given up, may have connections of applications for some time more: it
//! is listed as departed until it is back, or until it has surely stopped passing what it reads. While one is listed no page has a list (rule Q19).

mod life;
mod recorder;
mod watching;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use verbena_cluster::{LeaseWord, Role, View};
use verbena_fabric::{Batch, Class, Completed, Fabric, Inbox, Message as Received, Pending, SharedRemote};
use verbena_service::peers::OpenResult;
use verbena_terms::{BootClock, Clock, Complaints, HasFormat, Incarnation, Time};

use self::life::Life;
pub use self::recorder::Recorder;
pub use self::watching::Watching;
use self::watching::{Known, Log};
use crate::counts::Metrics;
use crate::layout::{HEADER_WORDS, Layout};
use crate::wire::Message;

/// How often it is looked whether something is due.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// How long reading a header may take.
const READ_DEADLINE: Duration = Duration::from_secs(1);

/// That a relay runs in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelaySettings {
    /// Pages are promised to be made of the database alone.
    pub is_complete: bool,
}

/// What the service is started from.
#[derive(Clone, Debug)]
pub struct Options {
    /// The relay of this process, if one runs.
    pub relay: Option<RelaySettings>,
    /// Under which key names are hashed.
    pub names: u64,
    /// How long a relay passes statements without a lease.
    pub patience: Duration,
    /// The nominal length of a lease.
    pub lease: Duration,
}

/// Says that this home has settled a departed incarnation (rule P6).
pub type Settles = Box<dyn Fn(Incarnation) + Send>;

/// A node's logs of reads. Cheap to clone; its thread ends when it is [stopped](Self::stop).
#[derive(Clone)]
pub struct ReadLogs {
    shared: Arc<Shared>,
    inboxes: mpsc::UnboundedSender<Inbox>,
}

struct Shared {
    options: Options,
    recorder: Recorder,
    lease: OnceLock<Arc<LeaseWord>>,
    state: Mutex<State>,
    known: ArcSwap<Known>,
    metrics: Metrics,
    changed: Notify,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The present life's; none between two lives.
    life: Option<Life>,
    view: Option<Arc<View>>,
    settles: Option<Settles>,
    /// Departed that are settled at these times.
    departed: BTreeMap<Incarnation, Time>,
    complaints: Complaints,
}

/// A header that is being read.
type Header = (Incarnation, SharedRemote, Pending<Completed>);

impl ReadLogs {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be none.
    pub fn start(options: Options, metrics: Metrics) -> std::io::Result<ReadLogs> {
        let (inboxes, lives) = mpsc::unbounded_channel();
        let recorder = Recorder::new(metrics.recorded.clone(), options.patience);
        let shared = Arc::new(Shared {
            options,
            recorder,
            lease: OnceLock::new(),
            state: Mutex::default(),
            known: ArcSwap::default(),
            metrics,
            changed: Notify::new(),
            is_over: AtomicBool::new(false),
        });
        let its = shared.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(4).build()?;
        std::thread::Builder::new().name("verbena-reads".into()).spawn(move || {
            runtime.block_on(run(&its, lives));
            runtime.shutdown_background();
        })?;
        Ok(ReadLogs { shared, inboxes })
    }

    /// By which the relay of this process records; none where none runs.
    pub fn recorder(&self) -> Option<Recorder> {
        self.shared.options.relay.as_ref().map(|_| self.shared.recorder.clone())
    }

    /// A request with this tag is about to be forwarded.
    pub async fn begin(&self, tag: u64) -> Watching {
        Watching::begin(self.shared.clone(), tag).await
    }

    /// Whether a relay of another process is known at this moment.
    pub fn has_relays(&self) -> bool {
        !self.shared.known.load().logs.is_empty()
    }

    /// A life begins on this fabric, and acts by this lease, the same in all lives.
    ///
    /// # Errors
    /// If there is no memory for the log, or its port is taken.
    pub fn life_begins(&self, fabric: Arc<dyn Fabric>, lease: &Arc<LeaseWord>) -> verbena_fabric::Result<()> {
        self.shared.lease.get_or_init(|| lease.clone());
        let inbox = fabric.listen(life::PORT, verbena_fabric::Views::Any)?;
        let Options { relay, names, .. } = &self.shared.options;
        let life = Life::begin(fabric, relay.as_ref(), *names)?;
        if let Some((region, layout)) = &life.log {
            self.shared.recorder.begin(region.clone(), *layout, lease.clone());
        }
        let mut state = self.shared.state.lock();
        (state.life, state.view) = (Some(life), None);
        // The thread ends only with the node.
        let _ = self.inboxes.send(inbox);
        Ok(())
    }

    /// A view was learnt. Its departed are settled by `settles`, some of them after a time.
    pub fn view_learnt(&self, view: &Arc<View>, settles: Settles) {
        let shared = &self.shared;
        let now = BootClock.now();
        let mut state = shared.state.lock();
        state.view = Some(view.clone());
        state.settles = Some(settles);
        let Some(life) = &mut state.life else { return };
        let me = life.me();
        // Before the view is acknowledged: a proxy of the view finds the log open, or its page depends on everything.
        shared
            .recorder
            .open(view.members().iter().any(|member| member.incarnation != me && member.roles.has(Role::Reader)));
        if !view.departed().is_empty() {
            shared.recorder.close_tags();
        }
        life.view(view, now);
        let wait = shared.options.lease + shared.options.patience * 9 / 8;
        state.departed.retain(|who, _| view.has_departed(*who));
        for gone in view.departed() {
            // In this view it is another life of the same node: its process has ended, or knows of its new life.
            let is_back = view.of_rank(gone.incarnation.rank).is_some();
            let at = if is_back || gone.at_rest || !gone.is_relay { now } else { now + wait };
            let known = state.departed.entry(gone.incarnation).or_insert(at);
            *known = (*known).min(at);
        }
        shared.publish(&state);
        drop(state);
        shared.settle(now);
        shared.changed.notify_one();
    }

    /// A view is in effect.
    pub fn view_in_effect(&self, view: verbena_terms::ViewNumber) {
        let state = self.shared.state.lock();
        let is_in = |known: &Arc<View>| {
            let me = state.life.as_ref().map(Life::me);
            known.number() <= view && me.is_some_and(|me| known.member(me).is_some())
        };
        // A later one that is learnt has those of this one, or lists them.
        if state.view.as_ref().is_some_and(is_in) {
            self.shared.recorder.is_in_effect();
        }
    }

    /// The life is over: nothing is held of it.
    pub fn life_ends(&self) {
        self.shared.recorder.end();
        let mut state = self.shared.state.lock();
        *state = State::default();
        self.shared.known.store(Arc::default());
    }

    /// The node ends.
    pub fn stop(&self) {
        self.life_ends();
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    /// A relay's log could not be read: its key is asked for again.
    fn lost(&self, owner: Incarnation) {
        let mut state = self.state.lock();
        if let Some(life) = &mut state.life {
            life.forget(owner);
        }
        self.publish(&state);
        drop(state);
        self.changed.notify_one();
    }

    /// What fills see of it from now on.
    fn publish(&self, state: &State) {
        let known = match (&state.view, &state.life) {
            (Some(view), Some(life)) => Known {
                view: view.number(),
                // A view lists whom it lists until the next one: here it is known before.
                is_settled: (view.departed().iter())
                    .all(|gone| !gone.is_relay || state.departed.get(&gone.incarnation) == Some(&Time::FAR)),
                logs: life.relays(view).map(|who| (who, life.open_log(who).cloned())).collect(),
            },
            _ => Known::default(),
        };
        self.known.store(Arc::new(known));
    }

    fn settle(&self, now: Time) {
        let state = &mut *self.state.lock();
        if let Some(settles) = &state.settles {
            for who in state.departed.iter().filter(|(_, at)| **at <= now).map(|(who, _)| *who) {
                settles(who);
            }
        }
        // What is settled is not forgotten before it has gone from the view: it would be waited for anew.
        let mut is_any = false;
        for at in state.departed.values_mut().filter(|at| **at <= now) {
            (*at, is_any) = (Time::FAR, true);
        }
        if is_any {
            self.publish(state);
        }
    }

    fn hear(&self, received: &Received) {
        let (state, now) = (&mut *self.state.lock(), BootClock.now());
        let Some(life) = &mut state.life else { return };
        let heard = Message::decode(&received.body).and_then(|message| life.hear(received.from, message, now));
        if let Err(why) = heard {
            self.metrics.unusable.increment();
            if let Some(number) = state.complaints.another(now) {
                tracing::warn!(from = %received.from, number, why, "messages about logs of reads were dropped");
            }
        }
    }

    fn header(&self, (owner, remote): (Incarnation, SharedRemote), found: verbena_fabric::Result<Completed>) {
        let (state, now) = (&mut *self.state.lock(), BootClock.now());
        let Some(life) = &mut state.life else { return };
        let layout = found.map_err(|error| error.to_string()).and_then(|found| {
            let mut header = [0; HEADER_WORDS];
            for (word, done) in header.iter_mut().zip(&found) {
                *word = done.word().unwrap_or(0);
            }
            Layout::check(owner, header, self.options.names, remote.key().bytes)
        });
        match layout {
            Ok(layout) => life.opened_log(owner, Log { remote, layout, pool: life.pool() }),
            Err(why) => {
                life.forget(owner);
                self.metrics.unusable.increment();
                if let Some(number) = state.complaints.another(now) {
                    tracing::warn!(%owner, number, why, "a log of reads cannot be used: pages depend on everything");
                }
            }
        }
        self.publish(state);
    }

    /// What is to be opened, and the headers that are to be read.
    fn due(&self) -> (Vec<verbena_service::peers::OpenTask>, Vec<Header>) {
        let state = &mut *self.state.lock();
        let (Some(life), Some(view), now) = (&mut state.life, &state.view, BootClock.now()) else {
            return (vec![], vec![]);
        };
        life.ask(view, now);
        let at: Vec<u64> = (0..HEADER_WORDS as u64).map(|word| 8 * word).collect();
        let read = |(owner, remote): (Incarnation, SharedRemote)| {
            let header = remote.post(Batch::read_words(&at), Class::Control, now + READ_DEADLINE);
            (owner, remote, header)
        };
        (life.open_tasks(now), life.unread(view).into_iter().map(read).collect())
    }
}

/// What comes back to the thread.
enum Back {
    Opened(Box<OpenResult>),
    Header(Incarnation, SharedRemote, Box<verbena_fabric::Result<Completed>>),
}

async fn run(shared: &Arc<Shared>, mut lives: mpsc::UnboundedReceiver<Inbox>) {
    let (back, mut arriving) = mpsc::unbounded_channel();
    let mut inbox = None;
    while !shared.is_over.load(Ordering::Acquire) {
        let (tasks, headers) = shared.due();
        for task in tasks {
            let back = back.clone();
            tokio::task::spawn_blocking(move || back.send(Back::Opened(Box::new(task.run()))));
        }
        for (owner, remote, header) in headers {
            let back = back.clone();
            tokio::spawn(async move { back.send(Back::Header(owner, remote, Box::new(header.await))) });
        }
        shared.settle(BootClock.now());
        tokio::select! {
            Some(came) = arriving.recv() => match came {
                Back::Opened(result) => {
                    if let Some(life) = &mut shared.state.lock().life {
                        life.opened(*result, BootClock.now());
                    }
                }
                Back::Header(owner, remote, found) => shared.header((owner, remote), *found),
            },
            received = message(&mut inbox) => shared.hear(&received),
            life = lives.recv() => match life {
                Some(life) => inbox = Some(life),
                None => return,
            },
            () = shared.changed.notified() => {}
            // Where a relay is awaited, or a departed one.
            () = sleep(LOOKS_EVERY), if shared.is_waiting() => {}
        }
    }
}

impl Shared {
    fn is_waiting(&self) -> bool {
        let state = self.state.lock();
        let is_open = |known: &Known| known.logs.iter().all(|(_, log)| log.is_some());
        !is_open(&self.known.load()) || state.departed.values().any(|at| *at != Time::FAR)
    }
}

/// The next message; none ever where there is no life.
async fn message(inbox: &mut Option<Inbox>) -> Received {
    match inbox {
        Some(inbox) => inbox.next().await,
        None => std::future::pending().await,
    }
}
