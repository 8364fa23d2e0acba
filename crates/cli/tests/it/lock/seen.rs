//! What can be seen of locks: what they cost, and who has which.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use verbena_client::wire::LockMode;
use verbena_client::{Error, Helper, Hold, Socket};
use verbena_testkit::nodes::{Cluster, Node};

use super::{NAMES, acquire, connect, ended, lock, lock_run, on_shm, on_tcp, three, wait_for};

/// What a node has counted of locks.
pub fn counted(cluster: &Cluster, node: &str, metrics: &[&str]) -> Vec<f64> {
    let socket = Socket::new(Some(&cluster.path().join("run")), Some(node)).unwrap();
    let text = Helper::connect(&socket, Duration::from_secs(5)).unwrap().metrics().unwrap();
    let value = |metric: &&str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("verbena_lock_{metric} ")));
        line.unwrap_or_else(|| panic!("{metric} in {text}")).split(' ').next().unwrap().parse().unwrap()
    };
    metrics.iter().map(value).collect()
}

const COSTS: [&str; 4] = ["batches_total", "atomics_total", "frames_total", "letters_total"];

/// What a node spends on a lock that it takes and releases a hundred times, when it knows where its words are. Who asks again at once holds on instead: it pauses.
fn spent_on_a_hundred(cluster: &Cluster, node: &str, mode: LockMode) -> Vec<f64> {
    let mut locks = connect(cluster, node);
    let first = acquire(&mut locks, "x", mode);
    locks.release(first).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let before = counted(cluster, node, &COSTS);
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(1));
        let hold = acquire(&mut locks, "x", mode);
        locks.release(hold).unwrap();
    }
    let after = counted(cluster, node, &COSTS);
    before.iter().zip(after).map(|(before, after)| after - before).collect()
}

/// A free lock costs one batch with one atomic, and its release the same; who waits sends nothing. (Chapter 4; rules L2 and L3.)
#[test]
fn a_free_lock_costs_one_atomic_and_who_waits_sends_nothing() {
    for cluster in [on_shm(), on_tcp()] {
        let _nodes = three(&cluster);
        for node in NAMES {
            let spent = spent_on_a_hundred(&cluster, node, LockMode::Exclusive);
            assert_eq!(spent, [200.0, 200.0, 0.0, 0.0], "node {node}");
        }
        // A reader adds itself to the word, and says that it leaves; the home takes it out.
        let shared = NAMES.map(|node| spent_on_a_hundred(&cluster, node, LockMode::Shared));
        let once = shared.iter().filter(|spent| spent[..2] == [100.0, 100.0]);
        assert_eq!(once.count(), 2, "but for the home: {shared:?}");
        let mut holder = connect(&cluster, "a");
        let hold = acquire(&mut holder, "x", LockMode::Exclusive);
        let waits = lock_run(&cluster, "b", &["x", "--", "true"]).spawn().unwrap();
        wait_for("one waits", || counted(&cluster, "b", &["waiting"]) == [1.0]);
        let spent = || NAMES.map(|node| counted(&cluster, node, &COSTS));
        let mut before = spent();
        wait_for("the request is acknowledged", || {
            std::thread::sleep(Duration::from_millis(200));
            std::mem::replace(&mut before, spent()) == before
        });
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(counted(&cluster, "b", &["waiting", "held"]), [1.0, 0.0]);
        assert_eq!(spent(), before, "while one waits and one holds");
        let frames = |spent: [Vec<f64>; 3]| spent.iter().map(|node| node[2]).sum::<f64>();
        let sent = frames(before);
        holder.release(hold).unwrap();
        assert_eq!(ended(waits.wait_with_output().unwrap()), (Some(0), String::new()));
        assert!(frames(spent()) > sent, "one told the other");
    }
}

/// A program that takes and releases a lock in a loop holds it on, without a word to anybody; but not for long while another node waits.
#[test]
fn who_asks_again_at_once_holds_on_and_whoever_waits_gets_it_soon() {
    const EACH: usize = 200;
    for cluster in [on_shm(), on_tcp()] {
        let _nodes = three(&cluster);
        let is_over = AtomicBool::new(false);
        let [loops, waits] = std::thread::scope(|scope| {
            let [loops, waits] = ["b", "c"].map(|node| {
                let (cluster, is_over) = (&cluster, &is_over);
                scope.spawn(move || {
                    let mut locks = connect(cluster, node);
                    let (mut last, mut taken) = (0, 0);
                    let began = Instant::now();
                    while !is_over.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(30) {
                        let hold = acquire(&mut locks, "x", LockMode::Exclusive);
                        assert!(locks.is_held(&hold) && hold.token() > last, "{last} {hold:?}");
                        last = hold.token();
                        locks.release(hold).unwrap();
                        taken += 1;
                        if node == "c" {
                            is_over.store(taken >= EACH, Ordering::Relaxed);
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                    // While it is connected, and asks for nothing more.
                    let mut other = connect(cluster, "a");
                    wait_for("it is free", || other.try_acquire(b"x", LockMode::Exclusive).is_ok());
                    taken
                })
            });
            [loops.join().unwrap(), waits.join().unwrap()]
        });
        let counts = counted(&cluster, "b", &["held_on_total", "wait_seconds_count", "batches_total"]);
        let &[held_on, granted, batches] = counts.as_slice() else { panic!("{counts:?}") };
        println!("counted: {loops} by who loops, of which {held_on} held on, {batches} batches, {waits} by who waits");
        assert_eq!(granted, loops as f64);
        assert!(held_on >= EACH as f64 && waits >= EACH, "{held_on} of {granted} held on");
        // One to get it, one to let go, and those that others were quicker with.
        assert!(
            batches <= 4.0 * (granted - held_on) + 20.0,
            "{batches} batches for {granted} of which {held_on} held on"
        );
        assert_eq!(counted(&cluster, "c", &["held_on_total"]), [0.0], "it pauses");
    }
}

/// Between two messages nodes sleep, also where one of them has something to say in a moment.
#[test]
fn who_waits_uses_no_processor() {
    const TURNS: usize = 150;
    const HELD: Duration = Duration::from_millis(6);
    let cluster = on_shm();
    let nodes = three(&cluster);
    let before = nodes.each_ref().map(Node::used);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for node in ["a", "b"] {
            let cluster = &cluster;
            scope.spawn(move || {
                let mut locks = connect(cluster, node);
                for _ in 0..TURNS {
                    let hold = acquire(&mut locks, "x", LockMode::Exclusive);
                    std::thread::sleep(HELD);
                    locks.release(hold).unwrap();
                }
            });
        }
    });
    let took = began.elapsed();
    let used: Vec<Duration> = nodes.iter().zip(before).map(|(node, before)| node.used() - before).collect();
    assert!(used.iter().all(|used| *used < took / 3), "in {took:?}: {used:?}");
    let frames = counted(&cluster, "a", &["frames_total"])[0];
    assert!(frames >= TURNS as f64, "the lock went to and fro: {frames} messages");
}

/// `verbena lock ls` at a node: its exit code, and what it printed.
fn ls(cluster: &Cluster, node: &str, arguments: &[&str]) -> (i32, String) {
    let output = lock(cluster, "ls", node).args(arguments).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// What it says of one lock: who holds it or waits, how, where, and with which token.
fn queue(cluster: &Cluster, node: &str, name: &str) -> Vec<(bool, String, String, Option<u64>)> {
    let (_, list) = ls(cluster, node, &[name, "--json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let [lock] = &list["locks"].as_array().unwrap()[..] else { return vec![] };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let users = lock["queue"].as_array().unwrap().iter().map(|user| {
        assert_eq!(user["pid"], std::process::id(), "{user}");
        (user["is_held"].as_bool().unwrap(), text(&user["mode"]), text(&user["node"]), user["token"].as_u64())
    });
    users.collect()
}

#[test]
fn a_list_says_who_has_what_and_who_waits_behind_whom() {
    let cluster = on_shm();
    let nodes = three(&cluster);
    assert_eq!(ls(&cluster, "a", &[]), (0, String::new()));
    let [mut a, mut b, mut c] = NAMES.map(|node| connect(&cluster, node));
    let held = acquire(&mut b, "x", LockMode::Exclusive);
    let read = acquire(&mut a, "other", LockMode::Shared);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let hold = acquire(&mut c, "x", LockMode::Exclusive);
            wait_for("the test has seen it", || is_over.load(Ordering::Relaxed));
            c.release(hold).unwrap();
        });
        wait_for("c waits", || queue(&cluster, "a", "x").len() == 2);
        scope.spawn(|| {
            let hold = acquire(&mut a, "x", LockMode::Shared);
            a.release(hold).unwrap();
            a.release(read).unwrap();
        });
        wait_for("a waits", || queue(&cluster, "a", "x").len() == 3);
        let (exclusive, shared) = (|| "exclusive".to_owned(), || "shared".to_owned());
        let all = [
            (true, exclusive(), "b".to_owned(), Some(held.token())),
            (false, exclusive(), "c".to_owned(), None),
            (false, shared(), "a".to_owned(), None),
        ];
        for node in NAMES {
            assert_eq!(queue(&cluster, node, "x"), all, "as {node} sees it");
        }
        let (code, text) = ls(&cluster, "c", &[]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((code, lines.len(), lines[0], lines[2]), (0, 6, "other", "x"), "{text}");
        assert!(lines[1].starts_with("  held   shared     a  process ") && lines[1].contains("  for "), "{text}");
        assert!(lines[3].ends_with(&format!("  token {}", held.token())), "{text}");
        b.release(held).unwrap();
        wait_for("c has it", || {
            queue(&cluster, "c", "x").first().is_some_and(|(held, _, node, _)| *held && node == "c")
        });
        // Who does not answer is named, and the rest is shown.
        nodes[1].signal(Signal::STOP);
        let (code, text) = ls(&cluster, "c", &["x"]);
        nodes[1].signal(Signal::CONT);
        assert!(code == 1 && text.contains("\n  held   exclusive  c  process "), "{code}: {text}");
        assert!(text.ends_with("\nno answer from b: what their programs have is not shown\n"), "{text}");
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(ls(&cluster, "b", &[]), (0, String::new()));
}

#[test]
fn a_list_shows_what_is_held_while_homes_are_down() {
    let cluster = on_shm();
    let [_a, b, _c] = three(&cluster);
    let mut locks = connect(&cluster, "a");
    // Of so many each of three nodes is the home of some.
    let names: Vec<String> = (0..24).map(|nth| format!("lock {nth:02}")).collect();
    let held: Vec<Hold> = names.iter().map(|name| acquire(&mut locks, name, LockMode::Exclusive)).collect();
    let [mut next, mut last] = ["c", "a"].map(|node| connect(&cluster, node));
    let mut wishes = vec![];
    for (locks, node) in [(&mut next, "c"), (&mut last, "a")] {
        wishes.extend(names.iter().map(|name| locks.ask(name.as_bytes(), LockMode::Shared).unwrap()));
        wait_for("all wait", || counted(&cluster, node, &["waiting"]) == [names.len() as f64]);
    }
    // Who waits at the node of the holder is before who waits elsewhere.
    let waits = |node: &str| (false, "shared".to_owned(), node.to_owned(), None);
    let listed = |when: &str| {
        let (code, text) = ls(&cluster, "c", &[]);
        let shown: Vec<&str> = text.lines().filter(|line| line.starts_with("lock ")).collect();
        assert_eq!(shown, names, "{when}: {text}");
        assert_eq!(text.matches("\n  held   exclusive  a  process ").count(), names.len(), "{when}: {text}");
        for (name, hold) in names.iter().zip(&held) {
            let holds = (true, "exclusive".to_owned(), "a".to_owned(), Some(hold.token()));
            assert_eq!(queue(&cluster, "c", name), [holds, waits("a"), waits("c")], "{when}");
        }
        (code, text)
    };
    let slept = Duration::from_millis(300);
    std::thread::sleep(slept);
    let (_, list) = ls(&cluster, "c", &["--json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    let queues = list["locks"].as_array().unwrap().iter().flat_map(|lock| lock["queue"].as_array().unwrap());
    let ages: Vec<u64> = queues.map(|user| user["age_ms"].as_u64().unwrap()).collect();
    let all_ages = slept.as_millis() as u64..30_000;
    assert!(ages.len() == 3 * names.len() && ages.iter().all(|age| all_ages.contains(age)), "{ages:?}");
    b.signal(Signal::STOP);
    let (code, text) = listed("stopped");
    assert!(code == 1 && text.ends_with("\nno answer from b: what their programs have is not shown\n"), "{text}");
    b.kill();
    listed("killed");
}

#[test]
fn a_list_of_many_locks_comes_in_parts() {
    let cluster = on_shm();
    let _nodes = three(&cluster);
    let (mut a, mut b) = (connect(&cluster, "a"), connect(&cluster, "b"));
    let long = |nth: usize| format!("{nth:03}/{}", "n".repeat(900));
    let _held: Vec<Hold> = (0..100).map(|nth| acquire(&mut a, &long(nth), LockMode::Shared)).collect();
    let _also: Vec<Hold> = (50..60).map(|nth| acquire(&mut b, &long(nth), LockMode::Shared)).collect();
    let list = a.list(b"").unwrap();
    let said: Vec<(Vec<u8>, u32)> = list.locks.iter().map(|at| (at.name.clone(), at.rank)).collect();
    let twice = |nth| if (50..60).contains(&nth) { vec![1, 2] } else { vec![1] };
    let all = (0..100).flat_map(|nth| twice(nth).into_iter().map(move |rank| (long(nth).into_bytes(), rank)));
    assert_eq!(said, all.collect::<Vec<_>>());
    assert_eq!(b.list(b"05").unwrap().locks.len(), 20);
    assert!(matches!(b.list(&[7; 1025]), Err(Error::Refused(_))));
    let crowd: Vec<Hold> = (0..12).map(|_| acquire(&mut b, "crowd", LockMode::Shared)).collect();
    let [at] = &a.list(b"crowd").unwrap().locks[..] else { panic!() };
    assert_eq!((at.holders.len() as u32 + at.more_holders, at.more_holders, crowd.len()), (12, 4, 12));
}
