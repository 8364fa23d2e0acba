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
use crate::command::Representation;
use crate::control::Control;
use crate::data;
use crate::encryption::{SessionName, SessionTls};
use verbena_transfer::FileError;

use crate::error::TransferError;
use crate::machine::{Action, FileWork, LoginError, Machine, Outcome, Settings, Tls, Transfer, What};
use crate::moving::{self, Connection, Context, Opened};
use crate::rights::{Login, Rights};
use crate::serve::{Shared, is_anonymous};
use crate::trees;
use crate::work;
use crate::xferlog::Record;
use verbena_transfer::{ChannelKind, Root};

/// Bytes that are read from a client at once.
const READ: usize = 4 << 10;

/// A transfer that is running: how it is followed and broken off.
#[derive(Debug, Default)]
pub(crate) struct Running {
    pub(crate) moved: AtomicU64,
    is_aborted: AtomicBool,
    pub(crate) wake: tokio::sync::Notify,
    /// Second descriptors of the data connections.
    connections: Mutex<Vec<std::net::TcpStream>>,
}

impl Running {
    pub(crate) fn abort(&self) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_aborted.store(true, Ordering::SeqCst);
        for connection in &*connections {
            let _ = connection.shutdown(std::net::Shutdown::Both);
        }
        self.wake.notify_one();
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::SeqCst)
    }

    /// Closes the second descriptors.
    pub(crate) fn forget(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Keeps a second descriptor of the connection for `abort`. False if it has been called.
    pub(crate) fn keep(&self, connection: std::net::TcpStream) -> bool {
        let mut kept = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(connection);
        !self.is_aborted.load(Ordering::SeqCst)
    }
}

/// What a login has opened.
struct Account {
    root: Arc<Root>,
    login: Login,
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
    /// The session that the client asked for, where one is.
    session: Option<trees::Asked>,
    running: Option<Arc<Running>>,
    user: Vec<u8>,
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
        session: None,
        running: None,
        user: Vec::new(),
        account: Arc::default(),
        is_cancelled: Arc::default(),
    };
    let mut control = Control::Clear(stream);
    let mut buffer = vec![0; READ];
    let (mut has_ended, mut is_told) = (false, false);
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
                        machine.secured(BootClock.now());
                    }
                }
                Action::Close => return control.close().await,
                other => session.act(other),
            }
        }
        if has_ended && session.running.is_none() && !machine.is_waiting() {
            return Ok(());
        }
        let deadline = machine.next_deadline().map(|deadline| deadline.since(BootClock.now()));
        tokio::select! {
            Some(outcome) = arrived.recv() => {
                if matches!(outcome, Outcome::Ended(_)) {
                    session.running = None;
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
            Action::ListenSession { channels, first, most } => self.listen_session(&channels, first, most),
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
        tokio::spawn(async move {
            let needs_no_hash = is_anonymous(&user) && shared.options.anonymous.is_some();
            // The semaphore is never closed.
            let _permit = if needs_no_hash { None } else { shared.hashes.acquire().await.ok() };
            let name = String::from_utf8_lossy(&user).into_owned();
            let all = shared.clone();
            let checked = blocking(move || {
                let (home, login) = all.check(&user, &password).ok_or(LoginError::Wrong)?;
                let root = all.root.enter(&home).and_then(|()| all.root.below(&home));
                let root = root.map_err(|error| {
                    let home = String::from_utf8_lossy(&home.display()).into_owned();
                    tracing::warn!(%error, home, "a user's home cannot be entered: make the directory, or allow it");
                    LoginError::Home
                })?;
                Ok(Account { root: Arc::new(root), login })
            });
            let found = checked.await.unwrap_or(Err(LoginError::Wrong));
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

    fn work(&self, file_work: FileWork) {
        let (outcomes, is_cancelled, root) = (self.outcomes.clone(), self.is_cancelled.clone(), self.root());
        tokio::spawn(async move {
            let answer = match root {
                Some((root, _)) => blocking(move || work::work(&root, file_work, &is_cancelled)).await,
                None => None,
            };
            let _ = outcomes.send(Outcome::File(answer.unwrap_or(Err(FileError::Denied))));
        });
    }

    fn listen(&mut self) {
        self.listener = None;
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

    fn listen_session(&mut self, channels: &[ChannelKind], first: u16, most: u16) {
        let listen = || self.shared.ports.listen(self.local, Instant::now());
        let asked = trees::ask(channels, self.local, self.shared.options.passive_ports.as_ref(), listen);
        self.session = asked.map(|(listener, endpoint)| trees::Asked { listener, endpoint, first, most });
        self.send(Outcome::Session(self.session.as_ref().map(|session| session.endpoint)));
    }

    fn transfer(&mut self, transfer: Transfer) {
        let running = Arc::new(Running::default());
        self.running = Some(running.clone());
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
            session: self.session.take(),
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

pub(crate) struct OneTransfer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outcomes: mpsc::UnboundedSender<Outcome>,
    pub(crate) running: Arc<Running>,
    pub(crate) allowed: Vec<IpAddr>,
    local: IpAddr,
    peer: IpAddr,
    control: Arc<OwnedFd>,
    encryption: Option<Arc<SessionTls>>,
    user: Vec<u8>,
    pub(crate) session: Option<trees::Asked>,
}

impl OneTransfer {
    async fn run(
        self,
        root: Arc<Root>,
        rights: Rights,
        transfer: Transfer,
        listener: Option<TcpListener>,
    ) -> Result<(), TransferError> {
        if let What::SendTree { path } | What::ReceiveTree { path } = &transfer.what {
            let (path, is_upload) = (path.clone(), matches!(transfer.what, What::ReceiveTree { .. }));
            return trees::run(self, root, path, is_upload).await;
        }
        let begun = Instant::now();
        let what = transfer.what.clone();
        let opened = blocking(move || moving::open(&root, &what)).await.ok_or(TransferError::Broken)??;
        let _ = self.outcomes.send(opened.outcome());
        let privacy = transfer.is_private.then_some(matches!(transfer.what, What::Store { .. }));
        let connection = self.connect(transfer.connect, listener, privacy).await;
        let is_ascii = transfer.representation == Representation::Ascii;
        let what = transfer.what;
        let (result, one) = match connection {
            Ok(connection) => {
                let moved = blocking(move || {
                    let result = self.move_all(opened, connection, transfer.representation, rights);
                    (result, self)
                });
                moved.await.ok_or(TransferError::Broken)?
            }
            Err(error) => (Err(error), self),
        };
        one.log(&what, is_ascii, begun.elapsed(), result.is_ok());
        result
    }

    /// Makes the data connection. `privacy` says that it is encrypted, and then whether the client uploads by it.
    async fn connect(
        &self,
        to: Option<SocketAddr>,
        listener: Option<TcpListener>,
        privacy: Option<bool>,
    ) -> Result<Box<dyn Connection>, TransferError> {
        let connected = async {
            // The machine lets PROT P be said behind AUTH TLS alone.
            if privacy.is_some() && self.encryption.is_none() {
                return Err(TransferError::NoConnection);
            }
            match (privacy.zip(self.encryption.as_ref()), to, listener) {
                (None, Some(to), _) => data::connect(self.local, to).await.map(data::Made::Clear),
                (None, None, Some(listener)) => data::accept(&listener, &self.allowed).await.map(data::Made::Clear),
                (Some((is_upload, encryption)), Some(to), _) => {
                    let stream = data::connect(self.local, to).await?;
                    let private = encryption.data(stream, is_upload).await;
                    private.map(data::Made::Private).ok_or(TransferError::NoConnection)
                }
                (Some((is_upload, encryption)), None, Some(listener)) => {
                    let prove = |stream| {
                        let encryption = encryption.clone();
                        async move { encryption.data(stream, is_upload).await }
                    };
                    Ok(data::Made::Private(data::accept_proven(&listener, &self.allowed, prove).await))
                }
                (_, None, None) => Err(TransferError::NoConnection),
            }
        };
        let made = tokio::select! {
            connected = connected => connected?,
            () = tokio::time::sleep(self.shared.options.connect_timeout) => return Err(TransferError::NoConnection),
            () = self.running.wake.notified() => return Err(TransferError::Broken),
        };
        match made {
            data::Made::Clear(stream) => Ok(Box::new(self.prepare(stream)?)),
            data::Made::Private(private) => {
                let (stream, wrap) = private.into_parts();
                Ok(Box::new(wrap(self.prepare(stream)?)))
            }
        }
    }

    /// Makes a socket one of a thread that may wait, and that `abort` ends.
    fn prepare(&self, stream: TcpStream) -> Result<std::net::TcpStream, TransferError> {
        let broken = |_| TransferError::Broken;
        let stream = stream.into_std().map_err(broken)?;
        let stall = Some(self.shared.options.stall_timeout);
        let prepared = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(stall))
            .and_then(|()| stream.set_write_timeout(stall))
            .and_then(|()| stream.try_clone());
        match self.running.keep(prepared.map_err(broken)?) {
            true => Ok(stream),
            false => Err(TransferError::Broken),
        }
    }

    fn move_all(
        &self,
        opened: Opened,
        mut connection: Box<dyn Connection>,
        representation: Representation,
        rights: Rights,
    ) -> Result<(), TransferError> {
        let is_client_there = || self.is_client_there();
        let context = Context { representation, rights, moved: &self.running.moved, is_client_there: &is_client_there };
        let result = moving::transfer(opened, &mut *connection, &context);
        // A shut down connection looks to a reader like one that has ended.
        let is_aborted = self.running.is_aborted.load(Ordering::SeqCst);
        self.running.forget();
        if is_aborted { Err(TransferError::Broken) } else { result }
    }

    /// Whether the control connection stands, and the transfer has not been aborted.
    fn is_client_there(&self) -> bool {
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        let mut byte = [0u8; 1];
        let is_open = match rustix::net::recv(&self.control, &mut byte[..], flags) {
            Ok((read, _)) => read > 0,
            Err(error) => error == rustix::io::Errno::AGAIN,
        };
        is_open && !self.running.is_aborted.load(Ordering::SeqCst)
    }

    fn log(&self, what: &What, is_ascii: bool, lasted: Duration, is_complete: bool) {
        let Some(log) = &self.shared.log else { return };
        let (path, is_upload) = match what {
            What::Retrieve { path, .. } => (path, false),
            What::Store { path, .. } => (path, true),
            What::List { .. } | What::SendTree { .. } | What::ReceiveTree { .. } => return,
        };
        log.write(&Record {
            lasted,
            peer: self.peer,
            bytes: self.running.moved.load(Ordering::Relaxed),
            path: &path.display(),
            is_ascii,
            is_upload,
            user: &self.user,
            is_anonymous: is_anonymous(&self.user),
            is_complete,
        });
    }
}
