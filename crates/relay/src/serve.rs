//! Connections of clients, each with one of the server's: the thin layer around [`Conversation`].

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use verbena_terms::{BootClock, Clock, Complaints};

use crate::bracket::{Begin, Bracket, Brackets};
use crate::socket::{Listener, Socket, Upstream};
use crate::tls::{Stream, Tls};
use crate::{Action, Conversation, End, Rejection};

/// How often it is said that the database cannot be reached.
const SAYS_EVERY: Duration = Duration::from_secs(60);

/// What a relay allows.
#[derive(Debug, Clone, Copy)]
pub struct ServeLimits {
    /// Connections at one time. Others wait in the listener's queue.
    pub connections: usize,
    /// How long the database has to accept a connection.
    pub connect: Duration,
    /// How long a connection that is closed has to take its last bytes.
    pub linger: Duration,
    /// How long connections have to become idle when the relay stops.
    pub grace: Duration,
    /// What is read of a side before the other side has taken what was read before.
    pub buffer_bytes: usize,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connect: Duration::from_secs(10),
            linger: Duration::from_secs(5),
            grace: Duration::from_secs(10),
            buffer_bytes: 64 << 10,
        }
    }
}

/// Relays connections until `stop` is ready, then lets them become idle and returns when the last one is closed.
///
/// `conversation` makes the machine of a new connection. Clients are read only while `reads` says so; its sender must stay for as long.
pub async fn serve<B, C>(
    (listeners, reads): (Vec<Listener>, watch::Receiver<bool>),
    (upstream, tls): (Upstream, Tls),
    limits: ServeLimits,
    bracket: B,
    conversation: impl Fn() -> C,
    stop: impl Future<Output = ()>,
) where
    B: Bracket,
    C: Conversation<Write = B::Write> + 'static,
{
    let brackets = Brackets::new(bracket);
    let permits = Arc::new(Semaphore::new(limits.connections));
    let unreachable = Arc::new(Mutex::new(Complaints::every(SAYS_EVERY)));
    let (stopper, stopping) = watch::channel(None);
    let (accepted, mut clients) = tokio::sync::mpsc::channel(1);
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept(listener, permits.clone(), accepted.clone()));
    }
    drop(accepted);
    let mut connections = JoinSet::new();
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some((client, permit)) = clients.recv() => {
                let connection = Connection {
                    brackets: brackets.clone(),
                    machine: conversation(),
                    limits,
                    stopping: stopping.clone(),
                    reads: reads.clone(),
                    upstream: upstream.clone(),
                    tls: tls.clone(),
                    unreachable: unreachable.clone(),
                };
                connections.spawn(async move {
                    connection.open(client).await;
                    drop(permit);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    accepting.shutdown().await;
    stopper.send_replace(Some(Instant::now() + limits.grace));
    while connections.join_next().await.is_some() {}
}

type Accepted = (Socket, tokio::sync::OwnedSemaphorePermit);

async fn accept(mut listener: Listener, permits: Arc<Semaphore>, accepted: tokio::sync::mpsc::Sender<Accepted>) {
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok(client) => {
                if accepted.send((client, permit)).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                // Too many open files, say: the queue of the kernel keeps the client.
                tracing::warn!(%error, "the relay cannot accept a connection");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

struct Connection<B: Bracket, C> {
    brackets: Arc<Brackets<B>>,
    machine: C,
    limits: ServeLimits,
    /// When connections are to be closed even if they are not idle.
    stopping: watch::Receiver<Option<Instant>>,
    /// Whether clients are read.
    reads: watch::Receiver<bool>,
    upstream: Upstream,
    tls: Tls,
    unreachable: Arc<Mutex<Complaints>>,
}

/// What the machine asked for, and has not got.
#[derive(Default)]
struct Pending {
    held: Held,
    /// TLS at an end that is still to be sent something in clear, and what has come of it.
    encrypts: Option<(End, Vec<u8>)>,
    /// Set when the machine has said `Close`.
    closes_at: Option<Instant>,
}

/// The bracket of the held command.
#[derive(Default)]
enum Held {
    #[default]
    None,
    Beginning(Begin),
    Open(u64),
    Ending(oneshot::Receiver<bool>),
}

enum Event {
    Client,
    Server,
    /// A socket may take more, or a time has come.
    Again,
    Begun(Result<(), Rejection>),
    Ended(bool),
}

impl<B: Bracket, C: Conversation<Write = B::Write>> Connection<B, C> {
    async fn open(self, client: Socket) {
        let client = Stream::new(client);
        let problem = match timeout(self.limits.connect, self.upstream.connect()).await {
            Ok(Ok(server)) => return self.run(client, Stream::new(server)).await,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer in {} s", self.limits.connect.as_secs()),
        };
        self.complain(&problem);
        let told = format!("verbena: the database at {} cannot be reached: {problem}", self.upstream);
        self.refuse(client, &told).await;
    }

    /// Tells the client that there is no server, when it has said as much as it must.
    async fn refuse(mut self, mut client: Stream, problem: &str) {
        self.machine.unreachable(problem);
        let linger = self.limits.linger;
        let told = async {
            let mut pending = Pending::default();
            loop {
                self.act(&mut pending);
                if client.flush(self.machine.to_client()).is_err() || !self.encrypt_client(&mut pending, &mut client) {
                    return;
                }
                match self.machine.to_client().is_empty() && !client.owes() {
                    true if pending.closes_at.is_some() => return client.close(),
                    true if client.readable().await.is_err() => return,
                    false if client.writable().await.is_err() => return,
                    false => continue,
                    true => {}
                }
                match self.read_client(&mut client) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return,
                }
            }
        };
        // A client that says nothing is told nothing.
        let _ = timeout(linger, told).await;
    }

    async fn run(mut self, mut client: Stream, mut server: Stream) {
        let mut pending = Pending::default();
        let (mut client_writes, mut server_writes) = (true, true);
        loop {
            self.act(&mut pending);
            if client_writes && client.flush(self.machine.to_client()).is_err() {
                client_writes = false;
                self.machine.client_closed();
            }
            if server_writes && server.flush(self.machine.to_server()).is_err() {
                // What the server said before it closed is still to be read.
                server_writes = false;
            }
            if !client_writes {
                self.machine.to_client().clear();
            }
            if !server_writes {
                self.machine.to_server().clear();
            }
            if !self.encrypt_client(&mut pending, &mut client) {
                self.machine.client_closed();
            }
            self.encrypt_server(&mut pending, &mut server);
            // The server has room for what waited.
            if self.machine.to_server().is_empty() {
                self.machine.client(&[]);
            }
            // It asks for something, perhaps for TLS behind what is to be sent first.
            if self.act(&mut pending) {
                continue;
            }
            if !self.machine.to_server().is_empty() && server_writes {
                let _ = server.flush(self.machine.to_server());
            }
            let is_flushed = self.machine.to_client().is_empty()
                && self.machine.to_server().is_empty()
                && !(client_writes && client.owes())
                && !(server_writes && server.owes());
            if let Some(at) = pending.closes_at
                && (is_flushed || at <= Instant::now())
                && matches!(pending.held, Held::None)
            {
                client.close();
                return server.close();
            }
            let event = self.wait(&client, &server, &mut pending).await;
            self.take(event, &mut client, &mut server, &mut pending);
        }
    }

    /// Begins TLS with the client once it has been sent all that goes in clear. False: there can be none.
    fn encrypt_client(&mut self, pending: &mut Pending, client: &mut Stream) -> bool {
        match pending.encrypts.take_if(|(end, _)| *end == End::Client && self.machine.to_client().is_empty()) {
            Some((end, begun)) => match client.encrypt(&self.tls, end, &begun) {
                Ok(()) => true,
                Err(error) => {
                    tracing::info!(%error, "a client of the relay began no TLS");
                    false
                }
            },
            None => true,
        }
    }

    /// The same with the server.
    fn encrypt_server(&mut self, pending: &mut Pending, server: &mut Stream) {
        let begins = pending.encrypts.take_if(|(end, _)| *end == End::Server && self.machine.to_server().is_empty());
        if let Some((end, begun)) = begins
            && let Err(error) = server.encrypt(&self.tls, end, &begun)
        {
            self.untrusted(error);
        }
    }

    /// TLS with the database failed: the log and the client are told.
    fn untrusted(&mut self, error: io::Error) {
        let error = verbena_listening::of_handshake(error);
        let is_disbelieved = error.to_string().contains("invalid peer certificate");
        let whom = if is_disbelieved { "; database.tls_ca names the authorities that are believed" } else { "" };
        let problem = format!("verbena: no TLS with the database at {}: {error}{whom}", self.upstream);
        self.complain(&problem);
        self.machine.unreachable(&problem);
    }

    fn complain(&self, problem: &str) {
        if let Some(more) = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).another(BootClock.now()) {
            tracing::warn!(upstream = %self.upstream, problem, connections = more, "the database cannot be reached: clients get an error");
        }
    }

    fn read_client(&mut self, client: &mut Stream) -> io::Result<bool> {
        let is_open = BUFFER.with_borrow_mut(|buffer| client.read(buffer, |bytes| self.machine.client(bytes)))?;
        if client.agrees() {
            self.machine.encrypted(End::Client);
            // What came with the end of the handshake.
            self.machine.client(&[]);
        }
        Ok(is_open)
    }

    fn read_server(&mut self, server: &mut Stream) -> io::Result<bool> {
        let is_open = BUFFER.with_borrow_mut(|buffer| server.read(buffer, |bytes| self.machine.server(bytes)))?;
        if server.agrees() {
            self.machine.encrypted(End::Server);
        }
        Ok(is_open)
    }

    /// Carries out what the machine asks for; says whether it asked.
    fn act(&mut self, pending: &mut Pending) -> bool {
        let mut acted = false;
        while let Some(action) = self.machine.next_action() {
            acted = true;
            match action {
                Action::Begin(write) => pending.held = Held::Beginning(self.brackets.begin(write)),
                Action::End(outcome) => {
                    if let Held::Open(member) = pending.held {
                        pending.held = Held::Ending(self.brackets.end(member, outcome));
                    }
                }
                Action::Encrypt { end, begun } => pending.encrypts = Some((end, begun)),
                Action::Close(error) => {
                    if let Some(error) = error {
                        tracing::warn!(%error, "the relay closes a connection");
                    }
                    pending.closes_at = Some(Instant::now() + self.limits.linger);
                }
            }
        }
        acted
    }

    async fn wait(&mut self, client: &Stream, server: &Stream, pending: &mut Pending) -> Event {
        let closes_at = pending.closes_at;
        let is_open = closes_at.is_none();
        let to_client = self.machine.to_client().len();
        let to_server = self.machine.to_server().len();
        let is_read = *self.reads.borrow_and_update();
        let encrypts = pending.encrypts.as_ref().map(|(end, _)| *end);
        let is_roomy = to_server == 0 && to_client < self.limits.buffer_bytes;
        let takes_client =
            is_read && is_open && is_roomy && encrypts != Some(End::Client) && self.machine.reads_client();
        // What it is told at the end goes when its handshake is over.
        let reads_client = takes_client || client.is_agreeing() && to_client > 0;
        let reads_server = is_open && to_client < self.limits.buffer_bytes && encrypts != Some(End::Server);
        // What a handshake keeps from being written goes when something was read.
        let writes_client = to_client > 0 && !client.is_agreeing() || client.owes();
        let writes_server = to_server > 0 && !server.is_agreeing() || server.owes();
        let stop_at = *self.stopping.borrow();
        if stop_at.is_some() && is_open && self.machine.is_idle() {
            self.machine.server_closed();
            return Event::Again;
        }
        tokio::select! {
            _ = client.readable(), if reads_client => Event::Client,
            _ = server.readable(), if reads_server => Event::Server,
            _ = client.writable(), if writes_client => Event::Again,
            _ = server.writable(), if writes_server => Event::Again,
            event = pending.held.next() => event,
            // An end of the sender says nothing more.
            Ok(()) = self.reads.changed(), if !is_read => Event::Again,
            _ = self.stopping.changed(), if stop_at.is_none() => Event::Again,
            () = sleep_until(stop_at.unwrap_or_else(Instant::now)), if is_open && stop_at.is_some() => {
                self.machine.server_closed();
                Event::Again
            }
            () = sleep_until(closes_at.unwrap_or_else(Instant::now)), if closes_at.is_some_and(|at| at > Instant::now()) => Event::Again,
        }
    }

    fn take(&mut self, event: Event, client: &mut Stream, server: &mut Stream, pending: &mut Pending) {
        match event {
            Event::Again => {}
            Event::Client => {
                let is_agreeing = client.is_agreeing();
                match self.read_client(client) {
                    Ok(true) => return,
                    Err(error) if is_agreeing => tracing::info!(%error, "a client of the relay began no TLS"),
                    Ok(false) | Err(_) => {}
                }
                self.machine.client_closed();
            }
            Event::Server => {
                let is_agreeing = server.is_agreeing();
                match self.read_server(server) {
                    Ok(true) => {}
                    Err(error) if is_agreeing => self.untrusted(error),
                    Ok(false) if is_agreeing => self.untrusted(io::ErrorKind::UnexpectedEof.into()),
                    Ok(false) | Err(_) => self.machine.server_closed(),
                }
            }
            Event::Begun(result) => {
                pending.held = match &pending.held {
                    Held::Beginning(begin) if result.is_ok() => Held::Open(begin.member),
                    _ => Held::None,
                };
                self.machine.begun(result);
            }
            Event::Ended(is_confirmed) => {
                pending.held = Held::None;
                self.machine.ended(is_confirmed);
            }
        }
    }
}

impl Held {
    /// What the bracket says next; never, where nothing is asked of it.
    async fn next(&mut self) -> Event {
        match self {
            // A bracket whose task is gone was not begun, and its end is not confirmed.
            Self::Beginning(begin) => Event::Begun((&mut begin.begun).await.unwrap_or(Err(Rejection::Retry))),
            Self::Ending(ended) => Event::Ended(ended.await.unwrap_or(false)),
            Self::None | Self::Open(_) => std::future::pending().await,
        }
    }
}

thread_local! {
    /// What is read of a socket goes through the machine at once, so connections need no buffer of their own.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 64 << 10]);
}
