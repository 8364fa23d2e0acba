//! The client's side of a control connection: commands, their replies, and data connections in passive mode.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::address::canonical;
use crate::client::{CopyError, Location};
use crate::ended::has_ended;
use crate::trust::{Trust, Wire};

/// The longest reply that is read.
const LONGEST_REPLY: usize = 64 << 10;

/// An argument of a command: without CR, LF and NUL, so that no name becomes a second command.
pub(crate) struct Argument<'a>(&'a [u8]);

impl<'a> Argument<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Result<Argument<'a>, CopyError> {
        match text.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            true => Err(CopyError::Name(String::from_utf8_lossy(text).into_owned())),
            false => Ok(Argument(text)),
        }
    }
}

/// What a server answered.
pub(crate) struct Reply {
    pub code: u16,
    /// All lines, without the last line's end.
    pub text: Vec<u8>,
}

impl Reply {
    /// What the last line says behind the code.
    pub(crate) fn last(&self) -> &[u8] {
        let line = self.text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        line.get(4..).unwrap_or_default()
    }

    /// An error that says which command was refused.
    pub(crate) fn refused(&self, command: &str) -> CopyError {
        let reply = String::from_utf8_lossy(&self.text).into_owned();
        CopyError::Refused { command: command.to_owned(), code: self.code, reply }
    }
}

/// A control connection that is logged in.
pub(crate) struct Dialogue {
    stream: Option<BufReader<Wire>>,
    place: String,
    timeout: Duration,
    trust: Option<Trust>,
    knows_epsv: bool,
    /// The last command and its argument, as errors name it. Never a password.
    asked: String,
}

impl Dialogue {
    /// Connects, and logs in. With TLS neither name nor password nor data ever go in clear.
    pub(crate) fn open(remote: &Location, timeout: Duration) -> Result<Dialogue, CopyError> {
        let (user, password) = (Argument::new(remote.user.as_bytes())?, Argument::new(remote.password.as_bytes())?);
        let trust = remote.tls.as_ref().map(|tls| Trust::load(tls, &remote.host)).transpose();
        let trust = trust.map_err(CopyError::Trust)?;
        let place = format!("{}:{}", remote.host, remote.port);
        let mut dialogue =
            Dialogue { stream: None, place, timeout, trust, knows_epsv: true, asked: "connecting".into() };
        let stream = dialogue.reach(remote)?;
        let is_implicit = remote.tls.as_ref().is_some_and(|tls| tls.is_implicit);
        dialogue.stream = Some(BufReader::new(match &dialogue.trust {
            Some(trust) if is_implicit => {
                Wire::Tls(Box::new(trust.handshake(stream).map_err(|error| dialogue.io(error))?))
            }
            _ => Wire::Clear(stream),
        }));
        let greeting = loop {
            let reply = dialogue.reply()?;
            // 120 says that the server will be ready.
            if reply.code != 120 {
                break reply;
            }
        };
        dialogue.expect(greeting, 2)?;
        if dialogue.trust.is_some() {
            if !is_implicit {
                dialogue.command("AUTH", &Argument(b"TLS"), 2)?;
                dialogue.encrypt()?;
            }
            dialogue.command("PBSZ", &Argument(b"0"), 2)?;
            dialogue.command("PROT", &Argument(b"P"), 2)?;
        }
        let reply = dialogue.ask("USER", &user)?;
        if reply.code / 100 != 2 {
            dialogue.expect(reply, 3)?;
            dialogue.command("PASS", &password, 2)?;
        }
        Ok(dialogue)
    }

    fn reach(&self, remote: &Location) -> Result<TcpStream, CopyError> {
        let addresses = (remote.host.as_str(), remote.port).to_socket_addrs().map_err(|error| self.io(error))?;
        let mut last = std::io::Error::other("the name has no address");
        for address in addresses {
            match self.connect(address) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(self.io(last))
    }

    fn connect(&self, address: SocketAddr) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&address, self.timeout)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn encrypt(&mut self) -> Result<(), CopyError> {
        let gone = || std::io::Error::from(ErrorKind::NotConnected);
        let stream = self.stream.take().ok_or_else(gone).map_err(|error| self.io(error))?;
        if !stream.buffer().is_empty() {
            return Err(self.io(std::io::Error::other("the server sent bytes in clear behind its answer to AUTH TLS")));
        }
        let secured = match (stream.into_inner(), &self.trust) {
            (Wire::Clear(stream), Some(trust)) => {
                trust.handshake(stream).map(|stream| Wire::Tls(Box::new(stream))).map_err(|error| self.io(error))?
            }
            (wire, _) => wire,
        };
        self.stream = Some(BufReader::new(secured));
        Ok(())
    }

    /// An error of this connection.
    pub(crate) fn io(&self, error: std::io::Error) -> CopyError {
        CopyError::Io { place: self.place.clone(), error }
    }

    fn stream(&mut self) -> std::io::Result<&mut BufReader<Wire>> {
        self.stream.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    pub(crate) fn peer(&mut self) -> Result<SocketAddr, CopyError> {
        let peer = self.stream().and_then(|stream| stream.get_ref().socket().peer_addr());
        peer.map_err(|error| self.io(error))
    }

    /// The address of this side.
    pub(crate) fn here(&mut self) -> Result<IpAddr, CopyError> {
        let here = self.stream().and_then(|stream| stream.get_ref().socket().local_addr());
        Ok(canonical(here.map_err(|error| self.io(error))?.ip()))
    }

    /// Whether nothing between this side and the server is a network (rule T2).
    pub(crate) fn is_one_machine(&mut self) -> Result<bool, CopyError> {
        let (here, peer) = (self.here()?, canonical(self.peer()?.ip()));
        Ok(peer.is_loopback() || peer == here)
    }

    /// Whether the server has closed this connection, or has gone. A reply that waits to be read is not the end.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.stream().map_or(true, |stream| stream.buffer().is_empty() && has_ended(stream.get_ref().socket()))
    }

    /// Where the server is, for messages.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Whether `FEAT` has a line that begins with this word.
    pub(crate) fn has_feature(&mut self, word: &str) -> Result<bool, CopyError> {
        let reply = self.ask("FEAT", &Argument(b""))?;
        let mut lines = reply.text.split(|byte| *byte == b'\n');
        Ok(lines.any(|line| line.trim_ascii().split(|byte| *byte == b' ').next() == Some(word.as_bytes())))
    }

    /// Sends a command without waiting for its reply.
    pub(crate) fn send(&mut self, verb: &str, argument: &Argument<'_>) -> Result<(), CopyError> {
        let mut line = verb.as_bytes().to_vec();
        if !argument.0.is_empty() {
            line.push(b' ');
            line.extend_from_slice(argument.0);
        }
        line.extend_from_slice(b"\r\n");
        self.asked = match verb {
            "PASS" => verb.to_owned(),
            _ => String::from_utf8_lossy(&line)
                .trim_end()
                .chars()
                .map(|at| if at.is_control() { '?' } else { at })
                .collect(),
        };
        let sent = self.stream().and_then(|stream| {
            stream.get_mut().write_all(&line)?;
            stream.get_mut().flush()
        });
        sent.map_err(|error| self.io(error))
    }

    /// Sends a command and reads its reply, whatever it is.
    pub(crate) fn ask(&mut self, verb: &str, argument: &Argument<'_>) -> Result<Reply, CopyError> {
        self.send(verb, argument)?;
        self.reply()
    }

    /// Sends a command and reads its reply, whose code must begin with `class`.
    pub(crate) fn command(&mut self, verb: &str, argument: &Argument<'_>, class: u16) -> Result<Reply, CopyError> {
        let reply = self.ask(verb, argument)?;
        self.expect(reply, class)
    }

    fn expect(&self, reply: Reply, class: u16) -> Result<Reply, CopyError> {
        if reply.code / 100 == class { Ok(reply) } else { Err(reply.refused(&self.asked)) }
    }

    /// The next reply.
    pub(crate) fn reply(&mut self) -> Result<Reply, CopyError> {
        let reply = self.stream().and_then(read_reply);
        reply.map_err(|error| self.io(error))
    }

    /// Begins a command that has a data connection: the connection, behind the 1xx reply. The address is always the
    /// server's own: one that the reply to `PASV` names could be anybody's.
    pub(crate) fn data(&mut self, verb: &str, argument: &Argument<'_>) -> Result<Wire, CopyError> {
        let port = self.passive()?;
        let address = SocketAddr::new(self.peer()?.ip(), port);
        let unreached = |error| CopyError::Io { place: format!("the data connection to {address}"), error };
        let stream = self.connect(address).map_err(unreached)?;
        self.command(verb, argument, 1)?;
        match &self.trust {
            None => Ok(Wire::Clear(stream)),
            Some(trust) => match trust.handshake(stream) {
                Ok(stream) => Ok(Wire::Tls(Box::new(stream))),
                Err(error) => Err(self.io(error)),
            },
        }
    }

    pub(crate) fn passive(&mut self) -> Result<u16, CopyError> {
        if self.knows_epsv {
            let reply = self.ask("EPSV", &Argument(b""))?;
            if reply.code == 229 {
                return epsv_port(reply.last()).ok_or_else(|| reply.refused("EPSV"));
            }
            if reply.code / 100 != 5 {
                return Err(reply.refused("EPSV"));
            }
            self.knows_epsv = false;
        }
        let reply = self.command("PASV", &Argument(b""), 2)?;
        pasv_port(reply.last()).ok_or_else(|| reply.refused("PASV"))
    }

    /// Reads the replies of a transfer that this side has no part in, in clear. `None`: it has ended well; else why not. `most` is how long it may take.
    pub(crate) fn ends_within(&mut self, most: Duration) -> Result<Option<String>, CopyError> {
        let until = Instant::now() + most;
        loop {
            let Some(reply) = self.reply_until(until)? else {
                return Ok(Some(format!("{} did not end the transfer", self.place)));
            };
            match reply.code / 100 {
                1 => {}
                2 => return Ok(None),
                _ => {
                    let words = String::from_utf8_lossy(reply.last()).trim_end_matches('.').to_owned();
                    return Ok(Some(format!("{} says: {words}", self.place)));
                }
            }
        }
    }

    /// The next reply, of a connection in clear. `None`: the server says nothing for so long.
    pub(crate) fn reply_within(&mut self, most: Duration) -> Result<Option<Reply>, CopyError> {
        self.reply_until(Instant::now() + most)
    }

    fn reply_until(&mut self, until: Instant) -> Result<Option<Reply>, CopyError> {
        if self.hears(until)? { self.reply().map(Some) } else { Ok(None) }
    }

    /// Waits for a word of the server, which may also be its end.
    fn hears(&mut self, until: Instant) -> Result<bool, CopyError> {
        let timeout = self.timeout;
        let heard = self.stream().and_then(|stream| {
            if !stream.buffer().is_empty() {
                return Ok(true);
            }
            let socket = stream.get_ref().socket();
            let heard = peeked(socket, until);
            socket.set_read_timeout(Some(timeout))?;
            heard
        });
        heard.map_err(|error| self.io(error))
    }

    /// The last reply of a transfer.
    pub(crate) fn ended(&mut self) -> Result<Reply, CopyError> {
        let reply = self.reply()?;
        self.expect(reply, 2)
    }
}

/// Whether something comes, or the other side ends. Changes the time limit of reads.
fn peeked(socket: &TcpStream, until: Instant) -> std::io::Result<bool> {
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(false);
        }
        socket.set_read_timeout(Some(rest))?;
        match socket.peek(&mut [0]) {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {}
            other => return other.map(|_| true),
        }
    }
}

/// One reply (RFC 959, section 4.2): a line `NNN text`, or `NNN-text` and lines up to one that begins with the same `NNN `.
pub(crate) fn read_reply(from: &mut impl BufRead) -> std::io::Result<Reply> {
    let mut text = Vec::new();
    let mut code = None;
    loop {
        let mut line = Vec::new();
        let most = LONGEST_REPLY.saturating_sub(text.len()) as u64;
        if (&mut *from).take(most).read_until(b'\n', &mut line)? == 0 || line.pop() != Some(b'\n') {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        let (found, mark) = (code_of(&line), line.get(3).copied().unwrap_or(b' '));
        let first = match (code, found) {
            (Some(code), _) => code,
            (None, Some(found)) => found,
            (None, None) => return Err(std::io::Error::new(ErrorKind::InvalidData, "this is no FTP server")),
        };
        code = Some(first);
        text.extend_from_slice(&line);
        if found == Some(first) && mark == b' ' {
            return Ok(Reply { code: first, text });
        }
        text.push(b'\n');
    }
}

fn code_of(line: &[u8]) -> Option<u16> {
    let digits = line.get(..3).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    matches!(line.get(3), None | Some(b' ' | b'-')).then_some(())?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The port in `(|||PORT|)`, whose bars may be any character.
fn epsv_port(text: &[u8]) -> Option<u16> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let [a, b, c, rest @ ..] = text.get(open + 1..)? else { return None };
    if a != b || b != c {
        return None;
    }
    let digits = rest.split(|byte| byte == a).next()?;
    std::str::from_utf8(digits).ok()?.parse().ok().filter(|port| *port > 0)
}

/// The port in `h,h,h,h,p,p`, with or without parentheses.
fn pasv_port(text: &[u8]) -> Option<u16> {
    let start = text.iter().position(u8::is_ascii_digit)?;
    let numbers: Option<Vec<u8>> = text[start..]
        .split(|byte| !byte.is_ascii_digit())
        .take(6)
        .map(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .collect();
    match numbers?.as_slice() {
        [_, _, _, _, high, low] => Some(u16::from_be_bytes([*high, *low])).filter(|port| *port > 0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_several_lines_end_with_their_own_code() {
        let mut text =
            &b"211-Features:\r\n 211 not the end\r\n500 nor this\r\n211-nor this\r\n211 End\r\n220 next\r\n"[..];
        let reply = read_reply(&mut text).unwrap();
        assert_eq!((reply.code, reply.last()), (211, &b"End"[..]));
        assert_eq!(read_reply(&mut text).unwrap().code, 220);
        assert!(read_reply(&mut &b"220 cut off"[..]).is_err());
        assert!(read_reply(&mut &b"HTTP/1.1 400 Bad\r\n"[..]).is_err());
        let endless = [b"220-".to_vec(), vec![b'x'; 1 << 20]].concat();
        assert!(read_reply(&mut endless.as_slice()).is_err());
    }

    #[test]
    fn ports_of_passive_replies() {
        assert_eq!(epsv_port(b"Entering Extended Passive Mode (|||6446|)"), Some(6446));
        assert_eq!(epsv_port(b"ok (!!!80!)"), Some(80));
        assert_eq!(pasv_port(b"Entering Passive Mode (127,0,0,1,200,10)."), Some(51_210));
        assert_eq!(pasv_port(b"=10,0,0,1,4,1"), Some(1025));
        for text in [&b"(|||0|)"[..], b"(||6446|)", b"(|||70000|)", b"", b"("] {
            assert_eq!(epsv_port(text), None);
        }
        for text in [&b"(1,2,3,4,5)"[..], b"(1,2,3,4,256,1)", b"", b"(1,2,3,4,0,0)"] {
            assert_eq!(pasv_port(text), None);
        }
    }
}
