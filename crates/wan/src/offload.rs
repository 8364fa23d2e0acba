//! Where several packets that leave together are made single ones: by the sender's kernel before they come to its interface, or never, so that they
//! cross as one large frame. (`segmentation-offload` in the kernel's documentation; the requests are those of ethtool, include/uapi/linux/ethtool.h.)
//!
//! Limiting how many packets such a frame may hold (`gso_max_segs`) has TCP make single ones itself, which makes it ten times slower.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_SFEATURES: u32 = 0x3b;
/// The names of features.
const ETH_SS_FEATURES: u32 = 4;
const NAME: usize = 32;
/// A kernel has some 60 of them. More is no answer.
const MOST: usize = 1024;

/// `struct ethtool_sset_info` with room for one count.
#[repr(C)]
struct Counts {
    command: u32,
    reserved: u32,
    mask: u64,
    count: u32,
}

/// Has an interface of the network that this thread is in take frames of several packets, or not.
///
/// # Errors
/// What the system said.
pub fn take_large_frames(interface: &str, takes: bool) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut counts = Counts { command: ETHTOOL_GSSET_INFO, reserved: 0, mask: 1 << ETH_SS_FEATURES, count: 0 };
    // SAFETY: the kernel writes one count for the one bit of the mask, for which there is room.
    unsafe { ask(&socket, interface, (&raw mut counts).cast())? };
    let count = counts.count as usize;
    if !(1..=MOST).contains(&count) {
        return Err(io::Error::other(format!("{interface} has {count} features")));
    }
    let mut names = vec![0u32; 3 + count * NAME / 4];
    names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, counts.count]);
    // SAFETY: the kernel writes `count` names behind the three words, for which there is room.
    unsafe { ask(&socket, interface, names.as_mut_ptr().cast())? };
    let names: Vec<u8> = names[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut request = request(names.chunks_exact(NAME), takes);
    // SAFETY: the kernel reads as many pairs of words as the second word says, which are there.
    unsafe { ask(&socket, interface, request.as_mut_ptr().cast()) }
}

/// `struct ethtool_sfeatures`: for each 32 features which are meant, and which of these are wanted.
fn request<'a>(names: impl ExactSizeIterator<Item = &'a [u8]>, takes: bool) -> Vec<u32> {
    let words = names.len().div_ceil(32);
    let mut request = vec![0; 2 + 2 * words];
    (request[0], request[1]) = (ETHTOOL_SFEATURES, words as u32);
    for (number, _) in names.enumerate().filter(|(_, name)| is_segmentation(name)) {
        let (word, bit) = (2 + number / 32 * 2, 1 << (number % 32));
        request[word] |= bit;
        request[word + 1] |= if takes { bit } else { 0 };
    }
    request
}

/// Whether by this feature an interface takes several packets as one (net/ethtool/common.c names them). Not `tx-generic-segmentation`, by which the
/// kernel makes single ones of them for an interface that does not.
fn is_segmentation(name: &[u8]) -> bool {
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_one = name.starts_with(b"tx-") && name.ends_with(b"-segmentation") || name.starts_with(b"tx-gso-");
    is_one && name != b"tx-generic-segmentation"
}

/// # Safety
/// `request` begins with a command of ethtool, and what the kernel reads and writes for it is there.
unsafe fn ask(socket: &impl AsRawFd, interface: &str, request: *mut c_void) -> io::Result<()> {
    // SAFETY: an interface request is bytes, of which all may be 0.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= asked.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in asked.ifr_name.iter_mut().zip(interface.bytes()) {
        *place = byte.cast_signed();
    }
    asked.ifr_ifru.ifru_data = request.cast();
    // SAFETY: the name has an end, and the caller promises the rest.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut asked) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use verbena_namespaces::{Namespace, ip, or_skipped};

    use super::*;

    #[test]
    fn what_segments_is_told_by_its_name() {
        let name = |text: &str| [text.as_bytes(), &[0; NAME]].concat()[..NAME].to_vec();
        let names: Vec<Vec<u8>> = ["rx-gro", "tx-tcp-segmentation", "tx-generic-segmentation", "tx-gso-partial"]
            .into_iter()
            .chain(std::iter::repeat_n("highdma", 30))
            .chain(["tx-udp-segmentation"])
            .map(name)
            .collect();
        let of = |takes| request(names.iter().map(Vec::as_slice), takes);
        assert_eq!(of(false), [ETHTOOL_SFEATURES, 2, 0b1010, 0, 0b100, 0]);
        assert_eq!(of(true), [ETHTOOL_SFEATURES, 2, 0b1010, 0b1010, 0b100, 0b100]);
    }

    #[test]
    fn what_is_no_interface_is_an_error() {
        let Some(network) = or_skipped(Namespace::new()).unwrap() else { return };
        let said = |name: &str| network.enter(|| take_large_frames(name, false)).unwrap().unwrap_err().kind();
        assert_eq!(said("a-name-of-more-than-fifteen"), io::ErrorKind::InvalidInput);
        assert_eq!(said("nothing"), io::Error::from_raw_os_error(libc::ENODEV).kind());
        network.enter(|| ip(&["link", "add", "one", "type", "veth", "peer", "name", "two"])).unwrap().unwrap();
        for takes in [false, true] {
            network.enter(|| take_large_frames("one", takes)).unwrap().unwrap();
        }
    }
}
