//! An application of pages with versions, and a client of whoever stands before it.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The longest wait for anything that must happen.
const SOON: Duration = Duration::from_secs(60);

/// `GET /KIND/NAME` answers with the version of NAME, `POST` makes it the next one. What a page says in its head is told by KIND.
pub struct Application {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    versions: Mutex<HashMap<String, u64>>,
    asked: Mutex<HashMap<String, usize>>,
    held: Mutex<bool>,
    released: Condvar,
}

/// An answer, as a client gets it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// In small letters.
    pub head: String,
    pub body: String,
}

impl Application {
    pub fn start() -> Application {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let served = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), served.clone());
                // A client that breaks off has no answer.
                std::thread::spawn(move || shared.serve(&stream).ok());
            }
        });
        Application { port, shared }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// How often a page was asked for.
    pub fn asked(&self, path: &str) -> usize {
        self.shared.asked.lock().unwrap().get(path).copied().unwrap_or(0)
    }

    /// Makes it the next version, as a write in the database would.
    pub fn write(&self, name: &str) -> u64 {
        self.shared.write(name)
    }

    /// Pages of the kind `held` are read and not answered, until they are released.
    pub fn hold(&self) {
        *self.shared.held.lock().unwrap() = true;
    }

    pub fn release(&self) {
        *self.shared.held.lock().unwrap() = false;
        self.shared.released.notify_all();
    }
}

impl Shared {
    fn write(&self, name: &str) -> u64 {
        let mut versions = self.versions.lock().unwrap();
        let version = versions.entry(name.to_owned()).or_default();
        *version += 1;
        *version
    }

    fn serve(&self, mut stream: &TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut lines = reader.by_ref().lines();
        let first = lines.next().transpose()?.unwrap_or_default();
        let mut length = 0;
        let mut conditions = Vec::new();
        let mut is_of_fill = false;
        for line in lines.by_ref() {
            let line = line?.to_lowercase();
            if line.is_empty() {
                break;
            }
            is_of_fill |= line.starts_with("verbena-fill:");
            length = line.strip_prefix("content-length: ").map_or(length, |length| length.parse().unwrap());
            conditions.extend(
                line.split_once(": ").filter(|(name, _)| name.starts_with("if-")).map(|(_, value)| value.to_owned()),
            );
        }
        let mut sent = vec![0; length];
        reader.read_exact(&mut sent)?;
        let sum: u64 = sent.iter().map(|byte| u64::from(*byte)).sum();
        let mut words = first.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (kind, name) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
        *self.asked.lock().unwrap().entry(path.to_owned()).or_default() += 1;
        let version = match method {
            "POST" => self.write(name),
            _ => self.versions.lock().unwrap().get(name).copied().unwrap_or(0),
        };
        if kind == "held" {
            let held = self.held.lock().unwrap();
            drop(self.released.wait_timeout_while(held, SOON, |held| *held).unwrap());
        }
        let named = format!("Verbena-Dependencies: \"{name}\"\r\n");
        let fields = match kind {
            "cookie" => format!("{named}Set-Cookie: session=of-one\r\n"),
            "short" => format!("{named}Cache-Control: max-age=1\r\n"),
            "undeclared" => String::new(),
            "weak" => format!("{named}ETag: W/\"1\"\r\nCache-Control: no-cache\r\n"),
            "dated" => {
                format!("{named}ETag: \"v{version}\"\r\nLast-Modified: Sun, 29 Nov 2026 10:00:00 GMT\r\n")
            }
            "fill" => format!("{named}X-Fill: {is_of_fill}\r\n"),
            "public" => format!("{named}Cache-Control: public\r\n"),
            _ => named,
        };
        // As many frameworks answer: by a tag, or by a second in which a page may have changed twice.
        let has_it = [format!("\"v{version}\""), "sun, 29 nov 2026 10:00:00 gmt".to_owned()];
        if kind == "dated" && conditions.iter().any(|condition| has_it.contains(condition)) {
            return write!(stream, "HTTP/1.1 304 Not Modified\r\n{fields}Connection: close\r\n\r\n");
        }
        let mut body =
            format!("{version}\n{}", if length > 0 { format!("{length} bytes, {sum}\n") } else { String::new() });
        if kind == "long" {
            body.push_str(&"x".repeat(300_000));
        }
        let length = body.len();
        if kind == "chunked" {
            return write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n{fields}Connection: close\r\n\r\n\
                 {length:x}\r\n{body}\r\n0\r\n\r\n"
            );
        }
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\n{fields}Connection: close\r\n\r\n{body}"
        )
    }
}

impl Answer {
    pub fn is_hit(&self) -> bool {
        self.head.contains("x-cache: hit")
    }

    /// The version that it shows.
    pub fn version(&self) -> u64 {
        assert_eq!(self.status, 200, "{self:?}");
        self.body.lines().next().unwrap().parse().unwrap()
    }
}

/// Asks, with these lines in the head.
pub fn ask(port: u16, method: &str, path: &str, lines: &str) -> Answer {
    let length = if method == "POST" { "Content-Length: 0\r\n" } else { "" };
    answer(begin(port, method, path, &format!("{length}{lines}")))
}

/// Sends the head of a request.
pub fn begin(port: u16, method: &str, path: &str, lines: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{lines}\r\n").unwrap();
    stream
}

/// Reads the whole answer.
pub fn answer(mut stream: TcpStream) -> Answer {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub fn get(port: u16, path: &str) -> Answer {
    ask(port, "GET", path, "")
}

pub fn post(port: u16, path: &str) -> Answer {
    ask(port, "POST", path, "")
}
