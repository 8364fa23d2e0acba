//! One end of a link at the router: a packet socket that takes whole frames from a ring shared with the kernel (TPACKET_V2, Linux
//! Documentation/networking/packet_mmap.rst) and sends whole frames.
//!
//! The ring is of slots. The kernel writes a frame into the next one that is its own (`tp_status` 0) and gives it to us (bit TP_STATUS_USER); we
//! copy the frame out and give the slot back. A frame for which no slot is free is counted by the kernel.

use std::ffi::CString;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_void};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::frame::{Frame, HEADER};

/// For a frame of 64 KiB with all that stands before it, a multiple of the alignment that the kernel asks for.
const LARGE_SLOT: usize = 69_888;
/// What stands before the frame in a slot: less than this.
const SLOT_HEAD: usize = 192;
/// Memory of a ring: 480 large slots, or some 14,000 of single packets.
const RING: usize = 32 << 20;
const BLOCK: usize = 1 << 20;
const ALIGNMENT: usize = libc::TPACKET_ALIGNMENT;
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

impl Frames {
    fn slot(self) -> usize {
        match self {
            Frames::Large | Frames::Gauge => LARGE_SLOT,
            Frames::Single { mtu } => (SLOT_HEAD + mtu as usize).next_multiple_of(ALIGNMENT).min(LARGE_SLOT),
        }
    }

    fn blocks(self) -> usize {
        match self {
            Frames::Large | Frames::Single { .. } => RING / BLOCK,
            Frames::Gauge => 1,
        }
    }
}

/// An end of a link.
#[derive(Debug)]
pub(super) struct Port {
    socket: OwnedFd,
    ring: Ring,
    next: usize,
    overrun: u64,
}

/// The mapping, for as long as it is used.
#[derive(Debug)]
struct Ring {
    start: NonNull<u8>,
    bytes: usize,
    slot: usize,
    slots_in_block: usize,
    slots: usize,
}

// SAFETY: the mapping belongs to this value alone, and who has the value may use it from whatever thread.
unsafe impl Send for Ring {}

impl Port {
    /// The interface `name` in the network of this thread.
    pub fn open(name: &str, frames: Frames) -> io::Result<Self> {
        // Nothing is received before it is bound.
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        let packet = libc::SOL_PACKET;
        // The first two decide how slots look, so they stand before the ring.
        set(&socket, packet, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as c_int))?;
        set(&socket, packet, libc::PACKET_VNET_HDR, &1)?;
        set(&socket, packet, libc::PACKET_IGNORE_OUTGOING, &1)?;
        set(&socket, packet, libc::PACKET_QDISC_BYPASS, &1)?;
        // Without this nobody writes down when a packet came, and the ring has the moment at which it was copied.
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1)?;
        // More than is usual takes a right that a router without root may lack; then sending is given up earlier, and counted.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SENDING);
        let ring = Ring::of(&socket, frames)?;
        bind(&socket, interface(name)?)?;
        Ok(Port { socket, ring, next: 0, overrun: 0 })
    }

    /// The next frame, copied into `into`, and when it came, in nanoseconds of CLOCK_REALTIME; `None` if there is none.
    pub fn receive(&mut self, into: &mut Frame) -> Option<u64> {
        loop {
            let slot = self.ring.slot(self.next);
            // SAFETY: the pointer is to the head of a slot within the mapping, aligned to 16 bytes; the kernel writes this word too, which is why it
            // is atomic.
            let status =
                unsafe { AtomicU32::from_ptr(slot.as_ptr().add(offset_of!(libc::tpacket2_hdr, tp_status)).cast()) };
            if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
                return None;
            }
            // SAFETY: as above; until the status is given back the kernel does not write to the slot.
            let head = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
            let whole = self.copy(slot, &head, into);
            status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next = (self.next + 1) % self.ring.slots;
            if whole {
                return Some(u64::from(head.tp_sec) * 1_000_000_000 + u64::from(head.tp_nsec));
            }
            self.overrun += 1;
        }
    }

    /// False for a frame that is not whole.
    fn copy(&self, slot: NonNull<u8>, head: &libc::tpacket2_hdr, into: &mut Frame) -> bool {
        let (at, bytes) = (usize::from(head.tp_mac), head.tp_snaplen as usize);
        if head.tp_snaplen < head.tp_len || at < HEADER || at + bytes > self.ring.slot {
            return false;
        }
        into.0.clear();
        // SAFETY: the range is within the slot, which was just looked at, and the kernel leaves it alone until the status is given back.
        into.0.extend_from_slice(unsafe { std::slice::from_raw_parts(slot.as_ptr().add(at - HEADER), HEADER + bytes) });
        true
    }

    /// Sends a frame, whole.
    pub fn send(&self, frame: &Frame) -> io::Result<()> {
        let bytes = &frame.0;
        // SAFETY: the buffer is valid for reading for the length of the call.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Frames that came when no slot was free, or that did not fit into one, since the port was opened.
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

impl Ring {
    fn of(socket: &OwnedFd, frames: Frames) -> io::Result<Self> {
        let (slot, blocks) = (frames.slot(), frames.blocks());
        let slots_in_block = BLOCK / slot;
        let slots = blocks * slots_in_block;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: slots as u32,
        };
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        let bytes = blocks * BLOCK;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, socket, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Ring { start, bytes, slot, slots_in_block, slots })
    }

    /// Slots do not cross blocks: what is left at the end of a block is not used.
    fn slot(&self, number: usize) -> NonNull<u8> {
        debug_assert!(number < self.slots);
        let at = number / self.slots_in_block * BLOCK + number % self.slots_in_block * self.slot;
        // SAFETY: `number` is less than `slots`, so the slot lies within the mapping.
        unsafe { self.start.add(at) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is the mapping that was made, nobody else has it, and nothing of it is borrowed any more. It can only fail for a range that
        // is none.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Sets an option of a socket.
pub(crate) fn set<T>(socket: &impl AsRawFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and the length are those of a value that lives for the call; the kernel reads as many bytes as it expects, and fails for
    // fewer.
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
    // SAFETY: the pointer and the length are those of an address that lives for the call.
    let failed = unsafe {
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
