//! The output of a connection: the poster writes frames as far as the stream takes them at once, and otherwise the task
//! of its link does.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::AsyncWrite;
use verbena_terms::Time;

use super::wire::FrameWriter;

/// What is posted sooner after what its poster sent is left to the task, which sends all that waits in one frame.
const APART: Duration = Duration::from_micros(20);

pub(super) struct Output<W> {
    stream: W,
    is_for_posters: bool,
    frame: FrameWriter,
    /// Bytes of the frame that the stream has taken.
    taken: usize,
    /// Why it broke under a poster.
    broken: Option<io::Error>,
    /// When a poster sent something last.
    sent: Time,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    pub(super) fn new(stream: W, is_for_posters: bool) -> Self {
        Output { stream, is_for_posters, frame: FrameWriter::default(), taken: 0, broken: None, sent: Time::ZERO }
    }

    /// The task's: sends all that `gather` puts into frames, and says why it cannot.
    ///
    /// Natural batching: a frame holds whatever was queued when its turn came; nothing waits for company.
    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        mut gather: impl FnMut(&mut FrameWriter),
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Err(error));
        }
        loop {
            ready!(self.poll_frame(context))?;
            gather(&mut self.frame);
            if self.frame.finish().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// A poster's: sends one frame of what `gather` puts in, unless the last one was sent just now. Whether it was sent.
    pub(super) fn send_now(&mut self, now: Time, gather: impl FnOnce(&mut FrameWriter)) -> bool {
        if !self.is_for_posters || self.is_stuck() || now.since(self.sent) < APART {
            return false;
        }
        gather(&mut self.frame);
        if self.frame.finish().is_empty() {
            return false;
        }
        self.sent = now;
        match self.poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                self.broken = Some(error);
                false
            }
            Poll::Pending => false,
        }
    }

    /// The stream took no more of a frame, or broke. Its task goes on with it: what it waits for wakes one task only.
    fn is_stuck(&mut self) -> bool {
        !self.frame.finish().is_empty()
    }

    /// Sends the rest of the frame.
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let rest = &self.frame.finish()[self.taken..];
            if rest.is_empty() {
                break;
            }
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                bytes => self.taken += bytes,
            }
        }
        // What is encrypted may have been kept.
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.frame.clear();
        self.taken = 0;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, DuplexStream, duplex};

    use super::*;
    use crate::operation::OperationId;
    use crate::tcp::wire::{Request, Requests, frame_bytes};

    /// Bytes between the two ends: a frame of one item goes in, and no second one.
    const ROOM: usize = 48;

    fn settle(number: u32) -> impl FnOnce(&mut FrameWriter) {
        move |frame| frame.settle(number, OperationId(1))
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Duration::from_micros(micros)
    }

    /// The numbers of the requests that have come out.
    async fn numbers(end: &mut DuplexStream, bytes: usize) -> Vec<u32> {
        let mut stream = vec![0; bytes];
        end.read_exact(&mut stream).await.unwrap();
        let mut numbers = vec![];
        while let Some(bytes) = frame_bytes(&stream).unwrap() {
            let number = |item: &Request<'_>| match item {
                Request::Settle { number, .. } => *number,
                other => panic!("{other:?}"),
            };
            numbers.extend(Requests::parse(&stream[..bytes]).unwrap().items.iter().map(number));
            stream.drain(..bytes);
        }
        numbers
    }

    fn bytes_of(count: u32) -> usize {
        let mut frame = FrameWriter::default();
        (0..count).for_each(|number| settle(number)(&mut frame));
        frame.finish().len()
    }

    #[tokio::test]
    async fn a_poster_sends_and_what_follows_at_once_is_the_tasks() {
        let (end, mut other) = duplex(1 << 10);
        let mut output = Output::new(end, true);
        assert!(output.send_now(at(100), settle(1)));
        assert!(!output.send_now(at(119), |_| panic!("too early to gather")));
        assert!(!output.is_stuck(), "the task has something to gather, and nothing to go on with");
        let mut left = vec![2, 3];
        let rest = std::future::poll_fn(|context| {
            output.poll_send(context, |frame| left.drain(..).for_each(|number| settle(number)(frame)))
        });
        rest.await.unwrap();
        assert!(output.send_now(at(120), settle(4)));
        assert_eq!(numbers(&mut other, 2 * bytes_of(1) + bytes_of(2)).await, [1, 2, 3, 4]);
    }

    #[tokio::test]
    async fn what_the_stream_does_not_take_at_once_is_sent_on_by_the_task_before_anything_else() {
        let (end, mut other) = duplex(ROOM);
        let mut output = Output::new(end, true);
        assert!(output.send_now(at(100), settle(1)));
        assert!(!output.send_now(at(200), settle(2)), "half of it stands in the stream");
        assert!(output.is_stuck());
        assert!(!output.send_now(at(300), |_| panic!("a frame begins in another")));
        let mut left = vec![3];
        let rest = std::future::poll_fn(|context| {
            output.poll_send(context, |frame| left.drain(..).for_each(|number| settle(number)(frame)))
        });
        let (sent, numbers) = tokio::join!(rest, numbers(&mut other, 3 * bytes_of(1)));
        sent.unwrap();
        assert_eq!(numbers, [1, 2, 3]);
        assert!(!output.is_stuck() && output.send_now(at(400), settle(4)));
    }

    #[tokio::test]
    async fn a_stream_that_broke_under_a_poster_is_reported_by_the_task() {
        let (end, other) = duplex(ROOM);
        let mut output = Output::new(end, true);
        drop(other);
        assert!(!output.send_now(at(100), settle(1)));
        assert!(output.is_stuck());
        let error = std::future::poll_fn(|context| output.poll_send(context, |_| panic!("nothing is lost silently")));
        assert_eq!(error.await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[tokio::test]
    async fn what_a_poster_may_not_send_is_the_tasks() {
        let (end, mut other) = duplex(1 << 10);
        let mut output = Output::new(end, false);
        assert!(!output.send_now(at(100), |_| panic!("not for posters")));
        output.is_for_posters = true;
        assert!(!output.send_now(at(200), |_| {}), "nothing was put in, as it is too much");
        assert!(!output.is_stuck());
        assert!(output.send_now(at(201), settle(1)), "what was not sent keeps nobody from sending");
        assert_eq!(numbers(&mut other, bytes_of(1)).await, [1]);
    }
}
