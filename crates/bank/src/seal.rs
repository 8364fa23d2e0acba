//! Envelopes that only the clients of one volume can read.
//!
//! AES-256-GCM, with a key of its own for each envelope: HKDF-SHA256 of the volume's key over a random salt that stands in the envelope. A key
//! seals one message, so its nonce is always the same, and however many blocks a volume has, no key and nonce meet two of them.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

use crate::SecretError;

/// The key of one volume, from which those of its envelopes come.
#[derive(Clone)]
pub(crate) struct Seal(Prk);

/// An envelope's seal did not open.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// So many bytes of a key.
struct Bytes(usize);

impl KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

impl Seal {
    /// Bytes of the salt, before what is sealed.
    pub(crate) const SALT: usize = 32;
    /// Bytes of the tag, behind it.
    pub(crate) const TAG: usize = 16;

    /// Of the volume that has this name and this secret; and 32 bytes for a secret of its names.
    pub(crate) fn of_volume(secret: &[u8; 32], volume: &str) -> (Self, [u8; 32]) {
        let mut bytes = [0; 64];
        let volume = [volume.as_bytes()];
        Salt::new(HKDF_SHA256, b"verbena bank, sealed")
            .extract(secret)
            .expand(&volume, Bytes(bytes.len()))
            .and_then(|key| key.fill(&mut bytes))
            .expect("invariant: 64 bytes are fewer than 255 hashes");
        let mut names = [0; 32];
        names.copy_from_slice(&bytes[32..]);
        (Seal(Prk::new_less_safe(HKDF_SHA256, &bytes[..32])), names)
    }

    /// A salt that no other envelope has.
    pub(crate) fn salt() -> Result<[u8; Self::SALT], SecretError> {
        let mut salt = [0; Self::SALT];
        getrandom::fill(&mut salt).map_err(|error| SecretError::Random(error.to_string()))?;
        Ok(salt)
    }

    /// Seals what stands behind `from`, and appends the tag. What stands before is proven, and readable.
    pub(crate) fn close(&self, salt: &[u8; Self::SALT], item: &mut Vec<u8>, from: usize) {
        let (clear, sealed) = item.split_at_mut(from);
        let tag = self
            .key(salt)
            .seal_in_place_separate_tag(nonce(), Aad::from(&*clear), sealed)
            .expect("invariant: a block is far shorter than the longest message of the cipher");
        item.extend_from_slice(tag.as_ref());
    }

    /// Opens what stands behind `from`. Gives the bytes of it, without the tag.
    pub(crate) fn open(&self, salt: &[u8; Self::SALT], item: &mut [u8], from: usize) -> Result<usize, Broken> {
        let (clear, sealed) = item.split_at_mut_checked(from).ok_or(Broken)?;
        let opened = self.key(salt).open_in_place(nonce(), Aad::from(&*clear), sealed);
        opened.map(|opened| opened.len()).map_err(|_| Broken)
    }

    fn key(&self, salt: &[u8; Self::SALT]) -> LessSafeKey {
        let info = [&salt[..]];
        let key = self.0.expand(&info, &AES_256_GCM).expect("invariant: a key is one hash long");
        LessSafeKey::new(UnboundKey::from(key))
    }
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}
