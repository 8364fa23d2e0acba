//! A client of memcached's text protocol that measures: it waits for each answer, or sends many requests at once.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
    /// The value of the last hit.
    pub(super) value: Vec<u8>,
}

fn strange(line: &[u8]) -> io::Error {
    io::Error::other(format!("the server answered {:?}", String::from_utf8_lossy(line)))
}

impl Client {
    /// To a server.
    pub(super) fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Client { stream: BufReader::with_capacity(128 << 10, stream), line: vec![], value: vec![] })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    fn line(&mut self) -> io::Result<&[u8]> {
        self.line.clear();
        self.stream.read_until(b'\n', &mut self.line)?;
        self.line.strip_suffix(b"\r\n").ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Whether the key has a value, which is in [`value`](Self::value) then.
    pub(super) fn get(&mut self, key: &str) -> io::Result<bool> {
        self.send(format!("get {key}\r\n").as_bytes())?;
        self.got()
    }

    fn got(&mut self) -> io::Result<bool> {
        let line = self.line()?;
        if line == b"END" {
            return Ok(false);
        }
        let length = line.strip_prefix(b"VALUE ").and_then(|rest| rest.rsplit(|byte| *byte == b' ').next());
        let length = length.and_then(|length| std::str::from_utf8(length).ok()?.parse::<usize>().ok());
        let Some(length) = length else { return Err(strange(&self.line)) };
        self.value.resize(length + 2, 0);
        self.stream.read_exact(&mut self.value)?;
        self.value.truncate(length);
        match self.line()? {
            b"END" => Ok(true),
            _ => Err(strange(&self.line)),
        }
    }

    /// Requests for these keys, all sent before the first is answered. How many had a value.
    pub(super) fn get_together(&mut self, keys: &[String]) -> io::Result<usize> {
        let requests: String = keys.iter().map(|key| format!("get {key}\r\n")).collect();
        self.send(requests.as_bytes())?;
        let mut found = 0;
        for _ in keys {
            found += usize::from(self.got()?);
        }
        Ok(found)
    }

    /// Stores a value.
    pub(super) fn set(&mut self, key: &str, value: &[u8]) -> io::Result<()> {
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.send(&request)?;
        self.expect(b"STORED")
    }

    /// A command of one line, and its answer of one line.
    pub(super) fn order(&mut self, line: &str, answer: &[u8]) -> io::Result<()> {
        self.send(format!("{line}\r\n").as_bytes())?;
        self.expect(answer)
    }

    fn expect(&mut self, answer: &[u8]) -> io::Result<()> {
        match self.line()? {
            line if line == answer => Ok(()),
            _ => Err(strange(&self.line)),
        }
    }

    /// A number of `stats`; 0 if it is not among them.
    pub(super) fn statistic(&mut self, name: &str) -> io::Result<u64> {
        self.send(b"stats\r\n")?;
        let (prefix, mut found) = (format!("STAT {name} "), 0);
        loop {
            let line = String::from_utf8_lossy(self.line()?).into_owned();
            if line == "END" {
                return Ok(found);
            }
            if let Some(value) = line.strip_prefix(&prefix) {
                found = value.parse().map_err(|_| strange(line.as_bytes()))?;
            }
        }
    }
}
