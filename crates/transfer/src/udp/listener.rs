//! Takes and makes streams of the channel `udp` (rules T1, T2 and T14).

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::machine::Datagrams;
use super::packet::{HEAD, LONGEST_BODY};
use super::seal::SessionSecret;
use super::shared::{UdpStream, Waker};
use super::socket::{Driver, Taking, bind};
use crate::channel::Token;
use crate::frame::Frame;
use crate::streams::Arrived;

/// Takes the streams of one session.
#[derive(Debug)]
pub struct UdpListener {
    socket: UdpSocket,
    waker: Waker,
    secret: SessionSecret,
}

impl UdpListener {
    /// Listens at an address; port 0 lets the system choose.
    pub fn bind(address: SocketAddr) -> Result<UdpListener> {
        let (socket, waker) = bind(address)?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| Error::other(error.to_string()))?;
        Ok(UdpListener { socket, waker, secret })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// What both sides seal by. The other side gets it over the control connection.
    pub fn secret(&self) -> SessionSecret {
        self.secret
    }

    /// Takes streams that know the secret and bring the token, from peers of these addresses, until what is returned is dropped, and hands them on. What
    /// comes without both is passed over or closed, and listening goes on (rules T1 and T14).
    pub fn start(
        self,
        token: Token,
        streams: u16,
        allowed: Vec<IpAddr>,
        arriving: Sender<Arrived>,
    ) -> Result<UdpListening> {
        let UdpListener { socket, waker, secret } = self;
        let is_open = Arc::new(AtomicBool::new(true));
        let names = std::collections::BTreeSet::new();
        let taking = Taking { token, streams, allowed, arriving, is_open: is_open.clone(), names };
        Driver::new(socket, waker.clone(), secret, Some(taking))?.start()?;
        Ok(UdpListening { is_open, waker })
    }
}

/// Takes streams until it is dropped. Those that came go on.
#[derive(Debug)]
pub struct UdpListening {
    is_open: Arc<AtomicBool>,
    waker: Waker,
}

impl Drop for UdpListening {
    fn drop(&mut self) {
        self.is_open.store(false, Ordering::Release);
        self.waker.wake();
    }
}

impl UdpStream {
    /// Connects to a listener that has this secret, and says hello. Waits until it has answered.
    pub fn connect(to: SocketAddr, secret: SessionSecret, hello: &Frame, most: Duration) -> Result<UdpStream> {
        let any: IpAddr = if to.is_ipv4() { [0u8; 4].into() } else { [0u16; 8].into() };
        let (socket, waker) = bind(SocketAddr::new(any, 0))?;
        let mut driver = Driver::new(socket, waker, secret, None)?;
        let stream = UdpStream(driver.make(to)?);
        let head = hello.encode(0).len();
        // The first datagram has the length of the longest: a path that does not carry those is known at once.
        let filling = vec![0; (LONGEST_BODY - HEAD).saturating_sub(head)];
        let shared = stream.0.0.clone();
        let mut machine = shared.machine();
        machine.write(&hello.encode(filling.len()));
        machine.write(&filling);
        drop(machine);
        driver.start()?;
        if !shared.wait(most, Datagrams::has_heard) {
            return Err(ErrorKind::TimedOut.into());
        }
        Ok(stream)
    }
}
