//! One kept connection to one proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{CONTENT_RANGE, CONTENT_TYPE, ETAG, HOST, HeaderValue, IF_RANGE, RANGE};
use hyper::rt::{Read, Write};
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::checker::Moment;

/// Longest answer that is read, bytes.
const LONGEST: usize = 8 << 20;

/// How a proxy is reached.
#[derive(Clone, Debug)]
pub struct Door {
    /// Where it listens.
    pub address: SocketAddr,
    /// By TLS, if it takes nothing else.
    pub tls: Option<Arc<ClientConfig>>,
    /// HTTP/1.1, or HTTP/2.
    pub version: Version,
}

impl From<SocketAddr> for Door {
    /// HTTP/1.1 without TLS.
    fn from(address: SocketAddr) -> Self {
        Door { address, tls: None, version: Version::HTTP_11 }
    }
}

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
    /// The tag of what it shows, if it says one.
    tag: Option<HeaderValue>,
    /// Bytes of the whole, of which it is a part.
    whole: Option<usize>,
    /// Whether `Cache-Status` says that it came from a cache.
    pub hit: bool,
    /// Whether it says how long that may go on, as it does of standard pages.
    pub has_lifetime: bool,
    /// By which version of HTTP it came.
    pub version: Version,
    /// Whether it was put together of two parts.
    pub is_in_parts: bool,
    pub body: Bytes,
    /// Before the first byte of the request left.
    pub sent: Moment,
    /// After the last byte of the answer came.
    pub received: Moment,
}

/// A connection, made when it is needed and made again after a failure.
pub(crate) struct Connection {
    door: Door,
    clock: Instant,
    patience: Duration,
    open: Option<Open>,
}

struct Open {
    sender: Sender,
    task: JoinHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    async fn is_ready(&mut self) -> bool {
        match self {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Whatever is still under way is given up: the connection closes.
        self.task.abort();
    }
}

impl Connection {
    pub fn new(door: Door, clock: Instant, patience: Duration) -> Self {
        Connection { door, clock, patience, open: None }
    }

    /// Where it goes.
    pub fn address(&self) -> SocketAddr {
        self.door.address
    }

    /// Asks for a page.
    pub async fn get(&mut self, path: &str) -> Result<Answer, Failure> {
        self.ask(Request::get(path), Bytes::new()).await
    }

    /// Asks for a page in two parts, the second from byte `at` on, if it is still the page that the first one is a part of: otherwise the whole of that comes.
    pub async fn get_in_parts(&mut self, path: &str, at: usize) -> Result<Answer, Failure> {
        let range = format!("bytes=0-{}", at.max(1) - 1);
        let first = self.ask(Request::get(path).header(RANGE, range), Bytes::new()).await?;
        let (Some(tag), Some(whole)) = (first.tag.clone(), first.whole) else { return Ok(first) };
        let has = first.body.len();
        if has == whole {
            return Ok(Answer { status: StatusCode::OK, ..first });
        }
        let rest = Request::get(path).header(RANGE, format!("bytes={has}-")).header(IF_RANGE, tag.clone());
        let rest = self.ask(rest, Bytes::new()).await?;
        if rest.status != StatusCode::PARTIAL_CONTENT {
            return Ok(rest);
        }
        let mut body = BytesMut::from(first.body);
        body.extend_from_slice(&rest.body);
        // What is put together of two pages is none: the checker says so.
        let is_one = rest.tag == Some(tag) && rest.whole == Some(body.len());
        let body = if is_one { body.freeze() } else { Bytes::from_static(b"parts of two pages") };
        let hit = first.hit && rest.hit;
        Ok(Answer { status: StatusCode::OK, hit, body, sent: first.sent, is_in_parts: true, ..rest })
    }

    /// Sends a form.
    pub async fn post(&mut self, path: &str, form: String) -> Result<Answer, Failure> {
        self.ask(Request::post(path).header(CONTENT_TYPE, "application/x-www-form-urlencoded"), form.into()).await
    }

    async fn ask(&mut self, request: hyper::http::request::Builder, body: Bytes) -> Result<Answer, Failure> {
        let host = self.door.address.to_string();
        let request = match self.door.version {
            // There the host is a part of the target.
            Version::HTTP_2 => request.version(Version::HTTP_2),
            _ => request.header(HOST, &host),
        };
        let request = request.body(Full::new(body)).map(|request| self.door.aimed(request, &host));
        let request = request.expect("invariant: paths are made of words and numbers");
        let deadline = tokio::time::Instant::now() + self.patience;
        let mut open = match tokio::time::timeout_at(deadline, self.ready()).await {
            Ok(Some(open)) => open,
            Ok(None) | Err(_) => return Err(Failure::Connect),
        };
        let clock = self.clock;
        let exchange = async {
            let sent = Moment::since(clock);
            let (head, body) = open.sender.send(request).await.map_err(|_| Failure::Cut)?.into_parts();
            let body = Limited::new(body, LONGEST).collect().await.map_err(|_| Failure::Cut)?.to_bytes();
            let received = Moment::since(clock);
            let (hit, tag) = (is_hit(&head.headers), head.headers.get(ETAG).cloned());
            let whole = Some(head.status).filter(|status| *status == StatusCode::PARTIAL_CONTENT);
            let whole = whole.and_then(|_| length(head.headers.get(CONTENT_RANGE)?));
            let (status, version, is_in_parts) = (head.status, head.version, false);
            let has_lifetime = hit && says_lifetime(&head.headers);
            Ok(Answer { status, tag, whole, hit, has_lifetime, version, is_in_parts, body, sent, received })
        };
        let answer = tokio::time::timeout_at(deadline, exchange).await.map_err(|_| Failure::TimedOut)??;
        self.open = Some(open);
        Ok(answer)
    }

    /// The kept connection if the other side still holds it, or a new one.
    async fn ready(&mut self) -> Option<Open> {
        if let Some(mut open) = self.open.take()
            && open.sender.is_ready().await
        {
            return Some(open);
        }
        let stream = TcpStream::connect(self.door.address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        match &self.door.tls {
            None => self.door.shakes_hands(TokioIo::new(stream)).await,
            Some(config) => {
                let name = ServerName::from(self.door.address.ip());
                let stream = TlsConnector::from(config.clone()).connect(name, stream).await.ok()?;
                self.door.shakes_hands(TokioIo::new(stream)).await
            }
        }
    }
}

impl Door {
    /// The request as its version has it.
    fn aimed<T>(&self, request: Request<T>, host: &str) -> Request<T> {
        if self.version != Version::HTTP_2 {
            return request;
        }
        let (mut head, body) = request.into_parts();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        head.uri =
            format!("{scheme}://{host}{}", head.uri).parse().expect("invariant: an address and a path make a target");
        Request::from_parts(head, body)
    }

    async fn shakes_hands<T: Read + Write + Unpin + Send + 'static>(&self, stream: T) -> Option<Open> {
        // How a connection ended is seen by the request that was on it.
        Some(match self.version {
            Version::HTTP_2 => {
                let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.ok()?;
                Open { sender: Sender::Http2(sender), task: tokio::spawn(async move { drop(connection.await) }) }
            }
            _ => {
                let (sender, connection) = http1::handshake(stream).await.ok()?;
                Open { sender: Sender::Http1(sender), task: tokio::spawn(async move { drop(connection.await) }) }
            }
        })
    }
}

/// Bytes of the whole, of `Content-Range`.
fn length(range: &HeaderValue) -> Option<usize> {
    range.to_str().ok()?.rsplit_once('/')?.1.parse().ok()
}

/// RFC 9211: a list of caches, each with parameters; the last one is the nearest.
fn is_hit(headers: &HeaderMap) -> bool {
    let members = headers.get_all("cache-status").iter().filter_map(|value| value.to_str().ok());
    members.flat_map(|value| value.split(',')).any(|cache| cache.split(';').skip(1).any(|word| word.trim() == "hit"))
}

fn says_lifetime(headers: &HeaderMap) -> bool {
    headers.get_all("cache-status").iter().any(|value| value.as_bytes().windows(4).any(|four| four == b"ttl="))
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
