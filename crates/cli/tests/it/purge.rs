//! `verbena purge`, at the helper of a proxy.

use verbena_testkit::programs::{json, verbena};

use crate::common::traffic::{Client, application, proxy};

/// Asks for a page until it is a hit.
fn hits(client: &mut Client) {
    assert!((0..600).any(|_| client.ask("GET", "/page/1").hit), "it never is");
}

#[test]
fn what_is_purged_comes_from_the_application() {
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (_proxy, address) = proxy(directory.path(), "a", &origin, &[]);
    let runtime = directory.path().join("run");
    let asked = |what: &[&str]| {
        let words = [&["purge", "--json", "--node-runtime", runtime.to_str().unwrap()], what].concat();
        json(&words, directory.path())
    };
    let mut client = Client::new(&address);
    let page = "http://shop/page/1";
    for what in [
        &[page][..],
        &["--everything"],
        &["--tag", "page:1", page],
        &["--host", "shop", "/page/1"],
        &["--host", "Shop", page],
        &["--host", "shop", "--prefix", "/page"],
        &["--host", "shop"],
        &["--prefix", "http://shop/page/1"],
    ] {
        hits(&mut client);
        let (code, said) = asked(what);
        assert_eq!((code, said["everything"].as_bool()), (0, Some(what[0] == "--everything")), "{said}");
        assert!(!client.ask("GET", "/page/1").hit, "{what:?}");
    }
    hits(&mut client);
    for what in [
        &["/page/1"][..],
        &["--host", "other", page],
        &["--host", "other", "--prefix", "http://shop/page"],
        &["--host", "shop:81", page],
    ] {
        let refused = verbena(&["purge", "--node-runtime", runtime.to_str().unwrap()]).args(what).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains("--host"), "{refused:?}");
    }
    assert!(client.ask("GET", "/page/1").hit, "nothing was purged");
}

#[test]
fn a_purge_of_nothing_is_told_and_so_is_one_without_a_helper() {
    let directory = tempfile::tempdir().unwrap();
    for (words, code) in [
        (&["purge"][..], 2),
        (&["purge", "--everything", "http://a/"], 2),
        (&["purge", "nonsense"], 2),
        (&["purge", "--tag", ""], 2),
        (&["purge", "--host", "*"], 2),
        (&["purge", "--host", "a/b"], 2),
        (&["purge", "--everything", "--node-runtime", "here"], 3),
    ] {
        let output = verbena(words).current_dir(&directory).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        let names = ["--host", "--prefix", "--tag", "--everything"];
        assert!(words.len() > 1 || names.iter().all(|name| said.contains(name)), "{said}");
    }
}
