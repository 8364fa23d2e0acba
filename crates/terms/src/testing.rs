//! What the tests of several crates need; kept out of programs.

use std::path::Path;
use std::{fs, io};

/// The inputs that the fuzz target `target` began with and has found since (fuzz/README.md), in the order of their files' names.
///
/// # Panics
/// If there are none, or they cannot be read.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let inputs = files(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    assert!(!inputs.is_empty(), "{} is empty", folder.display());
    inputs
}

fn files(folder: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    paths.iter().map(fs::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "fuzz/corpus/no_target: No such file")]
    fn a_corpus_that_is_missing_is_a_failure() {
        corpus("no_target");
    }
}
