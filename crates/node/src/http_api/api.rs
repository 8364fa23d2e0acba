//! The helper over HTTP, for programs in any language: a unix socket in the runtime directory, and a loopback port if one is
//! configured.
//!
//! What is said under `/v1` and at `GET /overview` is in [`verbena_protocol::api`]. Beside it there are `GET /healthz`, `/status`,
//! `/metrics`, and the files that the front door gave the helper to show.
//!
//! An update whose program never ends it gets an unknown outcome after the longest transaction (rule P6): its pages are
//! not cached for as long again.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use verbena_content::service::{Content, Finish, Ticket};
use verbena_content::{Change, Scope};
use verbena_metrics::Registry;
use verbena_protocol::api::{Begun, End, Ended, HELPER_WAITS, Outcome, Purged, Touched, Word, Words};
use verbena_protocol::wire::SAMPLED_KEYS;
use verbena_terms::Clock;

use crate::config::HTTP_CONNECTIONS;
use crate::error::{Error, Result};
use crate::http_api::announced::Elsewhere;
use crate::http_api::answer::{Answer, answer, bad_request, error, read};
use crate::http_api::charts::{self, Charts};
use crate::http_api::explains::{self, Explains};
use crate::http_api::file::File;
use crate::http_api::touched::{self, page};
use crate::local::application::Applications;
use crate::membership::status::Status;
use crate::random::random;
use crate::services::pages;
use crate::services::peer_status::PeerStatus;

/// Between two looks whether the unix socket's file is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What requests are answered from.
pub(crate) struct Api {
    sources: Sources,
    open: Mutex<Open>,
    /// The last five minutes, for the page.
    charts: Mutex<Charts>,
}

/// What the API reads from the rest of the helper.
pub(crate) struct Sources {
    pub(crate) content: Content,
    pub(crate) status: Arc<Status>,
    pub(crate) peers: Arc<PeerStatus>,
    pub(crate) metrics: Arc<Registry>,
    /// Files that the API serves.
    pub(crate) files: Arc<OnceLock<&'static [File]>>,
    /// Says what the proxy beside this helper would do with a request.
    pub(crate) explains: Arc<OnceLock<Explains>>,
    /// The other applications of the user, which updates are announced to as well; none where this node has a name.
    pub(crate) applications: Option<Applications>,
    /// An open update whose program does not end it gets an unknown outcome after this time.
    pub(crate) longest_transaction: Duration,
}

/// Where the API listens.
pub(crate) struct Listeners {
    path: PathBuf,
    unix: std::os::unix::net::UnixListener,
    tcp: Option<std::net::TcpListener>,
}

/// The updates that programs have begun and not ended.
struct Open {
    /// Random: a program whose helper was started again must not end another's update, which began under the same number.
    life: String,
    next: u64,
    updates: HashMap<String, Begin>,
}

/// An update that a program has begun: at this cluster, and at those of other applications.
struct Begin {
    ticket: Ticket,
    elsewhere: Elsewhere,
}

/// Takes the socket `path`, which this process alone may (it holds the helper's lock), and the port if one is wanted.
pub(crate) fn listen(path: &Path, tcp: Option<SocketAddr>) -> Result<(Listeners, Option<SocketAddr>)> {
    let system = |doing| move |source| Error::System { doing, source };
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::System { doing: "remove an earlier helper's socket", source: error });
        }
        _ => {}
    }
    let unix = bind(path).map_err(system("listen on the HTTP socket"))?;
    let tcp = match tcp {
        Some(address) => {
            let failed = |source| Error::Listen { address, source };
            let listener = std::net::TcpListener::bind(address).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            Some(listener)
        }
        None => None,
    };
    let address = tcp.as_ref().and_then(|listener| listener.local_addr().ok());
    Ok((Listeners { path: path.to_owned(), unix, tcp }, address))
}

fn bind(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    let unix = std::os::unix::net::UnixListener::bind(path)?;
    unix.set_nonblocking(true)?;
    Ok(unix)
}

/// A listener in the place of one whose socket's file was removed.
fn put_back(path: &Path) -> Option<UnixListener> {
    if std::fs::symlink_metadata(path).is_ok() {
        return None;
    }
    match bind(path).and_then(UnixListener::from_std) {
        Ok(listener) => {
            tracing::warn!(socket = %path.display(), "the HTTP socket was removed: it is put back");
            Some(listener)
        }
        Err(error) => {
            tracing::error!(%error, socket = %path.display(), "the HTTP socket was removed and cannot be put back");
            None
        }
    }
}

impl Api {
    pub(crate) fn new(sources: Sources) -> Result<Api> {
        Ok(Api { sources, open: Mutex::new(Open::new()?), charts: Mutex::default() })
    }

    /// Answers until `stopped` changes, and does `beside` on the same thread.
    pub(crate) fn run(
        self,
        listeners: Listeners,
        beside: impl Future<Output = ()> + Send + 'static,
        stopped: watch::Receiver<bool>,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answered = runtime.and_then(|runtime| {
            let api = Arc::new(self);
            runtime.spawn(beside);
            runtime.spawn(api.clone().record());
            runtime.block_on(api.answer_all(listeners, stopped))
        });
        if let Err(error) = answered {
            // Programs could begin no update any more: half a helper is worse than none.
            panic!("programs cannot be answered over HTTP: {error}");
        }
    }

    /// Keeps what the charts show, for as long as the thread answers.
    async fn record(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(charts::EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = self.sources.metrics.snapshot(verbena_terms::BootClock.now());
            self.charts.lock().record(now);
        }
    }

    async fn answer_all(
        self: Arc<Self>,
        listeners: Listeners,
        mut stopped: watch::Receiver<bool>,
    ) -> std::io::Result<()> {
        let api = self;
        let mut unix = UnixListener::from_std(listeners.unix)?;
        let mut looks = tokio::time::interval(LOOK_EVERY);
        let tcp = listeners.tcp.map(TcpListener::from_std).transpose()?;
        let permits = Arc::new(Semaphore::new(HTTP_CONNECTIONS));
        loop {
            let permit = tokio::select! {
                permit = permits.clone().acquire_owned() => permit.map_err(std::io::Error::other)?,
                _ = stopped.changed() => return Ok(()),
            };
            let accepted = tokio::select! {
                accepted = unix.accept() => accepted.map(|(stream, _)| api.clone().serve(stream, permit)),
                _ = looks.tick() => {
                    unix = put_back(&listeners.path).unwrap_or(unix);
                    continue;
                }
                accepted = accept(tcp.as_ref()) => accepted.map(|stream| api.clone().serve(stream, permit)),
                _ = stopped.changed() => return Ok(()),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a program's connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        permit: OwnedSemaphorePermit,
    ) {
        let service = service_fn(move |request| {
            let api = self.clone();
            async move { Ok::<_, Infallible>(api.respond(request).await) }
        });
        tokio::spawn(async move {
            let mut server = http1::Builder::new();
            // With `half_close`: a program that sends no more may still read (RFC 9112 section 9.6).
            server.half_close(true).timer(TokioTimer::new()).header_read_timeout(HELPER_WAITS);
            if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "a program's connection ended");
            }
            drop(permit);
        });
    }

    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        if head.method == Method::POST && comes_from_elsewhere(&head.headers) {
            return error(StatusCode::FORBIDDEN, "a page of another place may not ask this");
        }
        match (&head.method, segments.as_slice()) {
            (&Method::GET, ["healthz"]) => self.health(),
            (&Method::GET, ["status"]) => self.status_json(),
            (&Method::GET, ["metrics"]) => self.exposition(),
            (&Method::GET, ["overview"]) => self.overview().await,
            (&Method::GET, ["charts"]) => answer(StatusCode::OK, &json!({"points": self.charts.lock().points()})),
            (&Method::GET, ["v1", "words", ..]) => {
                let target = path.strip_prefix("/v1/words").unwrap_or("/");
                self.words(target, head.uri.query().unwrap_or_default()).await
            }
            (&Method::POST, ["v1", "updates"]) => self.begin(body).await,
            (&Method::POST, ["v1", "updates", update, "end"]) => self.end(update, body).await,
            (&Method::POST, ["v1", "purge"]) => self.purge(body).await,
            (&Method::POST, ["v1", "explain"]) => explains::answer(self.sources.explains.get(), body).await,
            (_, ["healthz" | "status" | "metrics" | "overview" | "charts"] | ["v1", ..]) => {
                error(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
            }
            (method, _) => match self.sources.files.get().and_then(|files| File::at(files, &path)) {
                Some(file) if method == Method::GET => file.answer(),
                Some(_) => error(StatusCode::METHOD_NOT_ALLOWED, "not with this method"),
                None => error(StatusCode::NOT_FOUND, "nothing is here; docs/reference/API.md has the paths"),
            },
        }
    }

    fn health(&self) -> Answer {
        let status = self.sources.status.read(0);
        let healthy = status.lease_left_ms > 0;
        let code = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut shown = json!({"healthy": healthy, "lease_left_ms": status.lease_left_ms});
        let departed = self.sources.status.all_departed(&self.sources.content).1;
        let kept_out: Vec<_> = departed.into_iter().filter(|gone| gone.keeps_out.is_some()).collect();
        if let (Some(shown), false) = (shown.as_object_mut(), kept_out.is_empty()) {
            shown.insert("kept_out".into(), json!(kept_out));
        }
        answer(code, &shown)
    }

    fn status_json(&self) -> Answer {
        answer(StatusCode::OK, &self.status_and_pages())
    }

    async fn overview(&self) -> Answer {
        let members = self.sources.peers.look().await;
        let read = self.sources.metrics.snapshot(verbena_terms::BootClock.now());
        let shown = json!({
            "status": self.status_and_pages(),
            "members": members,
            "sampled_keys": SAMPLED_KEYS,
            "metrics": read.json(),
        });
        answer(StatusCode::OK, &shown)
    }

    fn status_and_pages(&self) -> Value {
        let mut shown = serde_json::to_value(self.sources.status.read(0)).unwrap_or(Value::Null);
        if let Some(shown) = shown.as_object_mut() {
            shown.insert("pages".into(), json!(pages::counted(&self.sources.content)));
            shown.insert("departed_list".into(), json!(self.sources.status.all_departed(&self.sources.content).1));
        }
        shown
    }

    fn exposition(&self) -> Answer {
        let text = self.sources.metrics.snapshot(verbena_terms::BootClock.now()).openmetrics();
        let mut answer = Response::new(Full::from(text));
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        answer.headers_mut().insert("content-type", HeaderValue::from_static(kind));
        answer
    }

    async fn begin(self: Arc<Self>, body: Incoming) -> Answer {
        let begun = match self.begin_everywhere(body, Scope::Everything).await {
            Ok(begun) => begun,
            Err(answer) => return answer,
        };
        let update = self.open.lock().insert(begun);
        let (api, begun) = (self.clone(), Begun { update: update.clone() });
        tokio::spawn(async move {
            let longest = api.sources.longest_transaction;
            tokio::time::sleep(longest).await;
            let left = api.open.lock().updates.remove(&update);
            if let Some(Begin { ticket, elsewhere }) = left {
                tracing::warn!(update, "an update was begun by a program and never ended");
                // Dropped, its outcome is unknown.
                drop(ticket);
                elsewhere.leave_open(longest);
            }
        });
        answer(StatusCode::CREATED, &begun)
    }

    async fn begin_everywhere(&self, body: Incoming, all: Scope) -> std::result::Result<Begin, Answer> {
        let unavailable = |problem: String| error(StatusCode::SERVICE_UNAVAILABLE, problem);
        let touched: Touched = read(body).await?;
        let is_purge = all == Scope::All;
        let change = match (is_purge, touched.soft) {
            (false, false) => Change::Write,
            (true, false) => Change::Hard,
            (true, true) => Change::Soft,
            (false, true) => return Err(bad_request("\"soft\" is for a purge: a write makes pages old in any case")),
        };
        let scope = touched::scope(&self.sources.content, &touched, all).map_err(bad_request)?;
        let elsewhere = Elsewhere::begin(self.sources.applications.as_ref(), &touched, is_purge).await;
        let elsewhere = elsewhere.map_err(|problem| unavailable(problem.to_string()))?;
        match self.sources.content.begin_as(change, scope).await {
            Ok(ticket) => Ok(Begin { ticket, elsewhere }),
            Err(refused) => {
                elsewhere.end(Outcome::NotSent).await;
                Err(unavailable(refused.to_string()))
            }
        }
    }

    async fn end(&self, update: &str, body: Incoming) -> Answer {
        let end: End = match read(body).await {
            Ok(end) => end,
            Err(answer) => return answer,
        };
        let left = self.open.lock().updates.remove(update);
        let Some(Begin { ticket, elsewhere }) = left else {
            return error(StatusCode::NOT_FOUND, "no such update is open: it was ended, or never ended for too long");
        };
        let acknowledge = match end.outcome {
            Outcome::Done => {
                let knows = ticket.answered().await == Finish::Answer;
                elsewhere.end(Outcome::Done).await && knows
            }
            Outcome::NotSent => {
                ticket.not_sent();
                elsewhere.end(Outcome::NotSent).await;
                true
            }
            Outcome::Unknown => {
                drop(ticket);
                elsewhere.leave_open(self.sources.longest_transaction);
                false
            }
        };
        answer(StatusCode::OK, &Ended { acknowledge })
    }

    async fn purge(&self, body: Incoming) -> Answer {
        match self.begin_everywhere(body, Scope::All).await {
            Ok(Begin { ticket, elsewhere }) => {
                ticket.not_sent();
                if !elsewhere.end(Outcome::NotSent).await {
                    return error(
                        StatusCode::SERVICE_UNAVAILABLE,
                        "an application of this user did not say that it has purged",
                    );
                }
                answer(StatusCode::OK, &Purged { purged: true })
            }
            Err(answer) => answer,
        }
    }

    async fn words(&self, target: &str, query: &str) -> Answer {
        let content = &self.sources.content;
        let host = query.split('&').find_map(|pair| pair.strip_prefix("host=")).unwrap_or_default();
        let target = if target.is_empty() { "/" } else { target };
        let Some(page) = page(content, |keys| keys.of_page(host, target)) else {
            return bad_request("?host= and the path must be those of a page");
        };
        let words = match content.read(page) {
            Some(reading) => reading.words().await,
            None => None,
        };
        match words {
            Some((view, words)) => {
                let word = |word: verbena_content::Word| Word { generation: word.generation(), busy: word.is_busy() };
                let shown = Words {
                    home: words.home.to_string(),
                    view: view.0,
                    page: word(words.word),
                    everything: word(words.everything),
                    clock: words.clock,
                };
                answer(StatusCode::OK, &shown)
            }
            None => {
                error(StatusCode::SERVICE_UNAVAILABLE, "the words cannot be read: no view, no home, or no way to it")
            }
        }
    }
}

impl Open {
    fn new() -> Result<Open> {
        let life = u64::from_le_bytes(random("take random bytes")?);
        Ok(Open { life: format!("{life:016x}"), next: 1, updates: HashMap::new() })
    }

    /// Keeps it, and gives the update's name.
    fn insert(&mut self, begun: Begin) -> String {
        let update = format!("{}-{}", self.life, self.next);
        self.next += 1;
        self.updates.insert(update.clone(), begun);
        update
    }
}

/// A browser sends the origin of the page that makes a `POST` (RFC 6454); programs send none. Our own page's origin is an address or `localhost`:
/// any other name may belong to another party whose DNS points here (DNS rebinding).
fn comes_from_elsewhere(headers: &HeaderMap) -> bool {
    let [origin, host] = [ORIGIN, HOST].map(|name| headers.get(name).map(HeaderValue::as_bytes));
    origin.is_some_and(|origin| origin.strip_prefix(b"http://") != host || !host.is_some_and(is_address))
}

fn is_address(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<tokio::net::TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}
