//! Each configuration that the documents show is one that `verbena config check` accepts.

use std::path::{Path, PathBuf};

use verbena_testkit::programs::verbena;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text between fences that has a section in it which only a configuration file has.
fn configurations(document: &str) -> Vec<String> {
    let mut blocks = document.split("\n```").skip(1).step_by(2);
    let text = |block: &str| block.split_once('\n').map(|(_, text)| text.to_owned());
    blocks.by_ref().filter_map(text).filter(|text| text.starts_with("[proxy]\n") && text.contains("routes =")).collect()
}

fn checked(document: &str) -> usize {
    let text = std::fs::read_to_string(root().join(document)).unwrap();
    let found = configurations(&text);
    let directory = tempfile::tempdir().unwrap();
    for configuration in &found {
        std::fs::write(directory.path().join("verbena.toml"), configuration).unwrap();
        let output = verbena(&["config", "check"]).current_dir(&directory).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{document}:\n{configuration}\n{said}");
    }
    found.len()
}

#[test]
fn the_routes_of_the_documents_are_right() {
    assert_eq!(checked("docs/howto/frameworks.md"), 6, "one for each framework");
    assert!(checked("docs/reference/HTTP.md") >= 1 && checked("README.md") >= 1);
}
