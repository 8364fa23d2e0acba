//! A session's streams, watched: one that moves nothing for too long has a peer that stopped, whose kernel still answers.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use verbena_transfer::{Channel, Ends};

use crate::limits::Limits;
use crate::session::Running;

/// A stream that counts what it moves, both ways.
pub(crate) struct Watched {
    pub channel: Box<dyn Channel>,
    pub moved: Arc<AtomicU64>,
    /// What may be used of what it reads, and of what it writes.
    pub limits: [Option<Arc<Limits>>; 2],
    /// What breaks it off with the transfer, also while threads wait in it.
    pub running: Option<Arc<Running>>,
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
        let Watched { channel, moved, limits: [of_reads, of_writes], running } = *self;
        let Ends { read, write, finish, close, counts, channel, about, handover } = channel.ends()?;
        let close: Arc<dyn Fn() + Send + Sync> = close.into();
        if let Some(running) = running {
            running.keep_stream(close.clone());
        }
        Ok(Ends {
            read: Box::new(Counted { end: read, moved: moved.clone(), limits: of_reads }),
            write: Box::new(Counted { end: write, moved, limits: of_writes }),
            finish,
            close: Box::new(move || close()),
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

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc::channel;

    use super::*;

    /// A peer that never reads holds a writer in its stream until the transfer is broken off.
    #[test]
    fn a_transfer_that_is_broken_off_frees_those_that_wait_in_its_streams() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        let running = Arc::new(Running::default());
        let (moved, limits) = (Arc::new(AtomicU64::new(0)), [None, None]);
        let stream = Watched { channel: Box::new(near), moved: moved.clone(), limits, running: Some(running.clone()) };
        let Ends { mut write, .. } = Box::new(stream).ends().unwrap();
        let (ended, ends) = channel();
        std::thread::spawn(move || {
            ended.send(std::iter::repeat_with(|| write.write(&[0; 65536])).find(Result::is_err))
        });
        let mut before = 0;
        while before == 0 || before != moved.load(Ordering::Relaxed) {
            before = moved.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(ends.try_recv().is_err(), "it does not wait");
        running.abort();
        assert!(ends.recv_timeout(Duration::from_secs(60)).is_ok(), "it still waits");
        // One that comes later is closed at once.
        let (late, is_closed) = channel();
        running.keep_stream(Arc::new(move || late.send(()).unwrap()));
        assert!(is_closed.try_recv().is_ok());
    }
}
