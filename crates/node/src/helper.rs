//! A running helper.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use verbena_cluster::{LeaseWord, Membership, Role};
use verbena_content::service::Content;
use verbena_coop::service::PoolService;
use verbena_fabric::{Address, Connections, Frames, Interconnect, Meeting, Messages};
use verbena_ipc::Waker;
use verbena_metrics::Registry;
use verbena_monitor::Loads;
use verbena_reads::ReadLogs;
use verbena_terms::Rank;

use crate::config::Settings;
use crate::error::{Error, Result};
use crate::event::{Event, Observer, SharedObserver};
use crate::http_api::api::{self, Api, Sources};
use crate::http_api::explains::Explains;
use crate::http_api::file::File;
use crate::local::application::Applications;
use crate::local::conflict_marker::Mark;
use crate::local::open_updates::OpenUpdates;
use crate::local::place::Place;
use crate::local::seats::Seats;
use crate::local::takeover::{Seated, Take, Takeover};
use crate::membership::drain::Drain;
use crate::membership::driver::{Driver, Parts};
use crate::membership::keeping::Register;
use crate::membership::mailbox::Mailbox;
use crate::membership::records::Records;
use crate::membership::service::Service;
use crate::membership::status::Status;
use crate::programs::answers::Answers;
use crate::programs::kept_pages::ProgramPages;
use crate::programs::program_locks::ProgramLocks;
use crate::programs::rings::Rings;
use crate::programs::segments::Segments;
use crate::services::pages::{self, Pages};
use crate::services::peer_status::PeerStatus;
use crate::services::reads::Reads;
use crate::services::{loads, locks, memory, pool};
use crate::thread;

/// A helper that runs until it is [stopped](Self::stop), or [ends](Self::ended) by itself. Dropped, it leaves as
/// when stopped.
pub struct Helper {
    name: String,
    state: PathBuf,
    socket: PathBuf,
    http_socket: PathBuf,
    http_address: Option<SocketAddr>,
    content: Content,
    reads: ReadLogs,
    pool: Option<PoolService>,
    loads: Loads,
    files: Arc<OnceLock<&'static [File]>>,
    explains: Arc<OnceLock<Explains>>,
    lease: Arc<LeaseWord>,
    mailbox: Arc<Mailbox>,
    drain: Arc<Drain>,
    stop_answering: Arc<AtomicBool>,
    stop_api: watch::Sender<bool>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
    end: Arc<End>,
    /// For a plain helper in another seat than the first: takes the first seat as well when it becomes free.
    takeover: Option<Takeover>,
    _mark: Option<Mark>,
}

/// What a helper in the first seat beside this one has of the process.
struct Own {
    seats: Seats,
    settings: Settings,
    observer: SharedObserver,
    mailbox: Arc<Mailbox>,
    drain: Arc<Drain>,
}

#[derive(Default)]
struct End {
    reason: Mutex<Option<Option<Error>>>,
    came: Notify,
}

impl Helper {
    /// Starts the helper: takes its place, starts an incarnation, and begins to join the cluster. Does not wait until
    /// it has joined.
    ///
    /// Where no members are configured, the place is the lowest free seat of this machine. The helper then also takes
    /// over the keeper's seat if the keeper ends (rule P11).
    ///
    /// # Errors
    /// Names what stands in the way: another helper, a directory, the fabric, a record that is not this node's.
    pub fn start(
        settings: &Settings,
        services: Vec<Box<dyn Service>>,
        metrics: Arc<Registry>,
        observer: Observer,
    ) -> Result<Helper> {
        pool::check(&settings.pool)?;
        if !settings.is_plain() {
            return Helper::at(Place::configured(settings)?, settings, services, metrics, observer, Arc::default());
        }
        let seats = Seats::of(settings)?;
        // A configured runtime directory already determines which nodes are in the cluster: no mark is needed then.
        let mark = settings.node.runtime.is_none().then(|| Mark::leave(&seats)).transpose()?;
        let place = seats.lowest()?;
        let is_first = place.membership.rank() == Some(Rank(1));
        let shared: SharedObserver = Arc::new(Mutex::new(observer));
        let tell = shared.clone();
        let observer: Observer = Box::new(move |event: &Event| (tell.lock())(event));
        let drain = Arc::new(Drain::default());
        let mut helper = Helper::at(place, settings, services, metrics, observer, drain.clone())?;
        if !is_first {
            let own =
                Own { seats, settings: settings.clone(), observer: shared, mailbox: helper.mailbox.clone(), drain };
            helper.takeover = Some(Takeover::start(settings.cluster.lease.0, own.takes_the_first_seat())?);
        }
        helper._mark = mark;
        Ok(helper)
    }

    /// Starts it in a place.
    pub(crate) fn at(
        place: Place,
        settings: &Settings,
        mut services: Vec<Box<dyn Service>>,
        metrics: Arc<Registry>,
        observer: Observer,
        drain: Arc<Drain>,
    ) -> Result<Helper> {
        let (name, state) = (place.name().to_owned(), place.store.directory().to_owned());
        let Place { membership, store, server, runtime, names } = place;
        let (waker, path) = (server.waker(), server.path());
        let http_socket = path.with_extension("http.sock");
        let (listeners, http_address) = api::listen(&http_socket, settings.node.api)?;
        // Beside the key of names, where the nodes of this machine share one: each reads the records of the others.
        let shared = names.as_deref().and_then(Path::parent).unwrap_or(&state);
        let records = OpenUpdates::in_directory(shared.join("open-updates"));
        let mut pages = settings.pages.clone();
        pages.key = pages.key.or(names);
        let (pages, content) = Pages::start(pages.options(&settings.cluster, &settings.etcd.prefix)?, records)?;
        services.push(Box::new(pages));
        pages::register(&metrics, &content)?;
        let (log, reads) = Reads::start(settings, &content, &metrics)?;
        services.push(Box::new(log));
        let (locks, lock_service) = locks::start(&settings.locks, settings.cluster.lease.0, server.board(), &metrics)?;
        services.push(Box::new(locks));
        let (memory, memory_service) =
            memory::start(&settings.memory, settings.cluster.lease.0, server.board(), &metrics)?;
        services.push(Box::new(memory));
        // A node that only grants leases takes no part in the pool.
        let lends = settings.pool.is_on() && membership.own().roles.has(Role::Reader);
        let membership = membership.in_pool(lends, settings.pool.passive).with_relay(settings.relay.is_some());
        let pool = match lends.then(|| pool::start(&settings.pool, &metrics)).transpose()? {
            Some((pool, service)) => {
                services.push(Box::new(pool));
                Some(service)
            }
            None => None,
        };
        let loads = Loads::default();
        services.push(Box::new(loads::start(&settings.monitor, loads.clone(), &metrics)?));

        let lease = Arc::new(LeaseWord::new());
        let status = Arc::new(Status::new(name.clone(), membership.clone(), lease.clone()));
        let (peers, watch, lives) = PeerStatus::new(status.clone(), loads.clone(), metrics.clone());
        services.push(Box::new(watch));
        let mailbox = Arc::new(Mailbox::new(services.len()));
        register(&metrics, &status, &peers)?;
        let register = settings.etcd(&membership)?.map(Register::new);
        let interconnect = Interconnect::new(settings.fabric.clone(), meeting(&membership, runtime))?;
        let interconnect = match &register {
            Some(register) => interconnect.by_names(register.names(&membership)),
            None => interconnect,
        };
        let driver = Driver::start(Parts {
            membership,
            register,
            interconnect,
            records: Records::open(store)?,
            mailbox: mailbox.clone(),
            status: status.clone(),
            lease: lease.clone(),
            board: server.board(),
            metrics: metrics.clone(),
            services,
            observer,
        })?;

        let stop_answering = Arc::new(AtomicBool::new(false));
        let (stop_api, stopped) = watch::channel(false);
        let longest = settings.pages.longest_transaction.0;
        let (files, explains) = (Arc::new(OnceLock::new()), Arc::new(OnceLock::new()));
        let api = Api::new(Sources {
            content: content.clone(),
            status: status.clone(),
            peers: peers.clone(),
            metrics: metrics.clone(),
            files: files.clone(),
            explains: explains.clone(),
            applications: Applications::beside(settings)?,
            longest_transaction: longest,
        })?;
        let (program_pages, later) = ProgramPages::new(content.clone(), longest);
        let rings = Rings::shown_by(&metrics)?;
        let answers = Answers {
            server,
            mailbox: mailbox.clone(),
            content: content.clone(),
            tickets: ProgramLocks::new(lock_service, status.clone()),
            segments: Segments::new(memory_service, status.clone(), &metrics)?,
            pages: program_pages,
            status,
            peers: peers.clone(),
            drain: drain.clone(),
            metrics,
            rings,
            stop: stop_answering.clone(),
        };
        let end = Arc::new(End::default());
        let threads = vec![
            thread::spawn("verbena-member", {
                let end = end.clone();
                move || end.reach(run(driver))
            })?,
            thread::spawn("verbena-ipc", move || answers.run())?,
            thread::spawn("verbena-api", move || {
                let beside = async { tokio::join!(peers.listen(lives), later.run()) };
                api.run(listeners, async { _ = beside.await }, stopped)
            })?,
        ];
        Ok(Helper {
            name,
            state,
            socket: path,
            http_socket,
            http_address,
            content,
            reads,
            pool,
            loads,
            files,
            explains,
            lease,
            mailbox,
            drain,
            stop_answering,
            stop_api,
            waker,
            threads,
            end,
            takeover: None,
            _mark: None,
        })
    }

    /// What the node is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its state lies.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Where programs reach it.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where they reach it over HTTP: a unix socket, and a loopback address if one is configured.
    pub fn http(&self) -> (&Path, Option<SocketAddr>) {
        (&self.http_socket, self.http_address)
    }

    /// Shows these files too over HTTP, from now on. Only the first call has an effect.
    pub fn show(&self, files: &'static [File]) {
        let _ = self.files.set(files);
    }

    /// Asks this what would become of a request, from now on. Said once, by the proxy in this process.
    pub fn explain_by(&self, explains: Explains) {
        let _ = self.explains.set(explains);
    }

    /// The page protocol, for a proxy in this process.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// What relays have seen applications read, for a relay and a proxy in this process.
    pub fn reads(&self) -> &ReadLogs {
        &self.reads
    }

    /// The cooperative cache, for a server in this process; `None` if this node has no part in it.
    pub fn pool(&self) -> Option<&PoolService> {
        self.pool.as_ref()
    }

    /// How loaded the members of the view are, for a proxy in this process.
    pub fn loads(&self) -> &Loads {
        &self.loads
    }

    /// Until when and in which view the node may act.
    pub fn lease(&self) -> &Arc<LeaseWord> {
        &self.lease
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.end.reason.lock().is_some()
    }

    /// Waits until it ends by itself. It is stopped all the same after that, for the reason.
    pub async fn ended(&self) {
        while !self.has_ended() {
            self.end.came.notified().await;
        }
    }

    /// Waits until a program asks for its end, and with it the process's. It is stopped then, as on a signal.
    pub async fn asked_to_end(&self) {
        self.drain.asked().await;
    }

    /// Leaves the cluster in good order, for which it takes two and a half leases at most, and ends all threads.
    /// Updates are refused from the beginning. If all open updates have ended, the cluster waits for nothing of this
    /// node afterwards.
    ///
    /// # Errors
    /// Why it had ended by itself, if it had.
    pub fn stop(mut self) -> Result<()> {
        self.finish();
        match self.end.reason.lock().take().flatten() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn finish(&mut self) {
        self.mailbox.leave();
        for (nth, thread) in self.threads.drain(..).enumerate() {
            // Programs are answered until the node has left.
            if nth > 0 {
                self.stop_answering.store(true, Ordering::Release);
                self.waker.wake();
                // The thread holds a receiver until it ends; if it has ended, the send fails and no thread needs it.
                let _ = self.stop_api.send(true);
            }
            // A thread that panicked has ended the process.
            let _ = thread.join();
        }
        // The next helper finds no dead socket; it would replace one anyway.
        let _ = std::fs::remove_file(&self.http_socket);
        // The keeper's seat last: this node needed its leave.
        drop(self.takeover.take());
    }
}

impl Own {
    /// When the seat is taken, the process's own observer learns of it, and its mailbox.
    fn takes_the_first_seat(mut self) -> Take {
        // The process has it already, for its own seat.
        self.settings.node.api = None;
        Box::new(move || {
            let Some(place) = self.seats.keepers()? else { return Ok(None) };
            let (observer, mailbox) = (self.observer.clone(), self.mailbox.clone());
            let tell = move |event: &Event| {
                if let Event::Life { incarnation, .. } = event {
                    (observer.lock())(&Event::Succeeded { incarnation: *incarnation });
                    mailbox.keeper_moved();
                }
            };
            let registry = Arc::new(Registry::new());
            let first = Helper::at(place, &self.settings, vec![], registry, Box::new(tell), self.drain.clone())?;
            Ok(Some(Box::new(first)))
        })
    }
}

impl Seated for Helper {
    fn has_ended(&self) -> bool {
        Helper::has_ended(self)
    }

    fn stop(self: Box<Self>) -> Result<()> {
        Helper::stop(*self)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.finish();
    }
}

impl End {
    fn reach(&self, reason: Option<Error>) {
        *self.reason.lock() = Some(reason);
        self.came.notify_waiters();
        self.came.notify_one();
    }
}

fn run(driver: Driver) -> Option<Error> {
    match tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build() {
        Ok(runtime) => {
            let reason = driver.run(&runtime);
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
            reason
        }
        Err(source) => Some(Error::System { doing: "start a runtime", source }),
    }
}

fn meeting(membership: &Membership, directory: PathBuf) -> Meeting {
    let addresses = membership.lines().iter().map(|line| line.address.clone());
    let own = Address(membership.own().address.clone());
    // A node that joins has no line of its own: its address shows the kind of address by which it reaches the others.
    let addresses = addresses.chain(membership.rank().is_none().then(|| membership.own().address.clone()));
    // A node that is alone has no address.
    Meeting { directory, own, members: addresses.filter(|address| !address.is_empty()).collect() }
}

fn register(metrics: &Registry, status: &Arc<Status>, peers: &Arc<PeerStatus>) -> Result<()> {
    type Read = fn(&verbena_protocol::wire::Status) -> f64;
    type Count = fn(Frames) -> u64;
    let gauges: [(&str, &str, Read); 5] = [
        ("verbena_node_lease_left_seconds", "What is left of the node's lease.", |status| {
            status.lease_left_ms as f64 / 1e3
        }),
        ("verbena_node_view", "The newest view that was learnt.", |status| status.view.0.into()),
        ("verbena_node_view_in_effect", "The newest view that is known to be in effect.", |status| {
            status.in_effect.0.into()
        }),
        ("verbena_node_members", "Members of the newest view.", |status| status.members.into()),
        ("verbena_node_start", "The start number of the present incarnation.", |status| {
            status.incarnation.start.into()
        }),
    ];
    for (name, help, read) in gauges {
        let status = status.clone();
        metrics.gauge_from(name, help, move || read(&status.read(0)))?;
    }
    let counters: [(&str, &str, Count); 7] = [
        ("verbena_fabric_frames_answered_total", "Frames of others that were answered.", |frames| frames.answered),
        ("verbena_fabric_frames_malformed_total", "What came and is no frame.", |frames| frames.malformed),
        ("verbena_fabric_frames_forged_total", "Frames with another tag than their caller's.", |frames| frames.forged),
        ("verbena_fabric_frames_replayed_total", "Frames that were there before.", |frames| frames.replayed),
        ("verbena_fabric_frames_strange_total", "Frames of unknown callers.", |frames| frames.strange),
        ("verbena_fabric_frames_sent_total", "Frames to others.", |frames| frames.sent),
        ("verbena_fabric_frames_resent_total", "Frames that were sent again.", |frames| frames.resent),
    ];
    for (name, help, read) in counters {
        let peers = peers.clone();
        metrics.counter_from(name, help, move || read(peers.frames()))?;
    }
    type Became = fn(Connections) -> u64;
    let counters: [(&str, &str, Became); 4] = [
        ("verbena_fabric_connections_made_total", "Connections of the adapter to others.", |all| all.made),
        ("verbena_fabric_connections_taken_total", "Connections of others to the adapter.", |all| all.taken),
        ("verbena_fabric_connections_lost_total", "Connections to others that have ended.", |all| all.lost),
        ("verbena_fabric_connections_refused_total", "Requests for one that came to nothing.", |all| all.refused),
    ];
    for (name, help, read) in counters {
        let peers = peers.clone();
        metrics.counter_from(name, help, move || read(peers.connections()))?;
    }
    type Went = fn(Messages) -> u64;
    let counters: [(&str, &str, Went); 7] = [
        ("verbena_fabric_messages_sent_total", "Messages to others by the adapter.", |all| all.sent),
        ("verbena_fabric_messages_arrived_total", "Messages of others by the adapter.", |all| all.arrived),
        ("verbena_fabric_messages_too_large_total", "Messages by tcp, for no buffer holds them.", |all| all.too_large),
        ("verbena_fabric_messages_unconnected_total", "Messages by tcp, without a connection.", |all| all.unconnected),
        ("verbena_fabric_messages_lost_total", "Messages under way when their connection ended.", |all| all.lost),
        ("verbena_fabric_messages_malformed_total", "What came by the adapter and is no message.", |all| all.malformed),
        ("verbena_fabric_receive_queue_dry_total", "Times that a receive queue had no buffer left.", |all| all.dry),
    ];
    for (name, help, read) in counters {
        let peers = peers.clone();
        metrics.counter_from(name, help, move || read(peers.messages()))?;
    }
    Ok(())
}
