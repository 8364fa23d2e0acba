//! One transfer: its file, its data connection, its bytes, and its line in the log.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use verbena_transfer::{FileError, Root};

use crate::command::Representation;
use crate::data;
use crate::encryption::SessionTls;
use crate::ended::has_ended;
use crate::error::TransferError;
use crate::extended::Mode;
use crate::limits::Limits;
use crate::machine::{Outcome, Transfer, What};
use crate::moving::{self, Before, Connection, Context, Opened};
use crate::parallel::{self, Kept, Way};
use crate::rights::Rights;
use crate::serve::{Shared, is_anonymous};
use crate::session::{Running, blocking};
use crate::trees;
use crate::xferlog::Record;

/// A transfer that is about to begin.
pub(crate) struct OneTransfer {
    pub(crate) shared: Arc<Shared>,
    pub(crate) outcomes: mpsc::UnboundedSender<Outcome>,
    pub(crate) running: Arc<Running>,
    pub(crate) allowed: Vec<IpAddr>,
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) control: Arc<OwnedFd>,
    pub(crate) encryption: Option<Arc<SessionTls>>,
    pub(crate) user: Vec<u8>,
    pub(crate) limits: Option<Arc<Limits>>,
    /// Bytes of the user's quota that the transfer has taken.
    pub(crate) taken: AtomicU64,
    pub(crate) session: Option<trees::Asked>,
    pub(crate) kept: Kept,
}

impl OneTransfer {
    pub(crate) async fn run(
        self,
        root: Arc<Root>,
        rights: Rights,
        transfer: Transfer,
        listener: Option<TcpListener>,
    ) -> Result<(), TransferError> {
        if let What::SendTree { path } | What::ReceiveTree { path } = &transfer.what {
            let (path, is_upload) = (path.clone(), matches!(transfer.what, What::ReceiveTree { .. }));
            let (observed, running) = (self.shared.observed.clone(), self.running.clone());
            let result = trees::run(self, root, path, is_upload).await;
            observed.ended(is_upload, result.is_ok(), running.moved.load(Ordering::Relaxed));
            return result;
        }
        let begun = Instant::now();
        let what = transfer.what.clone();
        let (home, limits) = (root.clone(), self.limits.clone().filter(|limits| limits.has_quota()));
        let with_quota = limits.clone();
        let opened = blocking(move || {
            let mut before = with_quota.as_ref().and_then(|_| Before::look(&root, &what));
            let opened = moving::open(&root, &what)?;
            if let (Some(before), Some(limits)) = (&mut before, &with_quota) {
                before.opened(limits, &opened);
            }
            Ok::<_, FileError>((opened, before))
        });
        let (opened, before) = opened.await.ok_or(TransferError::Broken)??;
        let _ = self.outcomes.send(opened.outcome());
        let Transfer { what, representation, mode, connect, is_private } = transfer;
        let one = Arc::new(self);
        let result = match mode {
            Mode::Stream => {
                let privacy = is_private.then_some(matches!(what, What::Store { .. }));
                match one.connect(connect, listener, privacy).await {
                    Ok(connection) => {
                        let mover = one.clone();
                        let moved = blocking(move || mover.move_all(opened, connection, representation, rights));
                        moved.await.ok_or(TransferError::Broken)?
                    }
                    Err(error) => Err(error),
                }
            }
            Mode::Extended { connections, is_reused, parts } => {
                let way = Way { connections, is_reused, parts, connect, listener, is_private };
                parallel::run(&one, opened, way).await
            }
        };
        if let (Some(before), Some(limits)) = (before, limits) {
            let taken = one.taken.load(Ordering::Relaxed);
            blocking(move || before.ended(&home, &limits, taken)).await;
        }
        one.log(&what, representation == Representation::Ascii, begun.elapsed(), result.is_ok());
        result
    }

    /// Makes the data connection. `privacy` says that it is encrypted, and then whether the client uploads by it.
    pub(crate) async fn connect(
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

    /// Makes a data connection of a socket that was taken. `privacy` is that of `connect`.
    pub(crate) async fn furnish(
        &self,
        stream: TcpStream,
        privacy: Option<bool>,
    ) -> Result<Box<dyn Connection>, TransferError> {
        let Some(is_upload) = privacy else { return Ok(Box::new(self.prepare(stream)?)) };
        let encryption = self.encryption.as_ref().ok_or(TransferError::NoConnection)?;
        let private = encryption.data(stream, is_upload).await.ok_or(TransferError::NoConnection)?;
        let (stream, wrap) = private.into_parts();
        Ok(Box::new(wrap(self.prepare(stream)?)))
    }

    /// What movers of bytes as they are have to know.
    pub(crate) fn context<'a>(&'a self, is_client_there: &'a dyn Fn() -> bool) -> Context<'a> {
        Context {
            representation: Representation::Image,
            rights: Rights::default(),
            moved: &self.running.moved,
            is_client_there,
            limits: self.limits.as_deref(),
            taken: &self.taken,
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
        let context = Context { representation, rights, ..self.context(&is_client_there) };
        let result = moving::transfer(opened, &mut *connection, &context);
        // A shut down connection looks to a reader like one that has ended.
        let is_aborted = self.running.is_aborted();
        self.running.forget();
        if is_aborted { Err(TransferError::Broken) } else { result }
    }

    /// Whether the control connection stands, and the transfer has not been aborted.
    pub(crate) fn is_client_there(&self) -> bool {
        !has_ended(&self.control) && !self.running.is_aborted()
    }

    fn log(&self, what: &What, is_ascii: bool, lasted: Duration, is_complete: bool) {
        let (path, is_upload) = match what {
            What::Retrieve { path, .. } => (path, false),
            What::Store { path, .. } => (path, true),
            What::List { .. } | What::SendTree { .. } | What::ReceiveTree { .. } => return,
        };
        self.shared.observed.ended(is_upload, is_complete, self.running.moved.load(Ordering::Relaxed));
        let Some(log) = &self.shared.log else { return };
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
