//! A session's streams, watched: one that moves nothing for too long has a peer that stopped, whose kernel still answers.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use verbena_transfer::{Channel, Ends};

/// A stream that counts what it moves, both ways.
pub(crate) struct Watched {
    pub channel: Box<dyn Channel>,
    pub moved: Arc<AtomicU64>,
}

struct Counted<End> {
    end: End,
    moved: Arc<AtomicU64>,
}

impl<End> Counted<End> {
    fn count(&self, result: std::io::Result<usize>) -> std::io::Result<usize> {
        self.moved.fetch_add(*result.as_ref().unwrap_or(&0) as u64, Ordering::Relaxed);
        result
    }
}

impl Read for Counted<Box<dyn Read + Send>> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let read = self.end.read(bytes);
        self.count(read)
    }
}

impl Write for Counted<Box<dyn Write + Send>> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.end.write(bytes);
        self.count(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.end.flush()
    }
}

impl Channel for Watched {
    fn ends(self: Box<Self>) -> std::io::Result<Ends> {
        let Watched { channel, moved } = *self;
        let Ends { read, write, finish, close, counts, about } = channel.ends()?;
        Ok(Ends {
            read: Box::new(Counted { end: read, moved: moved.clone() }),
            write: Box::new(Counted { end: write, moved }),
            finish,
            close,
            counts,
            about,
        })
    }
}

/// Ends once nothing has been counted for `limit`.
pub(crate) async fn stands_still(moved: &AtomicU64, limit: Duration) {
    let mut seen = moved.load(Ordering::Relaxed);
    loop {
        tokio::time::sleep(limit).await;
        let now = moved.load(Ordering::Relaxed);
        if now == seen {
            return;
        }
        seen = now;
    }
}
