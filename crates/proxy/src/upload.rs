//! The body of a request, on its way to the origin.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::{Instant, Sleep};

/// Why a request's body ends before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Cut {
    /// The client sends nothing for too long.
    #[error("the client sends nothing")]
    Slow,
    /// The client broke off, or what it sends is no body.
    #[error("the client broke off")]
    Broken,
}

/// How an upload is going, for the task that waits for the answer.
#[derive(Clone)]
pub(crate) struct Progress(Arc<Mutex<(Instant, Option<Cut>)>>);

/// The body of a request: what is here already, and what is still to come.
pub(crate) struct Upload {
    /// Copied: each piece that came by itself would keep all that was read with it.
    here: BytesMut,
    trailers: Option<Frame<Bytes>>,
    to_come: Option<Incoming>,
    patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    progress: Progress,
}

impl Upload {
    /// Of a body, or of none.
    pub fn new(body: impl Into<Option<Incoming>>, patience: Duration) -> Self {
        let to_come = body.into().filter(|body| !body.is_end_stream());
        let progress = Progress(Arc::new(Mutex::new((Instant::now(), None))));
        Upload { here: BytesMut::new(), trailers: None, to_come, patience, silence: None, progress }
    }

    /// Reads until the whole body or `bytes` bytes of it are here.
    pub async fn gather(&mut self, bytes: usize) -> Result<(), Cut> {
        while self.here.len() < bytes && self.to_come.is_some() {
            let frame = std::future::poll_fn(|context| self.poll_to_come(context)).await.transpose()?;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => self.here.extend_from_slice(&data),
                Some(Err(trailers)) => self.trailers = Some(trailers),
                None => {}
            }
        }
        Ok(())
    }

    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    fn poll_to_come(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let Some(body) = &mut self.to_come else { return Poll::Ready(None) };
        let frame = match Pin::new(&mut *body).poll_frame(context) {
            Poll::Ready(frame) => frame.map(|frame| frame.map_err(|_| Cut::Broken)),
            Poll::Pending => {
                let patience = self.patience;
                let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
                ready!(silence.as_mut().poll(context));
                Some(Err(Cut::Slow))
            }
        };
        self.silence = None;
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            self.to_come = None;
        }
        let cut = frame.as_ref().and_then(|frame| frame.as_ref().err().copied());
        *self.progress.0.lock() = (Instant::now(), cut);
        Poll::Ready(frame)
    }
}

impl Progress {
    /// When it last moved.
    pub fn moved(&self) -> Instant {
        self.0.lock().0
    }

    /// Why it was cut, if it was.
    pub fn cut(&self) -> Option<Cut> {
        self.0.lock().1
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        let here = Some(self.here.split().freeze()).filter(|here| !here.is_empty()).map(Frame::data);
        let Some(frame) = here.or_else(|| self.trailers.take()) else { return self.poll_to_come(context) };
        *self.progress.0.lock() = (Instant::now(), None);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.here.is_empty() && self.trailers.is_none() && self.to_come.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let to_come = self.to_come.as_ref().map_or(SizeHint::with_exact(0), |body| body.size_hint());
        match to_come.exact() {
            Some(to_come) => SizeHint::with_exact(self.here.len() as u64 + to_come),
            None => SizeHint::default(),
        }
    }
}
