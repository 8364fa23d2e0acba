//! A client's connection, given up when the client takes nothing for too long.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use verbena_metrics::Counter;

/// A client's connection. What is to be read has limits of its own, which know what they wait for.
pub(crate) struct Impatient {
    stream: TcpStream,
    patience: Duration,
    /// Counts those that were given up.
    stalled: Counter,
    /// Runs while the client takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    pub fn new(stream: TcpStream, patience: Duration, stalled: Counter) -> Self {
        Impatient { stream, patience, stalled, stall: None }
    }

    fn judge(&mut self, written: Poll<Result<usize>>, context: &mut Context<'_>) -> Poll<Result<usize>> {
        if written.is_ready() {
            self.stall = None;
            return written;
        }
        let patience = self.patience;
        let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(stall.as_mut().poll(context));
        self.stalled.increment();
        Poll::Ready(Err(Error::new(ErrorKind::TimedOut, format!("the client took nothing for {patience:?}"))))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.judge(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
