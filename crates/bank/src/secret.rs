//! The secret of a volume: names and checksums of its blocks are made with it.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};
use thiserror::Error;

use crate::seal::Seal;

/// What only the clients of one volume know. A daemon, and a user that can reach it, can neither forge a block nor name one.
#[derive(Clone)]
pub struct Secret {
    bytes: [u8; 32],
    first: SipHasher24,
    second: SipHasher24,
    /// Of an encrypted volume.
    seal: Option<Seal>,
}

/// Why text is no secret.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The text is not 64 hexadecimal digits.
    #[error("a secret is 64 hexadecimal digits, found {found} characters: create one with `openssl rand -hex 32`")]
    Digits {
        /// Characters without surrounding space.
        found: usize,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes for a secret: {0}")]
    Random(String),
}

impl Secret {
    /// A secret of 32 bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        let half = |from: usize| {
            let mut key = [0; 16];
            key.copy_from_slice(&bytes[from..from + 16]);
            SipHasher24::new_with_key(&key)
        };
        Secret { bytes, first: half(0), second: half(16), seal: None }
    }

    /// The secret of one volume. Volumes that share a file with a secret share no name and no checksum.
    pub fn of_volume(&self, volume: &str) -> Self {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&hash(&self.first, Purpose::Volume, &[volume.as_bytes()]));
        bytes[16..].copy_from_slice(&hash(&self.second, Purpose::Volume, &[volume.as_bytes()]));
        Secret::new(bytes)
    }

    /// The secret of one volume whose envelopes are sealed. Its names and keys are no names and keys of the volume without encryption.
    pub fn encrypted(&self, volume: &str) -> Self {
        let (seal, names) = Seal::of_volume(&self.bytes, volume);
        Secret { seal: Some(seal), ..Secret::new(names) }
    }

    /// What seals the envelopes of the volume, if it is encrypted.
    pub(crate) fn seal(&self) -> Option<&Seal> {
        self.seal.as_ref()
    }

    /// A secret that no other process knows.
    pub fn random() -> Result<Self, SecretError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| SecretError::Random(error.to_string()))?;
        Ok(Secret::new(bytes))
    }

    /// The secret that 64 hexadecimal digits spell.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let text = text.trim();
        let error = SecretError::Digits { found: text.chars().count() };
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(error);
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[at * 2..at * 2 + 2], 16).map_err(|_| error.clone())?;
        }
        Ok(Secret::new(bytes))
    }

    /// 24 bytes that nobody without the secret can find from `bytes`.
    pub(crate) fn name(&self, bytes: &[u8]) -> [u8; 24] {
        let mut name = [0; 24];
        name[..16].copy_from_slice(&hash(&self.first, Purpose::Name, &[bytes]));
        name[16..].copy_from_slice(&hash(&self.second, Purpose::Name, &[bytes])[..8]);
        name
    }

    /// The keyed checksum over `parts`, one after the other.
    pub(crate) fn checksum(&self, parts: &[&[u8]]) -> [u8; 16] {
        hash(&self.second, Purpose::Checksum, parts)
    }

    /// What tells two secrets apart without giving either away.
    pub fn fingerprint(&self) -> String {
        hex(&hash(&self.first, Purpose::Fingerprint, &[])[..8])
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({})", self.fingerprint())
    }
}

#[derive(Clone, Copy)]
enum Purpose {
    Name = 1,
    Checksum = 2,
    Fingerprint = 3,
    Volume = 4,
}

fn hash(keyed: &SipHasher24, purpose: Purpose, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = *keyed;
    hasher.write(&[purpose as u8]);
    for part in parts {
        hasher.write(part);
    }
    hasher.finish128().as_bytes()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_a_secret_only_if_it_has_all_digits() {
        let text = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
        let secret = Secret::parse(&format!("{text}\n")).unwrap();
        assert_ne!(secret.fingerprint(), Secret::new([0; 32]).fingerprint());
        assert_eq!(Secret::parse(&text[1..]).unwrap_err(), SecretError::Digits { found: 63 });
        assert!(Secret::parse(&text.replace("00", "+0")).is_err());
        assert!(Secret::parse(&"ä".repeat(32)).is_err());
    }

    #[test]
    fn volumes_of_one_secret_share_nothing() {
        let secret = Secret::new([7; 32]);
        assert_eq!(secret.of_volume("a").name(b"key"), secret.of_volume("a").name(b"key"));
        assert_ne!(secret.of_volume("a").name(b"key"), secret.of_volume("b").name(b"key"));
        assert_ne!(secret.of_volume("a").checksum(&[b"key"]), secret.of_volume("b").checksum(&[b"key"]));
        assert_ne!(secret.of_volume("a").name(b"key"), Secret::new([8; 32]).of_volume("a").name(b"key"));
        assert_eq!(secret.encrypted("a").name(b"key"), secret.encrypted("a").name(b"key"));
        let others = [secret.of_volume("a"), secret.encrypted("b"), Secret::new([8; 32]).encrypted("a")];
        assert!(others.iter().all(|other| other.name(b"key") != secret.encrypted("a").name(b"key")));
    }

    #[test]
    fn both_halves_of_a_secret_decide_a_name() {
        let name = |bytes: [u8; 32]| Secret::new(bytes).name(b"key");
        let mut other = [7; 32];
        other[31] = 8;
        assert_ne!(name([7; 32]), name(other));
        other = [7; 32];
        other[0] = 8;
        assert_ne!(name([7; 32]), name(other));
    }
}
