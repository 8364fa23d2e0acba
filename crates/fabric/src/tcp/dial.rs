//! Makes a connection: the caller's end identifies itself and makes sure of the identity of the target.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::{TlsConnector, TlsStream};
use verbena_terms::{Incarnation, Rank};

use super::config::REMEDY;
use super::stream::{Stream, prepare};
use super::tls::{Tls, server_name};
use super::wire::{Hello, PREAMBLE_BYTES, Preamble, Verdict, WELCOME_BYTES, Welcome, check_preamble_answer};
use crate::message::Class;
use crate::operation::OperationId;

/// From one attempt to connect to the next.
const ANOTHER_AFTER: Duration = Duration::from_millis(200);

pub(super) struct Dialer {
    pub(super) identity: Incarnation,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) insecure: bool,
    pub(super) handshake: Duration,
}

impl Dialer {
    /// A connection to this incarnation and no other, or the reason for the failure.
    pub(super) async fn dial(
        &self,
        target: Incarnation,
        address: &str,
        class: Class,
        next: OperationId,
    ) -> Result<Stream, String> {
        let attempt = async {
            let stream = self.connect(address).await?;
            prepare(&stream, class).map_err(in_words)?;
            let mut stream = self.secure(stream, target, class).await?;
            let hello = Hello { from: self.identity, to: target, next, class };
            greet(&mut stream, &hello).await?;
            Ok(stream)
        };
        let late = || format!("it did not greet within {:?}", self.handshake);
        tokio::time::timeout(self.handshake, attempt).await.map_err(|_| late())?
    }

    /// The incarnation of `rank` at an address. Sends a hello for start number 0, which no incarnation has; the answer
    /// names the one that is there.
    pub(super) async fn ask(&self, rank: Rank, address: &str) -> Result<Incarnation, String> {
        let attempt = async {
            let target = Incarnation { rank, start: 0 };
            let mut stream = self.secure(self.connect(address).await?, target, Class::Control).await?;
            let hello = Hello { from: self.identity, to: target, next: OperationId(1), class: Class::Control };
            let welcome = exchange(&mut stream, &hello).await?;
            match welcome.verdict {
                Verdict::Another => Ok(welcome.incarnation),
                _ => reached(&hello, welcome).map(|()| target),
            }
        };
        let late = || format!("it did not greet within {:?}", self.handshake);
        tokio::time::timeout(self.handshake, attempt).await.map_err(|_| late())?
    }

    async fn connect(&self, address: &str) -> Result<TcpStream, String> {
        let host = address.strip_prefix("tcp://").ok_or("a tcp address begins with tcp://")?;
        let mut reason = "its name has no address".to_owned();
        for found in tokio::net::lookup_host(host).await.map_err(in_words)? {
            if self.tls.is_none() && !self.insecure && !found.ip().is_loopback() {
                return Err(format!("{found} is not a loopback address, and there is no certificate. {REMEDY}"));
            }
            match connect_soon(found).await {
                Ok(stream) => return Ok(stream),
                Err(error) => reason = error.to_string(),
            }
        }
        Err(reason)
    }

    async fn secure(&self, mut stream: TcpStream, target: Incarnation, class: Class) -> Result<Stream, String> {
        let preamble = Preamble { class, secured: self.tls.is_some() };
        stream.write_all(&preamble.bytes()).await.map_err(in_words)?;
        let mut answer = [0; PREAMBLE_BYTES];
        stream.read_exact(&mut answer).await.map_err(in_words)?;
        match check_preamble_answer(&answer).map_err(|malformed| malformed.to_string())? {
            Verdict::Welcome => {}
            Verdict::Secure => return Err(format!("it demands a certificate, and there is none here. {REMEDY}")),
            Verdict::Plain => return Err("it has no certificate, and this node demands one of it".into()),
            other => return Err(format!("it refused the connection: {other:?}")),
        }
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(stream)) };
        let name = tls.name(target.rank).ok_or_else(|| format!("whose rank {} is is not known yet", target.rank))?;
        let server = server_name(&name).ok_or_else(|| format!("{name} can be in no certificate"))?;
        let secured = TlsConnector::from(tls.ends().client).connect(server, stream).await;
        let secured = secured.map_err(|error| format!("as {name}: {error}"))?;
        Ok(Stream::Secured(Box::new(TlsStream::Client(secured))))
    }
}

/// A connection that is made soon after there is a way. One attempt repeats its first packet after a second and then less and less often, so
/// another one is begun meanwhile; the first that succeeds is taken. For as long as the caller waits.
async fn connect_soon(address: SocketAddr) -> io::Result<TcpStream> {
    let mut attempts = JoinSet::new();
    loop {
        attempts.spawn(TcpStream::connect(address));
        if let Ok(Some(ended)) = tokio::time::timeout(ANOTHER_AFTER, attempts.join_next()).await {
            return ended?;
        }
    }
}

async fn greet(stream: &mut Stream, hello: &Hello) -> Result<(), String> {
    let welcome = exchange(stream, hello).await?;
    reached(hello, welcome)
}

/// Whether a welcome is one, or what it says instead.
fn reached(hello: &Hello, Welcome { incarnation, verdict }: Welcome) -> Result<(), String> {
    match verdict {
        Verdict::Welcome if incarnation == hello.to => Ok(()),
        Verdict::Welcome | Verdict::Another => Err(format!("{incarnation} lives there")),
        Verdict::Superseded => Err(format!("it has met {incarnation}, a later incarnation of this node")),
        Verdict::Full => Err("it has no room for another caller".into()),
        Verdict::WrongRank => Err(format!("it does not take our certificate for that of rank {}", hello.from.rank)),
        Verdict::Secure | Verdict::Plain | Verdict::Version => Err(format!("it refused the connection: {verdict:?}")),
    }
}

async fn exchange(stream: &mut Stream, hello: &Hello) -> Result<Welcome, String> {
    stream.write_all(&hello.bytes()).await.map_err(in_words)?;
    stream.flush().await.map_err(in_words)?;
    let mut answer = [0; WELCOME_BYTES];
    stream.read_exact(&mut answer).await.map_err(in_words)?;
    Welcome::parse(&answer).map_err(|malformed| malformed.to_string())
}

fn in_words(error: std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "it closed the connection instead of greeting".into(),
        _ => error.to_string(),
    }
}
