//! One client: bytes in, requests one after the other, bytes out.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf};
use verbena_coop::service::PoolService;
use verbena_memcache::{Limits, Mode, Operation, Parsed, Parser, Rejection, Request, print, refuse_binary};

use crate::execute::Executor;
use crate::observed::Observed;
use crate::tenants::{Member, Rejection as Refused, Tenants};

/// Bytes of answers that are sent before more are made.
const MUCH: usize = 64 << 10;
/// Bytes that are read at a time, at least.
const READ_BYTES: usize = 16 << 10;
/// Room that an idle connection keeps for its next request.
const KEPT_BYTES: usize = 64 << 10;
/// Of a client that has not said who it is: the longest line, and name and password.
const STRANGERS: Limits = Limits { line_bytes: 2048, keys_bytes: 2048, value_bytes: 1024 };
/// What a client beyond those that its tenant may have is answered, as memcached does.
const FULL: &str = "ERROR Too many open connections";

/// The connection is over.
#[derive(Debug)]
pub(crate) struct Ended;

/// Answers on their way to a client.
pub(crate) struct Output<'a> {
    stream: Box<dyn AsyncWrite + Unpin + Send + 'a>,
    pub bytes: Vec<u8>,
    patience: Duration,
    observed: &'a Observed,
}

impl Output<'_> {
    pub(crate) async fn send_if_much(&mut self) -> Result<(), Ended> {
        if self.bytes.len() >= MUCH { self.send().await } else { Ok(()) }
    }

    /// Says that nothing more comes: without that a client that speaks TLS takes the end for an attack.
    async fn close(&mut self) {
        // It may have gone.
        let _ = tokio::time::timeout(self.patience, self.stream.shutdown()).await;
    }

    async fn send(&mut self) -> Result<(), Ended> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        let mut rest = &self.bytes[..];
        while !rest.is_empty() {
            // As long as it takes something it may be slow.
            match tokio::time::timeout(self.patience, self.stream.write(rest)).await {
                Ok(Ok(sent)) if sent > 0 => rest = &rest[sent..],
                Ok(_) => return Err(Ended),
                Err(_) => {
                    self.observed.cut_off.increment();
                    return Err(Ended);
                }
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(MUCH);
        Ok(())
    }
}

/// What a connection is served with.
pub(crate) struct Session {
    pub pool: PoolService,
    pub observed: Observed,
    pub tenants: Arc<Tenants>,
    pub patience: Duration,
}

/// Serves a client until it goes. One that is nobody's yet has to say who it is.
pub(crate) async fn serve<S>(stream: S, session: &Session, whose: Option<Result<Member, Refused>>)
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut from, to) = tokio::io::split(stream);
    let (patience, observed) = (session.patience, &session.observed);
    let mut out = Output { stream: Box::new(to), bytes: vec![], patience, observed };
    match whose.transpose() {
        Ok(member) => talk(&mut from, &mut out, session, member).await,
        Err(_) => {
            print::line(FULL, &mut out.bytes);
            // The connection ends either way.
            let _ = out.send().await;
        }
    }
    out.close().await;
}

async fn talk<S: AsyncRead>(
    from: &mut ReadHalf<S>,
    out: &mut Output<'_>,
    session: &Session,
    mut member: Option<Member>,
) {
    let mut parser = Parser::new(if member.is_some() { session.pool.limits() } else { STRANGERS });
    let mut input: Vec<u8> = vec![];
    loop {
        let ended = requests(&mut parser, &mut input, session, &mut member, out).await.is_err();
        if out.send().await.is_err() || ended {
            return;
        }
        if input.is_empty() {
            input.shrink_to(KEPT_BYTES);
        }
        input.reserve(READ_BYTES);
        match from.read_buf(&mut input).await {
            Ok(read) if read > 0 => {}
            _ => return,
        }
    }
}

/// A client says who it is, by a `set` of its name and its password, whatever the key; as memcached has it.
fn introduced(request: &Request<'_>, session: &Session, out: &mut Output<'_>) -> Result<Option<Member>, Ended> {
    let said = match request {
        Request::Classic { operation: Operation::Store(store), .. } if store.mode == Mode::Set => store.value,
        _ => {
            print::line("CLIENT_ERROR unauthenticated", &mut out.bytes);
            return Ok(None);
        }
    };
    if !said.contains(&b' ') {
        print::line("CLIENT_ERROR bad authentication token format", &mut out.bytes);
        return Ok(None);
    }
    match session.tenants.authenticate(said) {
        Ok(member) => {
            print::line("STORED", &mut out.bytes);
            Ok(Some(member))
        }
        Err(Refused::Unknown) => {
            print::line("CLIENT_ERROR authentication failure", &mut out.bytes);
            Ok(None)
        }
        Err(Refused::Full) => {
            print::line(FULL, &mut out.bytes);
            Err(Ended)
        }
    }
}

/// Answers those requests that are whole, and leaves the rest in `input`.
async fn requests(
    parser: &mut Parser,
    input: &mut Vec<u8>,
    session: &Session,
    member: &mut Option<Member>,
    out: &mut Output<'_>,
) -> Result<(), Ended> {
    let mut at = 0;
    let result = loop {
        let step = parser.parse(&input[at..]);
        at += step.consumed;
        let Some(parsed) = step.parsed else { break Ok(()) };
        if !matches!(parsed, Parsed::Request(_)) {
            out.observed.rejected.increment();
        }
        let done = match parsed {
            Parsed::Request(request) => match member {
                Some(Member { known, .. }) => {
                    let Session { pool, observed, tenants, .. } = session;
                    Executor { pool, observed, tenants, known }.request(request, out).await
                }
                None => match introduced(&request, session, out) {
                    Ok(Some(introduced)) => {
                        *member = Some(introduced);
                        *parser = Parser::new(session.pool.limits());
                        Ok(())
                    }
                    Ok(None) => Ok(()),
                    Err(ended) => Err(ended),
                },
            },
            Parsed::Rejected(Rejection { line, noreply }) => {
                if !noreply {
                    print::line(line, &mut out.bytes);
                }
                Ok(())
            }
            Parsed::Binary { opcode, opaque } => {
                refuse_binary(opcode, opaque, &mut out.bytes);
                Err(Ended)
            }
            Parsed::Close(line) => {
                if let Some(line) = line {
                    print::line(line, &mut out.bytes);
                }
                Err(Ended)
            }
        };
        match done {
            Ok(()) => out.send_if_much().await?,
            Err(ended) => break Err(ended),
        }
    };
    input.drain(..at);
    result
}
