//! What is a hit and what is not.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use verbena_testkit::programs::wait_for;

use crate::apache::{Site, is_there};
use crate::application::{answer, ask, begin, get, post};

/// Waits until a page is a hit: it is the second time, but on a machine that is so busy that a lease or a limit runs out.
fn kept(port: u16, path: &str, lines: &str) {
    wait_for("a hit", || ask(port, "GET", path, lines).is_hit());
}

fn a_page_is_kept_until_it_changes(store: &str) {
    if !is_there() {
        return;
    }
    let site = Site::start();
    let [one, two] = [0, 1].map(|node| site.apache(node, store, ""));
    let port = one.port;
    assert!(!get(port, "/page/a").is_hit());
    kept(port, "/page/a", "");
    let hit = get(port, "/page/a");
    assert!(hit.is_hit() && hit.version() == 0, "{hit:?}\n{}", one.log());
    assert!(hit.head.contains("cache-control: no-cache"), "{hit:?}");
    for hidden in ["verbena-stamp", "verbena-dependencies", "max-age"] {
        assert!(!hit.head.contains(hidden), "{hit:?}");
    }
    assert_eq!(site.application.asked("/page/a"), 1);
    // A client that insists gets what every hit is: looked at after it asked.
    kept(port, "/page/a", "Cache-Control: no-cache\r\nPragma: no-cache\r\n");
    kept(port, "/page/a", "Cache-Control: max-age=0\r\n");
    // Another page, one that says nothing, and one by whose other fields mod_cache would not keep it.
    for path in ["/page/b?x=1", "/undeclared/c", "/weak/d"] {
        assert!(!get(port, path).is_hit());
        kept(port, path, "");
    }
    // The other Apache has copies of its own.
    assert!(!get(two.port, "/page/a").is_hit());
    kept(two.port, "/page/a", "");
    // A write that is announced: neither serves what it touches, and both what it does not; what says nothing depends on all.
    assert_eq!(site.write("a"), 1);
    for apache in [&one, &two] {
        let answer = get(apache.port, "/page/a");
        assert!(!answer.is_hit() && answer.version() == 1, "{answer:?}");
        kept(apache.port, "/page/a", "");
    }
    assert!(get(port, "/weak/d").is_hit() && !get(port, "/undeclared/c").is_hit());
    // A page by its address, whatever the port that Apache listens at.
    site.purge("pages", "http://shop.example/page/a");
    assert!(get(port, "/weak/d").is_hit() && !get(port, "/page/a").is_hit());
    kept(port, "/page/a", "");
    // All below a path, and all of a host.
    for (address, is_wider) in
        [("http://shop.example/page", false), ("http://other.example", false), ("http://shop.example", true)]
    {
        let hit = ["/weak/d", "/page/a"].map(|path| get(port, path).is_hit());
        assert_eq!(hit, [true, true], "before {address}");
        site.purge("prefixes", address);
        assert_eq!(get(port, "/weak/d").is_hit(), !is_wider, "{address}");
        assert_eq!(get(port, "/page/a").is_hit(), address.contains("other"), "{address}");
        kept(port, "/weak/d", "");
        kept(port, "/page/a", "");
    }
    // A write through one of them: everything.
    let written = post(two.port, "/page/a");
    assert!(written.version() == 2 && !written.head.contains("verbena-dependencies"), "{written:?}");
    for apache in [&one, &two] {
        let answer = get(apache.port, "/page/a");
        assert!(!answer.is_hit() && answer.version() == 2, "{answer:?}");
    }
    assert!(!get(port, "/weak/d").is_hit());
    // A long answer comes whole, and so does that of a write that is held back at its end.
    for answer in [get(port, "/long/e"), post(port, "/long/e")] {
        assert_eq!(answer.body.len(), 300_002, "{}", answer.head);
    }
    // One that has no length, as most of PHP's: what is held is its head too.
    for answer in [get(port, "/chunked/f"), post(port, "/chunked/f"), post(port, "/chunked/f")] {
        let is_head =
            answer.head.starts_with("http/1.1 200 ok\r\n") && answer.head.contains("transfer-encoding: chunked");
        assert!(is_head, "{answer:?}");
        assert!(answer.body.ends_with("\r\n0\r\n\r\n"), "{answer:?}");
    }
}

#[test]
fn in_shared_memory_a_page_is_kept_until_it_changes() {
    a_page_is_kept_until_it_changes("socache");
}

#[test]
fn on_disk_a_page_is_kept_until_it_changes() {
    a_page_is_kept_until_it_changes("disk");
}

#[test]
fn what_is_for_one_client_is_no_others() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    let apache = site.apache(0, "socache", "");
    let port = apache.port;
    let cookie = "Cookie: session=1\r\n";
    for _ in 0..2 {
        assert!(!get(port, "/cookie/a").is_hit());
        assert!(!ask(port, "GET", "/page/b", cookie).is_hit());
        assert!(!ask(port, "GET", "/page/c", "Authorization: Basic eDp5\r\n").is_hit());
        assert!(!get(port, "/writing/d").is_hit());
    }
    assert!(!get(port, "/page/b").is_hit());
    kept(port, "/page/b", "");
    assert!(!ask(port, "GET", "/page/b", cookie).is_hit());
    assert!(!ask(port, "GET", "/public/e", cookie).is_hit());
    kept(port, "/public/e", cookie);
    // A host that the application sees otherwise is another page.
    assert!(!ask(port, "GET", "/page/b", "X-Forwarded-Host: other\r\n").is_hit());
    // A lifetime of the application's is the longest age.
    assert!(!get(port, "/short/f").is_hit());
    wait_for("the end of its lifetime", || !get(port, "/short/f").is_hit());
    // No client says for which fill of a proxy its request is.
    let filled = ask(port, "GET", "/fill/h", "Verbena-Fill: 0123456789abcdef\r\n");
    assert!(filled.head.contains("x-fill: false"), "{filled:?}");
    // What a relay sees touches here what has no list, and nothing else.
    kept(port, "/page/i", "");
    kept(port, "/undeclared/j", "");
    post(port, "/database/i");
    assert!(get(port, "/page/i").is_hit() && !get(port, "/undeclared/j").is_hit());
    // What the application announces is not bracketed here.
    kept(port, "/page/g", "");
    post(port, "/announced/g");
    assert!(get(port, "/page/g").is_hit());
}

#[test]
fn a_client_has_a_page_by_its_tag_and_not_by_its_second() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    let apache = site.apache(0, "socache", "");
    let asked = |lines: &str| ask(apache.port, "GET", "/dated/a", lines);
    let (dated, tagged) = ("If-Modified-Since: Sun, 29 Nov 2026 10:00:00 GMT\r\n", "If-None-Match: \"v0\"\r\n");
    // Nobody has it yet: what one client has already is fetched whole, for the others.
    assert_eq!(asked(tagged).status, 200);
    kept(apache.port, "/dated/a", "");
    let answer = asked(tagged);
    assert!(answer.is_hit() && answer.status == 304, "{answer:?}\n{}", apache.log());
    kept(apache.port, "/dated/a", dated);
    assert_eq!(asked(dated).version(), 0);
    site.write("a");
    assert_eq!(asked(dated).version(), 1);
    assert_eq!(asked(tagged).version(), 1);
    kept(apache.port, "/dated/a", "");
}

#[test]
fn without_a_helper_pages_come_from_the_application_and_writes_wait() {
    if !is_there() {
        return;
    }
    let site = Site::with_lease("2s");
    let apache = site.apache(0, "socache", "");
    kept(apache.port, "/page/a", "");
    site.kill(0);
    site.application.write("a");
    for _ in 0..3 {
        let answer = get(apache.port, "/page/a");
        assert!(!answer.is_hit() && answer.version() == 1, "{answer:?}");
    }
    let refused = post(apache.port, "/page/a");
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(get(apache.port, "/page/a").version(), 1);
    // It comes back, as another incarnation: no copy of before is current.
    *site.nodes[0].lock().unwrap() = Some(site.cluster.start("a"));
    wait_for("hits", || get(apache.port, "/page/a").is_hit());
    assert_eq!(get(apache.port, "/page/a").version(), 1);
}

#[test]
fn a_client_that_sends_slowly_keeps_no_page_out_of_the_cache() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    let apache = site.apache(0, "socache", "");
    get(apache.port, "/page/a");
    for bytes in [5, 300_000] {
        let body: Vec<u8> = (0..bytes).map(|nth| (nth * 7 % 251) as u8).collect();
        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
        let mut slow = begin(apache.port, "POST", "/page/b", &format!("Content-Length: {bytes}\r\n"));
        slow.write_all(&body[..4]).unwrap();
        // Its first bytes have been read by now, or will be: no answer tells which.
        for _ in 0..20 {
            kept(apache.port, "/page/a", "");
            std::thread::sleep(Duration::from_millis(10));
        }
        slow.write_all(&body[4..]).unwrap();
        let written = answer(slow);
        assert!(written.body.contains(&format!("\n{bytes} bytes, {sum}\n")), "{written:?}");
        assert!(!get(apache.port, "/page/a").is_hit(), "the write was of everything");
    }
}

#[test]
fn what_a_killed_child_was_writing_stays_out_of_the_cache() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    let [one, two] = [0, 1].map(|node| site.apache(node, "socache", ""));
    kept(two.port, "/page/a", "");
    site.application.hold();
    let writing = begin(one.port, "POST", "/held/a", "Content-Length: 0\r\n");
    wait_for("the write", || site.application.asked("/held/a") == 1);
    one.kill_children();
    drop(writing);
    // Nobody knows whether the application goes on with it, and it does.
    for _ in 0..20 {
        assert!(!get(two.port, "/page/a").is_hit());
        std::thread::sleep(Duration::from_millis(10));
    }
    let written = site.application.write("a");
    site.application.release();
    assert!(get(two.port, "/page/a").version() >= written);
    // Its successors answer. Nothing is stored before the longest transaction is over.
    assert!(get(one.port, "/page/a").version() >= written);
}

#[test]
fn a_write_that_cannot_be_confirmed_has_no_answer() {
    if !is_there() {
        return;
    }
    let site = Site::start();
    let apache = site.apache(0, "socache", "");
    site.application.hold();
    let writing = begin(apache.port, "POST", "/held/a", "Content-Length: 0\r\n");
    wait_for("the write", || site.application.asked("/held/a") == 1);
    site.kill(0);
    site.application.release();
    let unanswered = answer(writing);
    assert!(unanswered.status == 0 && unanswered.head.is_empty(), "{unanswered:?}");
}

/// Readers of two Apaches know the version that was confirmed before they asked.
#[test]
fn of_a_thousand_answers_none_is_stale() {
    let wanted = if std::env::var_os("VERBENA_LONG").is_some() { 100_000 } else { 1000 };
    if !is_there() {
        return;
    }
    let site = Site::start();
    let apaches = [site.apache(0, "socache", ""), site.apache(1, "disk", "")];
    let pages = ["p0", "p1", "p2", "p3"];
    let confirmed = [const { AtomicU64::new(0) }; 4];
    let (answers, hits, writes) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0.. {
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let (at, page) = (nth % pages.len(), pages[nth % pages.len()]);
                // By name, and by a request of which nothing more is known.
                let version = match nth % 8 {
                    7 => post(apaches[nth / 8 % 2].port, &format!("/page/{page}")).version(),
                    _ => site.write(page),
                };
                confirmed[at].store(version, Ordering::SeqCst);
                writes.fetch_add(1, Ordering::SeqCst);
                // As many reads as make pages hits in between, however slow the machine is.
                let reads = answers.load(Ordering::SeqCst) + 16;
                while answers.load(Ordering::SeqCst) < reads && !is_over.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (apaches, confirmed, answers, hits) = (&apaches, &confirmed, &answers, &hits);
                scope.spawn(move || {
                    for nth in reader.. {
                        if answers.fetch_add(1, Ordering::SeqCst) >= wanted {
                            break;
                        }
                        let at = nth % pages.len();
                        let known = confirmed[at].load(Ordering::SeqCst);
                        let answer = get(apaches[nth / 4 % 2].port, &format!("/page/{}", pages[at]));
                        assert!(answer.version() >= known, "version {known} was confirmed before: {answer:?}");
                        hits.fetch_add(usize::from(answer.is_hit()), Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = readers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok), "an answer was stale");
    });
    let (hits, writes) = (hits.into_inner(), writes.into_inner());
    println!("{wanted} answers, {hits} hits, {writes} writes");
    assert!(hits >= wanted * 3 / 10 && writes >= 20, "{hits} hits, {writes} writes");
}
