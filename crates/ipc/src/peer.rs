//! The process at the other end of a socket, as the kernel identifies it.

use std::os::fd::{AsRawFd, BorrowedFd};

use crate::error::Error;

/// What the kernel noted when the peer connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// 0 if the peer's process has no number in our namespace.
    pub(crate) pid: u32,
    pub(crate) uid: u32,
}

/// SO_PEERCRED. By hand, because the wrapper in rustix 1.1 gives a process number that cannot be 0, which the kernel
/// answers for a peer in another pid namespace.
pub(crate) fn of(socket: BorrowedFd<'_>) -> Result<Peer, Error> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is as long as `length` says, and outlives the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut credentials).cast(),
            &mut length,
        )
    };
    if status != 0 {
        return Err(Error::System { doing: "ask who connected", source: std::io::Error::last_os_error() });
    }
    Ok(Peer { pid: credentials.pid as u32, uid: credentials.uid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_other_end_of_a_pair_is_ourselves() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = of(one.as_fd()).unwrap();
        assert_eq!(peer, Peer { pid: std::process::id(), uid: rustix::process::getuid().as_raw() });
    }
}
