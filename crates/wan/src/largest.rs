//! How many bytes of IP a frame of several packets may have on an interface. The default is 64 KiB. It can be set,
//! beyond 64 KiB only where the kernel knows how ("BIG TCP": IFLA_GSO_MAX_SIZE and what stands beside it in
//! include/uapi/linux/if_link.h; IPv6 from Linux 5.19 on, IPv4 from 6.3).
//!
//! What a kernel and a router do for a frame they do a sixth as often then. A reader of such a frame finds no length in
//! its IP header, which has no room for it: 0 by IPv4, an option (RFC 2675) by IPv6.
//!
//! ```text
//!  16..18 | 18..20 | 20..24    | 24..32 | 32..
//!  family | type   | interface | flags  | attributes
//! ```

use std::io;

use rustix::net::netdevice::name_to_index;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

use crate::netlink::{answer, write};

/// What the path `nfqueue` has sites and the router take at once, in bytes of IP.
pub const LARGEST_FRAME: u32 = 384 << 10;

/// IFLA_GSO_MAX_SIZE and IFLA_GRO_MAX_SIZE, and the same for IPv4 alone.
const SIZES: [i32; 4] = [41, 58, 63, 64];

/// Has an interface of the network that this thread is in take frames of up to `bytes` bytes of IP. A kernel that knows
/// no frames beyond 64 KiB, or none of IPv4, stays as it is.
///
/// # Errors
/// What the system said.
pub fn take_frames_of(interface: &str, bytes: u32) -> io::Result<()> {
    // NETLINK_ROUTE is the protocol 0, which is what is meant where none is named.
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    send(&socket, &request(name_to_index(&socket, interface)?, bytes), SendFlags::empty())?;
    let mut room = [0; 1024];
    let (length, _) = recv(&socket, &mut room[..], RecvFlags::empty())?;
    match answer(&room[..length]).ok_or(io::ErrorKind::InvalidData)? {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        said => said,
    }
}

fn request(interface: u32, bytes: u32) -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
    let link = [&[0; 4][..], &interface.to_ne_bytes(), &[0; 8]].concat();
    let bytes = bytes.to_ne_bytes();
    let mut request = vec![];
    write(&mut request, libc::RTM_SETLINK, flags, &link, &SIZES.map(|kind| (kind, &bytes[..])));
    request
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use verbena_namespaces::{Namespace, ip, or_skipped};

    use super::*;

    #[test]
    fn an_interface_takes_frames_as_large_as_it_is_told() {
        let Some(network) = or_skipped(Namespace::new()).unwrap() else { return };
        network.enter(|| ip(&["link", "add", "one", "type", "veth", "peer", "name", "two"])).unwrap().unwrap();
        let shown = || {
            let shown = || std::process::Command::new("ip").args(["-d", "link", "show", "dev", "one"]).output();
            let text = String::from_utf8(network.enter(shown).unwrap().unwrap().stdout).unwrap();
            let mut words = text.split_whitespace();
            words.find(|word| *word == "gso_max_size").unwrap();
            words.next().unwrap().parse::<u32>().unwrap()
        };
        let before = shown();
        network.enter(|| take_frames_of("one", 32 << 10)).unwrap().unwrap();
        assert_eq!((before, shown()), (65_536, 32 << 10));
        // Of this none knows: it stays as it was.
        network.enter(|| take_frames_of("one", 1 << 30)).unwrap().unwrap();
        assert_eq!(shown(), 32 << 10);
        let said = network.enter(|| take_frames_of("nothing", 1)).unwrap().unwrap_err();
        assert_eq!(said.raw_os_error(), Some(libc::ENODEV));
    }
}
