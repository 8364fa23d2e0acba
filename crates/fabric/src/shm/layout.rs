//! The memory of a region, as owner and peers map it.
//!
//! ```text
//!  byte 0          8         16        24          32          40
//!       +----------+---------+---------+-----------+-----------+---------+----------~~+
//!       | "VSHM" 1 | state   | owner   | view : 32 | region:32 | bytes   | 0          |
//!       +----------+---------+---------+-----------+-----------+---------+----------~~+
//!  4096 | data, `bytes` long, up to a whole page ...                                    |
//! ```
//!
//! Words of the machine's own byte order (a process that maps the memory is on the machine), but for the first, whose
//! bytes are those of
//! [`Format`]. `state` is [`LIVE`] until the owner makes it [`REVOKED`], for ever; the rest never changes.

use verbena_terms::Format;

use crate::error::{Error, Result};
use crate::memory::Words;
use crate::region::RegionKey;

/// Where the data begins: behind a page of its own, so that it is aligned as a mapping of its own would be.
pub(super) const DATA: u64 = 4096;

const LAYOUT: Format = Format::new(*b"VSHM", 1);

const FORMAT_AT: u64 = 0;
const STATE_AT: u64 = 8;
const OWNER_AT: u64 = 16;
const VIEW_AT: u64 = 24;
const REGION_AT: u64 = 32;
const BYTES_AT: u64 = 40;

const LIVE: u64 = 1;
const REVOKED: u64 = 2;

/// Writes the header of the region that `key` names.
pub(super) fn describe(words: &Words, key: &RegionKey) {
    words.store(OWNER_AT, key.owner.to_word());
    words.store(VIEW_AT, u64::from(key.view.0));
    words.store(REGION_AT, u64::from(key.region));
    words.store(BYTES_AT, key.bytes);
    words.store(STATE_AT, LIVE);
    words.store(FORMAT_AT, u64::from_ne_bytes(LAYOUT.header()));
}

/// Refuses memory that is not the region that `key` names (F6, F4).
pub(super) fn check(words: &Words, key: &RegionKey) -> Result<()> {
    LAYOUT
        .check(&words.load(FORMAT_AT).to_ne_bytes())
        .map_err(|reason| Error::format(format_args!("{}, the owner of region {}", key.owner, key.region), &reason))?;
    let found = [OWNER_AT, VIEW_AT, REGION_AT, BYTES_AT].map(|at| words.load(at));
    let named = [key.owner.to_word(), u64::from(key.view.0), u64::from(key.region), key.bytes];
    if found != named {
        return Err(Error::Malformed {
            from: format!("{}, the owner of region {}", key.owner, key.region),
            reason: format!("its memory says owner, view, region, bytes {found:x?} where the key says {named:x?}"),
        });
    }
    Ok(())
}

/// From now on every peer that looks refuses. Only for an owner, whose mapping is writable.
pub(super) fn revoke(words: &Words) {
    words.store(STATE_AT, REVOKED);
}

/// Whether the owner has not revoked it.
pub(super) fn is_live(words: &Words) -> bool {
    words.load(STATE_AT) == LIVE
}

#[cfg(test)]
mod tests {
    use verbena_terms::{Incarnation, ViewNumber};

    use super::*;
    use crate::region::{Rights, Secret};

    fn key() -> RegionKey {
        let owner = Incarnation::new(3, 4);
        RegionKey { owner, region: 5, view: ViewNumber(6), bytes: 100, rights: Rights::Read, secret: Secret([0; 16]) }
    }

    #[test]
    fn a_header_is_of_one_region_only() {
        let words = Words::anonymous(4096).unwrap();
        describe(&words, &key());
        assert_eq!(check(&words, &key()), Ok(()));
        let others = [
            RegionKey { owner: Incarnation::new(3, 5), ..key() },
            RegionKey { view: ViewNumber(7), ..key() },
            RegionKey { region: 6, ..key() },
            RegionKey { bytes: 101, ..key() },
        ];
        for other in others {
            assert!(matches!(check(&words, &other), Err(Error::Malformed { .. })), "{other:?}");
        }
    }

    #[test]
    fn another_version_is_refused_naming_both() {
        let words = Words::anonymous(4096).unwrap();
        describe(&words, &key());
        words.store(FORMAT_AT, u64::from_ne_bytes(Format::new(*b"VSHM", 7).header()));
        let error = check(&words, &key()).unwrap_err().to_string();
        assert!(error.contains("version 7") && error.contains("version 1"), "{error}");
    }

    #[test]
    fn revoked_is_not_live() {
        let words = Words::anonymous(4096).unwrap();
        assert!(!is_live(&words), "nor is what was never described");
        describe(&words, &key());
        assert!(is_live(&words));
        revoke(&words);
        assert!(!is_live(&words));
    }
}
