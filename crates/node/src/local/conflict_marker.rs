//! The mark by which plain processes of different users, or with different directories, learn of each other (rule P11).
//!
//! A process without a configured runtime directory binds an abstract socket name. The kernel shows such a name to
//! every process in the network namespace, and removes it when the process ends:
//!
//! ```text
//!  @verbena-plain/FAMILY/UID/PID     FAMILY: 16 hexadecimal digits, of the runtime directory
//! @verbena-plain                    held by a process that looks around, so that of two that come at once one is first
//! ```
//!
//! A process that finds the mark of another family does not start, because the caches of the two families would not
//! know of each other. A mark proves nothing about its maker. A process that lies in it could as well take the names
//! away, and can do no more harm than that.

use std::fs;
use std::hash::Hasher;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use siphasher::sip::SipHasher13;
use verbena_terms::{BootClock, Clock};

use crate::error::{Error, Result};
use crate::local::seats::Seats;
use crate::retry::{PATIENCE, retry};

const PREFIX: &str = "verbena-plain";
const NAMES: &str = "/proc/net/unix";

/// A mark, there until it is dropped.
#[derive(Debug)]
pub(crate) struct Mark {
    _socket: UnixDatagram,
}

impl Mark {
    /// Looks for marks of other families, and leaves the mark of these seats if there are no others.
    ///
    /// # Errors
    /// [`Error::Strangers`] if there are.
    pub(crate) fn leave(seats: &Seats) -> Result<Mark> {
        let _turn = turn()?;
        let family = format!("{:016x}", hash(seats.family()));
        let names = fs::read_to_string(NAMES).map_err(|error| Error::file("read", NAMES, error))?;
        if let Some((user, process)) = names
            .lines()
            .filter_map(read)
            .find_map(|(other, uid, pid)| (other != family).then(|| (uid.to_owned(), pid.to_owned())))
        {
            return Err(Error::Strangers { process, user, runtime: seats.runtime().to_owned() });
        }
        let (uid, pid) = (rustix::process::geteuid(), std::process::id());
        match bind(&format!("{PREFIX}/{family}/{}/{pid}", uid.as_raw())) {
            Ok(socket) => Ok(Mark { _socket: socket }),
            Err(source) => Err(Error::System { doing: "mark this machine's cluster", source }),
        }
    }
}

/// Waits until no other process looks around.
fn turn() -> Result<UnixDatagram> {
    let turn = retry(BootClock.now() + PATIENCE, || bind(PREFIX), |error| error.kind() == ErrorKind::AddrInUse);
    turn.map_err(|source| Error::System { doing: "look for others on this machine", source })
}

fn bind(name: &str) -> std::io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// The family, the user and the process of a mark, if this line of the kernel's list shows one.
fn read(line: &str) -> Option<(&str, &str, &str)> {
    let (_, name) = line.rsplit_once(" @")?;
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('/')?.split('/');
    let mark = (parts.next()?, parts.next()?, parts.next()?);
    parts.next().is_none().then_some(mark)
}

fn hash(family: &[u8]) -> u64 {
    let mut hash = SipHasher13::new();
    hash.write(family);
    hash.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernels_list_is_read() {
        let line = "0000000000000000: 00000002 00000000 00000000 0002 01 4711 @verbena-plain/00ff/1000/42";
        assert_eq!(read(line), Some(("00ff", "1000", "42")));
        for other in
            ["Num       RefCount Protocol", "0: 2 0 0 2 01 1 @verbena-plain", "0: 2 0 0 2 01 1 /run/x @verbena-x/1/2/3"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
