//! A ring shared with the kernel (TPACKET_V2, Linux Documentation/networking/packet_mmap.rst).
//!
//! It is of slots. The kernel writes a frame into the next one that is its own (`tp_status` 0) and gives it to us (bit TP_STATUS_USER); we
//! copy the frame out and give the slot back. A frame for which no slot is free is counted by the kernel.

use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Frames, Next, set};
use crate::router::buffers::{Buffers, LARGEST};
use crate::router::frame::HEADER;

/// What stands before the frame in a slot: less than this.
const SLOT_HEAD: usize = 192;
/// Memory of a ring: 480 large slots, or some 14,000 of single packets.
const RING: usize = 32 << 20;
const BLOCK: usize = 1 << 20;
const ALIGNMENT: usize = libc::TPACKET_ALIGNMENT;

/// The mapping, for as long as it is used.
#[derive(Debug)]
pub(super) struct Ring {
    start: NonNull<u8>,
    bytes: usize,
    slot: usize,
    slots_in_block: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the mapping belongs to this value alone, and the owner of the value may use it from any thread.
unsafe impl Send for Ring {}

impl Frames {
    fn slot(self) -> usize {
        match self {
            Frames::Large | Frames::Gauge => LARGEST,
            Frames::Single { mtu } => (SLOT_HEAD + mtu as usize).next_multiple_of(ALIGNMENT).min(LARGEST),
        }
    }

    fn blocks(self) -> usize {
        match self {
            Frames::Large | Frames::Single { .. } => RING / BLOCK,
            Frames::Gauge => 1,
        }
    }
}

impl Ring {
    /// Of a socket that is not bound yet.
    pub fn of(socket: &OwnedFd, frames: Frames) -> io::Result<Self> {
        set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &(libc::tpacket_versions::TPACKET_V2 as c_int))?;
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
        Ok(Ring { start, bytes, slot, slots_in_block, slots, next: 0 })
    }

    pub fn next(&mut self, buffers: &mut Buffers) -> Next {
        let slot = self.slot(self.next);
        // SAFETY: the pointer is to the head of a slot within the mapping, aligned to 16 bytes; the kernel writes this word too, which is why it
        // is atomic.
        let status =
            unsafe { AtomicU32::from_ptr(slot.as_ptr().add(offset_of!(libc::tpacket2_hdr, tp_status)).cast()) };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return Next::None;
        }
        // SAFETY: as above; until the status is given back the kernel does not write to the slot.
        let head = unsafe { slot.cast::<libc::tpacket2_hdr>().read() };
        let whole = self.frame(slot, &head).map(|bytes| buffers.copy_of(bytes));
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
        whole.map_or(Next::Cut, |frame| {
            Next::Whole(frame, u64::from(head.tp_sec) * 1_000_000_000 + u64::from(head.tp_nsec))
        })
    }

    /// The frame of a slot that belongs to us, until it is given back; `None` if it is not whole.
    fn frame(&self, slot: NonNull<u8>, head: &libc::tpacket2_hdr) -> Option<&[u8]> {
        let (at, bytes) = (usize::from(head.tp_mac), head.tp_snaplen as usize);
        if head.tp_snaplen < head.tp_len || at < HEADER || at + bytes > self.slot {
            return None;
        }
        // SAFETY: the range is within the slot, which was just looked at, and the kernel leaves it alone until the status is given back.
        Some(unsafe { std::slice::from_raw_parts(slot.as_ptr().add(at - HEADER), HEADER + bytes) })
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
        // SAFETY: this is the mapping that was made, no other value has it, and nothing of it is borrowed any more. It
        // can only fail for an invalid range.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
