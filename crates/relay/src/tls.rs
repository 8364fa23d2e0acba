//! TLS at both ends of a connection: the relay reads what passes, so it is an end of each.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::socket::Socket;
use crate::{Encryption, End};

/// What connections are encrypted with.
#[derive(Clone, Default)]
pub struct Tls {
    /// For clients that ask for it.
    pub clients: Option<Arc<ServerConfig>>,
    /// With the server, which has to prove that it has this name.
    pub server: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The server is reached by a socket of this machine.
    pub server_is_near: bool,
}

impl Tls {
    /// At which ends.
    pub fn encryption(&self) -> Encryption {
        Encryption {
            clients: self.clients.is_some(),
            server: self.server.is_some(),
            server_is_near: self.server_is_near,
        }
    }

    fn at(&self, end: End) -> Result<Connection, rustls::Error> {
        let none = || rustls::Error::General("no TLS is spoken here".into());
        match end {
            End::Client => {
                let config = self.clients.clone().ok_or_else(none)?;
                ServerConnection::new(config).map(Connection::from)
            }
            End::Server => {
                let (config, name) = self.server.clone().ok_or_else(none)?;
                ClientConnection::new(config, name).map(Connection::from)
            }
        }
    }
}

/// What a read is left off at, so that one side does not keep the other waiting.
const AT_ONCE: usize = 64 << 10;

/// A socket, and the TLS on it.
pub(crate) struct Stream {
    socket: Socket,
    tls: Option<Box<Connection>>,
    /// Its TLS is there, and was spoken of.
    is_agreed: bool,
    /// Nothing can be written any more: what TLS has for it goes nowhere, and is not waited for.
    is_broken: bool,
}

impl Stream {
    pub(crate) fn new(socket: Socket) -> Stream {
        Stream { socket, tls: None, is_agreed: false, is_broken: false }
    }

    /// Begins TLS, of which this has come already.
    pub(crate) fn encrypt(&mut self, tls: &Tls, end: End, begun: &[u8]) -> io::Result<()> {
        let mut connection = Box::new(tls.at(end).map_err(io::Error::other)?);
        let mut begun = begun;
        while !begun.is_empty() {
            connection.read_tls(&mut begun)?;
            connection.process_new_packets().map_err(io::Error::other)?;
        }
        self.tls = Some(connection);
        self.flush(&mut Vec::new())
    }

    /// Whether TLS came to be there since this was asked last.
    pub(crate) fn agrees(&mut self) -> bool {
        let is_there = self.tls.as_ref().is_some_and(|tls| !tls.is_handshaking());
        is_there && !std::mem::replace(&mut self.is_agreed, true)
    }

    /// Whether the handshake is under way.
    pub(crate) fn is_agreeing(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    pub(crate) async fn readable(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.socket.writable().await
    }

    /// Something of TLS is to be written that is no part of what the caller writes.
    pub(crate) fn owes(&self) -> bool {
        !self.is_broken && self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads what there is, by way of `buffer`, and gives the bytes to `take`. False at the end.
    pub(crate) fn read(&mut self, buffer: &mut [u8], mut take: impl FnMut(&[u8])) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else {
            return match self.socket.try_read(buffer) {
                Ok(0) => Ok(false),
                Ok(count) => {
                    take(&buffer[..count]);
                    Ok(true)
                }
                Err(error) if is_for_later(&error) => Ok(true),
                Err(error) => Err(error),
            };
        };
        let mut total = 0;
        while total < AT_ONCE {
            match tls.read_tls(&mut Direct(&self.socket)) {
                // Whoever ends it without saying so in TLS may have been cut off: of no use is what is not whole.
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            if let Err(error) = tls.process_new_packets() {
                // The other end is told what is wrong with it.
                let _ = tls.write_tls(&mut Direct(&self.socket));
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
            loop {
                match tls.reader().read(buffer) {
                    Ok(0) => return Ok(false),
                    Ok(count) => {
                        take(&buffer[..count]);
                        total += count;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(true)
    }

    /// Writes what the socket takes, and removes it from the front of `bytes`.
    pub(crate) fn flush(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.socket.flush(bytes) };
        let mut taken = 0;
        let result = loop {
            match write_all(tls, &self.socket) {
                Ok(true) if taken < bytes.len() && !tls.is_handshaking() => {}
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
            match tls.writer().write(&bytes[taken..]) {
                Ok(count) => taken += count,
                Err(error) => break Err(error),
            }
        };
        self.is_broken |= result.is_err();
        bytes.drain(..taken);
        if bytes.is_empty() {
            bytes.shrink_to(4 << 10);
        }
        result
    }

    /// Says the end in TLS, as far as the socket takes it.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            let _ = write_all(tls, &self.socket);
        }
    }
}

/// Whether the socket took all of it.
fn write_all(tls: &mut Connection, socket: &Socket) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Direct(socket)) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// The socket itself, without waiting.
struct Direct<'a>(&'a Socket);

impl Read for Direct<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Direct<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
