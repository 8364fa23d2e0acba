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
    let is_one = |text: &String| {
        text.trim_start_matches("# verbena.toml\n").starts_with("[proxy]\n") && text.contains("routes =")
    };
    blocks.by_ref().filter_map(text).filter(is_one).collect()
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
    for framework in ["django", "flask", "express", "rails", "laravel", "wordpress"] {
        assert_eq!(checked(&format!("docs/howto/{framework}.md")), 1, "{framework}");
    }
    for document in ["docs/start.md", "docs/reference/HTTP.md", "README.md"] {
        assert!(checked(document) >= 1, "{document}");
    }
}
