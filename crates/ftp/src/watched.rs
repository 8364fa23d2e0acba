//! A session's streams, watched: one that moves nothing for too long has a peer that stopped, whose kernel still answers.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use verbena_transfer::{Channel, Ends};

use crate::limits::Limits;

/// A stream that counts what it moves, both ways.
pub(crate) struct Watched {
    pub channel: Box<dyn Channel>,
    pub moved: Arc<AtomicU64>,
    /// What may be used of what it reads, and of what it writes.
    pub limits: [Option<Arc<Limits>>; 2],
}

struct Counted<End> {
    end: End,
    moved: Arc<AtomicU64>,
    limits: Option<Arc<Limits>>,
}

impl<End> Counted<End> {
    fn count(&self, result: std::io::Result<usize>) -> std::io::Result<usize> {
        let bytes = *result.as_ref().unwrap_or(&0) as u64;
        self.moved.fetch_add(bytes, Ordering::Relaxed);
        if let Some(limits) = &self.limits {
            limits.passed(bytes);
        }
        result
    }
}

impl Read for Counted<Box<dyn Read + Send>> {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        let most = self.limits.as_ref().map_or(bytes.len(), |limits| limits.block(bytes.len()).min(bytes.len()));
        let read = self.end.read(&mut bytes[..most]);
        self.count(read)
    }
}

impl Write for Counted<Box<dyn Write + Send>> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let most = self.limits.as_ref().map_or(bytes.len(), |limits| limits.block(bytes.len()).min(bytes.len()));
        let written = self.end.write(&bytes[..most]);
        self.count(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.end.flush()
    }
}

impl Channel for Watched {
    fn ends(self: Box<Self>) -> std::io::Result<Ends> {
        let Watched { channel, moved, limits: [of_reads, of_writes] } = *self;
        let Ends { read, write, finish, close, counts, channel, about, handover } = channel.ends()?;
        Ok(Ends {
            read: Box::new(Counted { end: read, moved: moved.clone(), limits: of_reads }),
            write: Box::new(Counted { end: write, moved, limits: of_writes }),
            finish,
            close,
            counts,
            channel,
            about,
            handover,
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
