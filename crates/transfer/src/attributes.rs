//! The extended attributes that users set (`user.*`, xattr(7)).

use std::os::fd::AsFd;

use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

/// The longest list of names, and the longest value (xattr(7)).
const LONGEST: usize = 64 << 10;

/// Attributes, by name.
type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Gives `to` the attributes of `from`, and no others.
pub(crate) fn same_attributes(from: impl AsFd, to: impl AsFd) -> Result<(), Errno> {
    let (wanted, there) = (attributes(from)?, attributes(&to)?);
    for (name, value) in wanted.iter().filter(|one| !there.contains(one)) {
        fsetxattr(&to, name.as_slice(), value, XattrFlags::empty())?;
    }
    for (name, _) in there.iter().filter(|(name, _)| !wanted.iter().any(|(other, _)| other == name)) {
        fremovexattr(&to, name.as_slice())?;
    }
    Ok(())
}

/// Whether both have the same.
pub(crate) fn has_same_attributes(one: impl AsFd, other: impl AsFd) -> Result<bool, Errno> {
    let (mut one, mut other) = (attributes(one)?, attributes(other)?);
    one.sort();
    other.sort();
    Ok(one == other)
}

fn attributes(file: impl AsFd) -> Result<Attributes, Errno> {
    let mut names = vec![0; LONGEST];
    let length = match flistxattr(&file, names.as_mut_slice()) {
        Ok(length) => length,
        // The file system has none.
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error),
    };
    let mut found = Attributes::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
        let mut value = vec![0; LONGEST];
        match fgetxattr(&file, name, value.as_mut_slice()) {
            Ok(length) => {
                value.truncate(length);
                found.push((name.to_vec(), value));
            }
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
