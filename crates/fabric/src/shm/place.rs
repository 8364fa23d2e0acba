//! Where a node listens: `shm://NAME/SECRET`, both 32 hexadecimal digits.

use std::fmt;

use crate::error::{Error, Result};
use crate::provider::Address;
use crate::region::Secret;

const SCHEME: &str = "shm";

/// The abstract name, which every process can see, and the secret, which proves that a peer was given the address.
/// Printed without the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    name: [u8; 16],
    pub(super) secret: Secret,
}

impl Place {
    /// A place with a new random name and secret.
    pub(super) fn random() -> Result<Self> {
        Ok(Place { name: Secret::random()?.0, secret: Secret::random()? })
    }

    pub(super) fn address(&self) -> Address {
        Address(format!("{SCHEME}://{:032x}/{:032x}", number(self.name), number(self.secret.0)))
    }

    pub(super) fn parse(address: &Address) -> Result<Self> {
        let malformed = || Error::Malformed {
            from: format!("the address {}...", address.0.chars().take(16).collect::<String>()),
            reason: format!("an address here is {SCHEME}://NAME/SECRET, both 32 hexadecimal digits"),
        };
        let rest = Some(address.rest()).filter(|_| address.scheme() == SCHEME).ok_or_else(malformed)?;
        let (name, secret) = rest.split_once('/').ok_or_else(malformed)?;
        let bytes = |digits: &str| {
            let all = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u128::from_str_radix(digits, 16).ok().filter(|_| all).map(u128::to_be_bytes)
        };
        match (bytes(name), bytes(secret)) {
            (Some(name), Some(secret)) => Ok(Place { name, secret: Secret(secret) }),
            _ => Err(malformed()),
        }
    }

    /// The abstract socket's name, without the leading zero byte.
    pub(super) fn socket_name(&self) -> Vec<u8> {
        format!("verbena-{:032x}", number(self.name)).into_bytes()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}://{:032x}", number(self.name))
    }
}

const fn number(bytes: [u8; 16]) -> u128 {
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_address_and_hides_its_secret() {
        let place = Place { name: [0; 16], secret: Secret([0xab; 16]) };
        let address = place.address();
        assert_eq!(Place::parse(&address), Ok(place));
        assert!(address.0.contains("abab") && !format!("{place} {place:?}").contains("abab"));
        for other in ["tcp://a/b", "shm://", "shm://0/0", &address.0[..address.0.len() - 1], "shm://+/"] {
            assert!(matches!(Place::parse(&Address(other.into())), Err(Error::Malformed { .. })), "{other}");
        }
    }
}
