//! Mistakes that users make, and what they are told: where, and what to do. A new one gets a line here.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use verbena_testkit::programs::{verbena, wait_for};

use crate::common::traffic::proxy_with;

/// What is in the section `[proxy]` of a file, one line for each, where the mistake is shown, and what is said of it.
const IN_PROXY: [(&str, &str, &str); 45] = [
    (r#"origin = ["http://localhost:8080"]"#, "3:11: proxy.origin.0", "the proxy itself listens there"),
    (r#"origin = ["127.0.0.1:8000"]"#, "3:11: proxy.origin.0", "http://HOST:PORT"),
    (r#"origin = ["ftp://a"]"#, "3:11: proxy.origin.0", "http"),
    (r#"origin = ["http://a/shop"]"#, "3:11: proxy.origin.0", "no path"),
    (r#"origin = ["http://a:0"]"#, "3:11: proxy.origin.0", "from 1 to 65535"),
    (r#"origin = "http://a""#, "3:10: proxy.origin", "a list in brackets"),
    (r#"orgin = ["http://a"]"#, "3:1: proxy.orgin", "did you mean origin?"),
    (r#"listen = "8080""#, "3:10: proxy.listen", "for example 127.0.0.1:8080"),
    (r#"memory = "256 potatoes""#, "3:10: proxy.memory", "a size such as"),
    (r#"drain = "soon""#, "3:9: proxy.drain", "a time such as"),
    ("fills = 0", "3:9: proxy.fills", "no page could ever be fetched"),
    ("connections = 0", "3:15: proxy.connections", "no connection could ever be made"),
    (r#"largest = "1GiB""#, "3:11: proxy.largest", "more than proxy.memory"),
    (r#"replacement = "fifo""#, "3:15: proxy.replacement", "one of `s3-fifo`, `lru`"),
    (r#"routes = [{ prefix = "shop" }]"#, "3:22: proxy.routes.0.prefix", "begins with \"/\""),
    (r#"routes = [{ prefix = "/a?b" }]"#, "3:22: proxy.routes.0.prefix", "no path has"),
    (r#"routes = [{ prefix = "/", writes = "sometimes" }]"#, "proxy.routes.0.writes", "one of the choices"),
    (r#"routes = [{ prefix = "/", cookies = { ignore = ["*"] } }]"#, "proxy.routes.0.cookies.ignore.0", "cookies.only"),
    (
        r#"routes = [{ prefix = "/", cookies = { ignore = ["a b;"] } }]"#,
        "3:49: proxy.routes.0.cookies.ignore.0",
        "has no effect",
    ),
    (
        r#"routes = [{ prefix = "/", cookies = { publish = true } }]"#,
        "proxy.routes.0.cookies.publish",
        "no cookie is ignored",
    ),
    (
        r#"routes = [{ prefix = "/", cookie = { ignore = ["a"] } }]"#,
        "3:27: proxy.routes.0.cookie",
        "did you mean cookies?",
    ),
    (r#"origin = ["http://a:1", "http://a:1"]"#, "3:25: proxy.origin.1", "it stands before"),
    (r#"origin_timeout = "0s""#, "3:18: proxy.origin_timeout", "no application could ever answer in time"),
    (r#"connect_timeout = "0s""#, "3:19: proxy.connect_timeout", "no application could ever be reached"),
    (r#"client_timeout = "0s""#, "3:18: proxy.client_timeout", "no client could ever"),
    ("routes = [{ prefix = \"/\", upgrade = true }]\ntunnels = 0", "4:11: proxy.tunnels", "no WebSocket"),
    (r#"routes = [{ prefix = "/", writes = "database" }]"#, "proxy.routes.0.writes", "set database.to"),
    (r#"origin = ["http://127.0.0.1:9090"]"#, "3:11: proxy.origin.0", "the helper itself listens there"),
    ("origin = [\"http://a:1\"]\nlisten = \"127.0.0.1:9090\"", "node.api", "the proxy listens there"),
    (r#"tls_key = ["a.pem"]"#, "3:11: proxy.tls_key", "0 certificates"),
    (
        "origin = [\"http://a:1\"]\norigin_ca = \"ca.pem\"",
        "4:13: proxy.origin_ca",
        "no application is reached by https",
    ),
    ("streams = 0", "3:11: proxy.streams", "no request could ever be made"),
    (r#"purge_from = ["10.0.0.1/33"]"#, "3:15: proxy.purge_from.0", "is no network"),
    (r#"proxy_protocol_from = ["balancer"]"#, "3:24: proxy.proxy_protocol_from.0", "is no network"),
    (r#"routes = [{ prefix = "/a" }, { prefix = "/a" }]"#, "proxy.routes.1.prefix", "stands before it"),
    (r#"memory = "64""#, "3:10: proxy.memory", "with its unit"),
    (r#"routes = [{ prefix = "/", languages = [] }]"#, "proxy.routes.0.languages", "has no effect"),
    (r#"routes = [{ prefix = "/", compress = [] }]"#, "proxy.routes.0.compress", "has no effect"),
    (
        r#"routes = [{ prefix = "/", compress = true }, { prefix = "/a", languages = [] }]"#,
        "proxy.routes.1.languages",
        "no shorter prefix says",
    ),
    (r#"routes = [{ prefix = "/video", slice = "1MiB" }]"#, "proxy.routes.0.slice", "mode = \"standard\""),
    (
        r#"routes = [{ prefix = "/video", mode = "standard", slice = "1KiB" }]"#,
        "proxy.routes.0.slice",
        "less than 4KiB",
    ),
    (
        r#"routes = [{ prefix = "/video", mode = "standard", slice = "8MiB" }]"#,
        "proxy.routes.0.slice",
        "more than proxy.largest",
    ),
    (r#"routes = [{ prefix = "/", harmless = [200] }]"#, "proxy.routes.0.harmless.0", "200 is no refusal"),
    (
        r#"routes = [{ prefix = "/", writes = "never", harmless = [404] }]"#,
        "proxy.routes.0.harmless",
        "nothing writes here",
    ),
    (r#"listen = "shop.example:8080""#, "3:10: proxy.listen", "no address with a port"),
];

/// The same in other sections, as whole files.
const IN_FILES: [(&str, &str, &str); 11] = [
    ("[proxi]\nlisten = \"127.0.0.1:1\"", "1:2: proxi", "no such section"),
    ("[proxy]\nlisten = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"", "3:1", "duplicate key"),
    ("[cluster]\nname = \"\"", "2:8: cluster.name", "1 to 255"),
    ("[cluster]\nlease = \"1ms\"", "2:9: cluster.lease", "100 ms"),
    (
        "[cluster]\nname = \"c\"\n[[cluster.members]]\nname = \"a\"\naddress = \"shm://a\"",
        "2:8: cluster.name",
        "not in cluster.members",
    ),
    (
        "[[cluster.members]]\nname = \"a\"\naddress = \"shm://a\"\n[[cluster.members]]\nname = \"a\"\naddress = \"shm://b\"",
        "5:8: cluster.members.1.name",
        "an earlier line",
    ),
    ("[node]\napi = \"0.0.0.0:9090\"", "2:7: node.api", "put a proxy before it"),
    ("[pages]\nbegin_deadline = \"0s\"", "2:18: pages.begin_deadline", "10ms at least"),
    ("[cluster]\nname = \"../shop\"", "2:8: cluster.name", "without \"/\""),
    (
        "[memcached]\nlisten = \"127.0.0.1:11211\"\nlisteners = [{ address = \"127.0.0.1:11211\" }]",
        "memcached.listeners.0.address",
        "stands before it",
    ),
    (
        "[pool]\ntenants = [{ name = \"a\", uids = [7] }, { name = \"b\", uids = [8, 7] }]",
        "pool.tenants.1.uids",
        "user 7 is a client of tenant a",
    ),
];

#[test]
fn each_mistake_in_a_file_is_told_with_its_place_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let mut missed = Vec::new();
    let in_proxy = IN_PROXY
        .map(|(line, place, what)| (format!("\n[proxy]\n{line}\n[node]\napi = \"127.0.0.1:9090\"\n"), place, what));
    let in_files = IN_FILES.map(|(text, place, what)| (text.to_owned(), place, what));
    for (line, place, what) in in_proxy.into_iter().chain(in_files) {
        std::fs::write(directory.path().join("verbena.toml"), &line).unwrap();
        let (code, said) = says(directory.path(), &["config", "check"]);
        if code != Some(2) || !said.contains(place) || !said.contains(what) {
            missed.push(format!("{line}: not {place} and {what:?}, but exit {code:?}\n{said}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    // It takes away what the shorter prefix says.
    let routes = r#"routes = [{ prefix = "/", compress = true }, { prefix = "/a", compress = [] }]"#;
    std::fs::write(directory.path().join("verbena.toml"), format!("[proxy]\n{routes}\n")).unwrap();
    let (code, said) = says(directory.path(), &["config", "check"]);
    assert_eq!(code, Some(0), "{said}");
}

/// The same mistake where a proxy is started is the same error.
#[test]
fn a_proxy_does_not_start_with_a_mistake() {
    let directory = tempfile::tempdir().unwrap();
    let ignoring = r#"[{ prefix = "/", cookies = { ignore = ["a b;"] } }]"#;
    for (words, place, what) in [
        (&["proxy", "--origin", "http://localhost:8080"][..], "--proxy-origin", "the proxy itself listens there"),
        (&["proxy", "--origin", "http://a", "--proxy-routes", ignoring], "--proxy-routes", "has no effect"),
    ] {
        let (code, said) = says(directory.path(), words);
        assert!(code == Some(2) && said.contains(what), "{words:?}: exit {code:?}\n{said}");
        assert!(said.contains(place) || said.contains("--origin"), "{words:?}: {said}");
    }
}

/// What the machine refuses when a proxy starts: it is said who or what is in the way, and what to do.
#[test]
fn what_the_machine_refuses_is_told_with_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let held = held.local_addr().unwrap().to_string();
    let me = format!("process {} (", std::process::id());
    let own = ["--node-runtime", "run", "--node-state", "state"];
    let proxy = ["proxy", "--origin", "http://127.0.0.1:9"];
    for (words, what, what_to_do) in [
        (&["--listen", &held][..], &*me, "another port (--listen"),
        (&["--listen", "127.0.0.1:0", "--node-api", &held], &me, "another port (--node-api"),
        (&["--listen", "192.0.2.1:8080"], "no interface of this machine has 192.0.2.1", "ip address"),
    ] {
        let words = [&proxy[..], words, &own].concat();
        let (code, said) = says(directory.path(), &words);
        assert!(
            code == Some(1) && said.contains(what) && said.contains(what_to_do),
            "{words:?}: exit {code:?}\n{said}"
        );
    }
    let database = ["--to", "mysql://app@127.0.0.1:1"];
    // Nothing joins a cluster that it would have to leave again, and what was typed is named.
    for (words, what_to_do) in [
        (&["pool", "--listen", &held][..], "another port (--listen"),
        (&["pool", "--memcached-listen", &held], "another port (--memcached-listen"),
        (&["database", "--listen", &held, database[0], database[1]], "another port (--listen"),
        (&["database", "--database-listen", &held, database[0], database[1]], "another port (--database-listen"),
        (
            &[&proxy[..], &["--listen", "127.0.0.1:0", "--database", database[1], "--database-listen", &held]].concat(),
            "another port (--database-listen",
        ),
    ] {
        let (code, said) = says(directory.path(), &[words, &own].concat());
        assert!(code == Some(1) && said.contains(&me) && said.contains(what_to_do), "{words:?}: exit {code:?}\n{said}");
        assert!(!said.contains("began incarnation"), "{words:?}: {said}");
    }
    let (code, said) =
        says(directory.path(), &[&["pool", "--listen", "127.0.0.1:0", "--memory", "100TiB"], &own[..]].concat());
    assert!(code == Some(2) && said.contains("100TiB is more than ") && said.contains("MiB"), "exit {code:?}\n{said}");
    assert!(!said.contains("began incarnation"), "{said}");
    for (file, what) in [("none", "none: No such file"), ("verbena.users", "line 1 is not NAME:PASSWORD")] {
        std::fs::write(directory.path().join("verbena.users"), "shop\n").unwrap();
        let words = ["pool", "--listen", "127.0.0.1:0", "--memcached-users", file];
        let (code, said) = says(directory.path(), &[&words[..], &own].concat());
        assert!(code == Some(2) && said.contains(what), "{words:?}: exit {code:?}\n{said}");
        assert!(!said.contains("began incarnation"), "{words:?}: {said}");
    }
    let output = verbena(&["status"]).env("VERBENA_CONFIG", "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("VERBENA_CONFIG is empty"), "{said}");
}

/// What no helper and no server need be asked about.
#[test]
fn a_wrong_command_line_is_told_before_any_server_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let long = "x".repeat(1025);
    for (words, what) in [
        (&["lock", "run", "", "--", "true"][..], "1 to 1024 bytes"),
        (&["lock", "rm", &long], "1 to 1024 bytes"),
        (&["pool", "get", "a", "--server", "cache"], "HOST:PORT"),
        (&["pool", "get", "a", "--server", "127.0.0.1:1", "--tls-ca", "none.pem"], "none.pem: "),
    ] {
        let (code, said) = says(directory.path(), words);
        assert!(code == Some(2) && said.contains(what), "{words:?}: exit {code:?}\n{said}");
    }
}

/// What only another user than root is refused.
#[test]
fn what_another_user_is_refused_is_told_with_what_to_do() {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap();
    let proxy = ["proxy", "--origin", "http://127.0.0.1:9"];
    for (words, what, what_to_do) in [
        (&["--listen", "127.0.0.1:1"][..], "ports below", "CAP_NET_BIND_SERVICE"),
        (&["--listen", "127.0.0.1:0", "--node-state", "/root/verbena/state"], "belongs to user 0", "--node-state"),
    ] {
        if what == "ports below" && first.trim() == "0" {
            continue;
        }
        let directory = tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o777)).tempdir().unwrap();
        let run = directory.path().join("run");
        let run = ["--node-runtime", run.to_str().unwrap(), "--node-state", run.to_str().unwrap()];
        let own = if words.contains(&"--node-state") { &run[..2] } else { &run };
        let (program, words) = (verbena(&[]), [&proxy[..], words, own].concat());
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args([
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--inh-caps=-all",
                "--bounding-set=-all",
            ]);
            command.arg(program.get_program());
            command
        } else {
            program
        };
        let output = command.args(&words).current_dir(directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        assert!(
            code == Some(1) && said.contains(what) && said.contains(what_to_do),
            "{words:?}: exit {code:?}\n{said}"
        );
    }
}

/// What a proxy starts with and warns of.
#[test]
fn what_is_no_error_and_may_be_a_mistake_is_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    // A port of the system's choice may be another test's by now.
    let unused = "127.0.0.1:9";
    let start = |name: &str, more: &[&str]| {
        let more = [&["--cluster-name", "shop", "--log", "warn"], more].concat();
        proxy_with(directory.path(), name, &directory.path().join("state"), unused, &more)
    };
    let _first = start("first", &[]);
    let log = |name: &str| std::fs::read_to_string(directory.path().join(format!("{name}.log"))).unwrap();
    wait_for("the application that is not there", || log("first").contains("no connection to the application"));
    let routes = r#"[{ prefix = "/", writes = "never" }]"#;
    let _second = start("second", &["--pages-longest-transaction", "5s", "--proxy-routes", routes]);
    let said = log("second");
    for key in ["pages.longest_transaction", "proxy.routes"] {
        assert!(said.contains(key) && said.contains("another proxy of this cluster"), "{key}: {said}");
    }
    assert!(!said.contains("proxy.origin"), "{said}");
    assert!(!log("first").contains("another proxy"), "it was alone");
}

fn says(directory: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = verbena(words).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}
