//! Clients that are not ours, unchanged: a session of each with two pools of one cache.

use std::process::Command;
use std::time::Duration;

use verbena_testkit::programs::wait_for;

use crate::processes::{connect, pool, wait_until_open};

/// Runs a session against two pools, if what it needs is installed.
fn session(program: &str, needs: &[&str], script: &str) {
    let has_it = Command::new(program).args(needs).output().is_ok_and(|output| output.status.success());
    if !has_it {
        println!("skipped: {program} does not have what {script} needs");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (_first, one) = pool(directory, "first", &["--memory", "16MiB"]);
    let (_second, two) = pool(directory, "second", &["--memory", "16MiB"]);
    [&one, &two].into_iter().for_each(|at| wait_until_open(at, 2));
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(script);
    let output = Command::new(program).arg(script).args([&one, &two]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim() == "done", "{said}{}", String::from_utf8_lossy(&output.stderr));
    // They are served on.
    wait_for("a set at one pool to be read at the other", || {
        std::thread::sleep(Duration::from_millis(1));
        connect(&one).set("after", 0, 0, b"it").is_ok() && connect(&two).get("after").unwrap().is_some()
    });
}

#[test]
fn pymemcache_finds_one_cache() {
    session("/usr/bin/python3", &["-c", "import pymemcache"], "session.py");
}

#[test]
fn php_finds_one_cache() {
    session("php", &["-r", "exit(extension_loaded('memcached') ? 0 : 1);"], "session.php");
}
