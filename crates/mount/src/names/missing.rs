//! Whether a name that a directory does not list leads to nothing.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::ioctl_getflags;
use verbena_bank::Listing;

/// Whether a name that a listing lacks is missing. A longer one than a file system of this machine has is another error.
pub(super) fn may_be_missing(listing: &Listing, name: &OsStr) -> bool {
    const LONGEST: usize = 255;
    listing.lists_all && name.len() <= LONGEST
}

/// Whether a name leads to a file that is listed under another one: with other letters, or composed otherwise. If that is not known it is taken to be so.
pub(super) fn folds_letters(directory: &OwnedFd) -> bool {
    /// `FS_CASEFOLD_FL` of include/uapi/linux/fs.h.
    const CASEFOLD: u32 = 0x4000_0000;
    !ioctl_getflags(directory).is_ok_and(|flags| flags.bits() & CASEFOLD == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let open = |path: &str| std::fs::File::open(path).unwrap().into();
        assert!(!folds_letters(&open(folder.path().to_str().unwrap())));
        assert!(folds_letters(&open("/proc/self")), "it has no flags");
    }
}
