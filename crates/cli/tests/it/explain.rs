//! `verbena explain`, at the helper of a proxy.

use verbena_testkit::programs::{json, verbena};

use crate::common::traffic::{Client, application, proxy};

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
    for (words, code) in [(&["explain", "/page/1"][..], 1), (&["explain", page, "-H", "Cookie"], 2)] {
        let words = [words, &["--node-runtime", runtime.to_str().unwrap()]].concat();
        assert_eq!(verbena(&words).output().unwrap().status.code(), Some(code), "{words:?}");
    }
}
