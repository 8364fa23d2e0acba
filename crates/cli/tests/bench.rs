//! `verbena bench` and `verbena traces`: what they run is tested where it is; here, that the command runs it.

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod common;

use common::{json, verbena};

#[test]
fn the_table_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let (code, rows) = json(&["bench", "--list", "--json"], directory.path());
    let names: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(code == 0 && names.len() > 20 && names.contains(&"fabric.primitives"), "{names:?}");
    let text = String::from_utf8(verbena(&["bench", "--list"]).output().unwrap().stdout).unwrap();
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn what_is_not_there_is_told_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for (name, code, why) in [("nothing.such", 2, "there is no experiment"), ("bank.stat", 1, "is not in this build")] {
        let output = verbena(&["bench", name]).current_dir(&directory).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(why), "{told}");
    }
    assert_eq!(verbena(&["bench"]).output().unwrap().status.code(), Some(2), "no name");
    let output = verbena(&["bench", "fabric.primitives", "--trace", "keys.csv"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--trace is for `content.keys`"), "{said}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn a_target_process_is_this_program() {
    let output = verbena(&[verbena_bench::CHILD_ARGUMENT, "nonsense"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("no target is called"), "{output:?}");
}

#[test]
fn a_trace_is_written() {
    let arguments = ["traces", "zipf", "--requests", "50", "--seed", "3"];
    let [first, second] = [0, 1].map(|_| verbena(&arguments).output().unwrap().stdout);
    assert_eq!(first, second, "the same seed gives the same trace");
    assert_eq!(String::from_utf8(first).unwrap().lines().count(), 51);
}
