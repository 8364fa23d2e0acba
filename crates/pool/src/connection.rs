//! One client: bytes in, requests one after the other, bytes out.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use verbena_memcache::{Parsed, Parser, Rejection, print, refuse_binary};

use crate::execute::Executor;
use crate::observed::Observed;

/// Bytes of answers that are sent before more are made.
const MUCH: usize = 64 << 10;
/// Bytes that are read at a time, at least.
const READ_BYTES: usize = 16 << 10;
/// Room that an idle connection keeps for its next request.
const KEPT_BYTES: usize = 64 << 10;

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

/// Serves a client until it goes.
pub(crate) async fn serve<S>(stream: S, executor: &Executor<'_>, patience: Duration)
where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut from, to) = tokio::io::split(stream);
    let mut out = Output { stream: Box::new(to), bytes: vec![], patience, observed: executor.observed };
    let mut parser = Parser::new(executor.pool.limits());
    let mut input: Vec<u8> = vec![];
    loop {
        let ended = requests(&mut parser, &mut input, executor, &mut out).await.is_err();
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

/// Answers those requests that are whole, and leaves the rest in `input`.
async fn requests(
    parser: &mut Parser,
    input: &mut Vec<u8>,
    executor: &Executor<'_>,
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
            Parsed::Request(request) => executor.request(request, out).await,
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
