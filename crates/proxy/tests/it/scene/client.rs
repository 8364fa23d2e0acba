//! A client, step by step.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::PATIENCE;

/// A client's connection.
pub struct Client {
    pub stream: TcpStream,
    read: Vec<u8>,
    head_only: bool,
}

/// What a client got.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether it came to the end that its framing promises.
    pub whole: bool,
}

impl Client {
    pub fn of(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, read: Vec::new(), head_only: false }
    }

    pub fn send(&mut self, request: &str) {
        self.head_only = request.starts_with("HEAD ");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// A GET with nothing special.
    pub fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n"));
    }

    /// A GET with these further lines.
    pub fn get_with(&mut self, path: &str, lines: &[&str]) {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\n{lines}\r\n"));
    }

    pub fn post(&mut self, path: &str, body: &str) {
        let length = body.len();
        self.send(&format!("POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{body}"));
    }

    /// Goes without a word.
    pub fn hangs_up(self) {
        drop(self);
    }

    /// Nothing comes for a while.
    pub fn waits(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut byte = [0];
        let read = self.stream.peek(&mut byte);
        assert!(
            read.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "an answer that is too early: {read:?}"
        );
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    /// The connection is closed without an answer.
    pub fn is_closed(&mut self) {
        assert!(!self.more(), "{}", String::from_utf8_lossy(&self.read));
        assert_eq!(self.read, b"");
    }

    /// Bytes of the body that came with the head, as they count for whoever reads on by himself.
    pub fn left(&mut self) -> usize {
        std::mem::take(&mut self.read).len()
    }

    /// The connection ends.
    pub fn is_cut(&mut self) {
        while self.more() {}
    }

    /// The connection is reset, after what came before.
    #[track_caller]
    pub fn is_reset(&mut self) {
        let mut buffer = [0; 65536];
        let end = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the connection is closed in good order"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    }

    /// The body, which may go on, begins so.
    #[track_caller]
    pub fn has_of_body(&mut self, body: &[u8]) {
        while self.read.len() < body.len() {
            assert!(self.more(), "the body ends: {:?}", String::from_utf8_lossy(&self.read));
        }
        assert_eq!(String::from_utf8_lossy(&self.read), String::from_utf8_lossy(body));
    }

    /// Bytes of the chunks that are left, to the last.
    pub fn rest_of_chunks(&mut self) -> usize {
        let mut bytes = 0;
        loop {
            match self.chunk().expect("the body is cut") {
                chunk if chunk.is_empty() => return bytes,
                chunk => bytes += chunk.len(),
            }
        }
    }

    /// Reads on, if there is something to read.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}; before: {:?}", String::from_utf8_lossy(&self.read)),
        }
    }

    pub fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more(),
                "the connection was closed without an answer: {:?}",
                String::from_utf8_lossy(&self.read)
            );
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: Vec::new(), whole: true }
    }

    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if answer.status == 100 {
            answer = self.head();
        }
        if self.head_only || [204, 304].contains(&answer.status) {
            return answer;
        }
        if let Some(length) = answer.field("content-length") {
            let length: usize = length.parse().unwrap();
            while self.read.len() < length && self.more() {}
            answer.whole = self.read.len() >= length;
            answer.body = self.read.drain(..length.min(self.read.len())).collect();
        } else if answer.field("transfer-encoding").is_some() {
            answer.whole = false;
            while let Some(chunk) = self.chunk() {
                if chunk.is_empty() {
                    answer.whole = true;
                    break;
                }
                answer.body.extend_from_slice(&chunk);
            }
        } else {
            while self.more() {}
            answer.body = std::mem::take(&mut self.read);
        }
        answer
    }

    /// The next chunk; the last is empty; none if the connection ends before it.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = loop {
            if let Some(at) = self.read.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            if !self.more() {
                return None;
            }
        };
        let size = std::str::from_utf8(&self.read[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        while self.read.len() < line + 2 + size + 2 {
            if !self.more() {
                return None;
            }
        }
        let chunk = self.read[line + 2..line + 2 + size].to_vec();
        self.read.drain(..line + 2 + size + 2);
        Some(chunk)
    }
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_string())
    }

    #[track_caller]
    pub fn is(&self, status: u16, body: &str) -> &Self {
        assert_eq!((self.status, String::from_utf8_lossy(&self.body).as_ref()), (status, body), "{}", self.head);
        assert!(self.whole, "the answer is cut");
        self
    }

    /// The status, whatever the text.
    #[track_caller]
    pub fn has(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        self
    }

    /// `Cache-Status` says this among other things.
    #[track_caller]
    pub fn said(&self, part: &str) -> &Self {
        let status = self.field("cache-status").unwrap_or_else(|| panic!("no Cache-Status: {}", self.head));
        assert!(status.contains(part), "{status} does not say {part}");
        self
    }
}
