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
use crate::{Action, Conversation, Rejection};

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
    upstream: Upstream,
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
                    unreachable: unreachable.clone(),
                };
                let upstream = upstream.clone();
                connections.spawn(async move {
                    connection.open(client, upstream).await;
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
    unreachable: Arc<Mutex<Complaints>>,
}

/// The bracket of the held command.
enum Held {
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
    async fn open(self, client: Socket, upstream: Upstream) {
        let problem = match timeout(self.limits.connect, upstream.connect()).await {
            Ok(Ok(server)) => return self.run(client, server).await,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer in {} s", self.limits.connect.as_secs()),
        };
        if let Some(more) = self.unreachable.lock().unwrap_or_else(PoisonError::into_inner).another(BootClock.now()) {
            tracing::warn!(%upstream, problem, connections = more, "the database cannot be reached: clients are told so");
        }
        self.refuse(client, &format!("verbena: the database at {upstream} cannot be reached: {problem}")).await;
    }

    /// Tells the client that there is no server, when it has said as much as it must.
    async fn refuse(mut self, client: Socket, problem: &str) {
        self.machine.unreachable(problem);
        let linger = self.limits.linger;
        let told = async {
            let mut is_last = false;
            while client.flush(self.machine.to_client()).is_ok() {
                while let Some(action) = self.machine.next_action() {
                    is_last |= matches!(action, Action::Close(_));
                }
                match self.machine.to_client().is_empty() {
                    true if is_last => return,
                    true if client.readable().await.is_err() => return,
                    false if client.writable().await.is_err() => return,
                    false => continue,
                    true => {}
                }
                if !read(&client, |bytes| self.machine.client(bytes)) {
                    return;
                }
            }
        };
        // A client that says nothing is told nothing.
        let _ = timeout(linger, told).await;
    }

    async fn run(mut self, client: Socket, server: Socket) {
        let mut held = Held::None;
        // Set when the machine has said `Close`.
        let mut closes_at = None;
        let (mut client_writes, mut server_writes) = (true, true);
        loop {
            self.act(&mut held, &mut closes_at);
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
            // The server has room for what waited.
            if self.machine.to_server().is_empty() {
                self.machine.client(&[]);
            }
            if self.act(&mut held, &mut closes_at) || !self.machine.to_server().is_empty() && server_writes {
                let _ = server.flush(self.machine.to_server());
            }
            let is_flushed = self.machine.to_client().is_empty() && self.machine.to_server().is_empty();
            if let Some(at) = closes_at
                && (is_flushed || at <= Instant::now())
                && matches!(held, Held::None)
            {
                return;
            }
            let event = self.wait(&client, &server, &mut held, closes_at).await;
            self.take(event, &client, &server, &mut held);
        }
    }

    /// Carries out what the machine asks for; says whether it asked.
    fn act(&mut self, held: &mut Held, closes_at: &mut Option<Instant>) -> bool {
        let mut acted = false;
        while let Some(action) = self.machine.next_action() {
            acted = true;
            match action {
                Action::Begin(write) => *held = Held::Beginning(self.brackets.begin(write)),
                Action::End(outcome) => {
                    if let Held::Open(member) = *held {
                        *held = Held::Ending(self.brackets.end(member, outcome));
                    }
                }
                Action::Close(error) => {
                    if let Some(error) = error {
                        tracing::warn!(%error, "the relay closes a connection");
                    }
                    *closes_at = Some(Instant::now() + self.limits.linger);
                }
            }
        }
        acted
    }

    async fn wait(&mut self, client: &Socket, server: &Socket, held: &mut Held, closes_at: Option<Instant>) -> Event {
        let is_open = closes_at.is_none();
        let to_client = self.machine.to_client().len();
        let to_server = self.machine.to_server().len();
        let is_read = *self.reads.borrow_and_update();
        let reads_client = is_read && is_open && to_server == 0 && self.machine.reads_client();
        let reads_server = is_open && to_client < self.limits.buffer_bytes;
        let stop_at = *self.stopping.borrow();
        if stop_at.is_some() && is_open && self.machine.is_idle() {
            self.machine.server_closed();
            return Event::Again;
        }
        tokio::select! {
            _ = client.readable(), if reads_client => Event::Client,
            _ = server.readable(), if reads_server => Event::Server,
            _ = client.writable(), if to_client > 0 => Event::Again,
            _ = server.writable(), if to_server > 0 => Event::Again,
            event = held.next() => event,
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

    fn take(&mut self, event: Event, client: &Socket, server: &Socket, held: &mut Held) {
        match event {
            Event::Again => {}
            Event::Client => {
                if !read(client, |bytes| self.machine.client(bytes)) {
                    self.machine.client_closed();
                }
            }
            Event::Server => {
                if !read(server, |bytes| self.machine.server(bytes)) {
                    self.machine.server_closed();
                }
            }
            Event::Begun(result) => {
                *held = match held {
                    Held::Beginning(begin) if result.is_ok() => Held::Open(begin.member),
                    _ => Held::None,
                };
                self.machine.begun(result);
            }
            Event::Ended(is_confirmed) => {
                *held = Held::None;
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

/// Reads once and gives the bytes to `take`. False at the end.
fn read(socket: &Socket, take: impl FnOnce(&[u8])) -> bool {
    BUFFER.with_borrow_mut(|buffer| match socket.try_read(buffer) {
        Ok(0) => false,
        Ok(count) => {
            take(&buffer[..count]);
            true
        }
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    })
}
