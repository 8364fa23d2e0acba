//! One end of a link at the router: a packet socket that takes whole frames and sends whole frames.
//!
//! There are two ways in. Of a [`Queue`] each frame is copied by the router, when it takes it. Into a [`Ring`] it is
//! copied by the kernel, on the core that receives it, which is the sender's.

mod queue;
mod ring;

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libc::{c_int, c_void};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use self::queue::Queue;
use self::ring::Ring;
use super::buffers::Buffers;
use super::frame::Frame;

/// Bytes that may be in sending.
const SENDING: c_int = 16 << 20;

/// What the frames of a port can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    /// Up to 64 KiB.
    Large,
    /// One packet of this many bytes of IP at most.
    Single { mtu: u32 },
    /// Up to 64 KiB, one at a time.
    Gauge,
}

/// An end of a link.
#[derive(Debug)]
pub(super) struct Port {
    socket: OwnedFd,
    intake: Intake,
    overrun: u64,
}

#[derive(Debug)]
enum Intake {
    Queue(Queue),
    Ring(Ring),
}

/// What the next frame is.
enum Next {
    /// It came at this time, in nanoseconds of CLOCK_REALTIME.
    Whole(Frame, u64),
    /// It did not fit.
    Cut,
    None,
}

impl Port {
    /// The interface `name` in the network of this thread.
    pub fn open(name: &str, frames: Frames) -> io::Result<Self> {
        // Nothing is received before it is bound.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let packet = libc::SOL_PACKET;
        // Before there is a ring, whose slots it changes.
        set(&socket, packet, libc::PACKET_VNET_HDR, &1)?;
        set(&socket, packet, libc::PACKET_IGNORE_OUTGOING, &1)?;
        set(&socket, packet, libc::PACKET_QDISC_BYPASS, &1)?;
        // Without this the kernel does not record when a packet came.
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        // More than is usual takes a right that a router without root may lack; then sending is given up earlier, and counted.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SENDING);
        // Single packets are many: from a ring they are had without a system call for each.
        let queue = if frames == Frames::Large { Queue::of(&socket) } else { None };
        let intake = match queue {
            Some(queue) => Intake::Queue(queue),
            None => Intake::Ring(Ring::of(&socket, frames)?),
        };
        bind(&socket, interface(name)?)?;
        Ok(Port { socket, intake, overrun: 0 })
    }

    /// The next frame, and when it came, in nanoseconds of CLOCK_REALTIME; `None` if no frame is there.
    pub fn receive(&mut self, buffers: &mut Buffers) -> Option<(Frame, u64)> {
        loop {
            let next = match &mut self.intake {
                Intake::Queue(queue) => queue.next(&self.socket, buffers),
                Intake::Ring(ring) => ring.next(buffers),
            };
            match next {
                Next::Whole(frame, stamp) => return Some((frame, stamp)),
                Next::Cut => self.overrun += 1,
                Next::None => return None,
            }
        }
    }

    /// Sends a frame, whole.
    pub fn send(&self, frame: &Frame) -> io::Result<()> {
        let bytes = &frame.0;
        // SAFETY: the buffer is valid for reading for the length of the call.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Frames that came when there was no room, or that did not fit, since the port was opened.
    pub fn overrun(&mut self) -> u64 {
        let mut found = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: both pointers are valid for writing, and `length` is the size of what the first points to. Reading resets the counts.
        let failed = unsafe {
            let value = (&raw mut found).cast::<c_void>();
            libc::getsockopt(self.socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, value, &raw mut length)
        };
        if failed == 0 {
            self.overrun += u64::from(found.tp_drops);
        }
        self.overrun
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sets an option of a socket.
pub(crate) fn set<T>(socket: &impl AsRawFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of a value that outlives the call; the kernel reads as many bytes as
    // it expects, and fails for fewer.
    let failed = unsafe {
        let value = std::ptr::from_ref(value).cast::<c_void>();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, size_of::<T>() as libc::socklen_t)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn interface(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: a string with an end.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}

fn bind(socket: &OwnedFd, interface: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: interface as c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the pointer and the length are those of an address that outlives the call.
    let failed = unsafe {
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
