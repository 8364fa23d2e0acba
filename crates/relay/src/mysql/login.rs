//! What the server offers and the client takes.
//!
//! The relay clears what it does not know in both: another layout of the answers would have no end that it finds. The
//! proof of a password covers none of these bits.

use super::packets::HEAD;
use super::wire::{Reader, packet};
use crate::Login;

/// The client's dialect is MySQL's. Where it is absent, the last four bytes of the filler are MariaDB's own bits.
const MYSQL: u32 = 1;
const PROTOCOL_41: u32 = 0x0200;
pub(crate) const SSL: u32 = 0x0800;
const DEPRECATE_EOF: u32 = 1 << 24;
/// Everything up to DEPRECATE_EOF, and several factors of authentication; of these without COMPRESS and SSL. Not:
/// metadata that is left out, zstd, attributes of queries (they stand before the text), and what has no name yet.
const KNOWN: u32 = (0x01FF_FFFF | 1 << 28) & !0x20 & !SSL;

const EXTENDED_TYPES: u32 = 1 << 3;
const CACHED_METADATA: u32 = 1 << 4;
/// Progress, bulk statements, extended types, cached metadata. Not: COM_MULTI (1), results of units in bulk (5).
const KNOWN_OF_MARIADB: u32 = 1 | 1 << 2 | EXTENDED_TYPES | CACHED_METADATA;

/// What both sides use, as far as the relay must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Agreed {
    /// Rows end with an OK packet, and nothing stands between columns and rows.
    pub(crate) no_eof: bool,
    /// Column definitions have one string more.
    pub(crate) extended_types: bool,
    /// The number of columns is followed by a byte that says whether their definitions follow.
    pub(crate) cached_metadata: bool,
}

/// What the server's greeting offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Offer {
    bits: u32,
    mariadb: u32,
    has_encryption: bool,
}

impl Offer {
    /// The server takes connections with TLS.
    pub(crate) fn has_encryption(self) -> bool {
        self.has_encryption
    }
}

/// What the first answer of the client is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// It logs in.
    Login(Agreed),
    /// It wants to encrypt first.
    Encrypt,
}

/// Clears in a greeting, as a whole packet, what the relay does not know, and offers TLS, the relay's own, if it is
/// to. `None`: it is no greeting of version 10.
///
/// ```text
/// 10, version 0, thread u32, scramble 8, 0, low bits u16, character set, status u16, high bits u16,
/// length of scramble, filler 6, bits of MariaDB u32, ...
/// ```
pub(crate) fn greeting(raw: &mut [u8], offers_encryption: bool) -> Option<Offer> {
    let mut reader = Reader(raw.get(HEAD..)?);
    if reader.u8()? != 10 {
        return None;
    }
    reader.terminated()?;
    reader.bytes(4 + 8 + 1)?;
    let low_at = raw.len() - reader.0.len();
    let low = u32::from(reader.u16()?);
    reader.bytes(1 + 2)?;
    let high_at = raw.len() - reader.0.len();
    let bits = low | u32::from(reader.u16()?) << 16;
    let has_encryption = bits & SSL != 0;
    let bits = bits & KNOWN | if offers_encryption { SSL } else { 0 };
    reader.bytes(1 + 6)?;
    let mariadb_at = raw.len() - reader.0.len();
    let mariadb = reader.u32()?;
    let mariadb = if bits & MYSQL == 0 { mariadb & KNOWN_OF_MARIADB } else { 0 };
    if bits & PROTOCOL_41 == 0 {
        return None;
    }
    raw[low_at..low_at + 2].copy_from_slice(&(bits as u16).to_le_bytes());
    raw[high_at..high_at + 2].copy_from_slice(&((bits >> 16) as u16).to_le_bytes());
    if bits & MYSQL == 0 {
        raw[mariadb_at..mariadb_at + 4].copy_from_slice(&mariadb.to_le_bytes());
    }
    Some(Offer { bits, mariadb, has_encryption })
}

/// Clears the same in the client's response, and says what both sides use.
///
/// ```text
/// bits u32, longest packet u32, character set, filler 19, bits of MariaDB u32, user 0, ...
/// ```
pub(crate) fn response(raw: &mut [u8], offer: Offer, is_encrypted: bool) -> Option<Response> {
    let bits = Reader(raw.get(HEAD..)?).u32()?;
    if bits & SSL != 0 && !is_encrypted {
        return Some(Response::Encrypt);
    }
    if bits & PROTOCOL_41 == 0 || raw.len() < HEAD + 32 {
        return None;
    }
    // Bits that the client sets on its own account (FOUND_ROWS, INTERACTIVE) need no offer.
    let bits = bits & KNOWN;
    raw[HEAD..HEAD + 4].copy_from_slice(&bits.to_le_bytes());
    let mut mariadb = 0;
    if bits & MYSQL == 0 && offer.bits & MYSQL == 0 {
        mariadb = Reader(&raw[HEAD + 28..]).u32()? & KNOWN_OF_MARIADB;
        raw[HEAD + 28..HEAD + 32].copy_from_slice(&mariadb.to_le_bytes());
    }
    let (both, both_of_mariadb) = (bits & offer.bits, mariadb & offer.mariadb);
    Some(Response::Login(Agreed {
        no_eof: both & DEPRECATE_EOF != 0,
        extended_types: both_of_mariadb & EXTENDED_TYPES != 0,
        cached_metadata: both_of_mariadb & CACHED_METADATA != 0,
    }))
}

/// The request for TLS that goes before a login, whose number becomes the next one: its beginning.
pub(crate) fn request(login: &mut [u8]) -> Vec<u8> {
    let bits = u32::from_le_bytes([login[HEAD], login[HEAD + 1], login[HEAD + 2], login[HEAD + 3]]) | SSL;
    login[HEAD..HEAD + 4].copy_from_slice(&bits.to_le_bytes());
    packet(login[HEAD - 1].wrapping_sub(1), &login[HEAD..HEAD + 32])
}

/// Methods of authentication in which a client sends its password itself where there is TLS.
const BARE: [&[u8]; 3] = [b"mysql_clear_password", b"sha256_password", b"dialog"];

/// Whether the server asks for the password itself: by a switch to another method, or because caching_sha2_password has no
/// proof in its cache.
pub(crate) fn asks_for_password(payload: &[u8]) -> bool {
    let is_switch = |method: &&[u8]| payload[1..].strip_prefix(*method).is_some_and(|rest| rest.first() == Some(&0));
    payload == [1, 4] || payload.first() == Some(&0xFE) && BARE.iter().any(is_switch)
}

/// Whether a login goes by such a method at once.
pub(crate) fn names_bare_password(raw: &[u8]) -> bool {
    BARE.iter().any(|method| raw.windows(method.len() + 2).any(|part| part == [b"\0", *method, b"\0"].concat()))
}

const CONNECT_WITH_DATABASE: u32 = 1 << 3;
const SECURE_CONNECTION: u32 = 1 << 15;
const PROOF_WITH_LENGTH: u32 = 1 << 21;

/// What a response says of the session. What cannot be read is not known.
///
/// ```text
/// bits u32, longest packet u32, character set, filler 23, user 0, proof, [database 0], ...
/// ```
pub(crate) fn session(raw: &[u8]) -> Login {
    let read = || {
        let mut reader = Reader(raw.get(HEAD..)?);
        let bits = reader.u32()?;
        reader.bytes(4)?;
        let character_set = u16::from(reader.u8()?);
        reader.bytes(23)?;
        let user = reader.terminated()?.to_vec();
        let database = match bits & CONNECT_WITH_DATABASE != 0 {
            true => {
                if bits & PROOF_WITH_LENGTH != 0 {
                    reader.string()?;
                } else if bits & SECURE_CONNECTION != 0 {
                    let length = usize::from(reader.u8()?);
                    reader.bytes(length)?;
                } else {
                    reader.terminated()?;
                }
                Some(reader.terminated()?.to_vec()).filter(|name| !name.is_empty())
            }
            false => None,
        };
        Some(Login { user, character_set: Some(character_set), database, ..Login::default() })
    };
    read().unwrap_or_default()
}

/// The same of a change of user. Its proof has a length of one byte, as every server that is alive wants it.
///
/// ```text
/// user 0, proof, database 0, character set u16, ...
/// ```
pub(crate) fn changed(bytes: &[u8]) -> Login {
    let read = || {
        let mut reader = Reader(bytes);
        let user = reader.terminated()?.to_vec();
        let length = usize::from(reader.u8()?);
        reader.bytes(length)?;
        let database = Some(reader.terminated()?.to_vec()).filter(|name| !name.is_empty());
        Some(Login { user, character_set: reader.u16(), database, ..Login::default() })
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_says_its_character_set_and_database() {
        let head = |bits: u32| [&[0; HEAD][..], &bits.to_le_bytes(), &[0; 4], &[45], &[0; 23], b"shop\0"].concat();
        let all = CONNECT_WITH_DATABASE | SECURE_CONNECTION;
        let known = Login {
            user: b"shop".to_vec(),
            character_set: Some(45),
            database: Some(b"store".to_vec()),
            ..Login::default()
        };
        let raw = [&head(all)[..], b"\x03abcstore\0mysql_native_password\0"].concat();
        assert_eq!(session(&raw), known);
        let raw = [&head(all | PROOF_WITH_LENGTH)[..], b"\xFC\x03\0abcstore\0"].concat();
        assert_eq!(session(&raw), known);
        assert_eq!(session(&head(SECURE_CONNECTION)), Login { database: None, ..known.clone() });
        for cut in 0..raw.len() {
            session(&raw[..cut]);
        }
        assert_eq!(changed(b"shop\0\x03abcstore\0\x2D\0"), known);
        assert_eq!(changed(b"shop\0\0\0"), Login { user: b"shop".to_vec(), ..Login::default() });
    }
}
