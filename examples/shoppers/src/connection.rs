//! One kept connection to one proxy.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::checker::Moment;

/// Longest answer that is read, bytes.
const LONGEST: usize = 8 << 20;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No connection came about: nothing was sent.
    Connect,
    /// The connection broke off before the end of the answer.
    Cut,
    /// It took too long.
    TimedOut,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: StatusCode,
    /// Whether `Cache-Status` says that it came from a cache.
    pub hit: bool,
    pub body: Bytes,
    /// Before the first byte of the request left.
    pub sent: Moment,
    /// After the last byte of the answer came.
    pub received: Moment,
}

/// A connection, made when it is needed and made again after a failure.
pub(crate) struct Connection {
    address: SocketAddr,
    clock: Instant,
    patience: Duration,
    open: Option<Open>,
}

struct Open {
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Whatever is still under way is given up: the connection closes.
        self.task.abort();
    }
}

impl Connection {
    pub fn new(address: SocketAddr, clock: Instant, patience: Duration) -> Self {
        Connection { address, clock, patience, open: None }
    }

    /// Where it goes.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Asks for a page.
    pub async fn get(&mut self, path: &str) -> Result<Answer, Failure> {
        self.ask(Request::get(path), Bytes::new()).await
    }

    /// Sends a form.
    pub async fn post(&mut self, path: &str, form: String) -> Result<Answer, Failure> {
        self.ask(Request::post(path).header(CONTENT_TYPE, "application/x-www-form-urlencoded"), form.into()).await
    }

    async fn ask(&mut self, request: hyper::http::request::Builder, body: Bytes) -> Result<Answer, Failure> {
        let request = request.header(HOST, self.address.to_string()).body(Full::new(body));
        let request = request.expect("invariant: paths are made of words and numbers");
        let deadline = tokio::time::Instant::now() + self.patience;
        let mut open = match tokio::time::timeout_at(deadline, self.ready()).await {
            Ok(Some(open)) => open,
            Ok(None) | Err(_) => return Err(Failure::Connect),
        };
        let clock = self.clock;
        let exchange = async {
            let sent = Moment::since(clock);
            let (head, body) = open.sender.send_request(request).await.map_err(|_| Failure::Cut)?.into_parts();
            let body = Limited::new(body, LONGEST).collect().await.map_err(|_| Failure::Cut)?.to_bytes();
            let received = Moment::since(clock);
            Ok(Answer { status: head.status, hit: is_hit(&head.headers), body, sent, received })
        };
        let answer = tokio::time::timeout_at(deadline, exchange).await.map_err(|_| Failure::TimedOut)??;
        self.open = Some(open);
        Ok(answer)
    }

    /// The kept connection if the other side still holds it, or a new one.
    async fn ready(&mut self) -> Option<Open> {
        if let Some(mut open) = self.open.take()
            && open.sender.ready().await.is_ok()
        {
            return Some(open);
        }
        let stream = TcpStream::connect(self.address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        let task = tokio::spawn(async move {
            // How it ended is seen by the request that was on it.
            let _ = connection.await;
        });
        Some(Open { sender, task })
    }
}

/// RFC 9211: a list of caches, each with parameters; the last one is the nearest.
fn is_hit(headers: &HeaderMap) -> bool {
    let members = headers.get_all("cache-status").iter().filter_map(|value| value.to_str().ok());
    members.flat_map(|value| value.split(',')).any(|cache| cache.split(';').skip(1).any(|word| word.trim() == "hit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_told_from_misses() {
        let hit = |value: &'static str| {
            is_hit(&HeaderMap::from_iter([("cache-status".parse().unwrap(), value.parse().unwrap())]))
        };
        assert!(hit("verbena; hit") && hit("verbena;fwd=miss, outer;hit;ttl=3"));
        assert!(!hit("verbena; fwd=uri-miss; stored") && !hit("hit") && !is_hit(&HeaderMap::new()));
    }
}
