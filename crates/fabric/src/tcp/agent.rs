//! The target's side: the agent that lets callers in and executes what they ask for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsStream};
use verbena_terms::Incarnation;

use super::callers::{Callers, Refused};
use super::counts::Counters;
use super::frames::{Broken, Frames};
use super::regions::Regions;
use super::stream::{Sink, Stream, prepare};
use super::tls::Tls;
use super::wire::{
    FrameWriter, HELLO_BYTES, Hello, PREAMBLE_BYTES, Preamble, Request, Requests, Verdict, Welcome, answer_preamble,
    is_other_version,
};
use crate::message::{Class, InboxSender, Message};

/// Connections that may be about to identify themselves.
const MOST_GREETING: usize = 64;
/// How long a caller may leave an answer untaken.
const STALL: Duration = Duration::from_secs(30);
/// Rest after the system could not give us a connection (no descriptors left).
const ACCEPT_REST: Duration = Duration::from_millis(20);

pub(super) struct Agent {
    pub(super) identity: Incarnation,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) handshake: Duration,
    pub(super) regions: Regions,
    pub(super) inboxes: InboxSender,
    pub(super) counters: Arc<Counters>,
    pub(super) greeting: Arc<Semaphore>,
    /// What each class has of its own, by [`Class`] as a number.
    pub(super) classes: [Side; 2],
}

/// What belongs to one class: its thread, its callers.
pub(super) struct Side {
    pub(super) thread: Handle,
    pub(super) callers: Mutex<Callers>,
    pub(super) connections: Arc<Semaphore>,
}

impl Side {
    pub(super) fn new(thread: Handle, most: usize) -> Self {
        Side { thread, callers: Mutex::new(Callers::new(most)), connections: Arc::new(Semaphore::new(most)) }
    }
}

/// Why a connection was not let in, or ended.
enum End {
    Refused(&'static str),
    Silent,
    Stalled,
    Broken(Broken),
}

impl<E: Into<Broken>> From<E> for End {
    fn from(error: E) -> Self {
        End::Broken(error.into())
    }
}

impl Agent {
    pub(super) fn greeting_places() -> Arc<Semaphore> {
        Arc::new(Semaphore::new(MOST_GREETING))
    }

    /// Takes connections for ever.
    pub(super) async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => match self.greeting.clone().try_acquire_owned() {
                    Ok(place) => {
                        let agent = self.clone();
                        tokio::spawn(async move { agent.clone().tell(peer, agent.sort(stream, peer, place).await) });
                    }
                    Err(_) => self.counters.turned_away.add(1),
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_REST).await;
                }
            }
        }
    }

    /// Reads the preamble and hands the connection to the thread of its class.
    async fn sort(
        self: Arc<Self>,
        mut stream: TcpStream,
        peer: SocketAddr,
        place: OwnedSemaphorePermit,
    ) -> Result<(), End> {
        let until = Instant::now() + self.handshake;
        let preamble = timeout_at(until, self.preamble(&mut stream)).await.map_err(|_| End::Silent)??;
        prepare(&stream, preamble.class)?;
        let stream = stream.into_std()?;
        let agent = self.clone();
        self.classes[preamble.class as usize].thread.spawn(async move {
            let end = agent.introduce(stream, preamble, until, place).await;
            agent.tell(peer, end);
        });
        Ok(())
    }

    async fn preamble(&self, stream: &mut TcpStream) -> Result<Preamble, End> {
        let mut bytes = [0; PREAMBLE_BYTES];
        stream.read_exact(&mut bytes).await?;
        let preamble = match Preamble::parse(&bytes) {
            Ok(preamble) => preamble,
            Err(_) if is_other_version(&bytes) => {
                stream.write_all(&answer_preamble(Verdict::Version)).await?;
                return Err(End::Refused("it speaks another version"));
            }
            Err(malformed) => return Err(malformed.into()),
        };
        let (verdict, refusal) = match (preamble.secured, self.tls.is_some()) {
            (false, true) => (Verdict::Secure, Some("it would not be secured")),
            (true, false) => (Verdict::Plain, Some("it demands a certificate")),
            _ => (Verdict::Welcome, None),
        };
        stream.write_all(&answer_preamble(verdict)).await?;
        refusal.map_or(Ok(preamble), |refusal| Err(End::Refused(refusal)))
    }

    /// On the thread of the class: finds out who it is, and serves it.
    async fn introduce(
        &self,
        stream: std::net::TcpStream,
        preamble: Preamble,
        until: Instant,
        place: OwnedSemaphorePermit,
    ) -> Result<(), End> {
        let stream = TcpStream::from_std(stream)?;
        let mut stream = timeout_at(until, self.secure(stream)).await.map_err(|_| End::Silent)??;
        let mut bytes = [0; HELLO_BYTES];
        timeout_at(until, stream.read_exact(&mut bytes)).await.map_err(|_| End::Silent)??;
        let hello = Hello::parse(&bytes)?;
        let side = &self.classes[preamble.class as usize];
        // One of the connections that there may be, held until this one ends.
        let connection = side.connections.clone().try_acquire_owned();
        let (incarnation, verdict) = match &connection {
            Ok(_) => self.judge(&hello, preamble.class, &stream),
            Err(_) => (self.identity, Verdict::Full),
        };
        // From a verdict of welcome on the caller is counted among those present, until this is dropped.
        let _present = (verdict == Verdict::Welcome).then(|| Present { caller: hello.from, callers: &side.callers });
        let answer = async {
            stream.write_all(&Welcome { incarnation, verdict }.bytes()).await?;
            stream.flush().await
        };
        timeout_at(until, answer).await.map_err(|_| End::Silent)??;
        match verdict {
            Verdict::Welcome => {}
            Verdict::Full => {
                self.counters.turned_away.add(1);
                return Ok(());
            }
            _ => return Err(End::Refused("of who it is or whom it means")),
        }
        drop(place);
        self.counters.welcomed.add(1);
        self.serve(stream, hello.from, preamble.class).await
    }

    async fn secure(&self, stream: TcpStream) -> Result<Stream, End> {
        let Some(tls) = &self.tls else { return Ok(Stream::Plain(stream)) };
        match TlsAcceptor::from(tls.ends().server).accept(stream).await {
            Ok(secured) => Ok(Stream::Secured(Box::new(TlsStream::Server(secured)))),
            Err(error) => {
                tracing::warn!(%error, "a caller that cannot prove who it is");
                Err(End::Refused("of its certificate"))
            }
        }
    }

    fn judge(&self, hello: &Hello, class: Class, stream: &Stream) -> (Incarnation, Verdict) {
        if hello.class != class {
            return (self.identity, Verdict::Version);
        }
        if let (Stream::Secured(secured), Some(tls)) = (stream, &self.tls) {
            let certificate = secured.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            if !certificate.is_some_and(|certificate| tls.proves(certificate, hello.from.rank)) {
                return (self.identity, Verdict::WrongRank);
            }
        }
        if hello.to != self.identity {
            return (self.identity, Verdict::Another);
        }
        match self.classes[class as usize].callers.lock().arrive(hello.from, hello.next) {
            Ok(()) => (self.identity, Verdict::Welcome),
            Err(Refused::Superseded(by)) => (by, Verdict::Superseded),
            Err(Refused::Full) => (self.identity, Verdict::Full),
        }
    }

    /// Executes what a caller asks for, until its connection ends. Memory per connection: a frame of requests and one of answers; while
    /// the answers are not taken, nothing more is read.
    async fn serve(&self, stream: Stream, from: Incarnation, class: Class) -> Result<(), End> {
        let (input, mut output) = stream.split();
        let mut frames = Frames::new(input);
        let mut answers = FrameWriter::default();
        while let Some(bytes) = frames.arrive().await? {
            let requests = Requests::parse(frames.frame(bytes))?;
            self.counters.frames.add(1);
            for item in &requests.items {
                self.execute(item, &requests, from, class, &mut answers)?;
                if answers.is_full() {
                    flush(&mut answers, &mut output).await?;
                }
            }
            frames.consume(bytes);
            if !frames.has_more() {
                flush(&mut answers, &mut output).await?;
            }
        }
        Ok(())
    }

    fn execute(
        &self,
        item: &Request<'_>,
        requests: &Requests<'_>,
        from: Incarnation,
        class: Class,
        answers: &mut FrameWriter,
    ) -> Result<(), End> {
        const GONE: End = End::Refused("a later incarnation of it has been here");
        match item {
            Request::Batch(head, range) => {
                self.counters.batches.add(1);
                let mut callers = self.classes[class as usize].callers.lock();
                let window = callers.window(from).ok_or(GONE)?;
                let elements = &requests.elements[range.clone()];
                answers.results(head.number, |results| self.regions.execute(head, elements, Some(window), results));
            }
            Request::Settle { number, id } => {
                let mut callers = self.classes[class as usize].callers.lock();
                // Nothing is claimed and not concluded while the callers are locked: what cannot be settled was forgotten.
                answers.settled(*number, callers.window(from).ok_or(GONE)?.settle(*id));
            }
            Request::Message { port, view, number, body } => {
                let message = Message { from, view: *view, number: *number, class, port: *port, body: body.to_vec() };
                self.inboxes.deliver(message);
            }
        }
        Ok(())
    }

    fn tell(&self, peer: SocketAddr, end: Result<(), End>) {
        match end {
            Ok(()) => {}
            Err(End::Refused(reason)) => {
                self.counters.refused.add(1);
                tracing::warn!(%peer, reason, "refused a caller");
            }
            Err(End::Silent) => {
                self.counters.silent.add(1);
                tracing::debug!(%peer, "a connection on which no caller introduces itself");
            }
            Err(End::Stalled) => {
                self.counters.stalled.add(1);
                tracing::warn!(%peer, "a caller that does not take its answers");
            }
            Err(End::Broken(Broken::Io(error))) => tracing::debug!(%peer, %error, "a caller's connection broke"),
            Err(End::Broken(broken)) => {
                self.counters.malformed.add(1);
                tracing::warn!(%peer, %broken, "a caller that cannot be understood");
            }
        }
    }
}

async fn flush(answers: &mut FrameWriter, output: &mut Sink) -> Result<(), End> {
    let taken = async {
        output.write_all(answers.finish()).await?;
        output.flush().await
    };
    timeout(STALL, taken).await.map_err(|_| End::Stalled)??;
    answers.clear();
    Ok(())
}

/// One connection of a caller that was let in.
struct Present<'a> {
    caller: Incarnation,
    callers: &'a Mutex<Callers>,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.callers.lock().leave(self.caller);
    }
}
