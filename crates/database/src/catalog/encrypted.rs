//! TLS for the client of PostgreSQL.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{self, ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use verbena_listening::of_handshake;

use crate::trust::Trust;

/// Connections whose other end is believed by this.
#[derive(Clone)]
pub(super) struct Encrypted(pub(super) Arc<Trust>);

/// One of them. A login is not bound to it: that is proof against one who has a certificate for the name of the database.
pub(super) struct Stream(TlsStream<Socket>);

impl MakeTlsConnect<Socket> for Encrypted {
    type Stream = Stream;
    type TlsConnect = Encrypted;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _: &str) -> io::Result<Encrypted> {
        Ok(self.clone())
    }
}

impl TlsConnect<Socket> for Encrypted {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let connector = TlsConnector::from(self.0.client.clone());
        let connected = connector.connect(self.0.name.clone(), socket);
        Box::pin(async move { connected.await.map(Stream).map_err(of_handshake) })
    }
}

impl tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
