//! Bodies of answers: from the store, from the origin as they come, or held back at the end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use thiserror::Error;
use tokio::time::Sleep;

use crate::fill::Filled;
use crate::joining::Joined;
use crate::queries::Charging;

/// Why a body ends before its end: the connection is cut, so that no client takes a part for the whole.
#[derive(Debug, Error)]
pub(crate) enum Cut {
    /// The application broke off, or said another length than it sent.
    #[error("the application broke off: {0}")]
    Origin(#[from] hyper::Error),
    /// The application is silent for too long.
    #[error("the application sent nothing for {0:?}")]
    Silent(Duration),
    /// The task that read the body from the application has stopped.
    #[error("the answer was abandoned")]
    Abandoned,
    /// The page changed between two of its slices (rule H9).
    #[error("the page changed while it was on its way")]
    Changed,
    /// An update that could not be confirmed (rule P7).
    #[error("the update could not be confirmed")]
    Unconfirmed,
}

/// The body of an answer.
pub(crate) enum Body {
    /// Nothing, or what is left of a whole.
    Whole(Option<Bytes>),
    /// As it comes from the origin.
    Origin(Passing),
    /// As a task reads it to store it; large, and rare beside the others.
    Filled(Box<Filled>),
    /// As it comes for another request.
    Joined(Box<Joined>),
    /// As it comes from a task that holds its end back; the end is `None`, and without it the body is cut.
    Held(tokio::sync::mpsc::Receiver<Result<Option<Bytes>, Cut>>),
}

impl Body {
    pub fn empty() -> Self {
        Body::Whole(None)
    }

    /// The same body with these bytes before it, which were read of it.
    pub fn behind(self, read: Bytes) -> Self {
        match self {
            Body::Filled(mut filled) => {
                filled.put_back(read);
                Body::Filled(filled)
            }
            Body::Joined(mut joined) => {
                joined.put_back(read);
                Body::Joined(joined)
            }
            // All of it was read.
            _ => Body::from(read),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        match self.get_mut() {
            Body::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Body::Origin(passing) => passing.poll(context),
            Body::Filled(filled) => filled.poll(context),
            Body::Joined(joined) => joined.poll(context),
            Body::Held(pieces) => Poll::Ready(match ready!(pieces.poll_recv(context)) {
                Some(piece) => piece.map(|piece| piece.map(Frame::data)).transpose(),
                None => Some(Err(Cut::Abandoned)),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(bytes) => bytes.is_none(),
            Body::Origin(passing) => passing.incoming.is_end_stream(),
            // Only their end tells that they are whole.
            Body::Filled(_) | Body::Joined(_) | Body::Held(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Body::Origin(passing) => passing.incoming.size_hint(),
            Body::Filled(filled) => filled.size_hint(),
            Body::Joined(joined) => joined.size_hint(),
            Body::Held(_) => SizeHint::default(),
        }
    }
}

/// The origin's body, given up when it is silent for too long. Only time in which a reader waits for it counts.
pub(crate) struct Passing {
    pub incoming: Incoming,
    pub patience: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    /// Until the body is read, statements of its request are kept apart from those of other requests.
    _charging: Option<Box<Charging>>,
}

impl Passing {
    pub fn new(incoming: Incoming, patience: Duration) -> Self {
        Passing { incoming, patience, silence: None, _charging: None }
    }

    /// Of a request whose statements have a tag.
    pub fn charging(self, charging: Option<Charging>) -> Self {
        Passing { _charging: charging.map(Box::new).or(self._charging), ..self }
    }

    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(context) {
            self.silence = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Cut::Origin)));
        }
        let patience = self.patience;
        let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(silence.as_mut().poll(context));
        Poll::Ready(Some(Err(Cut::Silent(patience))))
    }

    pub async fn next(&mut self) -> Option<Result<Frame<Bytes>, Cut>> {
        std::future::poll_fn(|context| self.poll(context)).await
    }
}
