//! The queue of a packet socket: frames wait in the kernel as they came, and are copied when they are taken.

use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_int;

use super::{Next, set};
use crate::router::buffers::Buffers;

/// Bytes that may wait, as the kernel counts them, which is twice what it is asked for: as many as a ring has.
const WAITING: c_int = 16 << 20;
/// Room for the one thing that is said beside a frame, and more.
const SAID: usize = 64;

/// What is needed to take from it.
#[derive(Debug)]
pub(super) struct Queue(());

/// Aligned as the kernel's headers are (cmsg(3)).
#[repr(align(8))]
struct Said([MaybeUninit<u8>; SAID]);

impl Queue {
    /// Nothing where no more may wait than is usual, which is a few large frames: that takes CAP_NET_ADMIN in the first user namespace.
    pub fn of(socket: &OwnedFd) -> Option<Self> {
        set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &WAITING).ok().map(|()| Queue(()))
    }

    pub fn next(&mut self, socket: &OwnedFd, buffers: &mut Buffers) -> Next {
        let mut said = Said([MaybeUninit::uninit(); SAID]);
        let room = buffers.room();
        let mut into = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: of this structure all bytes may be 0.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut into;
        message.msg_iovlen = 1;
        message.msg_control = said.0.as_mut_ptr().cast();
        message.msg_controllen = SAID as _;
        // SAFETY: all that the message points to outlives the call and is as long as it says.
        let came = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        let Ok(bytes) = usize::try_from(came) else {
            // It has been taken, but is of a kind that cannot be said in its header, such as segments of SCTP.
            let is_cut = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
            return if is_cut { Next::Cut } else { Next::None };
        };
        if message.msg_flags & libc::MSG_TRUNC != 0 {
            return Next::Cut;
        }
        // SAFETY: the kernel has written `bytes` bytes at the start of the room.
        let frame = unsafe { buffers.filled(bytes) };
        Next::Whole(frame, stamp(&message))
    }
}

/// When it came, in nanoseconds of CLOCK_REALTIME. 0 if that is not said, which is longer ago than is believed.
fn stamp(message: &libc::msghdr) -> u64 {
    // SAFETY: the kernel has filled the message, and what is said beside it is valid as long as the buffer that it
    // points to, here.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(message);
        if head.is_null() || (*head).cmsg_level != libc::SOL_SOCKET || (*head).cmsg_type != libc::SCM_TIMESTAMPNS {
            return 0;
        }
        debug_assert!((*head).cmsg_len as usize >= size_of::<libc::timespec>());
        let time = libc::CMSG_DATA(head).cast::<libc::timespec>().read_unaligned();
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}
