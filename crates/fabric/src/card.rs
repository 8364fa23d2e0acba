//! How nodes of one machine meet: each leaves a card in a directory that they share.
//!
//! An shm address is random in every incarnation, so it cannot stand in a configuration. A node writes `NAME.card` into
//! the runtime directory, which belongs to one user. A peer that looks for the node reads its incarnation and address
//! there:
//!
//! ```text
//!  0        4         6       8       12       16
//!  +--------+---------+-------+-------+--------+----------- - -
//!  | "VCRD" | version |   0   | start | rank   | address: text, to the end
//!  +--------+---------+-------+-------+--------+----------- - -
//! ```
//!
//! Little endian. A card is replaced in one step and outlives its writer: its existence proves nothing. An address at
//! which another incarnation answers, or none, is as good as no address. The card holds the address's secret and is
//! readable by its owner alone.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use verbena_terms::{Format, Incarnation, Rank};

use crate::error::{Error, Result};
use crate::provider::Address;

const CARD: Format = Format::new(*b"VCRD", 1);
const LARGEST: u64 = 4096;

/// Leaves the card of `name`. Replaces the one of an earlier incarnation.
pub(crate) fn leave(directory: &Path, name: &str, who: Incarnation, address: &Address) -> Result<()> {
    let path = path(directory, name);
    let beside = path.with_extension("card.new");
    let bytes = [&CARD.header()[..], &who.to_word().to_le_bytes(), address.0.as_bytes()].concat();
    let named =
        |error: std::io::Error| Error::System { what: "leave a card", reason: format!("{}: {error}", path.display()) };
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside);
    file.and_then(|mut file| file.write_all(&bytes)).map_err(named)?;
    fs::rename(&beside, &path).map_err(named)
}

/// Takes the card of `name` away, if it is this incarnation's.
pub(crate) fn take_away(directory: &Path, name: &str, who: Incarnation) {
    if read(directory, name).is_ok_and(|(found, _)| found == who) {
        // If it cannot be removed it is a stale card, which does no harm.
        let _ = fs::remove_file(path(directory, name));
    }
}

/// The incarnation that left the card of `name`, and its address.
pub(crate) fn read(directory: &Path, name: &str) -> Result<(Incarnation, Address)> {
    let path = path(directory, name);
    let mut bytes = Vec::new();
    let opened = fs::File::open(&path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
    opened.map_err(|error| Error::System { what: "read a card", reason: format!("{}: {error}", path.display()) })?;
    let from = path.display().to_string();
    let rest = CARD.check(&bytes).map_err(|reason| Error::format(&from, &reason))?;
    let malformed = |reason: &str| Error::Malformed { from: from.clone(), reason: reason.into() };
    let (who, address) =
        rest.split_first_chunk::<8>().ok_or_else(|| malformed("it ends before the incarnation does"))?;
    let address = std::str::from_utf8(address).map_err(|_| malformed("the address is not text"))?;
    let who = Incarnation::from_word(u64::from_le_bytes(*who));
    if who.rank == Rank::NOBODY {
        return Err(malformed("it is nobody's"));
    }
    Ok((who, Address(address.to_owned())))
}

fn path(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.card"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_card_is_read_as_it_was_left() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (Incarnation::new(2, 1), Incarnation::new(2, 2));
        leave(directory.path(), "a", first, &Address("shm://one".into())).unwrap();
        leave(directory.path(), "a", second, &Address("shm://two".into())).unwrap();
        assert_eq!(read(directory.path(), "a"), Ok((second, Address("shm://two".into()))));
        let mode = fs::metadata(directory.path().join("a.card")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        take_away(directory.path(), "a", first);
        assert!(read(directory.path(), "a").is_ok(), "a later life's card stays");
        take_away(directory.path(), "a", second);
        assert!(read(directory.path(), "a").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_no_card_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let good = [&CARD.header()[..], &Incarnation::new(1, 1).to_word().to_le_bytes(), b"shm://x"].concat();
        let whole = fs::write(directory.path().join("a.card"), &good).map(|()| read(directory.path(), "a"));
        assert!(whole.unwrap().is_ok());
        for length in 0..16 {
            fs::write(directory.path().join("a.card"), &good[..length]).unwrap();
            assert!(matches!(read(directory.path(), "a"), Err(Error::Malformed { .. })), "{length} bytes");
        }
        fs::write(directory.path().join("a.card"), [&good[..], &[0xff]].concat()).unwrap();
        assert!(matches!(read(directory.path(), "a"), Err(Error::Malformed { .. })));
    }
}
