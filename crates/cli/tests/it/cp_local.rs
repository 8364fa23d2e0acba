//! `verbena cp` between two sides on this machine.

use std::path::Path;
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::programs::{output, verbena, wait_for};

fn content(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn run(directory: &Path, words: &[&str]) -> Output {
    verbena(&[&["cp"], words].concat()).current_dir(directory).output().unwrap()
}

fn said(directory: &Path, words: &[&str]) -> Value {
    serde_json::from_str(&output(verbena(&[&["cp", "--json"], words].concat()).current_dir(directory))).unwrap()
}

#[test]
fn a_tree_and_a_file_are_copied_here() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir_all(at("data/deep")).unwrap();
    std::fs::write(at("data/large"), content(3 << 20)).unwrap();
    std::fs::write(at("data/deep/small"), "small").unwrap();
    std::fs::write(at("data/skip.tmp"), "x").unwrap();
    std::os::unix::fs::symlink("large", at("data/link")).unwrap();
    let here = directory.path();
    // Nothing is made by a dry run, not even the target.
    let dry = run(here, &["-r", "--dry-run", "--exclude", "*.tmp", "data/", "copy/"]);
    let text = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(dry.status.success() && text.contains("copy large\n") && text.contains("make deep\n"), "{dry:?}");
    assert!(!text.contains("skip.tmp") && !at("copy").exists(), "{text}");
    let first = said(here, &["-r", "--exclude", "*.tmp", "data/", "copy/"]);
    // Two files, a link and two directories, one of which stood once it was made.
    assert_eq!((&first["entries"], first["changes"].as_array().unwrap().len()), (&5.into(), 4), "{first}");
    assert!(
        first["channel"] == "descriptor" && first["is_proven"] == true && first["failures"] == Value::Array(vec![])
    );
    assert_eq!(first["bytes"], (3 << 20) + 5);
    assert_eq!(std::fs::read(at("copy/large")).unwrap(), content(3 << 20));
    assert_eq!(std::fs::read_link(at("copy/link")).unwrap(), Path::new("large"));
    let again = said(here, &["--exclude", "*.tmp", "data", "copy"]);
    assert_eq!((&again["entries"], &again["bytes"], &again["changes"]), (&5.into(), &0.into(), &Value::Array(vec![])));
    let removed = said(here, &["--delete", "--no-proof", "--preserve", "--checksum", "data/deep", "copy"]);
    assert!(removed["is_proven"] == false && !at("copy/large").exists(), "{removed}");
    // One file, under its name and another one; and why.
    assert_eq!(said(here, &["data/large", "copy"])["entries"], 1);
    let explained = run(here, &["--explain", "data/link", "copy/other"]);
    let text = String::from_utf8_lossy(&explained.stdout).into_owned();
    assert!(text.contains("proven by the root") && text.contains("3145728 bytes were copied"), "{text}");
    for name in ["copy/large", "copy/other"] {
        assert!(!at(name).is_symlink() && std::fs::read(at(name)).unwrap() == content(3 << 20), "{name}");
    }
}

#[test]
fn what_is_wrong_with_two_sides_here() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("data")).unwrap();
    std::fs::write(directory.path().join("file"), "x").unwrap();
    for (words, code, needles) in [
        (&["none", "copy"][..], 1, &["none", "No such file", "correct the path"][..]),
        (&["data", "none/copy"], 1, &["none", "No such file", "mkdir -p"]),
        (&["file", "none/"], 1, &["none/", "No such file", "mkdir -p"]),
        (&["data", "file"], 1, &["file", "no directory", "choose one"]),
        (&["data", "data/in"], 2, &["data/in", "apart from the source"]),
        (&["file", "file"], 2, &["apart from the source"]),
        (&["--limit", "1mbit", "data", "copy"], 2, &["--limit", "both sides are on this machine"]),
        (&["--streams", "2", "data", "copy"], 2, &["--streams", "both sides are on this machine"]),
        (&["--channel", "quic", "data", "copy"], 2, &["--channel", "both sides are on this machine"]),
        (&["--tls", "data", "copy"], 2, &["--tls", "both sides are on this machine"]),
        (&["--plain", "data", "copy"], 2, &["--plain", "both sides are on this machine"]),
        (&["--preserve", "data", "ftp://127.0.0.1:1/"], 2, &["--preserve", "one is a server"]),
        (&["--no-proof", "data", "ftp://127.0.0.1:1/"], 2, &["--no-proof", "one is a server"]),
        (&["--checksum", "data", "ftp://127.0.0.1:1/"], 2, &["--checksum", "one is a server"]),
    ] {
        let refused = run(directory.path(), words);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(needles.iter().all(|needle| text.contains(needle)), "{words:?}: {text}");
        assert_eq!(refused.status.code(), Some(code), "{words:?}: {text}");
        assert!(!directory.path().join("copy").exists(), "{words:?}");
    }
}

/// Killed at any byte, the same command goes on, and no part is left.
#[test]
fn a_copy_that_was_killed_goes_on() {
    const SIZE: u64 = 1 << 30;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("data")).unwrap();
    // Holes are hashed and take no room.
    let large = std::fs::File::create(at("data/large")).unwrap();
    large.set_len(SIZE).unwrap();
    for nth in 0..SIZE >> 20 {
        std::os::unix::fs::FileExt::write_all_at(&large, &nth.to_le_bytes(), nth << 20).unwrap();
    }
    let parts = || -> Vec<_> {
        let found = std::fs::read_dir(at("copy")).into_iter().flatten().flatten();
        found
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(".~verbena"))
            .map(|entry| entry.path())
            .collect()
    };
    let mut cp = verbena(&["cp", "--json", "data", "copy"]);
    let mut cp = cp.current_dir(directory.path()).stdout(Stdio::null()).spawn().unwrap();
    wait_for("an eighth of it", || {
        parts().iter().any(|part| std::fs::metadata(part).is_ok_and(|data| data.len() > SIZE / 8))
    });
    kill_process(Pid::from_child(&cp), Signal::KILL).unwrap();
    assert!(!cp.wait().unwrap().success() && !at("copy/large").exists() && parts().len() >= 2);
    let again = said(directory.path(), &["data", "copy"]);
    let bytes = again["bytes"].as_u64().unwrap();
    // At most what was under way, and what no record names yet, is copied twice.
    assert!(bytes <= SIZE - SIZE / 8 + (128 << 20), "{again}");
    assert!(parts().is_empty(), "{:?}", parts());
    assert!(std::process::Command::new("cmp").args([at("data/large"), at("copy/large")]).status().unwrap().success());
}
