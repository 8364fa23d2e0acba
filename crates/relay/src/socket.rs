//! Sockets of TCP and of the Unix domain as one.

use std::io;
use std::path::PathBuf;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// Where the relay accepts connections.
#[derive(Debug)]
pub enum Listener {
    /// A TCP port.
    Tcp(TcpListener),
    /// A socket file.
    Unix(UnixListener),
}

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upstream {
    /// A host and port, `127.0.0.1:3306`.
    Tcp(String),
    /// A socket file.
    Unix(PathBuf),
}

/// A connection.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => tcp(listener.accept().await?.0),
            Self::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
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

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
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
