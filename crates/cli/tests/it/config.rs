//! `verbena config`, as users see it: each file in `tests/config` and beside it what is said about it.

use std::path::{Path, PathBuf};

use verbena_cli::config::{Flag, Place, Whose, examine, flag_name, sections};
use verbena_testkit::programs::{json, verbena};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config")
}

/// To write the expected texts anew after a change that was meant: `VERBENA_WRITE_EXPECTED=1 cargo test`.
fn writes_expected() -> bool {
    std::env::var_os("VERBENA_WRITE_EXPECTED").is_some()
}

#[test]
fn each_mistake_is_explained_as_expected() {
    let mut files: Vec<_> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "toml"));
    assert!(files.len() >= 4, "the samples are gone: {files:?}");
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let output = verbena(&["config", "check", name]).current_dir(folder()).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = format!("{said}exit {}\n", output.status.code().unwrap());
        let expected = file.with_extension("expected");
        if writes_expected() {
            std::fs::write(&expected, &said).unwrap();
        }
        assert_eq!(said, std::fs::read_to_string(&expected).unwrap(), "{name}");
    }
}

#[test]
fn mistakes_are_also_there_for_programs() {
    let (code, report) = json(&["config", "check", "keys.toml", "--json"], &folder());
    assert_eq!(code, 2);
    let mistakes = report["mistakes"].as_array().unwrap();
    let named: Vec<_> = mistakes.iter().map(|mistake| mistake["key"].as_str().unwrap()).collect();
    assert_eq!(named, ["runtime", "node.runtim", "node.state", "nodes"]);
    assert_eq!((mistakes[1]["line"].as_u64(), mistakes[1]["column"].as_u64()), (Some(5), Some(1)));
    assert_eq!(mistakes[1]["suggestion"], "runtime");
}

#[test]
fn a_missing_file_is_an_error_and_a_missing_default_is_not() {
    let empty = tempfile::tempdir().unwrap();
    let named = verbena(&["config", "check", "none.toml"]).current_dir(&empty).output().unwrap();
    assert_eq!(named.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&named.stderr).contains("none.toml: No such file"), "{named:?}");
    assert_eq!(verbena(&["config", "check"]).current_dir(&empty).output().unwrap().status.code(), Some(0));
}

/// A value that differs from the default, as it would be written behind the flag, and what is then in effect.
fn other_value(key: &str) -> (&'static str, serde_json::Value) {
    match key {
        "cluster.lease" => ("1m", "1m".into()),
        "cluster.drift" => ("7ms", "7ms".into()),
        "cluster.name" => ("b", "b".into()),
        "cluster.provider" => ("etcd", "etcd".into()),
        "cluster.address" => ("tcp://b:7001", "tcp://b:7001".into()),
        "cluster.roles" => ("home,reader", serde_json::json!(["home", "reader"])),
        "etcd.endpoints" => ("http://a:1,https://b:2", serde_json::json!(["http://a:1", "https://b:2"])),
        "etcd.prefix" => ("/other", "/other".into()),
        "etcd.authority" | "etcd.certificate" | "etcd.key" | "etcd.password_file" => {
            ("/some/where", "/some/where".into())
        }
        "etcd.user" => ("app", "app".into()),
        "cluster.members" => (
            r#"[{ name = "local", address = "shm://local", roles = ["home"] }]"#,
            serde_json::json!([{ "name": "local", "address": "shm://local", "roles": ["home"] }]),
        ),
        "memory.share" => ("1GiB", "1GiB".into()),
        "memory.user_share" | "memory.copies" => ("1MiB", "1MiB".into()),
        "memory.segments" => ("1000", 1000.into()),
        "monitor.every" => ("1s", "1s".into()),
        "monitor.proc" => ("/host/proc", "/host/proc".into()),
        "monitor.core" => ("1", 1.into()),
        "node.runtime" | "node.state" => ("/some/where", "/some/where".into()),
        "fabric.provider" => ("tcp", "tcp".into()),
        "fabric.listen" => ("127.0.0.1:7001", "127.0.0.1:7001".into()),
        "fabric.keys" => ("/some/where", "/some/where".into()),
        "fabric.insecure"
        | "fabric.verbs_polling"
        | "fabric.verbs_rdma_cm"
        | "fabric.verbs_send"
        | "proxy.pass_dependencies"
        | "proxy.shared_origin" => ("true", true.into()),
        "fabric.xdp_interfaces" => ("eth1,lo", serde_json::json!(["eth1", "lo"])),
        "fabric.xdp_mode" => ("generic", "generic".into()),
        "fabric.verbs_device" => ("mlx5_0", "mlx5_0".into()),
        "fabric.verbs_port" => ("2", 2.into()),
        "fabric.verbs_rdma_cm_port" => ("7471", 7471.into()),
        "fabric.verbs_control_level" | "fabric.verbs_bulk_level" => ("4", 4.into()),
        "fabric.verbs_gid" => ("3", 3.into()),
        "fabric.pool" => ("2MiB", "2MiB".into()),
        "ipc.modes" => ("mq,adaptive", serde_json::json!(["mq", "adaptive"])),
        "ipc.progress_core" => ("1", 1.into()),
        "node.api" => ("127.0.0.1:0", "127.0.0.1:0".into()),
        "pages.key" => ("/some/where", "/some/where".into()),
        "pages.words" | "pages.sets" | "locks.words" | "proxy.threads" | "proxy.fills" | "proxy.connections"
        | "proxy.streams" | "proxy.tunnels" => ("77", 77.into()),
        "pages.begin_deadline" | "pages.longest_transaction" => ("70ms", "70ms".into()),
        "proxy.listen" => ("127.0.0.1:81", "127.0.0.1:81".into()),
        "proxy.tls_cert" | "proxy.tls_key" => ("/a.pem,/b.pem", serde_json::json!(["/a.pem", "/b.pem"])),
        "proxy.origin_ca" => ("/some/where", "/some/where".into()),
        "proxy.origin_http" => ("http2", "http2".into()),
        "proxy.origin_proxy_protocol" => ("v2", "v2".into()),
        "proxy.proxy_protocol_from" => ("10.0.0.0/8,::1", serde_json::json!(["10.0.0.0/8", "::1"])),
        "proxy.origin" => ("http://a:1,http://b:2", serde_json::json!(["http://a:1", "http://b:2"])),
        "proxy.origin_nodes" => ("a,b", serde_json::json!(["a", "b"])),
        "proxy.replacement" => ("lru", "lru".into()),
        "proxy.hits" => ("hyper", "hyper".into()),
        "memcached.listen" => ("127.0.0.1:11311", "127.0.0.1:11311".into()),
        "memcached.socket" => ("/some/where", "/some/where".into()),
        "memcached.threads" | "memcached.connections" => ("77", 77.into()),
        "memcached.tenant" => ("shop", "shop".into()),
        "memcached.tls_cert" | "memcached.tls_key" => ("/some/where", "/some/where".into()),
        "memcached.users" => ("/some/where", "/some/where".into()),
        "memcached.listeners" => (
            r#"[{ address = "127.0.0.1:11312", tenant = "shop" }]"#,
            serde_json::json!([{ "address": "127.0.0.1:11312", "tenant": "shop" }]),
        ),
        "memcached.client_timeout" => ("3s", "3s".into()),
        "pool.tenants" => (
            r#"[{ name = "shop", guaranteed = "1MiB", items = 9, uids = [1000] }]"#,
            serde_json::json!([{ "name": "shop", "guaranteed": "1MiB", "items": 9, "uids": [1000] }]),
        ),
        "pool.scheme" => ("mtacc", "mtacc".into()),
        "pool.passive" => ("true", true.into()),
        "pool.mirror" => ("false", false.into()),
        "pool.memory" => ("64MiB", "64MiB".into()),
        "pool.largest" => ("3KiB", "3KiB".into()),
        "pool.patience" => ("3s", "3s".into()),
        "proxy.purge_from" => ("10.0.0.0/8,::1", serde_json::json!(["10.0.0.0/8", "::1"])),
        "proxy.purge_token_file" => ("/some/where", "/some/where".into()),
        "proxy.mode" => ("standard", "standard".into()),
        "proxy.memory" => ("3GiB", "3GiB".into()),
        "proxy.largest" => ("3KiB", "3KiB".into()),
        "proxy.connect_timeout"
        | "proxy.origin_timeout"
        | "proxy.client_timeout"
        | "proxy.drain"
        | "proxy.tunnel_timeout" => ("3s", "3s".into()),
        "proxy.routes" => (
            r#"[{ prefix = "/a", writes = "announced" }]"#,
            serde_json::json!([
                { "prefix": "/a", "inherit": true, "writes": "announced" }
            ]),
        ),
        "database.to" => ("mysql://shop@127.0.0.1:3306", "mysql://shop@127.0.0.1:3306".into()),
        "database.password_file" => ("/some/where", "/some/where".into()),
        "database.listen" => ("127.0.0.1:3310", "127.0.0.1:3310".into()),
        "database.complete" | "database.capture" => ("true", true.into()),
        "database.tls_cert" | "database.tls_key" | "database.tls_ca" => ("/some/where", "/some/where".into()),
        "database.scheme" => ("serialised", "serialised".into()),
        "database.longest_turn" => ("3s", "3s".into()),
        _ => panic!("say here what {key} can be, so that its flag is tried"),
    }
}

/// Flags without which a key means nothing.
fn beside(key: &str) -> Vec<&'static str> {
    let etcd = "--cluster-name b --etcd-endpoints http://a:1";
    let words = match key {
        "cluster.provider" => format!("{etcd} --cluster-address tcp://b:7001"),
        "cluster.address" => format!("{etcd} --cluster-provider etcd"),
        "cluster.roles" => format!("{etcd} --cluster-provider etcd --cluster-address tcp://b:7001"),
        "etcd.endpoints" => "--etcd-authority /some/where".into(),
        "pool.tenants" => "--pool-memory 64MiB".into(),
        "etcd.prefix" => "--etcd-endpoints http://a:1".into(),
        "memcached.tls_cert" => "--memcached-tls-key /a.key".into(),
        "memcached.tls_key" => "--memcached-tls-cert /a.pem".into(),
        "proxy.tls_cert" => "--proxy-tls-key /a.key,/b.key".into(),
        "proxy.tls_key" => "--proxy-tls-cert /a.pem,/b.pem".into(),
        "etcd.authority" => "--etcd-endpoints https://a:1".into(),
        "etcd.certificate" => "--etcd-endpoints https://a:1 --etcd-authority /some/where --etcd-key /some/where".into(),
        "etcd.key" => "--etcd-endpoints https://a:1 --etcd-authority /some/where --etcd-certificate /some/where".into(),
        "etcd.user" => "--etcd-endpoints http://a:1 --etcd-password-file /some/where".into(),
        "etcd.password_file" => "--etcd-endpoints http://a:1 --etcd-user app".into(),
        "database.tls_cert" => "--database-tls-key /a.key --database-to mysql://shop@127.0.0.1:3306".into(),
        "database.tls_key" => "--database-tls-cert /a.pem --database-to mysql://shop@127.0.0.1:3306".into(),
        "database.tls_ca" => "--database-to mysql://shop@127.0.0.1:3306?ssl-mode=VERIFY_IDENTITY".into(),
        "database.longest_turn" => "--database-to mysql://shop@127.0.0.1:3306 --database-scheme serialised".into(),
        "database.listen" | "database.complete" | "database.capture" | "database.password_file" | "database.scheme" => {
            "--database-to mysql://shop@127.0.0.1:3306".into()
        }
        _ => String::new(),
    };
    words.leak().split_whitespace().collect()
}

#[test]
fn every_key_has_a_flag_that_works_and_a_line_in_the_help() {
    let empty = tempfile::tempdir().unwrap();
    let help = verbena(&["help", "config"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let mut tried = 0;
    for section in sections() {
        for key in section.keys {
            let full = format!("{}.{}", section.name, key.name);
            let (written, expected) = other_value(&full);
            let flag = format!("--{}", flag_name(section.name, key.name));
            assert!(help.contains(&format!("{flag} <{}>", key.value)), "{flag} is not in the help");
            let words = [vec!["config", "show", "--json", &flag, written], beside(&full)].concat();
            let (code, effective) = json(&words, empty.path());
            assert_eq!(code, 0, "{flag}: {effective}");
            let shown = effective.as_array().unwrap().iter().find(|entry| entry["key"] == *full).unwrap();
            assert_eq!((&shown["value"], shown["from"].as_str()), (&expected, Some(flag.as_str())), "{full}");
            tried += 1;
        }
    }
    assert!(tried >= 11, "only {tried} keys");
}

#[test]
fn a_file_that_all_nodes_share_names_none_of_them() {
    let file = b"[cluster]\nmembers = [{ name = \"a\", address = \"shm://a\" }]\n";
    assert_eq!(examine("f".into(), file, &[], Whose::Everyones).1, []);
    let (_, mistakes) = examine("f".into(), file, &[], Whose::Nodes);
    assert_eq!(mistakes.iter().map(|mistake| mistake.key.as_str()).collect::<Vec<_>>(), ["cluster.name"]);
    let etcd = b"[cluster]\nprovider = \"etcd\"\n[etcd]\nendpoints = [\"http://a:1\"]\n";
    assert_eq!(examine("f".into(), etcd, &[], Whose::Everyones).1, []);
    assert_eq!(examine("f".into(), etcd, &[], Whose::Nodes).1.len(), 2, "its name and its address");
    let named = [Flag { section: "cluster", key: "name", value: "b".into() }];
    assert_eq!(examine("f".into(), etcd, &named, Whose::Nodes).1.len(), 1, "its address");
    assert_eq!(examine("f".into(), etcd, &named, Whose::Running).1, [], "it is asked through its socket");
    assert_eq!(examine("f".into(), etcd, &[], Whose::Running).1.len(), 1, "its name");
    for whose in [Whose::Everyones, Whose::Running] {
        assert_eq!(examine("f".into(), file, &named, whose).1.len(), 1, "who is named must be there");
    }
}

#[test]
fn who_asks_a_node_that_etcd_keeps_need_not_say_where_it_is_reached() {
    let empty = tempfile::tempdir().unwrap();
    let file = "[cluster]\nprovider = \"etcd\"\n[etcd]\nendpoints = [\"http://a:1\"]\n[node]\nruntime = \"here\"\n";
    std::fs::write(empty.path().join("verbena.toml"), file).unwrap();
    for words in [
        &["status"][..],
        &["node", "drain"],
        &["cluster", "views"],
        &["cluster", "expel", "c"],
        &["top", "--count", "1"],
    ] {
        let asked = |more: &[&str]| {
            let output = verbena(&[words, more].concat()).current_dir(&empty).output().unwrap();
            (output.status.code(), String::from_utf8(output.stderr).unwrap())
        };
        let (code, said) = asked(&["--cluster-name", "b"]);
        assert!(code == Some(3) && said.contains("no helper"), "{words:?}: {said}");
        let (code, said) = asked(&[]);
        assert!(code == Some(2) && said.contains("cluster.name: needed"), "{words:?}: {said}");
    }
}

#[test]
fn a_name_that_no_certificate_can_have_is_refused_where_there_are_keys() {
    let mistakes = |name: &str, more: &str| {
        let file = format!(
            "[cluster]\nprovider = \"etcd\"\nname = {name:?}\n[etcd]\nendpoints = [\"http://a:1\"]\n[fabric]\n{more}"
        );
        let found = [Whose::Nodes, Whose::Everyones].map(|whose| {
            let flags = [Flag { section: "cluster", key: "address", value: "tcp://b:1".into() }];
            let flags = if whose == Whose::Nodes { &flags[..] } else { &[] };
            let (loaded, mistakes) = examine("f".into(), file.as_bytes(), flags, whose);
            let located = mistakes.iter().map(|mistake| mistake.locate(&loaded.source));
            located.map(|at| format!("{}:{}: {}", at.line.unwrap_or(0), at.key, at.problem)).collect::<String>()
        });
        assert_eq!(found[0], found[1], "{name}");
        found[0].clone()
    };
    let found = mistakes("App_1", "keys = \"keys\"\n");
    assert!(found.contains("3:cluster.name: there are fabric.keys, and \"App_1\" can be in no certificate"), "{found}");
    assert_eq!(mistakes("app-1", "keys = \"keys\"\n"), "");
    assert_eq!(mistakes("App_1", "insecure = true\n"), "");
    let listed = b"[cluster]\nname = \"App_1\"\nmembers = [{ name = \"App_1\", address = \"tcp://a:1\" }]\n[fabric]\nkeys = \"k\"\n";
    assert_eq!(examine("f".into(), listed, &[], Whose::Nodes).1, [], "those certificates are for ranks");
    let shared = b"[cluster]\nprovider = \"etcd\"\nname = \"App_1\"\naddress = \"shm://a\"\n[etcd]\nendpoints = [\"http://a:1\"]\n[fabric]\nkeys = \"k\"\n";
    assert_eq!(examine("f".into(), shared, &[], Whose::Nodes).1, [], "nobody proves a name over shared memory");
}

#[test]
fn the_reference_lists_every_key() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/CONFIG.md");
    let reference = verbena_cli::config::reference();
    if writes_expected() {
        std::fs::write(&file, &reference).unwrap();
    }
    assert_eq!(std::fs::read_to_string(file).unwrap(), reference, "docs/reference/CONFIG.md is not what the code says");
}

#[test]
fn what_is_shown_is_a_configuration_again() {
    let directory = tempfile::tempdir().unwrap();
    let shown = verbena(&["config", "show", "--node-state", "/a \"b\""]).current_dir(&directory).output().unwrap();
    std::fs::write(directory.path().join("verbena.toml"), &shown.stdout).unwrap();
    let again = verbena(&["config", "show"]).current_dir(&directory).output().unwrap();
    let values = |bytes: &[u8]| -> Vec<String> {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.lines().map(|line| line.split(" # ").next().unwrap().trim().to_owned()).collect()
    };
    assert_eq!(values(&again.stdout), values(&shown.stdout));
    assert!(String::from_utf8_lossy(&again.stdout).contains("# verbena.toml:"), "no line says its place");
}

#[test]
fn a_flag_wins_over_the_file() {
    let flags = [Flag { section: "node", key: "state", value: "/flag".into() }];
    let file = b"[node]\nstate = 7\nruntime = \"/file\"\n";
    let (loaded, mistakes) = examine("f".into(), file, &flags, Whose::Nodes);
    assert_eq!(mistakes, [], "what a flag replaces is not looked at");
    assert_eq!(loaded.config.node.state, Some("/flag".into()));
    assert_eq!(loaded.config.node.runtime, Some("/file".into()));
    assert_eq!(loaded.origin("node", "state"), Place::Flag("--node-state".into()));
    assert_eq!(loaded.origin("node", "runtime"), Place::File(27..34));
}
