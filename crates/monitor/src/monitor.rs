//! The thread that publishes this node's load, and reads those of the others while they are wanted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use verbena_cluster::View;
use verbena_fabric::{Address, Class, Completed, Fabric, Inbox, Message as Received, Pending, Port, Region};
use verbena_fabric::{RegionKey, Rights, Views};
use verbena_service::peers::{OpenResult, OpenTask, Peers};
use verbena_terms::{BootClock, Clock, Complaints, Incarnation, Load, LoadCounts, Time, ViewNumber};

use crate::board::{self, BOARD_BYTES};
use crate::wire::Message;
use crate::{Action, Loads, Meter, Metrics, MonitorConfig, Reading, Watch};

/// The port of these messages.
const PORT: Port = Port(3);
/// How long reading a board may take.
const READ_DEADLINE: Duration = Duration::from_secs(1);

/// What a node has done, and how many programs are connected to it: read each time that its load is published.
pub type Source = Box<dyn Fn() -> (LoadCounts, u32) + Send>;

/// A node's monitor. Dropped, its thread ends.
pub struct Monitor {
    shared: Arc<Shared>,
    inboxes: mpsc::UnboundedSender<Inbox>,
}

struct Shared {
    state: Mutex<State>,
    loads: Loads,
    metrics: Metrics,
    /// A view was learnt, or it is over.
    changed: Notify,
    is_over: AtomicBool,
}

#[derive(Default)]
struct State {
    watch: Watch,
    /// The present incarnation; `None` between two incarnations.
    life: Option<Life>,
    complaints: Complaints,
}

struct Life {
    fabric: Arc<dyn Fabric>,
    board: Box<dyn Region>,
    round: u64,
    peers: Peers,
    view: ViewNumber,
    /// The keys that members have sent, of the members of the view.
    keys: BTreeMap<Incarnation, RegionKey>,
}

/// A board that is being read.
type Asked = (Incarnation, Pending<Completed>);

impl Monitor {
    /// Starts the thread. What is found is in `loads`.
    ///
    /// # Errors
    /// If the kernel does not report the machine's load, the thread may not be on its core, or there can be none.
    pub fn start(config: &MonitorConfig, loads: Loads, metrics: Metrics, source: Source) -> std::io::Result<Monitor> {
        Reading::of(&config.proc).map_err(std::io::Error::other)?;
        let (inboxes, lives) = mpsc::unbounded_channel();
        let (state, changed, is_over) = (Mutex::default(), Notify::new(), AtomicBool::new(false));
        let shared = Arc::new(Shared { state, loads, metrics, changed, is_over });
        let (config, its) = (config.clone(), shared.clone());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(4).build()?;
        let (says, said) = std::sync::mpsc::channel();
        std::thread::Builder::new().name("verbena-monitor".into()).spawn(move || {
            let stays = config.core.map_or(Ok(()), stay_on);
            let is_on = stays.is_ok();
            // The thread that starts the monitor waits for this.
            let _ = says.send(stays);
            if is_on {
                runtime.block_on(run(&its, &config, source, lives));
            }
            runtime.shutdown_background();
        })?;
        said.recv().map_err(std::io::Error::other)??;
        Ok(Monitor { shared, inboxes })
    }

    /// An incarnation begins on this fabric: it has a board of its own.
    ///
    /// # Errors
    /// If there is no memory for the board, or its port is taken.
    pub fn life_begins(&self, fabric: Arc<dyn Fabric>) -> verbena_fabric::Result<()> {
        let inbox = fabric.listen(PORT, Views::Any)?;
        let board = fabric.register(BOARD_BYTES, ViewNumber(0))?;
        board::begin(&*board)?;
        let peers = Peers::new(fabric.clone());
        let life = Life { fabric, board, round: 0, peers, view: ViewNumber(0), keys: BTreeMap::new() };
        *self.shared.state.lock() = State { life: Some(life), ..State::default() };
        // The receiver ends only with the node.
        let _ = self.inboxes.send(inbox);
        Ok(())
    }

    /// A view was learnt. Boards stay as they are.
    pub fn view_learnt(&self, view: &View) {
        let mut state = self.shared.state.lock();
        state.watch.view(view);
        if let Some(life) = &mut state.life {
            life.view(view, BootClock.now());
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// The incarnation is over: the monitor drops everything of it.
    pub fn life_ends(&self) {
        *self.shared.state.lock() = State::default();
        self.shared.loads.set(vec![]);
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }
}

impl Life {
    fn view(&mut self, view: &View, now: Time) {
        self.view = view.number();
        let members = view.members().iter().map(|member| (member.incarnation, Address(member.address.clone())));
        self.peers.view(members, now);
        self.keys.retain(|who, _| view.member(*who).is_some());
        self.keys.values().for_each(|key| self.peers.learn(key.clone(), now));
    }

    /// Whether the member is reached. What cannot be sent all the same is lost.
    fn send(&self, to: Incarnation, message: &Message) -> bool {
        let Some(peer) = self.peers.peer(to) else { return false };
        if let Err(error) = peer.send(Class::Control, self.view, PORT, self.round, &message.encode()) {
            tracing::debug!(%to, %error, "a message about a board was not sent");
        }
        true
    }

    /// Begins to read a board, if that is open.
    fn read(&self, who: Incarnation, now: Time) -> Option<Asked> {
        let region = self.peers.region(who)?;
        let question = board::question(self.fabric.pool()).ok()?;
        Some((who, region.post(question, Class::Control, now + READ_DEADLINE)))
    }
}

impl Shared {
    /// Publishes how this node is.
    fn publish(&self, mut load: Load, now: Time, every: Duration, source: &Source) {
        (load.counts, load.programs) = source();
        load.every_ms = every.as_millis() as u32;
        *self.metrics.load.lock() = load;
        let mut state = self.state.lock();
        let State { watch, life: Some(life), .. } = &mut *state else { return };
        life.round += 1;
        match board::publish(&*life.board, life.round, &load) {
            Ok(()) => self.metrics.published.increment(),
            Err(error) => tracing::debug!(%error, "this node's load was not published"),
        }
        watch.published(life.fabric.identity(), life.round, load, now);
    }

    /// Asks for boards and reads them, where they are wanted. Returns the reads under way.
    fn watch(&self, now: Time) -> Vec<Asked> {
        let wanted = self.loads.wanted_of(now);
        let mut state = self.state.lock();
        let State { watch, life: Some(life), .. } = &mut *state else { return vec![] };
        let mut asked = vec![];
        for action in watch.due(life.fabric.identity(), &wanted, now) {
            let is_done = match action {
                Action::Ask(who) => life.send(who, &Message::Ask),
                Action::Read(who) => life.read(who, now).map(|reading| asked.push(reading)).is_some(),
            };
            if !is_done {
                watch.not_yet(action);
            }
        }
        asked
    }

    fn read(&self, who: Incarnation, found: verbena_fabric::Result<Completed>) {
        let found = found.map(|found| board::answer(&found)).inspect_err(|error| {
            tracing::debug!(%who, %error, "a board was not read");
        });
        match found {
            Ok(board::Answer::Load(..)) => self.metrics.fresh.increment(),
            Ok(board::Answer::Torn) => self.metrics.torn.increment(),
            Ok(board::Answer::Blank) | Err(_) => self.metrics.failed.increment(),
        }
        let mut state = self.state.lock();
        if found.is_err()
            && let Some(life) = &mut state.life
        {
            life.keys.remove(&who);
        }
        state.watch.read(who, found.ok(), BootClock.now());
    }

    fn hear(&self, received: &Received) {
        let (mut state, now) = (self.state.lock(), BootClock.now());
        let State { watch, life: Some(life), complaints } = &mut *state else { return };
        match Message::decode(&received.body) {
            Ok(Message::Ask) => {
                // A member that cannot be reached yet asks again.
                life.send(received.from, &Message::Key(life.board.key(Rights::Read)));
            }
            Ok(Message::Key(key)) if key.owner == received.from && key.bytes >= BOARD_BYTES => {
                if watch.told(received.from) {
                    life.keys.insert(received.from, key.clone());
                    life.peers.learn(key, now);
                }
            }
            unusable => {
                self.metrics.unusable.increment();
                if let Some(number) = complaints.another(now) {
                    let why = unusable.err().unwrap_or_else(|| "a key of something else".into());
                    tracing::warn!(from = %received.from, number, why, "messages about boards were dropped");
                }
            }
        }
    }

    fn open_tasks(&self) -> Vec<OpenTask> {
        let mut state = self.state.lock();
        state.life.as_mut().map(|life| life.peers.open_tasks(BootClock.now())).unwrap_or_default()
    }

    fn opened(&self, result: OpenResult) {
        let now = BootClock.now();
        if let Some(life) = &mut self.state.lock().life {
            life.peers.opened(result, now);
        }
    }

    fn show(&self) {
        let state = self.state.lock();
        let Some(life) = &state.life else { return };
        self.loads.set(state.watch.seen(life.fabric.identity()));
    }
}

/// What comes back to the thread.
enum Back {
    Opened(Box<OpenResult>),
    Read(Incarnation, Box<verbena_fabric::Result<Completed>>),
}

async fn run(shared: &Arc<Shared>, config: &MonitorConfig, source: Source, mut lives: mpsc::UnboundedReceiver<Inbox>) {
    let (back, mut arriving) = mpsc::unbounded_channel();
    let (mut meter, mut inbox, mut next) = (Meter::default(), None, Instant::now());
    while !shared.is_over.load(Ordering::Acquire) {
        let now = BootClock.now();
        if next <= Instant::now() {
            match Reading::of(&config.proc) {
                Ok(reading) => shared.publish(meter.take(reading, now), now, config.every.0, &source),
                Err(error) => {
                    tracing::debug!(%error, "how the machine is is not known");
                    shared.metrics.unread.increment();
                }
            }
            // Where it came late it begins anew from there.
            next = (next + config.every.0).max(Instant::now());
        }
        for task in shared.open_tasks() {
            let back = back.clone();
            tokio::task::spawn_blocking(move || back.send(Back::Opened(Box::new(task.run()))));
        }
        for (who, read) in shared.watch(now) {
            let back = back.clone();
            tokio::spawn(async move { back.send(Back::Read(who, Box::new(read.await))) });
        }
        shared.show();
        // Boards are read as often as they are published, and at once when a load becomes wanted.
        loop {
            tokio::select! {
                biased;
                Some(came) = arriving.recv() => {
                    // What has come together is shown at once: each time all members are.
                    let (mut next, mut is_open) = (Some(came), false);
                    while let Some(came) = next {
                        match came {
                            Back::Read(who, found) => shared.read(who, *found),
                            Back::Opened(result) => {
                                shared.opened(*result);
                                is_open = true;
                            }
                        }
                        next = arriving.try_recv().ok();
                    }
                    shared.show();
                    if is_open {
                        break;
                    }
                }
                received = message(&mut inbox) => {
                    shared.hear(&received);
                    break;
                }
                () = sleep_until(next) => break,
                () = shared.loads.wanted() => break,
                () = shared.changed.notified() => break,
                life = lives.recv() => match life {
                    Some(life) => inbox = Some(life),
                    None => return,
                },
            }
        }
    }
}

/// The next message. Never returns without an incarnation.
async fn message(inbox: &mut Option<Inbox>) -> Received {
    match inbox {
        Some(inbox) => inbox.next().await,
        None => std::future::pending().await,
    }
}

fn stay_on(core: u32) -> std::io::Result<()> {
    verbena_terms::stay_on(core as usize)
        .map_err(|error| std::io::Error::other(format!("core {core} of monitor.core cannot be used: {error}")))
}
