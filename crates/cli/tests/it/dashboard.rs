//! The dashboard as a browser shows it: two real proxies, a real application, and a headless Chromium that looks at one of them.
//!
//! `VERBENA_PICTURES=DIR cargo test -p verbena-cli --test it dashboard` leaves pictures there, to be looked at.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use serde_json::Value;
use verbena_testkit::programs::{verbena, wait_for};

use crate::common::browser::Browser;
use crate::common::traffic::{Client, Ended, application, started};

/// A proxy with a page: its process, where clients reach it, and where its page is.
fn proxy(directory: &Path, log: &str, origin: &str, api: &str) -> (Ended, String, String) {
    let mut command = verbena(&["proxy", "--json", "--listen", "127.0.0.1:0", "--node-api", api]);
    command.args(["--origin", &format!("http://{origin}"), "--node-runtime", "run", "--node-state", "state"]);
    let log = std::fs::File::create(directory.join(log)).unwrap();
    let command = command.current_dir(directory).stdin(Stdio::null()).stderr(log);
    let (process, line) = started(command, |line| line.contains(r#""event":"serving""#));
    let serving: Value = serde_json::from_str(&line).unwrap();
    let text = |key: &str| serving[key].as_str().unwrap().to_owned();
    (process, text("address"), text("api"))
}

/// Readers and a writer, for as long as it lives.
struct Traffic<'a>(&'a AtomicBool);

impl Drop for Traffic<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn ask(address: &str, done: &AtomicBool, asked: &AtomicU64) {
    let mut client = Client::new(address);
    for turn in 0_u64.. {
        if done.load(SeqCst) {
            return;
        }
        let method = if turn % 100 == 99 { "POST" } else { "GET" };
        client.ask(method, &format!("/page/{}", turn % 4));
        asked.fetch_add(1, SeqCst);
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// How well text can be told from what it stands on, by WCAG 2.2 (1.4.3): the least of all elements that have text.
const LEAST_CONTRAST: &str = r#"
(() => {
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = parts(colour).slice(0, 3).map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (parts(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const texts = [...document.querySelectorAll("body *")].filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  const shown = texts.filter((e) => e.getClientRects().length > 0);
  const ratio = (e) => {
    const style = getComputedStyle(e);
    const [a, b] = [light(e instanceof SVGElement ? style.fill : style.color), light(ground(e))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  return shown.length > 40 ? Math.min(...shown.map(ratio)) : 0;
})()"#;

/// What the page says, as it is read aloud: roles and labels.
const WHOLE: &str = r#"
(() => [...document.querySelectorAll("svg[role=img], .bar")].every((e) => e.getAttribute("aria-label")?.length > 5)
  && [...document.querySelectorAll("table")].every((t) => t.getAttribute("role") === "table" && t.querySelectorAll("[role=columnheader]").length > 2)
  && document.querySelectorAll("h1").length === 1)()"#;

#[test]
fn what_happens_is_on_the_page() {
    let Some(mut browser) = Browser::start() else {
        eprintln!("skipped: no Chromium is installed");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (_application, origin) = application(directory.path());
    let (mut first, a, page) = proxy(directory.path(), "a", &origin, "127.0.0.1:0");
    let (_second, _, other) = proxy(directory.path(), "b", &origin, "127.0.0.1:0");
    let (done, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _traffic = Traffic(&done);
        let clients = || scope.spawn(|| ask(&a, &done, &asked));
        let _clients = [clients(), clients()];

        browser.open(&format!("http://{page}/"));
        browser.look_like(1280, 900, false, "light");
        numbers(&mut browser);
        nodes(&mut browser);
        charts(&mut browser);
        assert_eq!(browser.evaluate(WHOLE), true, "something has no label");
        schemes(&mut browser);
        nothing_overflows(&mut browser);
        phone(&mut browser);
        begins_with_the_past(&mut browser, &page);
        assert_eq!(browser.complaints, Vec::<String>::new(), "the page complains");
    });
    assert!(asked.load(SeqCst) > 100, "only {asked:?} requests");

    without_requests(&mut browser, &other);
    comes_back(
        &mut browser,
        &page,
        || {
            first.0.kill().unwrap();
            first.0.wait().unwrap();
        },
        || proxy(directory.path(), "a2", &origin, &page),
    );
}

/// The tiles, against what the load must have done to them.
fn numbers(browser: &mut Browser) {
    let value = |id: &str| format!("Number(document.getElementById('{id}').dataset.value)");
    for id in ["requests", "ratio", "median", "p99", "updates"] {
        browser.wait_until(&format!("{} > 0", value(id)));
    }
    let [requests, ratio, median, p99] =
        ["requests", "ratio", "median", "p99"].map(|id| browser.evaluate(&value(id)).as_f64().unwrap());
    assert!(requests > 5.0 && requests < 1000.0, "{requests} requests a second of two clients that wait 3 ms");
    assert!(ratio > 0.0 && ratio <= 1.0, "{ratio}");
    assert!(median > 1e-6 && median <= p99 && p99 < 20.0, "{median} {p99}");
    browser.wait_until("document.querySelector('#misses tbody td:nth-child(3)')?.textContent.match(/[1-9]/)");
    browser.wait_until("document.querySelector('#emptied tbody td')?.textContent.match(/^\\/.* 200$/)");
    browser.wait_until("document.querySelector('#missed tbody td')?.textContent === '/page'");
    browser.wait_until("document.querySelector('#slowest tbody td:nth-child(3)')?.textContent.match(/[1-9].* m?s$/)");
    browser.wait_until("document.getElementById('facts').innerText.includes('1 of 1')");
}

/// Both nodes, with lease and view: also the other's, which only that one knows. And what both answer together: of the other's proxy it is known by what it tells.
fn nodes(browser: &mut Browser) {
    browser.wait_until("document.getElementById('sums').textContent.match(/^2 proxies together: [1-9][0-9.,]* requests.s, [0-9.]+% hits, [0-9.]+ updates.s$/)");
    browser.wait_until("document.querySelectorAll('#nodes tbody tr').length === 2");
    browser.wait_until(
        "[...document.querySelectorAll('#nodes tbody tr')].every((row) => {
            const cell = (label) => row.querySelector(`[data-label='${label}']`).textContent;
            const [installed, acknowledged, effect] = cell('View').split(' / ').map(Number);
            return cell('State') === 'member' && parseFloat(cell('Lease left')) > 0.2 && installed >= 2 && acknowledged === installed
                && effect === installed && /^home, reader, updater [1-9][0-9.]*% of names$/.test(cell('Roles'))
                && /^[0-9.]+% of [1-9][0-9]*, [0-9.]+ tasks, [0-9.]+ [GM]iB free, [0-9,]+ connections$/.test(cell('Load'))
                && cell('Address').startsWith('shm://') && cell('Since').includes('up ');
        })",
    );
    let names =
        browser.evaluate("[...document.querySelectorAll('#nodes td.name')].map((cell) => cell.innerText).join()");
    let names = names.as_str().unwrap();
    assert!(names.contains("local") && names.contains("local-2") && names.contains("this node"), "{names}");
}

/// Each has drawn what there was, and moves.
fn charts(browser: &mut Browser) {
    assert_eq!(browser.evaluate("document.querySelectorAll('.chart svg').length"), 5);
    let drawn = |nth: u32| {
        format!(
            "[...document.querySelectorAll('.chart')[{nth}].querySelectorAll('svg path')].map((path) => path.getAttribute('d')).join('')"
        )
    };
    for nth in 0..4 {
        browser.wait_until(&format!("{}.length > 60", drawn(nth)));
    }
    let before = browser.evaluate(&drawn(0));
    browser.wait_until(&format!("{} !== {before}", drawn(0)));
    let all = browser.evaluate("document.body.innerHTML");
    for wrong in ["NaN", "Infinity", "undefined", "null"] {
        assert!(!all.as_str().unwrap().contains(wrong), "{wrong} is on the page");
    }
}

/// A page that is opened now shows what happened before: with its first drawing more than two readings could.
fn begins_with_the_past(browser: &mut Browser, page: &str) {
    // One a second.
    let kept = "fetch('charts').then((answer) => answer.json()).then(({ points }) => points.length)";
    wait_for("the node to have a past", || browser.evaluate(kept).as_u64().is_some_and(|kept| kept > 8));
    browser.open(&format!("http://{page}/"));
    browser.look_like(1280, 900, false, "light");
    let points = "Math.max(0, ...[...(document.querySelectorAll('.chart')[1]?.querySelectorAll('svg path') ?? [])].map((path) => path.getAttribute('d').split('L').length))";
    browser.wait_until(&format!("{points} > 0"));
    let points = browser.evaluate(points).as_u64().unwrap();
    assert!(points > 5, "a page that was just opened shows {points} points");
}

fn schemes(browser: &mut Browser) {
    let mut grounds = vec![];
    for scheme in ["light", "dark"] {
        browser.look_like(1280, 900, false, scheme);
        grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
        let contrast = browser.evaluate(LEAST_CONTRAST).as_f64().unwrap();
        assert!(contrast >= 4.5, "{scheme}: text of contrast {contrast:.2}");
        browser.picture(scheme);
    }
    assert_ne!(grounds[0], grounds[1], "dark is as light");
}

/// What is wider than the card or the page that it is in. A table's head that is there for those who listen alone is not seen.
const WIDER: &str = r#"
(() => [...document.querySelectorAll("main *:not(svg *)")].filter((e) => e.getClientRects().length > 0)
  .filter((e) => getComputedStyle(e.closest("thead") ?? e).position !== "absolute")
  .filter((e) => {
    const end = Math.min(document.documentElement.clientWidth, e.parentElement.closest(".panel, .tile, .chart")?.getBoundingClientRect().right ?? Infinity);
    return e.getBoundingClientRect().right > end + 1;
  })
  .map((e) => `${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}`).join("; "))()"#;

fn nothing_overflows(browser: &mut Browser) {
    for width in [1280, 1100, 1000, 760, 390] {
        browser.look_like(width, 900, width < 720, "light");
        assert_eq!(browser.evaluate(WIDER), "", "wider than its card at {width}");
        browser.picture(&format!("wide-{width}"));
    }
    browser.look_like(1280, 900, false, "light");
    let lines = "Math.max(...[...document.querySelectorAll('#nodes tbody tr')].map((row) => row.getBoundingClientRect().height / 20))";
    let lines = browser.evaluate(lines).as_f64().unwrap();
    assert!(lines < 4.0, "a row of the nodes is {lines:.1} lines high");
}

fn phone(browser: &mut Browser) {
    for (width, scheme) in [(360, "light"), (320, "dark")] {
        browser.look_like(width, 740, true, scheme);
        let wide = browser.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)");
        assert!(wide.as_u64().unwrap() <= u64::from(width), "{wide} wide on a phone of {width}");
        assert_eq!(browser.evaluate("innerWidth"), width, "the page is not laid out for a phone");
        let hidden = "[...document.querySelectorAll('#nodes td')].filter((cell) => { const r = cell.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth || r.height === 0; }).length";
        assert_eq!(browser.evaluate(hidden), 0, "parts of the nodes cannot be seen");
        browser.picture(&format!("phone-{scheme}"));
    }
}

/// A proxy that nobody asks says so, and shows no numbers that are none.
fn without_requests(browser: &mut Browser, page: &str) {
    browser.open(&format!("http://{page}/"));
    browser.look_like(1280, 900, false, "light");
    browser.wait_until("document.getElementById('requests').textContent === '0'");
    browser.wait_until("[...document.querySelectorAll('.nothing')].filter((note) => !note.hidden && note.textContent === 'no requests').length >= 3");
    assert_eq!(browser.evaluate("document.getElementById('median').textContent"), "–");
    let all = browser.evaluate("document.body.innerHTML");
    assert!(!all.as_str().unwrap().contains("NaN"));
    assert_eq!(browser.complaints, Vec::<String>::new(), "the page complains");
}

/// When the node goes away the page says so, keeps what it had, and goes on when the node is back.
fn comes_back(browser: &mut Browser, page: &str, end: impl FnOnce(), again: impl FnOnce() -> (Ended, String, String)) {
    browser.open(&format!("http://{page}/"));
    browser.look_like(1280, 900, false, "light");
    browser.wait_until("document.getElementById('pulse').textContent === 'live'");
    assert_eq!(browser.evaluate("document.getElementById('away').hidden"), true);
    end();
    browser.wait_until("!document.getElementById('away').hidden");
    let said = browser.evaluate("document.getElementById('away').textContent");
    assert!(said.as_str().unwrap().starts_with("No answer since"), "{said}");
    assert!(browser.evaluate("document.querySelectorAll('#nodes tbody tr').length").as_u64().unwrap() > 0);
    browser.picture("away");
    let _back = again();
    browser.wait_until(
        "document.getElementById('away').hidden && document.getElementById('pulse').textContent === 'live'",
    );
}

/// What is around the files: who may run what, and who may not ask.
#[test]
fn the_files_are_served_with_a_strict_policy() {
    let directory = tempfile::tempdir().unwrap();
    let mut command =
        verbena(&["node", "--json", "--node-api", "127.0.0.1:0", "--node-runtime", "run", "--node-state", "state"]);
    let command = command.current_dir(directory.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let (_node, line) = started(command, |line| line.contains(r#""event":"listening""#));
    let listening: Value = serde_json::from_str(&line).unwrap();
    let api = listening["api"].as_str().unwrap();
    let curl = |arguments: &[&str]| {
        let output = Command::new("curl").args(["-sS", "-i", "--max-time", "20"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let page = curl(&[&format!("http://{api}/")]);
    let head = page.split("\r\n\r\n").next().unwrap().to_lowercase();
    for line in [
        "http/1.1 200",
        "content-type: text/html; charset=utf-8",
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';",
        "x-content-type-options: nosniff",
    ] {
        assert!(head.contains(line), "{line} is not in {head}");
    }
    assert!(!head.contains("unsafe"), "{head}");
    assert!(curl(&[&format!("http://{api}/dashboard.js")]).contains("text/javascript"));
    assert!(curl(&["-X", "POST", &format!("http://{api}/")]).starts_with("HTTP/1.1 405"));
    assert!(curl(&[&format!("http://{api}/dashboard.jsx")]).starts_with("HTTP/1.1 404"));
    let purge = ["-d", r#"{"everything": true}"#, &format!("http://{api}/v1/purge")];
    let from = |origin: &str| curl(&[&["-H", &format!("origin: {origin}")], &purge[..]].concat());
    for elsewhere in ["http://shop.example", "null", &format!("https://{api}"), &format!("http://{api}.example")] {
        assert!(from(elsewhere).starts_with("HTTP/1.1 403"), "{elsewhere}");
    }
    // A name that its owner has lead here.
    let led = ["-H", "origin: http://shop.example", "-H", "host: shop.example"];
    assert!(curl(&[&led[..], &purge].concat()).starts_with("HTTP/1.1 403"));
    let local = ["-H", "origin: http://LocalHost:1", "-H", "host: LocalHost:1"];
    for answer in [curl(&purge), from(&format!("http://{api}")), curl(&[&local[..], &purge].concat())] {
        assert!(!answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    let mut points = Vec::new();
    wait_for("points of the charts", || {
        let charts = curl(&[&format!("http://{api}/charts")]);
        let charts: Value = serde_json::from_str(charts.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        points = charts["points"].as_array().unwrap().iter().map(|point| point["at"].as_f64().unwrap()).collect();
        points.len() >= 3
    });
    assert!(points.is_sorted_by(|a, b| b - a > 0.5), "a point each second: {points:?}");
    let overview = curl(&[&format!("http://{api}/overview")]);
    assert!(overview.contains(r#""status":{"#) && overview.contains(r#""at_ns":"#), "{overview}");
}
