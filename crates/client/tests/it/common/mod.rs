//! A helper of the test: says what the test has written down for it, over a unix socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use verbena_client::{Place, Updates};

/// The longest wait for anything that must happen.
pub const SOON: Duration = Duration::from_secs(60);

/// What the peer does when it has heard a request.
pub enum Then {
    /// Says this, and listens on.
    Say(String),
    /// Says this when a permit is there.
    SayLater(Arc<Semaphore>, String),
    /// Says this, and closes the connection.
    SayAndClose(String),
    /// Nothing, until the other side closes.
    Nothing,
}

/// The peer.
pub struct Peer {
    directory: tempfile::TempDir,
    log: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
}

impl Peer {
    /// A peer that does this for each request, given as `METHOD TARGET BODY`.
    pub fn new(script: impl FnMut(&str) -> Then + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("http.sock")).unwrap();
        let (log, connections) = (Arc::default(), Arc::default());
        let peer = Peer { directory, log, connections };
        let (log, connections) = (peer.log.clone(), peer.connections.clone());
        let script = Arc::new(Mutex::new(script));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.fetch_add(1, Ordering::SeqCst);
                let (log, connections, script) = (log.clone(), connections.clone(), script.clone());
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = hear(&mut stream).await {
                        log.lock().push(request.clone());
                        let then = (*script.lock())(&request);
                        if !act(stream.get_mut(), then).await {
                            break;
                        }
                    }
                    connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        peer
    }

    /// One that does what it is asked.
    pub fn willing() -> Self {
        Peer::new(|request| Then::Say(willing(request)))
    }

    pub fn place(&self) -> Place {
        Place::Unix(self.directory.path().join("http.sock"))
    }

    pub fn updates(&self) -> Updates {
        Updates::at(self.place()).with_patience(SOON)
    }

    /// What it was asked, with whatever else the test has noted.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().clone()
    }

    pub fn note(&self, what: &str) {
        self.log.lock().push(what.into());
    }

    pub fn notes(&self) -> impl Fn(&str) + Clone + Send + Sync + 'static {
        let log = self.log.clone();
        move |what| log.lock().push(what.into())
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// The answer of a helper that does what it is asked.
pub fn willing(request: &str) -> String {
    if request.contains("/end ") {
        answer(200, r#"{"acknowledge":true}"#)
    } else if request.contains("/purge ") {
        answer(200, r#"{"purged":true}"#)
    } else {
        answer(201, r#"{"update":"a-1"}"#)
    }
}

pub fn answer(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Waits until it is so.
pub async fn until(what: &str, is_it: impl Fn() -> bool) {
    let waiting = async {
        while !is_it() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

async fn hear(stream: &mut BufReader<UnixStream>) -> Option<String> {
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).await.ok().filter(|&read| read > 0)?;
    let target = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    loop {
        line.clear();
        stream.read_line(&mut line).await.ok().filter(|&read| read > 0)?;
        match line.trim_end().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(format!("{target} {}", String::from_utf8(body).unwrap()))
}

/// Whether the peer listens on.
async fn act(stream: &mut UnixStream, then: Then) -> bool {
    let (text, stays) = match then {
        Then::Say(text) => (text, true),
        Then::SayLater(gate, text) => {
            gate.acquire().await.unwrap().forget();
            (text, true)
        }
        Then::SayAndClose(text) => (text, false),
        Then::Nothing => {
            let _ = stream.read(&mut [0]).await;
            return false;
        }
    };
    stream.write_all(text.as_bytes()).await.is_ok() && stays
}
