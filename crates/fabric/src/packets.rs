//! The system calls on unix sockets of one machine: abstract names, packets, and descriptors that travel with them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use verbena_terms::{Clock, Time};

/// Connections that may wait to be accepted; the kernel's own limit (net.core.somaxconn) also holds.
pub(crate) const BACKLOG: i32 = 1024;

/// Descriptors that a packet may carry.
pub(crate) const MOST_ATTACHED: usize = 32;
const SPACE: usize = rustix::cmsg_space!(ScmRights(MOST_ATTACHED));

/// A socket with an abstract name, which no other socket can have while it is open. `ADDRINUSE` if the name is taken.
pub(crate) fn bind(name: &[u8]) -> Result<OwnedFd> {
    let socket = packets()?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// A socket that listens at an abstract name.
pub(crate) fn listen(name: &[u8]) -> Result<OwnedFd> {
    let socket = bind(name)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A connection to an abstract name. Does not wait: `AGAIN` if too many others wait to be accepted.
pub(crate) fn connect(name: &[u8]) -> Result<OwnedFd> {
    let socket = packets()?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(socket)
}

/// The next connection that waits.
pub(crate) fn accept(listener: BorrowedFd<'_>) -> Result<OwnedFd> {
    retry_on_intr(|| rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK))
}

/// The user at the other end, as the kernel knows: of the process that connected, or that listened.
pub(crate) fn user(socket: BorrowedFd<'_>) -> Result<u32> {
    socket_peercred(socket).map(|credentials| credentials.uid.as_raw())
}

/// Sends one packet, whole or not at all, with at most [`MOST_ATTACHED`] descriptors. `AGAIN` if there is no room for it now.
pub(crate) fn send(socket: BorrowedFd<'_>, head: &[u8], body: &[u8], attached: &[BorrowedFd<'_>]) -> Result<()> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !attached.is_empty() {
        let fits = ancillary.push(SendAncillaryMessage::ScmRights(attached));
        debug_assert!(fits, "the space is for {MOST_ATTACHED} descriptors");
    }
    let parts = [IoSlice::new(head), IoSlice::new(body)];
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry_on_intr(|| rustix::net::sendmsg(socket, &parts, &mut ancillary, flags)).map(|_| ())
}

/// What came in one packet.
pub(crate) struct Packet {
    /// Bytes that it has; 0 at the end of a connection.
    pub(crate) length: usize,
    /// The descriptors that came with it.
    pub(crate) attached: Vec<OwnedFd>,
}

/// Receives one packet. `AGAIN` without one, `MSGSIZE` if it is larger than the buffer.
pub(crate) fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Packet> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received =
        retry_on_intr(|| rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags))?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let attached = rights.flatten().collect();
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(Errno::MSGSIZE);
    }
    Ok(Packet { length: received.bytes, attached })
}

/// Waits until a socket can be read from (or written to), at most until `deadline`. Whether it can.
pub(crate) fn wait_for(socket: BorrowedFd<'_>, what: PollFlags, clock: &dyn Clock, deadline: Time) -> Result<bool> {
    loop {
        let left = deadline.since(clock.now());
        // A deadline that is further than the kernel can count is as good as a day, after which it is looked at again.
        let left = left.min(std::time::Duration::from_secs(86_400));
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(socket.as_fd(), what)], Some(&timeout)) {
            Ok(0) if clock.now() < deadline => {}
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn packets() -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}
