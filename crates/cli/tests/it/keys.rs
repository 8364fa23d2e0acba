//! `verbena keys`, and nodes that know each other by what it makes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use verbena_testkit::nodes::{Cluster, are_in};
use verbena_testkit::programs::{json, verbena};

fn keys(arguments: &[&str], directory: &Path) -> (i32, String, String) {
    let output = verbena(&[&["keys"], arguments].concat()).current_dir(directory).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn an_authority_issues_certificates_that_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    assert_eq!(keys(&["show"], at).0, 1, "there is no directory yet");
    assert_eq!(keys(&["init", "--valid", "100d"], at).0, 0);
    assert_eq!(keys(&["node", "7", "--valid", "365d"], at).0, 0);
    let (code, found) = json(&["keys", "show", "--json"], at);
    let of =
        |nth: usize| (found[nth]["authority"].as_bool(), found[nth]["rank"].as_u64(), found[nth]["good"].as_bool());
    assert_eq!((code, found.as_array().unwrap().len()), (0, 2));
    assert_eq!((of(0), of(1)), ((Some(true), None, Some(true)), (Some(false), Some(7), Some(true))));
    let (authority, node) = (&found[0]["until_unix_s"], &found[1]["until_unix_s"]);
    assert_eq!(authority, node, "a certificate ends with its authority's at the latest");
    for name in ["authority.pem", "authority.key", "node-7.pem", "node-7.key"] {
        let mode = std::fs::metadata(at.join("keys").join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    assert_eq!(std::fs::metadata(at.join("keys")).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn nothing_is_overwritten_unless_it_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    keys(&["init"], at);
    keys(&["node", "1", "--valid", "0s"], at);
    let before = std::fs::read(at.join("keys/node-1.pem")).unwrap();
    let (code, _, told) = keys(&["node", "1"], at);
    assert_eq!(code, 1);
    assert!(told.contains("node-1.key: it exists, and is not overwritten"), "{told}");
    assert_eq!(std::fs::read(at.join("keys/node-1.pem")).unwrap(), before);

    let (code, shown, _) = keys(&["show"], at);
    assert_eq!(code, 1, "one is over");
    assert!(shown.contains("node 1") && shown.contains("it is over"), "{shown}");
    assert_eq!(keys(&["node", "1", "--replace"], at).0, 0);
    assert_eq!(keys(&["show"], at).0, 0);
    let mut left: Vec<_> =
        std::fs::read_dir(at.join("keys")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["authority.key", "authority.pem", "node-1.key", "node-1.pem"]);
}

#[test]
fn with_etcd_a_certificate_is_for_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let text = "[cluster]\nprovider = \"etcd\"\nname = \"app-1\"\naddress = \"tcp://127.0.0.1:7001\"\n[etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\n";
    std::fs::write(at.join("verbena.toml"), text).unwrap();
    assert_eq!(keys(&["init"], at).0, 0);
    assert_eq!(keys(&["node", "app-1"], at).0, 0);
    let (code, shown, _) = keys(&["show"], at);
    assert!(code == 0 && shown.contains("member-app-1.pem") && shown.contains("node app-1"), "{shown}");
    let (code, found) = json(&["keys", "show", "--json"], at);
    assert_eq!((code, found[1]["member"].as_str(), found[1]["rank"].as_u64()), (0, Some("app-1"), None));
    let (code, _, told) = keys(&["node", "App_1"], at);
    assert!(code == 1 && told.contains("\"App_1\" can be in no certificate"), "{told}");
}

#[test]
fn a_name_that_nobody_has_is_a_wrong_command_line() {
    let directory = tempfile::tempdir().unwrap();
    keys(&["init"], directory.path());
    let (code, _, told) = keys(&["node", "bob"], directory.path());
    assert_eq!(code, 2, "{told}");
    assert!(told.contains("\"bob\" is no rank"), "{told}");
}

#[test]
fn nodes_with_certificates_meet_and_one_without_does_not() {
    let host = format!("127.{}.77.{}", 1 + std::process::id() % 250, 1 + std::process::id() / 250 % 250);
    let members = [("a", format!("tcp://{host}:7001")), ("b", format!("tcp://{host}:7002"))];
    let cluster = Cluster::new("2s", &members);
    let file = cluster.path().join("verbena.toml");
    let plain = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{plain}[fabric]\nkeys = {:?}\n", cluster.path().join("keys"))).unwrap();
    keys(&["init"], cluster.path());
    for name in ["a", "b"] {
        assert_eq!(keys(&["node", name], cluster.path()).0, 0, "by its name in the configuration");
    }
    let a = cluster.start("a");
    a.wait_until("one in", |status| are_in(status, &[1]));

    std::fs::write(&file, plain).unwrap();
    let stranger = cluster.start("b");
    // Longer than it takes to join.
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(stranger.status().1["state"], "joining");
    drop(stranger);

    let plain = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{plain}[fabric]\nkeys = {:?}\n", cluster.path().join("keys"))).unwrap();
    let b = cluster.start("b");
    for node in [&a, &b] {
        node.wait_until("two in", |status| are_in(status, &[1, 2]));
    }
}
