//! `verbena lock rm`.

use std::time::Duration;

use serde_json::Value;
use verbena_client::wire::LockMode;
use verbena_testkit::nodes::Cluster;

use super::{NAMES, acquire, connect, counted, lock, lock_run, on_shm, three, wait_for};

/// Its exit code, what it printed, and what it complained of.
fn rm(cluster: &Cluster, node: &str, arguments: &[&str]) -> (i32, String, String) {
    let output = lock(cluster, "rm", node).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn words(cluster: &Cluster) -> f64 {
    NAMES.iter().map(|node| counted(cluster, node, &["home_locks"])[0]).sum()
}

#[test]
fn a_lock_that_nobody_uses_is_forgotten_and_one_that_is_used_stays() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let [mut a, mut b, _c] = NAMES.map(|node| connect(&cluster, node));
    let first = acquire(&mut a, "x", LockMode::Exclusive);
    let token = first.token();
    for node in NAMES {
        let (code, said, _) = rm(&cluster, node, &["x"]);
        assert!(code == 75 && said.starts_with("x: in use, and not removed\nx\n  held"), "{said}");
        assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    }
    let (code, said, _) = rm(&cluster, "b", &["x", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert!(code == 75 && said["outcome"] == "in_use" && said["lock"]["queue"][0]["token"] == token, "{said}");
    assert!(a.is_held(&first));
    let waits = lock_run(&cluster, "b", &["x", "--", "true"]).spawn().unwrap();
    wait_for("one waits", || counted(&cluster, "b", &["waiting"]) == [1.0]);
    assert_eq!(rm(&cluster, "c", &["x"]).0, 75);
    a.release(first).unwrap();
    assert!(waits.wait_with_output().unwrap().status.success());
    wait_for("the words are seen", || words(&cluster) == 1.0);
    assert_eq!(rm(&cluster, "c", &["x"]), (0, "x: removed\n".into(), String::new()));
    wait_for("the words are gone", || words(&cluster) == 0.0);
    let nothing = "x: its home does not know it: there is nothing to remove\n";
    assert_eq!(rm(&cluster, "a", &["x"]), (0, nothing.into(), String::new()));
    // Whoever remembers its words asks again, and tokens go on.
    let (again, read) = (acquire(&mut b, "x", LockMode::Exclusive), token + 2);
    assert!(again.token() > read, "{} after {read}", again.token());
    b.release(again).unwrap();
    let shared = acquire(&mut a, "x", LockMode::Shared);
    assert_eq!(rm(&cluster, "b", &["x"]).0, 75);
    a.release(shared).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let (code, said, _) = rm(&cluster, "a", &["x", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, said), (0, serde_json::json!({ "outcome": "removed", "lock": null })));
}

#[test]
fn names_that_cannot_be_and_homes_that_are_down_are_errors() {
    let cluster = on_shm();
    let nodes = three(&cluster);
    let long = "n".repeat(1025);
    let (code, _, complaint) = rm(&cluster, "a", &[&long]);
    assert!(code == 2 && complaint.contains("1025 bytes"), "{code}: {complaint}");
    let (code, _, complaint) = rm(&cluster, "a", &[""]);
    assert!(code == 2 && complaint.contains("0 bytes"), "{code}: {complaint}");
    // Of many names some have their home at a node that is stopped.
    nodes[2].signal(rustix::process::Signal::STOP);
    let silent = (0..12).map(|nth| rm(&cluster, "a", &[&format!("lock {nth}")])).find(|(code, ..)| *code != 0);
    nodes[2].signal(rustix::process::Signal::CONT);
    let (code, _, complaint) = silent.unwrap();
    assert!(code == 1 && complaint.contains("c, does not answer"), "{code}: {complaint}");
}
