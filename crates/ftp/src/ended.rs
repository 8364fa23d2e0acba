//! Whether the other side of a connection has gone, found without taking anything from it.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Whether a socket has ended or is broken. One that has something to read is not at its end.
pub(crate) fn has_ended(socket: impl AsFd) -> bool {
    match recv(socket, &mut [0u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((read, _)) => read == 0,
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}
