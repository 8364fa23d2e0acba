//! `verbena bank` and `verbena fs`: daemons of memcached, and a mount that reads from them.

use std::path::PathBuf;

use serde_json::Value;
use tempfile::TempDir;
use verbena_testkit::programs::{output, verbena, wait_for};

use crate::common::traffic::started;
use crate::fs_memory::can_mount;

/// What is mounted, and where; none where nothing can be.
fn folders() -> Option<(TempDir, [PathBuf; 2])> {
    if !can_mount() {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let folders = ["slow", "fast"].map(|name| directory.path().join(name));
    folders.iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    Some((directory, folders))
}

#[test]
fn a_file_comes_from_the_bank_and_never_older_than_what_was_closed() {
    let Some((directory, [slow, fast])) = folders() else { return };
    if !verbena_mount::check(&slow).unwrap().has_births {
        eprintln!("skipped: files have no births here");
        return;
    }
    std::fs::write(slow.join("words"), "one").unwrap();
    let [slow_text, fast_text] = [&slow, &fast].map(|folder| folder.to_str().unwrap());
    let checked = output(&mut verbena(&["fs", "check", slow_text]));
    assert!(checked.contains("identity") && checked.contains("not strong"), "{checked}");
    assert!(checked.contains("names     from the bank under open and age=TIME"), "{checked}");

    let mut up = verbena(&["bank", "up", "--json", "--daemons", "2", "--memory", "64MiB"]);
    let (_bank, line) = started(&mut up, |line| line.contains(r#""serving""#));
    let bank: Value = serde_json::from_str(&line).unwrap();
    let list = bank["bank"].as_str().unwrap();
    let mut mount = verbena(&["fs", "mount", "--bank", list, "--near", "4MiB", "--encrypt", "--deadline", "10s"]);
    let log = directory.path().join("mount.log");
    mount.args([slow_text, fast_text]).stderr(std::fs::File::create(&log).unwrap());
    let (mut mounted, _) = started(&mut mount, |line| line.starts_with("mounted "));

    let read = || std::fs::read_to_string(fast.join("words")).unwrap();
    assert_eq!(read(), "one");
    // By the mount, and past it.
    std::fs::write(fast.join("words"), "two").unwrap();
    assert_eq!((read(), std::fs::read_to_string(slow.join("words")).unwrap()), ("two".into(), "two".into()));
    std::fs::write(slow.join("words"), "three").unwrap();
    assert_eq!(read(), "three");
    let status = output(&mut verbena(&["fs", "status", fast_text]));
    assert!(!status.is_empty());
    let warmed: Value = serde_json::from_str(&output(&mut verbena(&["fs", "warm", fast_text, "--json"]))).unwrap();
    assert_eq!((&warmed["files"], &warmed["bytes"], &warmed["failed"]), (&1.into(), &5.into(), &0.into()));
    let words = fast.join("words");
    let explained = output(&mut verbena(&["fs", "status", "--explain", words.to_str().unwrap()]));
    assert!(["opened: ", "hit: ", "miss: ", "below: "].iter().any(|start| explained.starts_with(start)), "{explained}");
    let purged: Value = serde_json::from_str(&output(&mut verbena(&["fs", "purge", fast_text, "--json"]))).unwrap();
    assert_eq!((&purged["files"], &purged["unreached"], &purged["failed"]), (&1.into(), &0.into(), &0.into()));
    let said = output(&mut verbena(&["fs", "purge", words.to_str().unwrap()]));
    assert!(said.starts_with("1 files purged; 0 blocks"), "{said}");
    let said = verbena(&["fs", "purge", slow_text]).output().unwrap();
    assert!(said.status.code() == Some(1) && String::from_utf8_lossy(&said.stderr).contains("no Verbena mount"));
    let top = output(&mut verbena(&["fs", "top", fast_text, "--count", "2", "--every", "50ms"]));
    assert!(top.lines().count() == 3 && top.starts_with("    opens"), "{top}");
    assert!(top.contains("    names    asked"), "{top}");
    let counts: Value = serde_json::from_str(&output(&mut verbena(&["fs", "status", "--json", fast_text]))).unwrap();
    assert!(counts["daemons_up"] == 2 && counts["bank_hits"].is_u64() && counts["near_hits"].is_u64(), "{counts}");
    assert!(counts["listing_hits"].is_u64() && counts["below_calls"].is_u64(), "{counts}");
    // What a mount refuses says why, and mounts nothing.
    let free = tempfile::tempdir().unwrap();
    let free = free.path().to_str().unwrap();
    for (from, to, more, why) in [
        (slow_text, slow_text, &[][..], "mount"),
        ("/nowhere", fast_text, &[][..], "/nowhere"),
        (slow_text, fast_text, &["--promise", "strong"][..], "announce nothing"),
        (slow_text, fast_text, &["--block", "1000B"][..], "power of two"),
        (slow_text, free, &["--bank", list, "--near", "100KiB"][..], "at least eight blocks"),
        (slow_text, free, &["--bank", "none", "--encrypt"][..], "--bank none has no blocks"),
    ] {
        let said = verbena(&[&["fs", "mount"], more, &[from, to]].concat()).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && text.contains(why), "{from} {to} {more:?}: {text}");
    }
    output(&mut verbena(&["fs", "umount", fast_text]));
    wait_for("the end of the mount", || mounted.0.try_wait().unwrap().is_some());
    assert!(mounted.0.wait().unwrap().success());
    assert!(!fast.join("words").exists());
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(!said.contains("WARN"), "nothing went wrong: {said}");
}

#[test]
fn a_bank_that_does_not_answer_is_named_where_it_is_mounted() {
    let Some((_directory, [slow, fast])) = folders() else { return };
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut mount = verbena(&["fs", "mount", "--bank", &format!("memcached://{nobody}")]);
    let (mut mounted, line) =
        started(mount.args([&slow, &fast]), |line| line.contains("warning: ") || line.contains("an open sees"));
    assert!(line.contains(&format!("no memcached daemon answers at {nobody}")), "{line}");
    output(&mut verbena(&["fs", "umount", fast.to_str().unwrap()]));
    wait_for("the end of the mount", || mounted.0.try_wait().unwrap().is_some());
}

#[test]
fn a_bank_of_no_daemons_is_a_mistake_of_the_command_line() {
    let said = verbena(&["bank", "up", "--daemons", "0"]).output().unwrap();
    assert_eq!(said.status.code(), Some(2), "{said:?}");
}
