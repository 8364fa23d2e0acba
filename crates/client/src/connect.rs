//! A connection to the helper's HTTP.

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::error::{Error, Result};
use crate::place::Place;

/// What carries one request at a time. Dropped, the connection is closed.
pub type Connection = SendRequest<Full<Bytes>>;

/// Connects to the helper at `place`, on the runtime of the caller. It waits as long as the system does.
///
/// # Errors
/// [`Error::Nobody`] or, if it ends at once, [`Error::Broken`].
pub async fn connect(place: &Place) -> Result<Connection> {
    let nobody = |source| Error::Nobody { at: place.clone(), source };
    match place {
        Place::Unix(path) => greet(place, UnixStream::connect(path).await.map_err(nobody)?).await,
        Place::Loopback(address) => {
            let stream = TcpStream::connect(address).await.map_err(nobody)?;
            stream.set_nodelay(true).map_err(nobody)?;
            greet(place, stream).await
        }
    }
}

async fn greet(place: &Place, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<Connection> {
    let greeted = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) = greeted.map_err(|error| Error::broken(place, &error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the helper ended");
        }
    });
    Ok(sender)
}
