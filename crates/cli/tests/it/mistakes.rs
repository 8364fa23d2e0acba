//! Mistakes that users make, and what they are told: where, and what to do. A new one gets a line here.

use std::path::Path;

use verbena_testkit::programs::verbena;

/// What is in the section `[proxy]` of a file, one line for each, where the mistake is shown, and what is said of it.
const IN_PROXY: [(&str, &str, &str); 21] = [
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
];

#[test]
fn each_mistake_in_a_file_is_told_with_its_place_and_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let mut missed = Vec::new();
    for (line, place, what) in IN_PROXY {
        std::fs::write(directory.path().join("verbena.toml"), format!("\n[proxy]\n{line}\n")).unwrap();
        let (code, said) = says(directory.path(), &["config", "check"]);
        if code != Some(2) || !said.contains(place) || !said.contains(what) {
            missed.push(format!("{line}: not {place} and {what:?}, but exit {code:?}\n{said}"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
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

fn says(directory: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = verbena(words).current_dir(directory).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}
