//! Streams that this server makes, to another server (rule T17).

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use verbena_transfer::{CHUNK_BYTES, Channel, ChannelKind, Endpoint, QuicStream, hello, say_hello};

use crate::address::canonical;

/// Makes the stream of a number, from the address at which the client has reached this server: the other one was told that one, and takes no other.
pub(crate) fn make(
    endpoint: &Endpoint,
    local: IpAddr,
    number: u16,
    numbers: u16,
    most: Duration,
) -> std::io::Result<Box<dyn Channel>> {
    let Endpoint { channel, address, token, fingerprint, .. } = *endpoint;
    let (local, other) = (canonical(local), canonical(address.ip()));
    // What is loopback for a client on this machine leads to no other one.
    let here = (local.is_ipv4() == other.is_ipv4() && (!local.is_loopback() || other.is_loopback())).then_some(local);
    let chunk_bytes = CHUNK_BYTES as u32;
    match (channel, fingerprint) {
        (ChannelKind::Tcp, _) => {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            if let Some(here) = here {
                socket.bind(&SocketAddr::new(here, 0).into())?;
            }
            socket.connect_timeout(&address.into(), most)?;
            let mut stream = TcpStream::from(socket);
            say_hello(&mut stream, token, number, numbers, chunk_bytes)?;
            Ok(Box::new(stream))
        }
        (ChannelKind::Quic, Some(pinned)) => {
            let hello = hello(token, number, numbers, chunk_bytes);
            Ok(Box::new(QuicStream::connect(here, address, pinned, &hello, most)?))
        }
        _ => endpoint.make(number, numbers, most),
    }
}
