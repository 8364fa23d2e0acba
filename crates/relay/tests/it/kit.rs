//! Programs that tests start, and the relay between them.

use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use verbena_relay::{Bracket, Conversation, Listener, Outcome, Rejection, ServeLimits, Tls, Upstream, serve};

use crate::words::Log;

/// A bracket that takes a moment and keeps a log.
pub struct Logged {
    pub log: Log,
    /// Writes that contain this are refused.
    pub refuses: Option<(&'static str, Rejection)>,
}

impl Bracket for Logged {
    type Write = String;
    type Ticket = ();

    async fn begin(&self, writes: Vec<String>) -> Result<(), Rejection> {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if let Some((word, rejection)) = self.refuses
            && writes.iter().any(|write| write.contains(word))
        {
            return Err(rejection);
        }
        self.log.push(format!("begin {}", writes.join(" + ")));
        tokio::time::sleep(Duration::from_millis(2)).await;
        Ok(())
    }

    async fn end(&self, (): (), outcome: Outcome) -> bool {
        self.log.push(format!("end {outcome:?}"));
        true
    }
}

/// A relay on a thread of its own.
pub struct Relay {
    pub port: u16,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// Listens at `socket` and at a port of the system's choice.
    pub fn start<C>(
        socket: &Path,
        upstream: &Path,
        bracket: Logged,
        conversation: impl Fn() -> C + Send + 'static,
    ) -> Self
    where
        C: Conversation<Write = String> + 'static,
    {
        let (socket, upstream) = (socket.to_owned(), Upstream::Unix(upstream.to_owned()));
        let (stop, stopped) = oneshot::channel();
        let (told, port) = mpsc::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = tcp.local_addr().unwrap().port();
                let listeners = vec![Listener::Tcp(tcp), Listener::Unix(UnixListener::bind(&socket).unwrap())];
                told.send(port).unwrap();
                let (_reads, reads) = tokio::sync::watch::channel(true);
                let stop = async { drop(stopped.await) };
                serve(
                    (listeners, reads),
                    (upstream, Tls::default()),
                    ServeLimits::default(),
                    bracket,
                    conversation,
                    stop,
                )
                .await;
            });
        });
        Self { port: port.recv().unwrap(), stop: Some(stop), thread: Some(thread) }
    }

    /// Stops in order: returns when the last connection is closed.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.stop();
        }
    }
}
