//! Sockets of TCP and of the Unix domain as one.

use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;

/// How often it is looked whether a socket file is still there.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// Where the relay accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A socket file.
    Unix(UnixListener),
    /// A socket file that is put back when it is removed.
    Kept(KeptSocket),
}

/// A socket file that is put back when it is removed: what cleans directories of files that are old removes it while the relay runs.
#[derive(Debug)]
pub struct KeptSocket {
    path: PathBuf,
    mode: u32,
    listener: UnixListener,
}

/// Makes a socket file that users of this mode may connect to. One that is there is replaced.
///
/// # Errors
/// What the system says.
pub fn bind_socket(path: &Path, mode: u32) -> io::Result<net::UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = net::UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl KeptSocket {
    /// Keeps a socket that [`bind_socket`] made here.
    ///
    /// # Errors
    /// What the system says, or that there is no runtime.
    pub fn new(path: PathBuf, mode: u32, listener: net::UnixListener) -> io::Result<KeptSocket> {
        Ok(KeptSocket { path, mode, listener: UnixListener::from_std(listener)? })
    }

    async fn accept(&mut self) -> io::Result<UnixStream> {
        loop {
            // Where the file is gone nobody connects, so it is then that there is time to look.
            match timeout(LOOKS_EVERY, self.listener.accept()).await {
                Ok(accepted) => return Ok(accepted?.0),
                Err(_) => self.put_back()?,
            }
        }
    }

    /// One that somebody else put there stays.
    fn put_back(&mut self) -> io::Result<()> {
        match fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Ok(()),
        }
        self.listener = UnixListener::from_std(bind_socket(&self.path, self.mode)?)?;
        tracing::warn!(path = %self.path.display(), "the socket of the relay was removed: it is put back");
        Ok(())
    }
}

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// A host and port, `127.0.0.1:3306`.
    Tcp(String),
    /// A socket file.
    Unix(PathBuf),
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Upstream::Tcp(address) => f.write_str(address),
            Upstream::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A connection.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub(crate) async fn accept(&mut self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => tcp(listener.accept().await?.0),
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
            Self::Kept(kept) => Ok(Socket::Unix(kept.accept().await?)),
        }
    }
}

impl Upstream {
    pub(crate) async fn connect(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(address) => tcp(TcpStream::connect(address).await?),
            Self::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path).await?)),
        }
    }
}

fn tcp(stream: TcpStream) -> io::Result<Socket> {
    stream.set_nodelay(true)?;
    Ok(Socket::Tcp(stream))
}

impl Socket {
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Unix(stream) => stream.readable().await,
        }
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Writes what the socket takes, and removes it from the front of `bytes`.
    pub(crate) fn flush(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            if written == bytes.len() {
                break Ok(());
            }
            match self.try_write(&bytes[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        bytes.drain(..written);
        if bytes.is_empty() {
            bytes.shrink_to(4 << 10);
        }
        result
    }
}
