//! A running helper.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::{Notify, watch};
use verbena_cluster::{LeaseWord, Membership};
use verbena_content::service::Content;
use verbena_fabric::{Address, Interconnect, Meeting};
use verbena_ipc::{Options, Server, Waker};
use verbena_metrics::Registry;
use verbena_terms::{Incarnation, ViewNumber};

use crate::answers::Answers;
use crate::api::{self, Api};
use crate::config::Settings;
use crate::desk::Desk;
use crate::error::{Error, Result};
use crate::membership::{Driver, Parts};
use crate::pages::{self, Pages};
use crate::records::Records;
use crate::service::Service;
use crate::status::Status;
use crate::store::{Store, make_directory};
use crate::thread;

/// What happens to a helper, for whoever started it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A life began.
    Life {
        /// Which.
        incarnation: Incarnation,
        /// The interconnect.
        provider: &'static str,
        /// Why that one.
        why: String,
        /// Where peers reach it, without its secret.
        address: String,
    },
    /// There is a newer view.
    ViewLearnt {
        /// Its number.
        view: ViewNumber,
        /// Who is in.
        members: Vec<Incarnation>,
    },
    /// The view is in effect.
    ViewInEffect {
        /// Its number.
        view: ViewNumber,
    },
    /// The lease ran out.
    LeaseLost,
    /// The life is over; the node joins again.
    Expelled {
        /// As this one.
        next: Incarnation,
    },
    /// The keeper refuses.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
    /// Something that must be done cannot be. It is tried again.
    Trouble {
        /// What.
        what: String,
        /// Why not.
        reason: String,
    },
    /// The node has left the cluster.
    Left,
}

/// Is told what happens, on membership's thread: must not block.
pub type Observer = Box<dyn FnMut(&Event) + Send>;

/// A helper that runs until it is [stopped](Self::stop), or [ends](Self::ended) by itself. Dropped, it leaves as
/// when stopped.
pub struct Helper {
    socket: PathBuf,
    http_socket: PathBuf,
    http_address: Option<SocketAddr>,
    content: Content,
    lease: Arc<LeaseWord>,
    desk: Arc<Desk>,
    stop_answering: Arc<AtomicBool>,
    stop_api: watch::Sender<bool>,
    waker: Waker,
    threads: Vec<JoinHandle<()>>,
    end: Arc<End>,
}

#[derive(Default)]
struct End {
    reason: Mutex<Option<Option<Error>>>,
    came: Notify,
}

impl Helper {
    /// Starts it: takes the state directory and the socket, begins a life, and joins the cluster (which it is not
    /// waited for).
    ///
    /// # Errors
    /// Names what stands in the way: another helper, a directory, the fabric, a record that is not this node's.
    pub fn start(
        settings: &Settings,
        mut services: Vec<Box<dyn Service>>,
        metrics: Arc<Registry>,
        observer: Observer,
    ) -> Result<Helper> {
        let membership = Membership::new(&settings.cluster)?;
        let socket = settings.socket()?;
        if settings.node.runtime.is_some() {
            make_directory(socket.directory())?;
        }
        let store = Store::open(&settings.state_directory()?)?;
        let server = Server::bind(socket.directory(), &socket.file_name(), Options::default())?;
        let (waker, path) = (server.waker(), server.path());
        let http_socket = path.with_extension("http.sock");
        let (listeners, http_address) = api::listen(&http_socket, settings.node.api)?;
        let (pages, content) = Pages::start(settings.pages.options(&settings.cluster)?)?;
        services.push(Box::new(pages));
        pages::register(&metrics, &content)?;

        let desk = Arc::new(Desk::new(services.len()));
        let lease = Arc::new(LeaseWord::new());
        let status = Arc::new(Status::new(settings.name().to_owned(), membership.clone(), lease.clone()));
        register(&metrics, &status)?;
        let interconnect =
            Interconnect::new(settings.fabric.clone(), meeting(settings, &membership, socket.directory()))?;
        let driver = Driver::start(Parts {
            membership,
            interconnect,
            records: Records::open(store)?,
            desk: desk.clone(),
            status: status.clone(),
            lease: lease.clone(),
            metrics: metrics.clone(),
            services,
            observer,
        })?;

        let stop_answering = Arc::new(AtomicBool::new(false));
        let (stop_api, stopped) = watch::channel(false);
        let longest = settings.pages.longest_transaction.0;
        let api = Api::new(content.clone(), status.clone(), metrics.clone(), longest);
        let answers = Answers { server, status, metrics, stop: stop_answering.clone() };
        let end = Arc::new(End::default());
        let threads = vec![
            thread::spawn("verbena-member", {
                let end = end.clone();
                move || end.reach(run(driver))
            })?,
            thread::spawn("verbena-ipc", move || answers.run())?,
            thread::spawn("verbena-api", move || api.run(listeners, stopped))?,
        ];
        Ok(Helper {
            socket: path,
            http_socket,
            http_address,
            content,
            lease,
            desk,
            stop_answering,
            stop_api,
            waker,
            threads,
            end,
        })
    }

    /// Where programs reach it.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where they reach it over HTTP: a unix socket, and a loopback address if one is configured.
    pub fn http(&self) -> (&Path, Option<SocketAddr>) {
        (&self.http_socket, self.http_address)
    }

    /// The page protocol, for a proxy in this process.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Until when and in which view the node may act.
    pub fn lease(&self) -> &Arc<LeaseWord> {
        &self.lease
    }

    /// Waits until it ends by itself. It is stopped all the same after that, for the reason.
    pub async fn ended(&self) {
        while self.end.reason.lock().is_none() {
            self.end.came.notified().await;
        }
    }

    /// Leaves the cluster in good order, for which it takes one and a half leases at most, and ends all threads.
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
        self.desk.leave();
        for (nth, thread) in self.threads.drain(..).enumerate() {
            // Programs are answered until the node has left.
            if nth > 0 {
                self.stop_answering.store(true, Ordering::Release);
                self.waker.wake();
                // The thread holds a receiver until it ends; if it has ended, there is nobody to tell.
                let _ = self.stop_api.send(true);
            }
            // A thread that panicked has ended the process.
            let _ = thread.join();
        }
        // Whoever comes next finds no dead socket; it would be replaced as well.
        let _ = std::fs::remove_file(&self.http_socket);
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

fn meeting(settings: &Settings, membership: &Membership, directory: &Path) -> Meeting {
    let ranks = (1..=membership.size() as u32).map(verbena_terms::Rank);
    let line = |rank| membership.configured(rank).expect("invariant: ranks are 1 to the size");
    let others = if settings.cluster.members.is_empty() {
        vec![]
    } else {
        ranks.map(|rank| line(rank).address.clone()).collect()
    };
    Meeting { directory: directory.to_owned(), own: Address(line(membership.own()).address.clone()), members: others }
}

fn register(metrics: &Registry, status: &Arc<Status>) -> Result<()> {
    type Read = fn(&verbena_client::wire::Status) -> f64;
    let gauges: [(&str, &str, Read); 5] = [
        ("verbena_node_lease_left_seconds", "What is left of the node's lease.", |status| {
            status.lease_left_ms as f64 / 1e3
        }),
        ("verbena_node_view", "The newest view that was learnt.", |status| status.view.0.into()),
        ("verbena_node_view_in_effect", "The newest view that is known to be in effect.", |status| {
            status.in_effect.0.into()
        }),
        ("verbena_node_members", "Members of the newest view.", |status| status.members.into()),
        ("verbena_node_start", "The start number of the present life.", |status| status.incarnation.start.into()),
    ];
    for (name, help, read) in gauges {
        let status = status.clone();
        metrics.gauge_from(name, help, move || read(&status.read(0)))?;
    }
    Ok(())
}
