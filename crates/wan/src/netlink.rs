//! Messages of netlink (include/uapi/linux/netlink.h), as far as they are the same for every part of the kernel.
//!
//! ```text
//!  0..4  | 4..6 | 6..8  | 8..12  | 12..16 | 16..
//!  bytes | type | flags | number | port   | what is its own; attributes: bytes (2), type (2), value, up to a multiple of 4
//! ```
//! All that is not a value is in the machine's byte order.

use std::io;

/// Bytes that every message begins with.
pub(crate) const HEADER: usize = 16;
/// The parts of a message and their lengths are multiples of this.
pub(crate) const ALIGNMENT: usize = 4;
/// Bytes of an answer to an order: a header, a number, and the header of what it answers.
const ANSWER: usize = 2 * HEADER + 4;

/// Puts a message behind what is there, which ends at a multiple of [`ALIGNMENT`] as this does: what is its own, and attributes.
pub(crate) fn write(message: &mut Vec<u8>, kind: u16, flags: u16, own: &[u8], attributes: &[(i32, &[u8])]) {
    let begin = message.len();
    message.extend([0; 4]);
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(own);
    for (kind, value) in attributes {
        message.extend((4 + value.len() as u16).to_ne_bytes());
        message.extend((*kind as u16).to_ne_bytes());
        message.extend(*value);
        message.resize(message.len().next_multiple_of(ALIGNMENT), 0);
    }
    let bytes = (message.len() - begin) as u32;
    message[begin..begin + 4].copy_from_slice(&bytes.to_ne_bytes());
}

/// What the kernel says to an order, if this is that.
pub(crate) fn answer(message: &[u8]) -> Option<io::Result<()>> {
    let message = message.get(..ANSWER)?;
    let (kind, error) = (u16::from_ne_bytes(array(message, 4)?), i32::from_ne_bytes(array(message, HEADER)?));
    (i32::from(kind) == libc::NLMSG_ERROR).then(|| match error {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
    })
}

/// The `N` bytes that stand at `at`.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_yes_or_why_not() {
        let whole = |error: i32| {
            let mut whole = vec![0; ANSWER];
            whole[4..6].copy_from_slice(&(libc::NLMSG_ERROR as u16).to_ne_bytes());
            whole[16..20].copy_from_slice(&error.to_ne_bytes());
            whole
        };
        assert!(answer(&whole(0)).unwrap().is_ok());
        assert_eq!(answer(&whole(-libc::EPERM)).unwrap().unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!((0..ANSWER).all(|length| answer(&whole(-libc::EPERM)[..length]).is_none()));
        let mut order = vec![];
        write(&mut order, 1, 1, &[0; 16], &[(41, &[1; 4])]);
        assert!(answer(&order).is_none());
    }
}
