//! The fuzz targets as programs: each is built with the tests, is described, and takes the inputs that are kept for it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files of a folder, without what ends their names.
fn names(path: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(path).unwrap();
    entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

fn targets() -> BTreeSet<String> {
    let targets = names(&folder().join("fuzz_targets"));
    assert!(targets.len() >= 20, "only {targets:?}");
    targets
}

#[test]
fn every_target_is_built_described_and_has_a_corpus() {
    let manifest = std::fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for target in targets() {
        assert!(manifest.contains(&format!("name = \"{target}\"\n")), "{target} is not in Cargo.toml");
        assert!(readme.contains(&format!("| `{target}` |")), "{target} is not in README.md");
    }
    assert_eq!(names(&folder().join("corpus")), targets(), "a corpus for each target, and for no other");
}

/// libFuzzer runs each file that it is given once. What is wrong in one ends the program.
#[test]
fn every_target_takes_its_corpus() {
    let programs = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned();
    let may_load_programs = rustix::process::geteuid().is_root();
    let mut taken = 0;
    for target in targets() {
        if target == "xdp_frame" && !may_load_programs {
            println!("skipped: nobody may load a program into this kernel");
            continue;
        }
        let corpus = std::fs::read_dir(folder().join("corpus").join(&target)).unwrap();
        let files: Vec<PathBuf> = corpus.map(|entry| entry.unwrap().path()).collect();
        let output = Command::new(programs.join(&target)).arg("-timeout=20").args(&files).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{target}: {said}");
        assert_eq!(said.matches("Executed ").count(), files.len(), "{target}: {said}");
        taken += files.len();
    }
    println!("counted: {taken} inputs taken by {} fuzz targets", targets().len());
    assert!(taken > 500, "only {taken} inputs");
}
