//! A client's connections: a request goes out, an answer that is well comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

/// What is read at once, and the longest head: an answer that has a longer one is an error.
pub(super) const BUFFER: usize = 64 << 10;

/// How much of a body is kept to be looked at.
const KEPT: usize = 1 << 10;

/// How long a server may take to accept.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection without a thread of its own: it is read when there is something to be read.
pub(super) struct Connection {
    stream: TcpStream,
    /// The head, once it is whole, and the beginning of the body.
    buffer: Vec<u8>,
    progress: Progress,
}

enum Progress {
    Head,
    Body { head: Head, left: usize },
}

/// What a head says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Head {
    bytes: usize,
    length: usize,
    hit: bool,
}

/// A whole answer with status 200.
#[derive(Debug, PartialEq)]
pub(super) struct Answered<'a> {
    /// Whether `Cache-Status` says that it came out of the cache.
    pub(super) hit: bool,
    /// Bytes of the body.
    pub(super) length: usize,
    /// The first of them, up to 1 KiB.
    pub(super) beginning: &'a [u8],
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("{address}: {error}");
        let stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(text)?;
        Ok(Connection { stream, buffer: Vec::with_capacity(BUFFER + KEPT), progress: Progress::Head })
    }

    /// Sends a request, if none is under way. So little always fits into an idle connection's buffer.
    pub(super) fn send(&mut self, request: &[u8]) -> Result<(), String> {
        self.buffer.clear();
        self.progress = Progress::Head;
        self.stream.write_all(request).map_err(|error| error.to_string())
    }

    /// Reads what is there, through `scratch`; the answer if that was its end.
    pub(super) fn receive(&mut self, scratch: &mut [u8]) -> Result<Option<Answered<'_>>, String> {
        loop {
            let read = match self.stream.read(scratch) {
                Ok(0) => return Err("the server closed a connection".to_owned()),
                Ok(read) => &scratch[..read],
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.to_string()),
            };
            let (head, left) = match self.progress {
                Progress::Body { head, left } => {
                    let room = (head.bytes + KEPT).saturating_sub(self.buffer.len());
                    self.buffer.extend_from_slice(&read[..room.min(read.len())]);
                    (head, left.checked_sub(read.len()))
                }
                Progress::Head => {
                    self.buffer.extend_from_slice(read);
                    let Some(head) = head(&self.buffer)? else { continue };
                    (head, (head.bytes + head.length).checked_sub(self.buffer.len()))
                }
            };
            let left = left.ok_or("the server says more than it was asked")?;
            self.progress = Progress::Body { head, left };
            if left == 0 {
                let kept = head.length.min(KEPT);
                let beginning = &self.buffer[head.bytes..head.bytes + kept];
                return Ok(Some(Answered { hit: head.hit, length: head.length, beginning }));
            }
        }
    }
}

/// Opens `number` connections, and what tells by [`wait`] which of them, counted from 0, have something to be read.
pub(super) fn open_all(address: SocketAddr, number: usize) -> Result<(OwnedFd, Vec<Connection>), String> {
    let text = |error: Errno| format!("{address}: {error}");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(text)?;
    let open = |at: usize| {
        let connection = Connection::open(address)?;
        let data = epoll::EventData::new_u64(at as u64);
        epoll::add(&epoll, &connection.stream, data, epoll::EventFlags::IN).map_err(text)?;
        Ok(connection)
    };
    let connections = (0..number).map(open).collect::<Result<_, String>>()?;
    Ok((epoll, connections))
}

/// Waits until there is something to be read. Whether `patience` has not run out.
pub(super) fn wait(epoll: &OwnedFd, events: &mut Vec<epoll::Event>, patience: Duration) -> Result<bool, String> {
    let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
    events.clear();
    match epoll::wait(epoll, rustix::buffer::spare_capacity(events), Some(&patience)) {
        Ok(0) => Ok(false),
        Ok(_) | Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.to_string()),
    }
}

/// Asks for one page, on a connection of its own. The whole answer.
pub(crate) fn get(address: SocketAddr, path: &str, patience: Duration) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// What the head of an answer that is well says; `None` while it is not whole.
fn head(bytes: &[u8]) -> Result<Option<Head>, String> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut fields);
    let head = match answer.parse(bytes).map_err(|error| error.to_string())? {
        httparse::Status::Complete(head) => head,
        httparse::Status::Partial if bytes.len() > BUFFER => return Err("the head has no end".to_owned()),
        httparse::Status::Partial => return Ok(None),
    };
    let field = |name: &str| {
        let field = answer.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        field.and_then(|field| std::str::from_utf8(field.value).ok())
    };
    if answer.code != Some(200) {
        return Err(format!(
            "the answer is {:?} ({})",
            answer.code,
            field("cache-status").unwrap_or("no Cache-Status")
        ));
    }
    let length = field("content-length").and_then(|length| length.trim().parse().ok());
    let hit = field("cache-status").is_some_and(|status| status.contains("; hit"));
    Ok(Some(Head { bytes: head, length: length.ok_or("the answer has no length")?, hit }))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_answer_is_as_long_as_it_says() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Status: verbena; hit\r\n\r\n";
        assert_eq!(head(whole), Ok(Some(Head { bytes: whole.len(), length: 5, hit: true })));
        assert_eq!(head(&whole[..20]), Ok(None));
        assert!(head(b"HTTP/1.1 503 No\r\nContent-Length: 5\r\n\r\n").is_err());
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(head(b"SSH-2.0\r\n").is_err());
    }

    #[test]
    fn the_beginning_of_a_long_body_is_kept_however_it_is_cut() {
        let body: Vec<u8> = (0..3_000_u32).map(|at| at as u8).collect();
        let whole = [b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n", &body[..]].concat();
        for pieces in [1, 7, 41, 45, 2_000, whole.len()] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut connection = Connection::open(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            server.write_all(&whole).unwrap();
            let mut scratch = vec![0; pieces];
            let mut tries = 0;
            let answered = loop {
                match connection.receive(&mut scratch).unwrap() {
                    Some(answered) => break (answered.hit, answered.length, answered.beginning.to_vec()),
                    None => assert!({
                        tries += 1;
                        std::thread::yield_now();
                        tries < 1_000_000
                    }),
                }
            };
            assert_eq!(answered, (false, 3_000, body[..KEPT].to_vec()), "{pieces} at once");
        }
    }
}
