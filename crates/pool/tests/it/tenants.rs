//! Tenants of two pools: by listener, by user of the unix socket, by name and password; each has keys, a flush and a share of the memory of its own.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use verbena_pool::{Client, ClientError};
use verbena_testkit::programs::{verbena, wait_for};

use crate::processes::{Ended, connect, pool_with, wait_until_open};

/// Of 4 MiB of memory: what `shop` has for sure, and what `blog` and `tiny` have at most.
const TENANTS: &str = r#"[{ name = "shop", guaranteed = "1MiB" }, { name = "blog", most = "1MiB" },
    { name = "tiny", items = 3, connections = 2 }]"#;

/// A pool with a listener for each of these tenants behind the first one, and where they are.
fn pool_of(directory: &Path, log: &str, tenants: &[&str], more: &[&str]) -> (Ended, String, Vec<String>) {
    let listener = |tenant: &&str| format!(r#"{{ address = "127.0.0.1:0", tenant = "{tenant}" }}"#);
    let listeners = format!("[{}]", tenants.iter().map(listener).collect::<Vec<_>>().join(","));
    let flags = ["--memory", "4MiB", "--pool-tenants", TENANTS, "--memcached-listeners", &listeners];
    let (process, serving) = pool_with(directory, log, "127.0.0.1:0", &[&flags[..], more].concat());
    let address = |value: &Value| value["address"].as_str().unwrap().to_owned();
    let further = serving["listeners"].as_array().map_or(vec![], |all| all.iter().map(address).collect());
    (process, address(&serving), further)
}

fn read(client: &mut Client, key: &str) -> Option<Vec<u8>> {
    client.get(key).unwrap().map(|found| found.bytes)
}

/// Sets it and reads it at the other pool, which may forget it, until it does not.
fn set_and_seen(at: &str, other: &str, key: &str, value: &[u8]) {
    wait_for("a value to be read at the other pool", || {
        connect(at).set(key, 0, 0, value).unwrap();
        match read(&mut connect(other), key) {
            Some(found) => {
                assert_eq!(found, value, "{key}");
                true
            }
            None => false,
        }
    });
}

fn tenants(at: &str) -> Vec<Value> {
    let output = verbena(&["pool", "tenants", "--json", "--server", at]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn tenant(at: &str, name: &str) -> Value {
    tenants(at).into_iter().find(|tenant| tenant["name"] == name).unwrap()
}

#[test]
fn tenants_have_keys_and_a_flush_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    let (_first, a, of_a) = pool_of(directory.path(), "a", &["shop", "blog"], &[]);
    let (_second, b, of_b) = pool_of(directory.path(), "b", &["shop", "blog"], &[]);
    wait_until_open(&a, 2);
    wait_until_open(&b, 2);
    for nth in 0..20 {
        let key = format!("key-{nth}");
        set_and_seen(&of_a[0], &of_b[0], &key, b"of shop");
        set_and_seen(&of_b[1], &of_a[1], &key, b"of blog");
        set_and_seen(&a, &b, &key, b"of none");
        let values = [&of_b[0], &of_a[1], &b].map(|at| read(&mut connect(at), &key));
        let expected = [&b"of shop"[..], b"of blog", b"of none"];
        for (value, expected) in values.iter().zip(expected) {
            assert!(value.as_deref().is_none_or(|value| value == expected), "{key}: {value:?}");
        }
    }
    // One tenant's deletion and flush are of its own keys, at both pools.
    assert!(connect(&of_a[0]).delete("key-0").unwrap());
    assert_eq!(read(&mut connect(&of_b[0]), "key-0"), None);
    connect(&of_b[1]).flush().unwrap();
    let mut left = [0; 3];
    for nth in 1..20 {
        let key = format!("key-{nth}");
        assert_eq!([&of_a[1], &of_b[1]].map(|at| read(&mut connect(at), &key)), [None, None], "{key} was flushed");
        for (left, at) in left.iter_mut().zip([&of_a[0], &of_b[0], &a]) {
            *left += u32::from(read(&mut connect(at), &key).is_some());
        }
    }
    assert!(left.iter().all(|left| *left > 15), "others keep theirs: {left:?}");
    // A tenant's client sees its own objects and its own tenant, and chooses no scheme for all.
    let names = |at: &str| -> Vec<String> {
        tenants(at).iter().map(|tenant| tenant["name"].as_str().unwrap().into()).collect()
    };
    assert_eq!(
        (names(&a), names(&of_a[0])),
        (["default", "blog", "shop", "tiny"].map(String::from).to_vec(), vec!["shop".into()])
    );
    assert!(connect(&of_a[0]).statistics("objects").unwrap().iter().all(|(key, _)| key.starts_with("key-")));
    assert!(matches!(connect(&of_a[0]).choose_scheme("ac"), Err(ClientError::Refused(_))));
    assert!(connect(&of_a[1]).statistics("").unwrap().contains(&("pool_tenant".into(), "blog".into())));
}

#[test]
fn a_tenant_at_its_limit_evicts_its_own_and_a_scan_nothing_that_is_guaranteed() {
    let directory = tempfile::tempdir().unwrap();
    let (_process, at, of) = pool_of(directory.path(), "a", &["shop", "blog", "tiny"], &[]);
    wait_until_open(&at, 1);
    let (mut shop, mut blog, mut tiny, mut none) = (connect(&of[0]), connect(&of[1]), connect(&of[2]), connect(&at));
    // 800 KiB of the guaranteed mebibyte, never read until the end.
    let value = vec![b'x'; 8000];
    (0..100).for_each(|nth| shop.set(&format!("key-{nth}"), 0, 0, &value).unwrap());
    // Twice its limit, and five times all memory.
    (0..256).for_each(|nth| blog.set(&format!("key-{nth}"), 0, 0, &value).unwrap());
    (0..2600).for_each(|nth| none.set(&format!("scan-{nth}"), 0, 0, &value).unwrap());
    let left = (0..100).filter(|nth| read(&mut shop, &format!("key-{nth}")).is_some()).count();
    assert_eq!(left, 100, "what is guaranteed stays");
    let of_blog = tenant(&at, "blog");
    let (bytes, evicted) = (of_blog["bytes"].as_u64().unwrap(), of_blog["evicted"].as_u64().unwrap());
    assert!(bytes <= 1 << 20 && evicted >= 120, "{of_blog}");
    (0..10).for_each(|nth| tiny.set(&format!("key-{nth}"), 0, 0, b"it").unwrap());
    let of_tiny = tenant(&at, "tiny");
    assert_eq!((&of_tiny["items"], &of_tiny["evicted"], &of_tiny["most_items"]), (&3.into(), &7.into(), &3.into()));
    // Two connections at most: the third is told, and closed.
    let mut second = connect(&of[2]);
    assert!(second.get("key-9").unwrap().is_some());
    let mut third = BufReader::new(TcpStream::connect(&of[2]).unwrap());
    let mut said = String::new();
    third.read_line(&mut said).unwrap();
    assert_eq!(
        (said.as_str(), third.read_line(&mut String::new()).unwrap()),
        ("ERROR Too many open connections\r\n", 0)
    );
    drop(second);
    wait_for("a connection to be free again", || connect(&of[2]).get("key-9").is_ok());
}

#[test]
fn clients_say_who_they_are_by_name_and_password() {
    let directory = tempfile::tempdir().unwrap();
    let (users, socket) = (directory.path().join("users"), directory.path().join("socket"));
    std::fs::write(&users, "shop:secret\nother:also secret\n").unwrap();
    let flags = ["--users", users.to_str().unwrap(), "--socket", socket.to_str().unwrap()];
    let (_process, at, of) = pool_of(directory.path(), "a", &["blog"], &flags);
    let operator = socket.to_str().unwrap();
    // The operator's clients at the socket need no password, nor do those of a listener with a tenant.
    wait_until_open(operator, 1);
    connect(&of[0]).set("key", 0, 0, b"of blog").unwrap();
    connect(operator).set("key", 0, 0, b"of none").unwrap();
    let dialogue = [
        ("get key\r\n", "CLIENT_ERROR unauthenticated\r\n"),
        (
            "version\r\nset auth 0 0 11\r\nshop secreT\r\n",
            "CLIENT_ERROR unauthenticated\r\nCLIENT_ERROR authentication failure\r\n",
        ),
        (
            "set auth 0 0 4\r\nshop\r\nset auth 0 0 0\r\n\r\n",
            "CLIENT_ERROR bad authentication token format\r\nCLIENT_ERROR bad authentication token format\r\n",
        ),
        ("set any 0 0 11\r\nshop secret\r\nget key\r\n", "STORED\r\nEND\r\n"),
        ("set key 0 0 7\r\nof shop\r\nget key\r\n", "STORED\r\nVALUE key 0 7\r\nof shop\r\nEND\r\n"),
    ];
    let mut stream = BufReader::new(TcpStream::connect(&at).unwrap());
    for (asked, expected) in dialogue {
        stream.get_mut().write_all(asked.as_bytes()).unwrap();
        for line in expected.split_inclusive("\r\n") {
            let mut said = String::new();
            stream.read_line(&mut said).unwrap();
            assert_eq!(said, line, "to {asked:?}");
        }
    }
    // All in one packet.
    stream = BufReader::new(TcpStream::connect(&at).unwrap());
    stream
        .get_mut()
        .write_all(b"set x 0 0 17\r\nother also secret\r\nget key\r\nset key 0 0 1\r\nz\r\nget key\r\n")
        .unwrap();
    let said: Vec<String> = stream.lines().take(6).map(Result::unwrap).collect();
    assert_eq!(said, ["STORED", "END", "STORED", "VALUE key 0 1", "z", "END"]);
    assert_eq!(read(&mut connect(operator), "key").unwrap(), b"of none");
    assert_eq!(read(&mut connect(&of[0]), "key").unwrap(), b"of blog");
    // A password that is changed counts at once; commands have both as flags.
    std::fs::write(&users, "shop:other\n").unwrap();
    let password = directory.path().join("password");
    std::fs::write(&password, "other\n").unwrap();
    let get = ["pool", "get", "key", "--server", &at, "--user", "shop", "--password-file", password.to_str().unwrap()];
    let output = verbena(&get).output().unwrap();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"of shop"[..]));
    std::fs::write(&password, "secret\n").unwrap();
    assert_eq!(verbena(&get).output().unwrap().status.code(), Some(1));
}

/// A password that is said to a server that asks for none would be a value that all can read. And times of more than thirty days, which the protocol takes for moments.
#[test]
fn a_pool_without_users_keeps_no_password_and_long_times_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (_process, at, _) = pool_of(directory.path(), "a", &[], &[]);
    let mut client = connect(&at);
    wait_for("the pool to decide", || client.set("auth", 0, 0, b"mine").is_ok());
    let password = directory.path().join("password");
    std::fs::write(&password, "secret\n").unwrap();
    let get = ["pool", "get", "key", "--server", &at, "--user", "shop", "--password-file", password.to_str().unwrap()];
    let output = verbena(&get).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("asks for no user"), "{output:?}");
    assert_eq!(client.get("auth").unwrap().unwrap().bytes, b"mine");
    for days in ["30d", "31d", "400d"] {
        let set = ["pool", "set", "long", "value", "--expires", days, "--server", &at];
        assert!(verbena(&set).output().unwrap().status.success());
        assert_eq!(client.get("long").unwrap().map(|value| value.bytes), Some(b"value".to_vec()), "{days}");
        let touch = ["pool", "touch", "long", days, "--server", &at];
        assert!(verbena(&touch).output().unwrap().status.success());
        assert!(client.get("long").unwrap().is_some(), "{days}");
    }
}

/// As memcached answers a client that has not said who it is, so does the pool.
#[test]
fn the_password_is_asked_for_as_memcached_does() {
    let directory = tempfile::tempdir().unwrap();
    let users = directory.path().join("users");
    std::fs::write(&users, "shop:secret\n").unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut memcached = Command::new("memcached");
    memcached.args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-p", &port, "-Y"]).arg(&users);
    let Ok(process) = memcached.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        println!("skipped: memcached is not installed");
        return;
    };
    let _memcached = Ended::of(process);
    let theirs = format!("127.0.0.1:{port}");
    wait_for("memcached to listen", || TcpStream::connect(&theirs).is_ok());
    let (_process, ours, _) = pool_of(directory.path(), "a", &[], &["--users", users.to_str().unwrap()]);
    wait_for("the pool to decide", || {
        let mut client = connect(&ours);
        client.authenticate("shop", "secret").unwrap();
        client.set("open", 0, 0, b"?").is_ok()
    });
    let parts = [
        "get key\r\n",
        "version\r\n",
        "set auth 0 0 11\r\nshop secreT\r\n",
        "set auth 0 0 6\r\nsecret\r\n",
        "set auth 0 0 11\r\nshop secret\r\n",
        "set key 0 0 1\r\nx\r\n",
        "get key\r\n",
    ];
    let answers = [&theirs, &ours].map(|at| {
        let mut stream = BufReader::new(TcpStream::connect(at).unwrap());
        let mut said = vec![];
        for part in parts {
            stream.get_mut().write_all(part.as_bytes()).unwrap();
            for _ in 0..if part == "get key\r\n" && said.len() > 2 { 3 } else { 1 } {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                said.push(line);
            }
        }
        said
    });
    assert_eq!(answers[0], answers[1], "left: memcached; right: the pool");
}

/// A user of the unix socket is a client of its tenant.
#[test]
fn the_user_at_the_socket_says_whose_client_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("socket");
    let uid = rustix::process::geteuid().as_raw();
    let tenants = format!(r#"[{{ name = "shop", uids = [{uid}] }}]"#);
    let flags = ["--memory", "4MiB", "--pool-tenants", &tenants, "--socket", socket.to_str().unwrap()];
    let (_process, serving) = pool_with(directory.path(), "a", "127.0.0.1:0", &flags);
    let at = serving["address"].as_str().unwrap();
    wait_until_open(at, 1);
    connect(socket.to_str().unwrap()).set("key", 0, 0, b"of shop").unwrap();
    assert_eq!(read(&mut connect(at), "key"), None);
    assert_eq!(tenant(at, "shop")["items"], 1);
}
