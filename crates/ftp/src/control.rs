//! The socket of a control connection, in clear and, behind `AUTH TLS`, encrypted.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::encryption::SessionTls;

/// Bytes that are dropped at once while the end of a connection is waited for.
const REST: usize = 4 << 10;

/// A control connection.
pub(crate) enum Control {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Control {
    /// What has come; 0 at the end.
    pub(crate) async fn receive(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Control::Clear(stream) => {
                // The kernel ends a read before an urgent byte. tokio would take the short read for the end of what is
                // there, and wait for an event that has been.
                let once = || Ok(rustix::net::recv(&*stream, &mut *buffer, rustix::net::RecvFlags::empty())?.0);
                stream.async_io(Interest::READABLE, once).await
            }
            Control::Tls(stream) => match stream.read(buffer).await {
                // Commands have ends of their own: no close_notify is needed here.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
                other => other,
            },
        }
    }

    /// Sends a reply, within `limit`.
    pub(crate) async fn send(&mut self, bytes: &[u8], limit: Duration) -> std::io::Result<()> {
        let sent = async {
            match self {
                Control::Clear(stream) => stream.write_all(bytes).await,
                Control::Tls(stream) => {
                    stream.write_all(bytes).await?;
                    stream.flush().await
                }
            }
        };
        tokio::time::timeout(limit, sent).await.map_err(|_| std::io::Error::from(ErrorKind::TimedOut))?
    }

    /// The handshake behind `AUTH TLS`, within `limit`.
    pub(crate) async fn encrypt(self, encryption: &SessionTls, limit: Duration) -> std::io::Result<Control> {
        let Control::Clear(stream) = self else { return Ok(self) };
        let stream = tokio::time::timeout(limit, encryption.control(stream));
        let stream = stream.await.map_err(|_| std::io::Error::from(ErrorKind::TimedOut))??;
        Ok(Control::Tls(Box::new(stream)))
    }

    /// Ends the connection so that the last reply arrives: unread bytes would make the kernel reset it.
    pub(crate) async fn close(mut self) -> std::io::Result<()> {
        let end = async {
            match &mut self {
                Control::Clear(stream) => stream.shutdown().await?,
                Control::Tls(stream) => stream.shutdown().await?,
            }
            let mut rest = [0; REST];
            while self.receive(&mut rest).await? > 0 {}
            Ok(())
        };
        tokio::time::timeout(Duration::from_secs(1), end).await.unwrap_or(Ok(()))
    }
}
