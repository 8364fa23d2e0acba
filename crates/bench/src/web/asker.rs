//! A client that asks for one thing after the other, each on the connection that it has or a new one.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest head and the longest body, in bytes. An answer that has more of either is an error.
const LONGEST: u64 = 64 << 10;
const LONGEST_BODY: u64 = 1 << 20;

/// A client of one server.
pub(crate) struct Asker {
    address: SocketAddr,
    patience: Duration,
    connection: Option<BufReader<TcpStream>>,
}

/// A whole answer.
pub(crate) struct Answer {
    /// The lines of its head.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Whether its status is 200.
    pub(crate) fn is_well(&self) -> bool {
        self.head.starts_with("HTTP/1.1 200 ")
    }

    /// Whether `Cache-Status` says that it came out of the cache.
    pub(crate) fn is_hit(&self) -> bool {
        self.field("cache-status").is_some_and(|status| status.contains("; hit"))
    }

    /// A number that the body is.
    pub(crate) fn number(&self) -> Option<u64> {
        std::str::from_utf8(&self.body).ok()?.trim().parse().ok()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }
}

impl Asker {
    /// One that waits `patience` at most for a connection, and for each part of an answer.
    pub(crate) fn new(address: SocketAddr, patience: Duration) -> Self {
        Asker { address, patience, connection: None }
    }

    /// Sends a request without a body: what stands before the blank line, such as `GET / HTTP/1.1\r\nHost: a`. The answer to it.
    ///
    /// # Errors
    /// If there is no whole answer of at most 1 MiB; the connection is closed then.
    pub(crate) fn ask(&mut self, request: &str) -> Result<Answer> {
        self.send(&format!("{request}\r\n\r\n"))
    }

    /// The same with a body, whose length is added.
    ///
    /// # Errors
    /// As for [`Asker::ask`].
    pub(crate) fn ask_with(&mut self, request: &str, body: &str) -> Result<Answer> {
        self.send(&format!("{request}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
    }

    fn send(&mut self, request: &str) -> Result<Answer> {
        let answer = self.on_connection(request);
        if answer.is_err() {
            self.connection = None;
        }
        answer
    }

    fn on_connection(&mut self, request: &str) -> Result<Answer> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let stream = TcpStream::connect_timeout(&self.address, self.patience)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(self.patience))?;
                none.insert(BufReader::new(stream))
            }
        };
        connection.get_mut().write_all(request.as_bytes())?;
        let mut head = String::new();
        loop {
            let from = head.len();
            if connection.take(LONGEST).read_line(&mut head)? == 0 {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
            if head[from..].trim_end().is_empty() {
                break;
            }
            if head.len() as u64 > LONGEST {
                return Err(bad("the head has no end"));
            }
        }
        let mut answer = Answer { head, body: vec![] };
        let length = answer.field("content-length").map(str::parse::<u64>);
        let is_chunked = answer.field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"));
        match length {
            Some(Ok(length)) => add(connection, length, &mut answer.body)?,
            None if is_chunked => while add_chunk(connection, &mut answer.body)? {},
            _ => return Err(bad("the answer has no length")),
        }
        Ok(answer)
    }
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

/// Reads so many bytes more of a body.
fn add(connection: &mut BufReader<TcpStream>, length: u64, body: &mut Vec<u8>) -> Result<()> {
    let from = body.len();
    if length > LONGEST_BODY - from as u64 {
        return Err(bad("the answer is too long"));
    }
    body.resize(from + length as usize, 0);
    connection.read_exact(&mut body[from..])
}

/// Reads one chunk of a body, with the end of it. `false`: it was the last one. No server here sends fields behind it.
fn add_chunk(connection: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Result<bool> {
    let mut line = String::new();
    connection.take(LONGEST).read_line(&mut line)?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    let length = u64::from_str_radix(digits, 16).map_err(|_| bad("a chunk has no length"))?;
    add(connection, length, body)?;
    let mut end = [0; 2];
    connection.read_exact(&mut end)?;
    if end != *b"\r\n" {
        return Err(bad("a chunk has no end"));
    }
    Ok(length > 0)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_body_in_chunks_is_put_together_and_a_request_may_have_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut asker = Asker::new(listener.local_addr().unwrap(), Duration::from_secs(20));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for body in ["3;x=y\r\nabc\r\nB\r\n0123456789!\r\n0\r\n\r\n", "2\r\nabcd0\r\n\r\n"] {
                let mut request = [0; 128];
                let read = stream.read(&mut request).unwrap();
                assert_eq!(&request[..read], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na=b");
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
            }
        });
        let mut ask = || asker.ask_with("POST / HTTP/1.1\r\nHost: a", "a=b");
        assert_eq!(ask().unwrap().body, b"abc0123456789!");
        assert!(ask().is_err());
        server.join().unwrap();
    }

    #[test]
    fn answers_are_whole_and_a_broken_connection_is_made_anew() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut asker = Asker::new(listener.local_addr().unwrap(), Duration::from_secs(20));
        let server = std::thread::spawn(move || {
            for answers in [
                &["HTTP/1.1 200 OK\r\nCache-Status: v; hit\r\ncontent-length: 3\r\n\r\n17\n", "nonsense"][..],
                &["HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"],
            ] {
                let (mut stream, _) = listener.accept().unwrap();
                for answer in answers {
                    let mut request = [0; 64];
                    let read = stream.read(&mut request).unwrap();
                    assert_eq!(&request[..read], b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        });
        let mut ask = || asker.ask("GET / HTTP/1.1\r\nHost: a");
        let first = ask().unwrap();
        assert_eq!((first.is_well(), first.is_hit(), first.number()), (true, true, Some(17)));
        assert!(ask().is_err());
        let last = ask().unwrap();
        assert_eq!((last.is_well(), last.is_hit(), last.number()), (false, false, None));
        server.join().unwrap();
    }
}
