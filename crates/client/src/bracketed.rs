//! The answer to a write, kept back until its update has ended.

use std::collections::VecDeque;
use std::error::Error as StdError;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::mpsc;
use tracing::Instrument;

use crate::api::Outcome;
use crate::error::Result;
use crate::updates::Update;

/// Bytes of an answer that are read before the client gets any of it. Of a longer one it gets all but the end.
const READ_FIRST: usize = 64 << 10;
/// Pieces of a longer answer that wait for the client.
const WAITING: usize = 4;

type BoxError = Box<dyn StdError + Send + Sync>;
type Piece = std::result::Result<Frame<Bytes>, BoxError>;

/// The body of an answer to a write. Its end comes when the update is over and every cache knows; it is cut short, by an error, if that
/// cannot be or the service's own body was.
#[derive(Debug)]
pub struct Bracketed(State);

#[derive(Debug)]
enum State {
    /// All that there is.
    Here(VecDeque<Piece>),
    /// Pieces of it come; `left` bytes if their number is known.
    Coming { pieces: mpsc::Receiver<Piece>, left: Option<u64> },
}

/// Reads the answer to its end and ends the update as done; or gives a body that does so while it is read.
///
/// # Errors
/// If the update could not be ended, and nothing of the answer has left.
pub(crate) async fn hold_back<R>(update: Update, body: R) -> Result<Bracketed>
where
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let length = body.size_hint().exact();
    let mut held = Held { body: Box::pin(body), last: VecDeque::new() };
    let (mut read, mut bytes) = (VecDeque::new(), 0);
    while bytes <= READ_FIRST {
        match held.next().await {
            Some(Ok(frame)) => {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                read.push_back(frame);
            }
            // The update is dropped: what the service did until then is unknown.
            Some(Err(error)) => {
                let whole = read.into_iter().map(Ok).chain([Err(error)]).collect();
                return Ok(Bracketed(State::Here(whole)));
            }
            None => {
                update.end(Outcome::Done).await?;
                return Ok(Bracketed(State::Here(read.into_iter().chain(held.last).map(Ok).collect())));
            }
        }
    }
    let (client, pieces) = mpsc::channel(WAITING);
    tokio::spawn(pass_on(update, held, read, client).in_current_span());
    Ok(Bracketed(State::Coming { pieces, left: length }))
}

/// Passes the answer on but for its end, ends the update, and gives the end. A client that has gone gets no more of it, and the reading goes
/// on.
async fn pass_on<R>(update: Update, mut held: Held<R>, read: VecDeque<Frame<Bytes>>, client: mpsc::Sender<Piece>)
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    for frame in read {
        // Whether it is there is asked of the pieces that follow.
        let _ = client.send(Ok(frame)).await;
    }
    while let Some(frame) = held.next().await {
        let broken = frame.is_err();
        let _ = client.send(frame).await;
        if broken {
            return;
        }
    }
    let end: Vec<Piece> = match update.end(Outcome::Done).await {
        Ok(()) => held.last.into_iter().map(Ok).collect(),
        Err(error) => vec![Err(error.into())],
    };
    for piece in end {
        // A client that has gone misses nothing that it could know.
        let _ = client.send(piece).await;
    }
}

/// A body that is read one piece ahead: what is last when it ends has not been given.
struct Held<R> {
    body: Pin<Box<R>>,
    /// One piece of data, and after it the trailers, which are the end.
    last: VecDeque<Frame<Bytes>>,
}

impl<R> Held<R>
where
    R: Body<Data = Bytes>,
    R::Error: Into<BoxError>,
{
    /// The piece before the last that was read. `None` at the end: what is left is in `last`.
    async fn next(&mut self) -> Option<Piece> {
        loop {
            match self.body.frame().await? {
                Ok(frame) if frame.is_trailers() => {
                    self.last.push_back(frame);
                    return None;
                }
                // A client that knows the length would have everything before an empty last piece.
                Ok(frame) if frame.data_ref().is_some_and(Bytes::is_empty) => {}
                Ok(frame) => {
                    self.last.push_back(frame);
                    if self.last.len() > 1 {
                        return self.last.pop_front().map(Ok);
                    }
                }
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

impl Bracketed {
    /// A text of our own.
    pub(crate) fn text(text: &'static str) -> Self {
        Bracketed(State::Here(VecDeque::from([Ok(Frame::data(Bytes::from_static(text.as_bytes())))])))
    }
}

impl Body for Bracketed {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Piece>> {
        match &mut self.0 {
            State::Here(pieces) => Poll::Ready(pieces.pop_front()),
            State::Coming { pieces, left } => {
                let piece = std::task::ready!(pieces.poll_recv(context));
                if let (Some(left), Some(Ok(frame))) = (left, &piece) {
                    *left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
                }
                Poll::Ready(piece)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, State::Here(pieces) if pieces.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let length = match &self.0 {
            State::Coming { left, .. } => *left,
            // With an error or trailers at the end the length must stay open, or the end would not be seen.
            State::Here(pieces) => pieces.iter().try_fold(0, |sum, piece| {
                let data = piece.as_ref().ok()?.data_ref()?;
                Some(sum + data.len() as u64)
            }),
        };
        length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}
