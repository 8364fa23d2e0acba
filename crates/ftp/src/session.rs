//! Runs the machine of one control connection on its socket.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use verbena_terms::{BootClock, Clock};

use crate::address::canonical;
use crate::control::Control;
use crate::encryption::{SessionName, SessionTls};
use verbena_transfer::FileError;

use crate::error::TransferError;
use crate::file_work::FileWork;
use crate::limits::{Limits, Seat};
use crate::machine::{Action, LoginError, Machine, Outcome, Transfer, What};
use crate::parallel::Kept;
use crate::rights::{Login, Rights};
use crate::serve::{Shared, is_anonymous};
use crate::settings::{Settings, Tls};
use crate::transfer::OneTransfer;
use crate::trees;
use crate::who::Listed;
use crate::work;
use verbena_transfer::{ChannelKind, Root};

/// Bytes that are read from a client at once.
const READ: usize = 4 << 10;
/// How long an upload may wait for its data connection once its client has said its last.
const LOST: Duration = Duration::from_secs(2);

/// A transfer that is running: how it is followed and broken off.
#[derive(Default)]
pub(crate) struct Running {
    is_upload: bool,
    /// Whether its client is known to have gone.
    is_lost: AtomicBool,
    pub(crate) moved: AtomicU64,
    is_aborted: AtomicBool,
    pub(crate) wake: tokio::sync::Notify,
    /// Second descriptors of the data connections.
    connections: Mutex<Vec<std::net::TcpStream>>,
    /// What closes the streams of a session.
    streams: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("moved", &self.moved)
            .field("is_aborted", &self.is_aborted)
            .finish_non_exhaustive()
    }
}

impl Running {
    /// The client has gone, or has said all that it has to say. An upload that still waits for its data connection a little later ends, so that another client may
    /// write the file.
    async fn lose_client(self: Arc<Self>) {
        tokio::time::sleep(LOST).await;
        let is_without = self.connections.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && self.streams.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if self.is_upload && is_without {
            self.abort();
        }
    }

    pub(crate) fn abort(&self) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_aborted.store(true, Ordering::SeqCst);
        shut(&connections);
        streams.iter().for_each(|close| close());
        self.wake.notify_one();
    }

    /// Ends the data connections.
    pub(crate) fn shut(&self) {
        shut(&self.connections.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }

    /// Closes the second descriptors.
    pub(crate) fn forget(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps what closes a stream, for `abort`; closes it if that has been called.
    pub(crate) fn keep_stream(&self, close: Arc<dyn Fn() + Send + Sync>) {
        let mut kept = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_aborted.load(Ordering::SeqCst) {
            close();
        }
        kept.push(close);
    }

    /// Keeps a second descriptor of the connection for `abort`. False if it has been called.
    pub(crate) fn keep(&self, connection: std::net::TcpStream) -> bool {
        let mut kept = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(connection);
        !self.is_aborted.load(Ordering::SeqCst)
    }
}

fn shut(connections: &[std::net::TcpStream]) {
    for connection in connections {
        let _ = connection.shutdown(std::net::Shutdown::Both);
    }
}

/// What a login has opened.
struct Account {
    root: Arc<Root>,
    login: Login,
    /// Of a user whose use is limited.
    seat: Option<Seat>,
}

/// What a session holds beside its machine.
struct Session {
    shared: Arc<Shared>,
    peer: IpAddr,
    local: IpAddr,
    /// The control connection once more, to look whether the client is there.
    control: Arc<OwnedFd>,
    encryption: Option<Arc<SessionTls>>,
    outcomes: mpsc::UnboundedSender<Outcome>,
    listener: Option<TcpListener>,
    /// Data connections of MODE E between two transfers.
    kept: Kept,
    /// The session that the client asked for, where one is.
    session: Option<trees::Asked>,
    running: Option<Arc<Running>>,
    user: Vec<u8>,
    listed: Listed,
    account: Arc<Mutex<Option<Account>>>,
    /// Ends hashing when the client has gone.
    is_cancelled: Arc<AtomicBool>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(running) = &self.running {
            running.abort();
        }
    }
}

/// Serves one client until it has gone.
pub(crate) async fn run(
    stream: TcpStream,
    peer: IpAddr,
    shared: &Arc<Shared>,
    mut draining: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let options = &shared.options;
    let local = canonical(stream.local_addr()?.ip());
    stream.set_nodelay(true)?;
    // The urgent byte of a Telnet synch then stands in the stream, where `Lines` drops it.
    socket2::SockRef::from(&stream).set_out_of_band_inline(true)?;
    let settings = Settings {
        peer,
        local,
        login_timeout: options.login_timeout,
        idle_timeout: options.idle_timeout,
        hosts: options.hosts.clone(),
        tls: match &shared.encryption {
            None => Tls::Off,
            Some(encryption) if encryption.is_required => Tls::Required,
            Some(_) => Tls::Allowed,
        },
    };
    let mut machine = Machine::new(settings, BootClock.now());
    let (outcomes, mut arrived) = mpsc::unbounded_channel();
    let mut session = Session {
        shared: shared.clone(),
        peer,
        local,
        control: Arc::new(stream.as_fd().try_clone_to_owned()?),
        encryption: None,
        outcomes,
        listener: None,
        kept: Kept::default(),
        session: None,
        running: None,
        user: Vec::new(),
        listed: shared.sessions.enter(peer),
        account: Arc::default(),
        is_cancelled: Arc::default(),
    };
    let mut control = Control::Clear(stream);
    let mut buffer = vec![0; READ];
    let visible = session.listed.0.clone();
    let (mut has_ended, mut is_told, mut is_kicked) = (false, false, false);
    loop {
        for action in machine.actions() {
            match action {
                Action::Send(bytes) => control.send(&bytes, options.stall_timeout).await?,
                Action::StartTls => {
                    // Without a certificate the machine asks for no TLS.
                    if let Some(encryption) = &shared.encryption {
                        let mut name = SessionName::default();
                        getrandom::fill(&mut name).map_err(|_| std::io::Error::other("no random numbers"))?;
                        let encryption = Arc::new(encryption.session(name));
                        control = control.encrypt(&encryption, options.login_timeout).await?;
                        session.encryption = Some(encryption);
                        visible.encrypted();
                        machine.secured(BootClock.now());
                    }
                }
                Action::Close => return control.close().await,
                other => session.act(other),
            }
        }
        if has_ended {
            match &session.running {
                None if !machine.is_waiting() => return Ok(()),
                Some(running) if !running.is_lost.swap(true, Ordering::Relaxed) => {
                    tokio::spawn(running.clone().lose_client());
                }
                _ => {}
            }
        }
        let deadline = machine.next_deadline().map(|deadline| deadline.since(BootClock.now()));
        tokio::select! {
            Some(outcome) = arrived.recv() => {
                if matches!(outcome, Outcome::Ended(_)) {
                    session.running = None;
                    visible.doing(None);
                }
                machine.outcome(outcome, BootClock.now());
            }
            read = control.receive(&mut buffer), if !has_ended && machine.wants_input() => match read? {
                0 => has_ended = true,
                read => machine.input(&buffer[..read], BootClock.now()),
            },
            _ = draining.wait_for(|is_draining| *is_draining), if !is_told => {
                is_told = true;
                machine.drain();
            }
            () = visible.kicked.notified(), if !is_kicked => {
                is_kicked = true;
                machine.kick();
            }
            () = sleep(deadline) => machine.tick(BootClock.now()),
        }
    }
}

async fn sleep(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

impl Session {
    fn act(&mut self, action: Action) {
        match action {
            Action::Login { user, password } => self.log_in(user, password),
            Action::File(file_work) => self.work(file_work),
            Action::Listen => self.listen(),
            Action::ListenSession { channels, first, most, from } => {
                self.listen_session(&channels, first, most, from);
            }
            Action::ConnectSession { endpoints, first, most } => {
                let place = trees::Streams::Connect(endpoints);
                self.session = Some(trees::Asked { place, first, most });
            }
            Action::Transfer(transfer) => self.transfer(transfer),
            Action::Progress => {
                let moved = self.running.as_ref().map_or(0, |running| running.moved.load(Ordering::Relaxed));
                self.send(Outcome::Progress(moved));
            }
            Action::Abort => {
                if let Some(running) = &self.running {
                    running.abort();
                }
            }
            Action::CloseListener => {
                self.listener = None;
                self.session = None;
                self.close_kept();
            }
            // The caller's.
            Action::StartTls | Action::Send(_) | Action::Close => {}
        }
    }

    fn send(&self, outcome: Outcome) {
        // The receiver goes only with the session.
        let _ = self.outcomes.send(outcome);
    }

    fn log_in(&mut self, user: Vec<u8>, password: Vec<u8>) {
        let (shared, outcomes, place, peer) =
            (self.shared.clone(), self.outcomes.clone(), self.account.clone(), self.peer);
        self.user.clone_from(&user);
        let visible = self.listed.0.clone();
        tokio::spawn(async move {
            let needs_no_hash = is_anonymous(&user) && shared.options.anonymous.is_some();
            // The semaphore is never closed.
            let _permit = if needs_no_hash { None } else { shared.hashes.acquire().await.ok() };
            let name = String::from_utf8_lossy(&user).into_owned();
            let all = shared.clone();
            let is_banned = shared.bans().is_banned(peer, BootClock.now());
            let checked = blocking(move || {
                // Connections that an address had before it was banned try nothing more.
                if is_banned {
                    return Err(LoginError::Wrong);
                }
                let (home, login) = all.check(&user, &password).ok_or(LoginError::Wrong)?;
                let root = all.root.enter(&home).and_then(|()| all.root.below(&home));
                let root = root.map_err(|error| {
                    let home = String::from_utf8_lossy(&home.display()).into_owned();
                    tracing::warn!(%error, home, "a user's home cannot be entered: make the directory, or allow it");
                    LoginError::Home
                })?;
                let root = Arc::new(root);
                let seat = match login.is_limited() {
                    true => Some(all.limits.enter(&user, &login, &root).ok_or(LoginError::TooMany)?),
                    false => None,
                };
                Ok(Account { root, login, seat })
            });
            let found = checked.await.unwrap_or(Err(LoginError::Wrong));
            shared.logged_in(peer, found.as_ref().err().copied(), needs_no_hash);
            visible.logged_in(found.is_ok().then(|| name.clone()));
            tracing::info!(%peer, user = name, is_right = found.is_ok(), "login");
            let login = found.as_ref().map(|account| account.login.clone()).map_err(|error| *error);
            *place.lock().unwrap_or_else(PoisonError::into_inner) = found.ok();
            let _ = outcomes.send(Outcome::Login(login));
        });
    }

    fn root(&self) -> Option<(Arc<Root>, Rights)> {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.as_ref().map(|account| (account.root.clone(), account.login.rights))
    }

    fn allowed(&self) -> Vec<IpAddr> {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        let fxp = account.iter().flat_map(|account| account.login.fxp.iter().copied());
        std::iter::once(self.peer).chain(fxp).collect()
    }

    fn limits(&self) -> Option<Arc<Limits>> {
        let account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.as_ref()?.seat.as_ref().map(|seat| seat.0.clone())
    }

    fn work(&self, file_work: FileWork) {
        let (outcomes, is_cancelled, root) = (self.outcomes.clone(), self.is_cancelled.clone(), self.root());
        let limits = self.limits().filter(|limits| limits.has_quota());
        tokio::spawn(async move {
            let answer = match root {
                Some((root, _)) => {
                    blocking(move || {
                        let gone = limits.as_ref().map_or(0, |_| work::bytes_that_go(&root, &file_work));
                        let answer = work::work(&root, file_work, &is_cancelled);
                        if let (Some(limits), Ok(_)) = (&limits, &answer) {
                            limits.changed(gone, 0);
                        }
                        answer
                    })
                    .await
                }
                None => None,
            };
            let _ = outcomes.send(Outcome::File(answer.unwrap_or(Err(FileError::Denied))));
        });
    }

    fn close_kept(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn listen(&mut self) {
        self.listener = None;
        self.close_kept();
        self.listener = self.shared.ports.listen(self.local, Instant::now());
        let address =
            self.listener.as_ref().and_then(|listener| listener.local_addr().ok()).map(|address| {
                match self.shared.options.outer_address {
                    Some(outer) if address.is_ipv4() => SocketAddr::from((outer, address.port())),
                    _ => address,
                }
            });
        self.send(Outcome::Listening(address));
    }

    fn listen_session(&mut self, channels: &[Vec<ChannelKind>], first: u16, most: u16, from: Option<IpAddr>) {
        let listen = || self.shared.ports.listen(self.local, Instant::now());
        let asked = trees::ask(channels, self.local, self.shared.options.passive_ports.as_ref(), listen);
        self.session = asked.map(|listeners| {
            let place = trees::Streams::Listen { listeners, from };
            trees::Asked { place, first, most }
        });
        self.send(Outcome::Session(self.session.as_ref().map(trees::Asked::endpoints).unwrap_or_default()));
    }

    fn transfer(&mut self, transfer: Transfer) {
        let is_upload = matches!(transfer.what, What::Store { .. } | What::ReceiveTree { .. });
        let running = Arc::new(Running { is_upload, ..Running::default() });
        self.running = Some(running.clone());
        self.listed.0.doing(Some((work::words(&transfer.what), running.clone())));
        let listener = if transfer.connect.is_none() { self.listener.take() } else { None };
        let one = OneTransfer {
            shared: self.shared.clone(),
            outcomes: self.outcomes.clone(),
            running,
            allowed: self.allowed(),
            local: self.local,
            peer: self.peer,
            control: self.control.clone(),
            encryption: self.encryption.clone(),
            user: self.user.clone(),
            limits: self.limits(),
            taken: AtomicU64::new(0),
            session: self.session.take(),
            kept: self.kept.clone(),
        };
        let root = self.root();
        let outcomes = self.outcomes.clone();
        tokio::spawn(async move {
            let result = match root {
                Some((root, rights)) => one.run(root, rights, transfer, listener).await,
                None => Err(TransferError::File(FileError::Denied)),
            };
            let _ = outcomes.send(Outcome::Ended(result));
        });
    }
}

/// Runs `job` on a thread that may wait. `None` if it panicked, which the runtime has reported.
pub(crate) fn blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> impl Future<Output = Option<T>> {
    let task = tokio::task::spawn_blocking(job);
    async { task.await.ok() }
}
