//! Files that options name.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Reads the file `path`, relative to `folder`: for options that name one. It is at most 64 MiB.
///
/// # Errors
/// What the system said, with the path.
pub fn read_file(folder: &Path, path: &str) -> Result<String, String> {
    const LARGEST: u64 = 64 << 20;
    let path = folder.join(path);
    let failed = |problem: &dyn fmt::Display| format!("{}: {problem}", path.display());
    let mut text = String::new();
    // What a device gives has no length beforehand, and may have no end.
    let read = File::open(&path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
    match read.map_err(|error| failed(&error))? as u64 {
        length if length > LARGEST => Err(failed(&format_args!("more than {LARGEST} bytes"))),
        _ => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let refused = read_file(Path::new("/dev"), "zero");
        assert_eq!(refused, Err("/dev/zero: more than 67108864 bytes".into()));
        assert!(read_file(Path::new("/dev"), "nothing").is_err_and(|said| said.starts_with("/dev/nothing: No such")));
    }
}
