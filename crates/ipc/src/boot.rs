//! Which boot of the machine this is: what was left by another one says nothing of its processes.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::error::Error;

/// The kernel's number of this boot (random(4), `boot_id`).
///
/// # Errors
/// If there is no /proc, or it says something else.
pub fn boot_id() -> Result<u128, Error> {
    let path = Path::new("/proc/sys/kernel/random/boot_id");
    let text = fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map_err(|_| Error::file("read", path, io::Error::new(ErrorKind::InvalidData, "it is no number")))
}
