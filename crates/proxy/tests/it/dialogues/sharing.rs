//! What is stored for whom, and for how long: `Vary`, cookies, credentials, lifetimes.

use std::time::Duration;

use verbena_caching::{CookieRule, Cookies, Route, Rule};

use crate::scene::Scene;

#[test]
fn answers_that_vary_are_kept_apart() {
    let scene = Scene::new();
    let vary = ["Vary: Accept-Language", "Verbena-Dependencies: front"];
    let mut client = scene.client();
    for (language, body, pages) in [("de", "hallo", 2.0), ("en", "hello", 3.0)] {
        client.get_with("/", &[&format!("Accept-Language: {language}")]);
        scene.origin.asked("/").answers(&vary, body);
        client.answer().is(200, body).said("stored");
        // By what the page varies, and its variants.
        scene.comes("the variant", |scene| scene.gauge("verbena_proxy_pages") == pages);
    }
    for (language, body) in [("de", "hallo"), ("en", "hello")] {
        client.get_with("/", &[&format!("Accept-Language: {language}")]);
        client.answer().is(200, body).said("verbena; hit");
    }
    // Two variants that are known to be such do not wait for one another.
    let (mut one, mut two) = (scene.client(), scene.client());
    one.get_with("/", &["Accept-Language: fr"]);
    let french = scene.origin.asked("/");
    two.get_with("/", &["Accept-Language: it"]);
    scene.origin.asked("/").answers(&vary, "ciao");
    two.answer().is(200, "ciao").said("fwd=vary-miss");
    french.answers(&vary, "salut");
    one.answer().is(200, "salut");
    scene.ends(scene.begins(Some("front")));
    client.get_with("/", &["Accept-Language: de"]);
    scene.origin.asked("/").answers(&vary, "servus");
    client.answer().is(200, "servus").said("detail=moved");
}

#[test]
fn what_is_for_one_user_is_not_for_another() {
    let scene = Scene::new();
    let mut client = scene.client();
    let private: [(&str, &[&str], &[&str], &str); 5] = [
        ("/private", &[], &["Cache-Control: private"], "private"),
        ("/set", &[], &["Set-Cookie: user=1"], "set-cookie"),
        ("/cookie", &["Cookie: user=1"], &[], "cookie"),
        ("/auth", &["Authorization: Basic eA=="], &[], "authorization"),
        ("/star", &[], &["Vary: *"], "vary-all"),
    ];
    for (path, asks, says, reason) in private {
        client.get_with(path, asks);
        scene.origin.asked(path).answers(says, "mine");
        client.answer().is(200, "mine").said(&format!("detail={reason}"));
        scene.misses(path);
        assert_eq!(scene.counted("verbena_proxy_not_stored_total", ("reason", reason)), 1, "{reason}");
        assert_eq!(scene.counted("verbena_proxy_misses_total", ("reason", reason)), 1, "{reason}");
    }
    // One user's answer says nothing against keeping everybody's, whoever says so: the page that greets who is known is kept for who is not.
    for says in ["Cache-Control: private", "Cache-Control: no-store", "Set-Cookie: user=1"] {
        let path = format!("/known?{says}").replace(' ', "");
        for _ in 0..2 {
            client.get_with(&path, &["Cookie: user=1"]);
            scene.origin.asked(&path).answers(&[says], "hello, one");
            client.answer().is(200, "hello, one");
        }
        scene.fills(&path, "front", "hello");
        scene.hits(&path, "hello");
    }
    scene.fills("/cookie", "front", "ours");
    // What was fetched for nobody in particular is not for somebody, unless it says so.
    scene.fills("/page", "front", "anonymous");
    client.get_with("/page", &["Cookie: user=1"]);
    scene.origin.asked("/page").page("for 1");
    client.answer().is(200, "for 1").said("fwd=request").said("detail=cookie");
    scene.hits("/page", "anonymous");
    client.get_with("/public", &["Cookie: user=1"]);
    scene.origin.asked("/public").answers(&["Cache-Control: public", "Verbena-Dependencies: a"], "all");
    client.answer().is(200, "all").said("stored");
    scene.hits("/public", "all");
    client.get_with("/public", &["Cookie: user=2"]);
    client.answer().is(200, "all").said("verbena; hit");
}

#[test]
fn cookies_that_are_ignored_or_in_the_key_let_pages_be_shared() {
    let cookies =
        Cookies { ignore: ["sid"].into(), key: ["lang".to_string()].into(), publish: true, ..Cookies::default() };
    let scene = Scene::with(|config| config.routes = vec![Route { cookies, ..Route::default() }.into()]);
    let mut client = scene.client();
    client.get_with("/", &["Cookie: sid=1; lang=de"]);
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("cookie").unwrap(), "lang=de");
    asked.answers(&["Set-Cookie: sid=9", "Verbena-Dependencies: front"], "hallo");
    assert_eq!(client.answer().field("set-cookie"), None, "it was not shown the cookie, and does not replace it");
    scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    client.get_with("/", &["Cookie: lang=de; sid=2"]);
    let hit = client.answer();
    hit.is(200, "hallo").said("verbena; hit");
    assert_eq!(hit.field("set-cookie"), None);
    client.get_with("/", &["Cookie: lang=en"]);
    scene.origin.asked("/").page("hello");
    client.answer().is(200, "hello").said("uri-miss");
}

/// The scene with these routes, as the configuration file has them.
fn routed(rules: Vec<Rule>) -> Scene {
    Scene::with(|config| config.routes = rules)
}

fn cookies(said: impl FnOnce(&mut CookieRule)) -> Rule {
    let mut rule = Rule::default();
    said(&mut rule.cookies);
    rule
}

#[test]
fn cookies_that_begin_so_and_those_of_a_list_are_ignored() {
    let ignored = ["theme_*", "@analytics"].map(String::from).into();
    let scene = routed(vec![cookies(|cookies| cookies.ignore = Some(ignored))]);
    let mut client = scene.client();
    client.get_with("/", &["Cookie: theme_x=1; _ga=GA1; _ga_B4=2; _fbp=3"]);
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("cookie"), None);
    asked.depends("front", "page");
    client.answer().is(200, "page").said("stored");
    scene.hits("/", "page");
    client.get_with("/", &["Cookie: theme=1"]);
    scene.origin.asked("/").depends("front", "mine");
    client.answer().is(200, "mine").said("detail=cookie");
}

#[test]
fn all_cookies_are_ignored_but_those_that_matter() {
    let scene = routed(vec![cookies(|cookies| {
        cookies.only = Some(vec!["sessionid".into()]);
        cookies.key = Some(vec!["lang".into()]);
    })]);
    let mut client = scene.client();
    client.get_with("/", &["Cookie: any=1; lang=de; odd"]);
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("cookie").as_deref(), Some("lang=de"));
    asked.depends("front", "hallo");
    client.answer().is(200, "hallo").said("stored");
    scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    client.get_with("/", &["Cookie: other=2; lang=de"]);
    client.answer().is(200, "hallo").said("verbena; hit");
    client.get_with("/", &["Cookie: lang=de; sessionid=7"]);
    let asked = scene.origin.asked("/");
    assert_eq!(asked.field("cookie").as_deref(), Some("lang=de; sessionid=7"));
    asked.depends("front", "for 7");
    client.answer().is(200, "for 7").said("detail=cookie");
}

#[test]
fn a_route_ignores_what_the_one_around_it_does_unless_it_inherits_nothing() {
    let around = cookies(|cookies| cookies.ignore = Some(vec!["sid".into()]));
    let below = |prefix: &str, inherit, key: &str| Rule {
        prefix: prefix.into(),
        inherit,
        ..cookies(|cookies| cookies.key = Some(vec![key.into()]))
    };
    let scene = routed(vec![around, below("/shop", true, "lang"), below("/account", false, "lang")]);
    let mut client = scene.client();
    client.get_with("/shop", &["Cookie: sid=1; lang=de"]);
    let asked = scene.origin.asked("/shop");
    assert_eq!(asked.field("cookie").as_deref(), Some("lang=de"));
    asked.depends("front", "shop");
    client.answer().is(200, "shop").said("stored");
    client.get_with("/account", &["Cookie: sid=1; lang=de"]);
    let asked = scene.origin.asked("/account");
    assert_eq!(asked.field("cookie").as_deref(), Some("sid=1; lang=de"));
    asked.depends("front", "account");
    client.answer().is(200, "account").said("detail=cookie");
}

#[test]
fn a_lifetime_is_an_upper_bound() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    scene.origin.asked("/").answers(&["Cache-Control: max-age=1", "Verbena-Dependencies: a"], "one");
    client.answer().is(200, "one");
    scene.hits("/", "one");
    std::thread::sleep(Duration::from_millis(1000));
    client.get("/");
    scene.origin.asked("/").depends("a", "two");
    client.answer().is(200, "two").said("fwd=stale").said("detail=lifetime");
    scene.hits("/", "two");
}

#[test]
fn a_lifetime_counts_from_when_the_page_was_asked_for() {
    let scene = Scene::new();
    let mut client = scene.client();
    client.get("/");
    let asked = scene.origin.asked("/");
    std::thread::sleep(Duration::from_millis(1000));
    asked.answers(&["Cache-Control: max-age=1", "Verbena-Dependencies: a"], "one");
    client.answer().is(200, "one");
    scene.comes("the page", |scene| scene.gauge("verbena_proxy_pages") == 1.0);
    scene.misses("/");
}

#[test]
fn who_has_a_cookie_that_the_application_is_not_shown_keeps_it() {
    let cookies = Cookies { ignore: ["sid"].into(), publish: true, ..Cookies::default() };
    let route = Route { prefix: "/".into(), cookies, ..Route::default() };
    let scene = Scene::with(|config| config.routes = vec![route.into()]);
    let mut client = scene.client();
    for (asks, given) in [(&["Cookie: sid=mine"][..], None), (&[], Some("sid=new; Path=/"))] {
        client.get_with("/", asks);
        let asked = scene.origin.asked("/");
        assert_eq!(asked.field("cookie"), None);
        asked.answers(&["Set-Cookie: sid=new; Path=/", "Verbena-Dependencies: front"], "page");
        let answer = client.answer();
        assert_eq!(answer.is(200, "page").said("stored").field("set-cookie").as_deref(), given);
        scene.ends(scene.begins(Some("front")));
    }
}
