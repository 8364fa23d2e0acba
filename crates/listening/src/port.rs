//! TCP ports.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// A port that is taken: clients are refused until this process [listens](Self::listen). Another process that listens there is seen when it is taken; one that begins to in between, when this
/// process listens.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    socket: Socket,
}

impl Port {
    /// Takes a port for one listener. Port 0 takes a free one.
    ///
    /// # Errors
    /// What the system said: another process may listen there.
    pub fn take(address: SocketAddr) -> io::Result<Port> {
        Port::bind(address, false)
    }

    /// Takes a port for one of several listeners, of which each gets a part of the clients (`SO_REUSEPORT`).
    ///
    /// # Errors
    /// What the system said.
    pub fn share(address: SocketAddr) -> io::Result<Port> {
        Port::bind(address, true)
    }

    fn bind(address: SocketAddr, is_shared: bool) -> io::Result<Port> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(is_shared)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(Port { address, socket })
    }

    /// The address that it was taken for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens from now on. The listener does not block.
    ///
    /// # Errors
    /// What the system said.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.socket.listen(BACKLOG)?;
        Ok(self.socket.into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::io::ErrorKind;
    use std::net::TcpStream;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn a_port_that_is_taken_refuses_clients_until_it_listens_and_others_once_it_does() {
        let port = Port::take(ANY).unwrap();
        let address = port.socket.local_addr().unwrap().as_socket().unwrap();
        assert_eq!(
            (port.address(), TcpStream::connect(address).unwrap_err().kind()),
            (ANY, ErrorKind::ConnectionRefused)
        );
        let _listener = port.listen().unwrap();
        assert!(TcpStream::connect(address).is_ok());
        assert_eq!(Port::take(address).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert_eq!(Port::share(address).unwrap_err().kind(), ErrorKind::AddrInUse);
        let shared = Port::share(ANY).unwrap().listen().unwrap();
        assert!(Port::share(shared.local_addr().unwrap()).unwrap().listen().is_ok());
        assert_eq!(Port::take(shared.local_addr().unwrap()).unwrap_err().kind(), ErrorKind::AddrInUse);
    }
}
