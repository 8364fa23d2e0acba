//! Files that options name.

use std::fmt;
use std::path::Path;

/// Reads the file `path`, relative to `folder`: for options that name one. It is at most 64 MiB.
///
/// # Errors
/// What the system said, with the path.
pub fn read_file(folder: &Path, path: &str) -> Result<String, String> {
    const LARGEST: u64 = 64 << 20;
    let path = folder.join(path);
    let failed = |problem: &dyn fmt::Display| format!("{}: {problem}", path.display());
    let length = std::fs::metadata(&path).map_err(|error| failed(&error))?.len();
    if length > LARGEST {
        return Err(failed(&format_args!("{length} bytes; at most {LARGEST}")));
    }
    std::fs::read_to_string(&path).map_err(|error| failed(&error))
}
