//! The application, step by step.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::PATIENCE;

/// The application, as a script: it says what was asked, and answers what the test says.
pub struct Origin {
    pub address: SocketAddr,
    asked: Receiver<Asked>,
}

/// A request at the application.
pub struct Asked {
    pub head: String,
    pub stream: TcpStream,
    /// What was read beyond the head.
    body: Vec<u8>,
    /// Dropped when the next request of the connection may be read.
    _turn: Sender<()>,
}

impl Origin {
    pub fn start() -> Origin {
        Origin::listen(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub fn listen(listener: TcpListener) -> Origin {
        let address = listener.local_addr().unwrap();
        let (asks, asked) = channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let asks = asks.clone();
                std::thread::spawn(move || converse(stream, &asks));
            }
        });
        Origin { address, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request, which is about this target.
    #[track_caller]
    pub fn asked(&self, target: &str) -> Asked {
        let asked = self.asked.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{target} is not asked for"));
        assert_eq!(asked.head.split(' ').nth(1), Some(target), "{}", asked.head);
        asked
    }

    /// The next request, whatever it is for.
    pub fn asked_any(&self) -> Asked {
        self.asked.recv_timeout(PATIENCE).unwrap()
    }

    /// The next request, if one comes soon.
    pub fn asked_soon(&self) -> Option<Asked> {
        self.asked.recv_timeout(Duration::from_millis(50)).ok()
    }

    /// No request comes for a while.
    #[track_caller]
    pub fn is_left_alone(&self) {
        if let Ok(asked) = self.asked.recv_timeout(Duration::from_millis(50)) {
            panic!("asked for {}", asked.head);
        }
    }
}

/// The head of the next request of a connection; `None` where that ends. What was read beyond it stays in `read`.
pub fn next_head(stream: &mut impl Read, read: &mut Vec<u8>) -> Option<String> {
    let end = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(n) if n > 0 => read.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    };
    Some(String::from_utf8(read.drain(..end).collect()).unwrap())
}

fn converse(mut stream: TcpStream, asks: &Sender<Asked>) {
    let mut read = Vec::new();
    while let Some(head) = next_head(&mut stream, &mut read) {
        let (turn, done) = channel();
        let own = stream.try_clone().unwrap();
        if asks.send(Asked { head, stream: own, body: std::mem::take(&mut read), _turn: turn }).is_err() {
            return;
        }
        let _ = done.recv();
    }
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_string())
    }

    /// Reads so much of its body.
    pub fn reads(&mut self, bytes: usize) -> Vec<u8> {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 65536];
        while self.body.len() < bytes {
            match self.stream.read(&mut buffer).unwrap() {
                0 => panic!("the request ends after {} of {bytes} bytes", self.body.len()),
                n => self.body.extend_from_slice(&buffer[..n]),
            }
        }
        self.body.drain(..bytes).collect()
    }

    /// Says these bytes; the answer may go on.
    pub fn says(&mut self, bytes: &str) -> &mut Self {
        self.stream.write_all(bytes.as_bytes()).unwrap();
        self
    }

    /// 200 with these lines and this body.
    pub fn answers(self, lines: &[&str], body: &str) {
        self.answers_status(200, lines, body);
    }

    /// This status with these lines and this body.
    pub fn answers_status(self, status: u16, lines: &[&str], body: &str) {
        let length = format!("Content-Length: {}", body.len());
        self.answers_head(status, &[lines, &[&length, "", body]].concat());
    }

    /// This status with these lines, and no body beside what they are.
    pub fn answers_head(mut self, status: u16, lines: &[&str]) {
        let has_body = lines.contains(&"");
        let end = if has_body { "" } else { "\r\n\r\n" };
        let phrase = if status == 200 { "OK" } else { "So" };
        self.says(&format!("HTTP/1.1 {status} {phrase}\r\n{}{end}", lines.join("\r\n")));
    }

    /// 200, depending on everything.
    pub fn page(self, body: &str) {
        self.answers(&[], body);
    }

    /// 200, depending on one thing.
    pub fn depends(self, dependency: &str, body: &str) {
        self.answers(&[&format!("Verbena-Dependencies: {dependency}")], body);
    }

    /// Ends the connection in good order.
    pub fn closes(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Breaks the connection.
    pub fn resets(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
        // The reader's handle keeps the connection: both must go.
        let _ = self.stream.shutdown(Shutdown::Read);
    }
}
