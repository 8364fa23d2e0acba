//! An application in Python's standard library, unchanged, behind `verbena proxy`: slow between its query and its answer, so that
//! whoever stores without care stores what is old already.

use std::process::Stdio;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use verbena_testkit::programs::verbena;

use crate::common::traffic::{application, enough, proxy, traffic};

#[test]
fn an_unchanged_application_is_never_stale() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (_proxy, address) = proxy(directory.path(), "a", &origin, &[]);
    let seen = traffic(&[address], Duration::from_secs(4));
    assert_eq!(seen.stale.load(SeqCst), 0);
    enough(&seen);
}

/// So that we know that the test above sees: told that this application announces its writes, which it does not, the proxy lets them pass.
#[test]
fn an_application_that_breaks_its_word_is_stale() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let routes = r#"[{ prefix = "/", writes = "announced" }]"#;
    let (_proxy, address) = proxy(directory.path(), "a", &origin, &["--proxy-routes", routes]);
    let seen = traffic(&[address], Duration::from_secs(20));
    assert!(seen.stale.load(SeqCst) > 0, "nothing stale was seen");
}

/// Rule P11: a write through one proxy is seen through the other.
#[test]
fn two_proxies_that_know_each_other_are_never_stale() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let members = r#"[{ name = "a", address = "shm://a" }, { name = "b", address = "shm://b" }]"#;
    let member = |name| proxy(directory.path(), name, &origin, &["--cluster-members", members, "--cluster-name", name]);
    let ((_a, a), (_b, b)) = (member("a"), member("b"));
    let seen = traffic(&[a, b], Duration::from_secs(4));
    assert_eq!(seen.stale.load(SeqCst), 0);
    enough(&seen);
}

/// Rule P11: two that share a runtime directory and not their state would be two islands, so the second says so and ends.
#[test]
fn a_second_proxy_that_keeps_its_state_elsewhere_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (_first, _) = proxy(directory.path(), "a", &origin, &[]);
    let mut second = verbena(&["proxy", "--listen", "127.0.0.1:0", "--origin", &format!("http://{origin}")]);
    second.arg("--node-runtime").arg(directory.path().join("run")).arg("--node-state").arg(directory.path().join("b"));
    let refused = second.current_dir(directory.path()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("run"), "{:?}: {said}", refused.status);
}
