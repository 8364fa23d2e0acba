//! `verbena explain`, at the helper of a proxy.

use verbena_testkit::programs::{json, verbena};

use crate::common::traffic::{Client, application, proxy, proxy_with};

#[test]
fn a_request_is_explained_and_nothing_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (_proxy, address) = proxy(directory.path(), "a", &origin, &[]);
    let runtime = directory.path().join("run");
    let asked = |what: &[&str]| {
        let words = [&["explain", "--json", "--node-runtime", runtime.to_str().unwrap()], what].concat();
        let (code, said) = json(&words, directory.path());
        assert_eq!(code, 0, "{said}");
        said
    };
    let page = "http://shop/page/1";
    for _ in 0..2 {
        let said = asked(&[page]);
        assert_eq!((said["outcome"].as_str(), said["why"].as_str()), (Some("fetch"), Some("uri-miss")), "{said}");
        assert!(said["copy"].is_null() && said["words"]["is_busy"] == false, "{said}");
    }
    let mut client = Client::new(&address);
    assert!((0..600).any(|_| client.ask("GET", "/page/1").hit), "it never is");
    let said = asked(&[page]);
    assert_eq!((said["outcome"].as_str(), said["copy"]["status"].as_u64()), (Some("hit"), Some(200)), "{said}");
    let said = asked(&[page, "-H", "Cookie: sid=1"]);
    assert_eq!((said["outcome"].as_str(), said["credentials"].as_str()), (Some("fetch"), Some("cookie")), "{said}");
    let said = asked(&["-X", "POST", page]);
    assert_eq!((said["outcome"].as_str(), said["why"].as_str()), (Some("write"), Some("method")), "{said}");
    let said = asked(&[page, "-H", "Cache-Control: no-store"]);
    assert_eq!(said["detail"].as_str(), Some("request-no-store"), "{said}");
    assert_eq!(asked(&[page])["outcome"].as_str(), Some("hit"), "no update was made");
    let text = verbena(&["explain", page, "--node-runtime", runtime.to_str().unwrap()]).output().unwrap();
    assert!(String::from_utf8_lossy(&text.stdout).starts_with("outcome      hit\n"), "{text:?}");
    for (words, code) in [(&["explain", "/page/1"][..], 2), (&["explain", page, "-H", "Cookie"], 2)] {
        let words = [words, &["--node-runtime", runtime.to_str().unwrap()]].concat();
        assert_eq!(verbena(&words).output().unwrap().status.code(), Some(code), "{words:?}");
    }
}

/// Each of two applications of one user is asked by the port of its proxy, and an address may have what no URI has.
#[test]
fn the_proxy_that_listens_at_the_port_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (_other_application, other) = application(directory.path());
    let state = directory.path().join("state");
    let proxies = [("a", &origin), ("b", &origin), ("c", &other)]
        .map(|(name, origin)| proxy_with(directory.path(), name, &state, origin, &[]));
    let runtime = directory.path().join("run");
    let words =
        ["explain", "--json", "--node-runtime", runtime.to_str().unwrap(), "--node-state", state.to_str().unwrap()];
    for (_, address) in &proxies {
        let (code, said) =
            json(&[&words[..], &[&format!("http://{address}/page/1?q=<\"`>")]].concat(), directory.path());
        assert_eq!((code, said["proxy"]["listens"].as_str()), (0, Some(&**address)), "{said}");
        let (code, said) = json(
            &[
                "purge",
                "--json",
                "--node-runtime",
                runtime.to_str().unwrap(),
                &format!("http://{address}/page/1?q=<\"`>"),
            ],
            directory.path(),
        );
        assert_eq!(code, 0, "{said}");
    }
    let text =
        verbena(&["explain", "http://127.0.0.1:1/", "--node-runtime", runtime.to_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&text.stdout);
    assert!(said.contains("proxy        listens") && said.contains("none listens at port 1\n"), "{said}");
    // A page that is purged by such an address is the one that the proxy stored under it.
    let mut client = Client::new(&proxies[0].1);
    let path = "/page/1?q=<x>";
    assert!((0..600).any(|_| client.ask("GET", path).hit), "it never is");
    let page = format!("http://shop{path}");
    let purged = verbena(&["purge", "--node-runtime", runtime.to_str().unwrap(), &page]).output().unwrap();
    assert!(purged.status.success() && !client.ask("GET", path).hit, "{purged:?}");
}

#[test]
fn of_a_page_in_slices_the_one_is_explained_that_the_answer_begins_with() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let routes = r#"[{ prefix = "/page", mode = "standard", slice = "4KiB" }]"#;
    let (_proxy, _) = proxy(directory.path(), "a", &origin, &["--proxy-routes", routes]);
    let runtime = directory.path().join("run");
    let slice = |what: &[&str]| {
        let words = [&["explain", "--json", "--node-runtime", runtime.to_str().unwrap()], what].concat();
        let (code, said) = json(&words, directory.path());
        assert_eq!((code, said["outcome"].as_str()), (0, Some("fetch")), "{said}");
        (said["slice"].as_u64(), said["key"].to_string())
    };
    let (first, key) = slice(&["http://shop/page/1"]);
    let (third, other) = slice(&["http://shop/page/1", "-H", "Range: bytes=9000-"]);
    assert_eq!((first, third), (Some(0), Some(2)));
    assert_ne!(key, other);
    assert_eq!(slice(&["http://shop/other"]).0, None, "the rule is for others");
}
