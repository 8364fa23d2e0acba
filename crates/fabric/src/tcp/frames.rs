//! Frames from a stream, in memory that grows only with what has really arrived.

use std::io;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::wire::{Malformed, frame_bytes};

/// Room for a read.
const CHUNK_BYTES: usize = 64 << 10;

/// Why there are no more frames.
#[derive(Debug, Error)]
pub(super) enum Broken {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the connection ended inside a frame")]
    Half,
    #[error("{0}")]
    Malformed(#[from] Malformed),
    #[error("{0}")]
    OutOfPlace(String),
}

pub(super) struct Frames<R> {
    input: R,
    buffer: Vec<u8>,
    /// Where in `buffer` the next frame begins.
    start: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) const fn new(input: R) -> Self {
        Frames { input, buffer: Vec::new(), start: 0 }
    }

    /// Waits until a whole frame is there; its length, or `None` where the stream ends between two.
    pub(super) async fn arrive(&mut self) -> Result<Option<usize>, Broken> {
        loop {
            let whole = frame_bytes(&self.buffer[self.start..])?;
            let have = self.buffer.len() - self.start;
            if let Some(bytes) = whole.filter(|bytes| *bytes <= have) {
                return Ok(Some(bytes));
            }
            self.make_room();
            if self.input.read_buf(&mut self.buffer).await? == 0 {
                return if have == 0 { Ok(None) } else { Err(Broken::Half) };
            }
        }
    }

    /// Whether [`arrive`](Self::arrive) would not wait.
    pub(super) fn has_more(&self) -> bool {
        let rest = &self.buffer[self.start..];
        !matches!(frame_bytes(rest), Ok(None)) && !matches!(frame_bytes(rest), Ok(Some(bytes)) if bytes > rest.len())
    }

    /// The frame that has arrived, of this length.
    pub(super) fn frame(&self, bytes: usize) -> &[u8] {
        &self.buffer[self.start..self.start + bytes]
    }

    /// Done with it.
    pub(super) fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.buffer.len() {
            self.start = 0;
            self.buffer.clear();
            if self.buffer.capacity() > 8 * CHUNK_BYTES {
                self.buffer = Vec::new();
            }
        }
    }

    fn make_room(&mut self) {
        if self.buffer.capacity() - self.buffer.len() < CHUNK_BYTES / 4 {
            self.buffer.drain(..self.start);
            self.start = 0;
            self.buffer.reserve(CHUNK_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::OperationId;
    use crate::tcp::wire::{FrameWriter, Request, Requests};

    fn frame(number: u32) -> Vec<u8> {
        let mut writer = FrameWriter::default();
        writer.settle(number, OperationId(1));
        writer.finish().to_vec()
    }

    #[tokio::test]
    async fn frames_come_whole_however_they_are_cut() {
        let stream: Vec<u8> = (0..50).flat_map(frame).collect();
        for cut in [1, 7, 31, 33, 1000] {
            let mut input = in_chunks(&stream, cut);
            let mut frames = Frames::new(&mut input);
            for number in 0..50 {
                let bytes = frames.arrive().await.unwrap().unwrap();
                let requests = Requests::parse(frames.frame(bytes)).unwrap();
                assert!(matches!(requests.items[..], [Request::Settle { number: found, .. }] if found == number));
                frames.consume(bytes);
            }
            assert!(frames.arrive().await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn half_a_frame_and_no_frame_are_told_apart_from_an_end() {
        let whole = frame(0);
        assert!(matches!(Frames::new(&whole[..20]).arrive().await, Err(Broken::Half)));
        assert!(matches!(Frames::new(&b"GET / HTTP/1.1\r\n\r\n"[..]).arrive().await, Err(Broken::Malformed(_))));
    }

    /// A stream that gives at most `cut` bytes at once.
    fn in_chunks(bytes: &[u8], cut: usize) -> impl AsyncRead + Unpin {
        struct Chunks<'a>(&'a [u8], usize);
        impl AsyncRead for Chunks<'_> {
            fn poll_read(
                mut self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
                into: &mut tokio::io::ReadBuf<'_>,
            ) -> std::task::Poll<io::Result<()>> {
                let (now, later) = self.0.split_at(self.1.min(self.0.len()).min(into.remaining()));
                into.put_slice(now);
                self.0 = later;
                std::task::Poll::Ready(Ok(()))
            }
        }
        Chunks(bytes, cut)
    }
}
