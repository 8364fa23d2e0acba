//! What whoever runs a cluster types: drained, expelled and restarted one by one, and what is shown of it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use verbena_testkit::nodes::{Cluster, Node, PATIENCE, are_in, in_effect};
use verbena_testkit::programs::verbena;

use crate::common::traffic::{Ended, application, proxy_with, traffic};

const SAMPLED: u64 = 65_536;

fn three(lease: &str) -> (Cluster, [Node; 3]) {
    let cluster = Cluster::on_shm(lease);
    let nodes = ["a", "b", "c"].map(|name| cluster.start(name));
    for node in &nodes {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    (cluster, nodes)
}

/// Runs the command there: its exit code, what it printed, and what it complained of.
fn run(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = verbena(arguments).current_dir(directory).output().unwrap();
    let [told, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code().unwrap(), told, complained)
}

/// A line each.
fn lines(told: &str) -> Vec<Value> {
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(told: &str) -> Vec<String> {
    lines(told).iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect()
}

fn views(cluster: &Cluster, name: &str) -> Vec<Value> {
    let (code, told, complained) = run(cluster.path(), &["cluster", "views", "--json", "--cluster-name", name]);
    assert_eq!(code, 0, "{complained}");
    serde_json::from_str::<Vec<Value>>(&told).unwrap()
}

/// Begins an update at a node and does not end it.
fn hold_an_update(cluster: &Cluster, name: &str) {
    let socket = cluster.path().join(format!("run/{name}.http.sock"));
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "100", "--unix-socket"]).arg(socket);
    let begun = curl.args(["http://helper/v1/updates", "-d", r#"{"dependencies": ["x"]}"#]).output().unwrap();
    assert!(String::from_utf8_lossy(&begun.stdout).contains("update"), "{begun:?}");
}

#[test]
fn a_node_with_nothing_open_is_drained_at_rest_and_is_gone() {
    let (cluster, [a, b, c]) = three("60s");
    let (code, told, complained) = run(cluster.path(), &["node", "drain", "--json", "--cluster-name", "b"]);
    assert_eq!(code, 0, "{told}{complained}");
    let lines = lines(&told);
    let (first, left, last) = (&lines[0], &lines[lines.len() - 2], &lines[lines.len() - 1]);
    assert_eq!((&first["event"], &first["node"]), (&json!("asked"), &json!("b")), "{told}");
    assert_eq!(
        (&left["event"], &left["at_rest"], &left["lease_runs_out"]),
        (&json!("left"), &json!(true), &json!(false))
    );
    assert_eq!(last["event"], "ended");
    assert_eq!(b.ended().code(), Some(0));
    let view = left["view"].as_u64().unwrap();
    a.wait_until("two in", |status| are_in(status, &[1, 3]));
    let seen = views(&cluster, "c");
    let without = seen.iter().find(|seen| seen["view"] == view).expect("the view that drain named");
    assert_eq!(
        without["went"],
        json!([{ "name": "b", "incarnation": { "rank": 2, "start": 1 }, "why": "left_at_rest" }])
    );
    assert!(without["in_effect_after_ms"].is_u64() && without["learnt"].as_str().unwrap().ends_with('Z'), "{without}");
    assert_eq!(c.status().1["departed_list"], json!([]));

    for command in [&["node", "drain"][..], &["cluster", "views"], &["cluster", "expel", "c"]] {
        let (code, _, complained) = run(cluster.path(), &[command, &["--cluster-name", "b"]].concat());
        assert_eq!(code, 3, "{command:?}: {complained}");
        assert!(complained.contains("run/b.sock") && complained.contains("beside it: a, c"), "{complained}");
    }
}

#[test]
fn a_drain_tells_of_open_updates_and_of_a_time_that_was_too_short() {
    let (cluster, [a, b, c]) = three("2s");
    hold_an_update(&cluster, "b");
    let short = ["node", "drain", "--cluster-name", "b", "--timeout", "300ms"];
    let (code, told, complained) = run(cluster.path(), &short);
    assert_eq!(code, 1, "{told}");
    assert!(complained.contains("b is not gone after 300ms; it goes on leaving"), "{complained}");
    assert!(told.contains("updates of it that are open: 1"), "{told}");
    b.wait_until("leaving", |status| status["state"] == "leaving");
    // Whoever asks again is told how it went.
    let (code, told, complained) = run(cluster.path(), &["node", "drain", "--json", "--cluster-name", "b"]);
    assert_eq!(code, 1, "{told}{complained}");
    assert_eq!(complained, "");
    // How far it is between, it may be too quick to show.
    let events = events(&told);
    assert!(events[0] == "asked" && events.ends_with(&["left".into(), "ended".into()]), "{told}");
    assert_eq!(lines(&told)[events.len() - 2]["at_rest"], false);
    assert_eq!(b.ended().code(), Some(0));
    for node in [&a, &c] {
        node.wait_until("b is not settled", |status| {
            let gone = &status["departed_list"][0];
            let is_b = gone["name"] == "b" && gone["incarnation"] == json!({ "rank": 2, "start": 1 });
            are_in(status, &[1, 3]) && is_b && gone["since"] == status["view"]
        });
    }
    let (_, told, _) = run(cluster.path(), &["cluster", "views", "--cluster-name", "c"]);
    assert!(told.contains("went  b 2.1 (left with updates open)"), "{told}");
    let (_, told, _) = run(cluster.path(), &["status", "--cluster-name", "c"]);
    assert!(told.contains("departed b 2.1 is not settled"), "{told}");
}

#[test]
fn who_is_expelled_goes_and_comes_back_as_another_if_it_runs() {
    let (cluster, [a, b, c]) = three("1s");
    // Asked of a member that is not the keeper.
    let (code, told, complained) = run(cluster.path(), &["cluster", "expel", "c", "--json", "--cluster-name", "b"]);
    assert_eq!(code, 0, "{told}{complained}");
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((&told["name"], &told["why"]), (&json!("c"), &json!("expelled")), "{told}");
    assert_eq!((&told["expelled"], &told["next"]["rank"]), (&json!({ "rank": 3, "start": 1 }), &json!(3)), "{told}");
    for node in [&a, &b, &c] {
        node.wait_until("three in again", |status| {
            in_effect(status).is_some_and(|members| members.len() == 3 && members[2].1 > 1)
        });
    }
    let gone = |seen: &Value, why: &str| {
        let went = seen["went"].as_array().unwrap();
        went.iter().any(|one| one["name"] == "c" && one["why"] == why)
    };
    for name in ["a", "b"] {
        let seen = views(&cluster, name);
        let without = seen.iter().find(|seen| seen["view"] == told["view"]).unwrap();
        assert!(gone(without, "expelled"), "{name}: {without}");
    }

    // One that does not run stays away until it does.
    c.signal(Signal::STOP);
    let (code, told, complained) = run(cluster.path(), &["cluster", "expel", "c", "--cluster-name", "a"]);
    assert_eq!(code, 0, "{told}{complained}");
    assert!(told.contains("is in effect without c 3.") && !told.contains("back as"), "{told}");
    a.wait_until("two in", |status| are_in(status, &[1, 2]));
    assert!(gone(views(&cluster, "a").last().unwrap(), "expelled"));
    let (code, told, _) = run(cluster.path(), &["status", "--cluster-name", "b"]);
    assert!(code == 0 && told.contains("in effect (") && !told.contains("member   c"), "{told}");
    c.signal(Signal::CONT);
    a.wait_until("three in", |status| are_in(status, &[1, 2, 3]));

    for (name, expected) in [("d", "\"d\" is no member of v"), ("a", "is the keeper's own node")] {
        let (code, told, complained) = run(cluster.path(), &["cluster", "expel", name, "--cluster-name", "b"]);
        assert_eq!(code, 1, "{told}");
        assert!(complained.contains(expected), "{complained}");
    }
    let (_, _, complained) = run(cluster.path(), &["cluster", "expel", "d", "--cluster-name", "b"]);
    assert!(complained.contains("there are a, b, c"), "{complained}");
    // Without a keeper nobody is taken out.
    a.kill();
    let late = ["cluster", "expel", "c", "--cluster-name", "b", "--timeout", "300ms"];
    let (code, _, complained) = run(cluster.path(), &late);
    assert_eq!(code, 1);
    assert!(complained.contains("after 300ms no view without 3."), "{complained}");
}

#[test]
fn status_shows_leases_and_the_share_of_every_home() {
    let (cluster, [a, _b, c]) = three("60s");
    let seen = a.status().1;
    assert_eq!(seen["sampled_keys"], SAMPLED);
    let members = seen["member_list"].as_array().unwrap();
    let keys: Vec<u64> = members.iter().map(|member| member["keys"].as_u64().unwrap()).collect();
    assert_eq!(keys.iter().sum::<u64>(), SAMPLED);
    assert!(keys.iter().all(|keys| keys.abs_diff(SAMPLED / 3) < SAMPLED / 50), "{keys:?}");
    for member in members {
        let told = &member["told"];
        assert!(told["lease_left_ms"].as_u64() > Some(0) && told["view"] == seen["view"], "{member}");
    }
    assert_eq!((&members[0]["is_self"], &members[1]["is_self"]), (&json!(true), &json!(false)));
    assert_eq!(seen["pages"]["own_updates"], 0);
    hold_an_update(&cluster, "a");
    // It is counted a moment after it was begun.
    let open = |pages: &Value| pages["own_updates"] == 1 && pages["open_updates_here"] == 1;
    a.wait_until("one update open", |status| open(&status["pages"]));
    let (code, told, _) = run(cluster.path(), &["status", "--cluster-name", "a"]);
    assert_eq!(code, 0);
    for expected in ["updates  1 of this node open, 1 open at this home", "%", "names (not of the pages", "lease "] {
        assert!(told.contains(expected), "{expected:?} is not in {told}");
    }
    // Who is stopped says nothing of its lease, and the others do.
    c.signal(Signal::STOP);
    let began = Instant::now();
    loop {
        let (_, told, _) = run(cluster.path(), &["status", "--cluster-name", "a"]);
        let line = |name: &str| told.lines().find(|line| line.starts_with(&format!("member   {name} "))).unwrap();
        if line("c").contains("no answer") && line("b").contains("lease ") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{told}");
        std::thread::sleep(Duration::from_millis(50));
    }
    c.signal(Signal::CONT);
}

#[test]
fn views_are_followed_as_they_come() {
    let (cluster, [_a, _b, c]) = three("1s");
    let mut command = verbena(&["cluster", "views", "--watch", "--json", "--cluster-name", "a"]);
    let mut watch = Ended(command.current_dir(cluster.path()).stdout(std::process::Stdio::piped()).spawn().unwrap());
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(watch.0.stdout.take().unwrap()));
    let mut until = |is_it: &dyn Fn(&Value) -> bool| {
        lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()).find(|seen| is_it(seen))
    };
    let whole = until(&|seen| seen["members"].as_array().unwrap().len() == 3 && seen["in_effect_after_ms"].is_u64());
    let known = whole.expect("what has been comes first")["view"].as_u64().unwrap();
    c.kill();
    let went_c = |seen: &Value| seen["went"].as_array().unwrap().iter().any(|went| went["name"] == "c");
    let next =
        until(&|seen| seen["view"].as_u64().unwrap() > known && seen["in_effect_after_ms"].is_u64() && went_c(seen));
    let next = next.unwrap();
    let went = next["went"].as_array().unwrap().iter().find(|went| went["name"] == "c").unwrap();
    assert_eq!((&went["why"], &next["came"]), (&json!("ran_out"), &json!([])), "{next}");
}

/// The example of docs/concepts/membership.md, under readers and writers through the two others at each turn.
#[test]
fn proxies_are_restarted_one_by_one_and_the_others_answer_everything() {
    // No lease is waited for, so it may be long: a busy machine takes its time.
    let cluster = Cluster::new("12s", &["a", "b", "c"].map(|name| (name, format!("shm://{name}"))));
    let (_application, origin) = application(cluster.path());
    let start = |name: &str| {
        let state = cluster.path().join(format!("state-{name}"));
        proxy_with(cluster.path(), name, &state, &origin, &["--cluster-name", name])
    };
    let mut proxies: Vec<_> = ["a", "b", "c"].map(&start).into();
    let wait = |name: &str, what: &str, is_it: &dyn Fn(&Value) -> bool| {
        let began = std::time::Instant::now();
        while began.elapsed() < verbena_testkit::nodes::PATIENCE {
            if is_it(&verbena_testkit::programs::json(&["status", "--json", "--cluster-name", name], cluster.path()).1)
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{name}: never {what}");
    };
    wait("b", "three in", &|status| are_in(status, &[1, 2, 3]));
    for (nth, name) in ["c", "b", "a"].into_iter().enumerate() {
        let at = 2 - nth;
        let others: Vec<String> =
            proxies.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, proxy)| proxy.1.clone()).collect();
        let other = if name == "c" { "b" } else { "c" };
        std::thread::scope(|scope| {
            let seen = scope.spawn(|| traffic(&others, Duration::from_secs(5)));
            std::thread::sleep(Duration::from_millis(500));
            let (code, told, complained) = run(cluster.path(), &["node", "drain", "--cluster-name", name]);
            assert_eq!(code, 0, "{name}: {told}{complained}");
            assert!(told.contains("it left at rest; v"), "{told}");
            proxies[at] = start(name);
            wait(other, "three in", &|status| are_in(status, &[1, 2, 3]));
            // Whoever is answered with anything but 200 fails the thread.
            let seen = seen.join().unwrap();
            let [answers, writes, stale] = [&seen.answers, &seen.writes, &seen.stale].map(|count| count.load(SeqCst));
            println!("counted: {answers} answers and {writes} writes through the others while {name} was restarted");
            assert_eq!(stale, 0);
            assert!(answers > 50 && writes > 5, "{answers} answers, {writes} writes");
        });
    }
}

#[test]
fn a_home_that_lets_updates_wait_is_named_in_the_log() {
    // Longer than this takes: what stands still stays a member.
    let (cluster, [_a, b, c]) = three("120s");
    c.signal(Signal::STOP);
    let socket = cluster.path().join("run/b.http.sock");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "100", "--unix-socket"]).arg(socket);
    let begin = curl.args(["http://helper/v1/updates", "-d", r#"{"dependencies": ["x"]}"#]).stdout(Stdio::null());
    let mut begin = begin.spawn().unwrap();
    let (until, expected) = (Instant::now() + PATIENCE, "updates for a second: they wait home=\"c\" incarnation=3.");
    while !b.log().contains(expected) {
        assert!(Instant::now() < until, "{}", b.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    c.signal(Signal::CONT);
    begin.wait().unwrap();
    assert!(b.log().matches(expected).count() < 10, "{}", b.log());
}
