//! What a directory's flags say of its names, and whether one that it does not list leads to nothing.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::{IFlags, ioctl_getflags};
use verbena_bank::Listing;

/// Whether a name that a listing lacks is missing. A longer one than a file system of this machine has is another error.
pub(super) fn may_be_missing(listing: &Listing, name: &OsStr) -> bool {
    const LONGEST: usize = 255;
    listing.lists_all && name.len() <= LONGEST
}

/// The flags of a directory, if its file system tells them.
pub(super) fn flags(directory: &OwnedFd) -> Option<IFlags> {
    ioctl_getflags(directory).ok()
}

/// Whether a name leads to a file that is listed under another one: with other letters, or composed otherwise. If that is not known it is taken to be so.
pub(super) fn folds_letters(flags: Option<IFlags>) -> bool {
    /// `FS_CASEFOLD_FL` of include/uapi/linux/fs.h.
    const CASEFOLD: u32 = 0x4000_0000;
    flags.is_none_or(|flags| flags.bits() & CASEFOLD != 0)
}

/// Whether the names of a directory depend on its key (fscrypt). When it is locked or unlocked all of them are others, and none of its times moves.
pub(super) fn is_encrypted(flags: Option<IFlags>) -> bool {
    /// `FS_ENCRYPT_FL` of include/uapi/linux/fs.h.
    const ENCRYPT: u32 = 0x800;
    flags.is_some_and(|flags| flags.bits() & ENCRYPT != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::below::has_births;

    #[test]
    fn a_name_is_missing_where_the_listing_says_all_and_the_name_can_be_one() {
        let (mut listing, name) = (Listing::new(0, None, vec![]), "n".repeat(256));
        assert!(!may_be_missing(&listing, OsStr::new("n")));
        listing.lists_all = true;
        assert!(may_be_missing(&listing, OsStr::new("n")) && may_be_missing(&listing, OsStr::new(&name[1..])));
        assert!(!may_be_missing(&listing, OsStr::new(&name)), "below says that it is too long");
    }

    #[test]
    fn letters_are_taken_to_be_folded_where_nothing_says_that_they_are_not() {
        let folder = tempfile::tempdir().unwrap();
        if !has_births(folder.path()) {
            return;
        }
        let open = |path: &str| std::fs::File::open(path).unwrap().into();
        assert!(!folds_letters(flags(&open(folder.path().to_str().unwrap()))));
        assert!(folds_letters(flags(&open("/proc/self"))), "it has no flags");
    }

    #[test]
    fn a_directory_is_encrypted_where_its_flags_say_so() {
        let flags = |bits| Some(IFlags::from_bits_retain(bits));
        // As `lsattr` shows them: E beside e, and e alone.
        assert!(is_encrypted(flags(0x0008_0800)) && !is_encrypted(flags(0x0008_0000)));
        assert!(!folds_letters(flags(0x0008_0800)) && folds_letters(flags(0x4008_0000)));
        assert!(!is_encrypted(None), "a file system without flags has no such directories");
    }
}
