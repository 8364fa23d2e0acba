//! The other end: a client of the text protocol that waits for each answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use thiserror::Error;
use verbena_listening::{client, of_handshake};

/// Bytes of the longest line that a server may answer.
const LONGEST_LINE: u64 = 64 << 10;
/// Bytes of the largest value that it may answer.
const LARGEST_VALUE: usize = 1 << 30;

/// Why there is no answer.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The connection.
    #[error(
        "the pool's server at {at} does not answer: {reason}; `verbena pool` starts one, and --server names another"
    )]
    Connection {
        /// Where.
        at: String,
        /// Why.
        reason: io::Error,
    },
    /// What was given is no address.
    #[error(
        "{at:?} is no address of a pool's server: write HOST:PORT, or the path of its unix socket with a / in it (no TLS is spoken there)"
    )]
    Address {
        /// What was given.
        at: String,
    },
    /// The authorities cannot be read.
    #[error("{0}")]
    Authorities(String),
    /// An answer that is an error.
    #[error("the pool's server says: {0}")]
    Refused(String),
    /// An answer that is none.
    #[error(
        "the server answered {0:?}, which is no answer of memcached's protocol to this command: is it a pool's address?"
    )]
    Strange(String),
    /// A user for a server that has none.
    #[error(
        "the pool's server at {at} asks for no user here, and would keep the password as a value for all to read: nothing was sent; leave out --user and --password-file"
    )]
    Open {
        /// Where.
        at: String,
    },
    /// A key that no server takes.
    #[error("{0:?} is no key: 1 to 250 bytes, without spaces and control characters")]
    Key(String),
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The client's flags.
    pub flags: u32,
    /// Another for each value of the key.
    pub cas: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Looks whether it is `HOST:PORT`.
fn check(at: &str) -> Result<(), ClientError> {
    let port = at.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(()),
        _ => Err(ClientError::Address { at: at.into() }),
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// A connection to a server of the memcached protocol.
pub struct Client {
    at: String,
    stream: BufReader<Box<dyn Stream>>,
}

impl Client {
    /// To `HOST:PORT`, or to a unix socket where it has a slash.
    ///
    /// # Errors
    /// If that is no address, or there is no server.
    pub fn connect(at: &str, patience: Duration) -> Result<Client, ClientError> {
        if !at.contains('/') {
            check(at)?;
        }
        let open = || -> io::Result<Box<dyn Stream>> {
            if at.contains('/') {
                let stream = UnixStream::connect(Path::new(at))?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok(Box::new(stream));
            }
            let stream = TcpStream::connect(at)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(Box::new(stream))
        };
        let stream = open().map_err(|reason| ClientError::Connection { at: at.into(), reason })?;
        Ok(Client { at: at.into(), stream: BufReader::new(stream) })
    }

    /// To `HOST:PORT` by TLS, if one of these authorities, PEM, vouches for the server.
    ///
    /// # Errors
    /// If that is no address, the authorities cannot be read, or there is no such server.
    pub fn connect_secure(at: &str, authorities: &Path, patience: Duration) -> Result<Client, ClientError> {
        check(at)?;
        let config = Arc::new(client(Some(authorities)).map_err(ClientError::Authorities)?);
        let open = || -> io::Result<Box<dyn Stream>> {
            let host = at.rsplit_once(':').map_or(at, |(host, _)| host).trim_matches(['[', ']']);
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let stream = TcpStream::connect(at)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            let mut stream = StreamOwned::new(ClientConnection::new(config, name).map_err(io::Error::other)?, stream);
            stream.conn.complete_io(&mut stream.sock).map_err(of_handshake)?;
            Ok(Box::new(stream))
        };
        let stream = open().map_err(|reason| ClientError::Connection { at: at.into(), reason })?;
        Ok(Client { at: at.into(), stream: BufReader::new(stream) })
    }

    /// Says which user this is, to a server that has a file of users. Any other server would keep the password as a value that every client can read, so it is asked first
    /// whether it serves a client that has not said who it is.
    ///
    /// # Errors
    /// If the server asks for no password, or if this is not the user's.
    pub fn authenticate(&mut self, user: &str, password: &str) -> Result<(), ClientError> {
        self.send(&[b"mn\r\n"])?;
        match self.line() {
            Err(ClientError::Refused(said)) if said == "CLIENT_ERROR unauthenticated" => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(ClientError::Open { at: self.at.clone() }),
        }
        let said = format!("{user} {password}");
        self.send(&[format!("set auth 0 0 {}\r\n{said}\r\n", said.len()).as_bytes()])?;
        self.expect(&["STORED"]).map(|_| ())
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn get(&mut self, key: &str) -> Result<Option<Value>, ClientError> {
        self.send(&[b"gets ", checked(key)?, b"\r\n"])?;
        let mut found = None;
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(found);
            }
            let strange = || ClientError::Strange(line.clone());
            let mut words = line.strip_prefix("VALUE ").ok_or_else(strange)?.split(' ').skip(1);
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or_else(strange);
            let (flags, length, cas) = (number()?, number()?, number()?);
            let length = usize::try_from(length).ok().filter(|length| *length <= LARGEST_VALUE).ok_or_else(strange)?;
            let mut bytes = vec![0; length + 2];
            self.stream.read_exact(&mut bytes).map_err(|reason| self.lost(reason))?;
            bytes.truncate(length);
            found = Some(Value { flags: u32::try_from(flags).map_err(|_| strange())?, cas, bytes });
        }
    }

    /// Sets a key, for so many seconds; 0 is for good.
    ///
    /// # Errors
    /// If it is not set, or that is not known.
    pub fn set(&mut self, key: &str, flags: u32, seconds: u32, value: &[u8]) -> Result<(), ClientError> {
        let line = format!(" {flags} {seconds} {}\r\n", value.len());
        self.send(&[b"set ", checked(key)?, line.as_bytes(), value, b"\r\n"])?;
        self.expect(&["STORED"]).map(|_| ())
    }

    /// Deletes a key. Whether there was one.
    ///
    /// # Errors
    /// If that is not known.
    pub fn delete(&mut self, key: &str) -> Result<bool, ClientError> {
        self.send(&[b"delete ", checked(key)?, b"\r\n"])?;
        Ok(self.expect(&["DELETED", "NOT_FOUND"])? == 0)
    }

    /// Gives a key another time. Whether there is one.
    ///
    /// # Errors
    /// If that is not known.
    pub fn touch(&mut self, key: &str, seconds: u32) -> Result<bool, ClientError> {
        self.send(&[b"touch ", checked(key)?, format!(" {seconds}\r\n").as_bytes()])?;
        Ok(self.expect(&["TOUCHED", "NOT_FOUND"])? == 0)
    }

    /// The cas value of a key, without its value, and without a trace in the pool. `None` if it has none.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn cas(&mut self, key: &str) -> Result<Option<u64>, ClientError> {
        self.send(&[b"mg ", checked(key)?, b" c u\r\n"])?;
        let line = self.line()?;
        match line.strip_prefix("HD c").and_then(|rest| rest.split(' ').next()).map(str::parse) {
            Some(Ok(cas)) => Ok(Some(cas)),
            _ if line == "EN" => Ok(None),
            _ => Err(ClientError::Strange(line)),
        }
    }

    /// The scheme that says where objects go.
    ///
    /// # Errors
    /// If there is no answer, or the server is no pool.
    pub fn scheme(&mut self) -> Result<String, ClientError> {
        let settings = self.statistics("settings")?;
        let found = settings.into_iter().find(|(name, _)| name == "pool_scheme");
        found.map(|(_, scheme)| scheme).ok_or_else(|| ClientError::Strange("stats without pool_scheme".into()))
    }

    /// Another scheme, at all nodes.
    ///
    /// # Errors
    /// If there is none of this name, or that is not known.
    pub fn choose_scheme(&mut self, name: &str) -> Result<(), ClientError> {
        self.send(&[format!("pool_scheme {name}\r\n").as_bytes()])?;
        self.expect(&["OK"]).map(|_| ())
    }

    /// Deletes everything.
    ///
    /// # Errors
    /// If that is not known.
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.send(&[b"flush_all\r\n"])?;
        self.expect(&["OK"]).map(|_| ())
    }

    /// The lines of `stats`, or of `stats WHICH`: a name and the rest.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn statistics(&mut self, which: &str) -> Result<Vec<(String, String)>, ClientError> {
        let space = if which.is_empty() { "" } else { " " };
        self.send(&[format!("stats{space}{which}\r\n").as_bytes()])?;
        let mut all = vec![];
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(all);
            }
            let (name, value) = line
                .strip_prefix("STAT ")
                .and_then(|rest| rest.split_once(' '))
                .ok_or_else(|| ClientError::Strange(line.clone()))?;
            all.push((name.into(), value.into()));
        }
    }

    /// Which of these lines was answered.
    fn expect(&mut self, lines: &[&str]) -> Result<usize, ClientError> {
        let line = self.line()?;
        lines.iter().position(|expected| *expected == line).ok_or(ClientError::Strange(line))
    }

    fn send(&mut self, parts: &[&[u8]]) -> Result<(), ClientError> {
        let sent = self.stream.get_mut().write_all(&parts.concat());
        sent.map_err(|reason| self.lost(reason))
    }

    fn line(&mut self) -> Result<String, ClientError> {
        let mut line = vec![];
        let read = (&mut self.stream).take(LONGEST_LINE).read_until(b'\n', &mut line);
        read.map_err(|reason| self.lost(reason))?;
        if !line.ends_with(b"\r\n") {
            return Err(self.lost(io::ErrorKind::UnexpectedEof.into()));
        }
        let line = String::from_utf8_lossy(&line[..line.len() - 2]).into_owned();
        let is_error = ["ERROR", "SERVER_ERROR ", "CLIENT_ERROR "].iter().any(|error| line.starts_with(error));
        if is_error { Err(ClientError::Refused(line)) } else { Ok(line) }
    }

    fn lost(&self, reason: io::Error) -> ClientError {
        ClientError::Connection { at: self.at.clone(), reason }
    }
}

fn checked(key: &str) -> Result<&[u8], ClientError> {
    let is_key = (1..=250).contains(&key.len()) && key.bytes().all(|byte| byte > b' ' && byte != 0x7f);
    if is_key { Ok(key.as_bytes()) } else { Err(ClientError::Key(key.into())) }
}
