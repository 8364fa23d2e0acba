//! A probe that holds a socket in each of two networks, and so measures one way with one clock.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use libc::c_int;
use verbena_namespaces::{Error, Namespace};

use crate::router::set;

/// The port that the receiving end listens at.
const PORT: u16 = 7;

/// Bytes that may wait to be received.
const RECEIVING: usize = 32 << 20;

/// Two sockets, and the way from one to the other.
#[derive(Debug)]
pub struct Probe {
    from: UdpSocket,
    to: UdpSocket,
    next: u64,
    /// What is received goes here: to clear it for each look would take longer than the look.
    received: Box<[u8]>,
}

impl Probe {
    /// From a socket in `from` to one at `address`, which `to` has.
    ///
    /// # Errors
    /// What the system said.
    pub fn new(from: &Namespace, to: &Namespace, address: IpAddr) -> io::Result<Self> {
        let open = |network: &Namespace, at: SocketAddr| {
            network.enter(|| UdpSocket::bind(at)).map_err(|error: Error| io::Error::other(error))?
        };
        let any: IpAddr = if address.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        let (from, to) = (open(from, (any, 0).into())?, open(to, (address, PORT).into())?);
        from.connect((address, PORT))?;
        to.set_nonblocking(true)?;
        // What is released at once is not to be lost behind the router. Without the right to a buffer of this size it
        // has the usual one.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, RECEIVING);
        Ok(Probe { from, to, next: 0, received: vec![0; 1 << 16].into() })
    }

    /// From now on a datagram that is longer than `segment` bytes leaves as one large frame of several such datagrams
    /// (UDP_SEGMENT), and comes as one if nothing on the way has taken it apart (UDP_GRO).
    ///
    /// # Errors
    /// What the system said: it may know no such frames.
    pub fn in_large_frames(self, segment: u16) -> io::Result<Self> {
        set(&self.from, libc::SOL_UDP, libc::UDP_SEGMENT, &c_int::from(segment))?;
        set(&self.to, libc::SOL_UDP, libc::UDP_GRO, &1)?;
        Ok(self)
    }

    /// How long one datagram takes, from the call that sends it to the one that has it. It is looked for without rest; `None` if it has not come
    /// after `patience`.
    ///
    /// # Errors
    /// What the system said.
    pub fn one_way(&mut self, patience: Duration) -> io::Result<Option<Duration>> {
        let began = Instant::now();
        let number = self.send(64)?;
        while began.elapsed() < patience {
            if let Some(found) = self.receive()? {
                let took = began.elapsed();
                // Those before it that were given up may come yet.
                if found == number {
                    return Ok(Some(took));
                }
            }
            std::hint::spin_loop();
        }
        Ok(None)
    }

    /// Sends a datagram of this many bytes, at least 8, and gives its number.
    ///
    /// # Errors
    /// What the system said.
    pub fn send(&mut self, bytes: usize) -> io::Result<u64> {
        let mut datagram = vec![0x5a; bytes.max(8)];
        datagram[..8].copy_from_slice(&self.next.to_le_bytes());
        self.from.send(&datagram)?;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// The number of the next datagram that has come, if one has.
    ///
    /// # Errors
    /// What the system said, or a datagram that is no longer as it was sent.
    pub fn receive(&mut self) -> io::Result<Option<u64>> {
        let length = match self.to.recv(&mut self.received) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        };
        let (number, rest) = self.received[..length].split_first_chunk().ok_or(io::ErrorKind::InvalidData)?;
        if rest.iter().any(|byte| *byte != 0x5a) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Some(u64::from_le_bytes(*number)))
    }
}
