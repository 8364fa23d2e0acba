//! What a node says of the others at `GET /overview`, on each provider: three helpers, one of which falls silent.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use verbena_testkit::nodes::{Cluster, PATIENCE, are_in};
use verbena_testkit::programs::verbena;

/// Longer than what is shown of a node that stands still takes, so that it stays a member meanwhile.
const LEASE: &str = "8s";

#[test]
fn over_shared_memory() {
    each_tells_of_itself(&Cluster::new(LEASE, &["a", "b", "c"].map(|name| (name, format!("shm://{name}")))));
}

/// On addresses of its own, so that tests that run at the same time do not meet.
#[test]
fn over_tcp() {
    let [low, high, ..] = std::process::id().to_le_bytes();
    let address = |port: u16| format!("tcp://127.{}.{}.77:{port}", 1 + low % 250, high);
    each_tells_of_itself(&Cluster::new(LEASE, &[("a", address(7001)), ("b", address(7002)), ("c", address(7003))]));
}

/// As node `name` sees all.
fn overview(cluster: &Cluster, name: &str) -> Value {
    let socket = cluster.path().join(format!("run/{name}.http.sock"));
    let mut curl = Command::new("curl");
    let output =
        curl.args(["-sS", "--max-time", "60", "--unix-socket"]).arg(socket).arg("http://helper/overview").output();
    serde_json::from_slice(&output.unwrap().stdout).unwrap()
}

fn wait_until(cluster: &Cluster, name: &str, what: &str, is_it: impl Fn(&[Value]) -> bool) {
    let began = Instant::now();
    loop {
        let seen = overview(cluster, name);
        if is_it(seen["members"].as_array().unwrap()) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{name}: never {what}: {:#}", seen["members"]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_fresh(load: &Value) -> bool {
    load["age_ms"].as_u64().is_some_and(|age| age < 500)
}

fn each_tells_of_itself(cluster: &Cluster) {
    let mut file = std::fs::read_to_string(cluster.path().join("verbena.toml")).unwrap();
    file.push_str("[pages]\nlongest_transaction = \"1s\"\n");
    std::fs::write(cluster.path().join("verbena.toml"), file).unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| cluster.start(name));
    for node in [&a, &b, &c] {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    // Whoever is asked: each knows its own lease and view, and tells.
    for name in ["a", "b", "c"] {
        wait_until(cluster, name, "all in one view", |members| {
            members.len() == 3
                && members.iter().all(|member| {
                    let told = &member["told"];
                    let views = ["view", "acknowledged", "in_effect"].map(|key| told[key].as_u64());
                    told["state"] == "member"
                        && told["lease_ms"] == 8000
                        && told["lease_left_ms"].as_u64() > Some(1000)
                        && told["age_ms"].as_u64() < Some(1000)
                        && views.iter().all(|view| *view == views[0] && *view > Some(0))
                        && (member["is_self"] == true) == (member["name"] == name)
                        && is_fresh(&member["load"])
                        && member["load"]["cores"].as_u64() > Some(0)
                        && member["load"]["available_bytes"].as_u64() < member["load"]["memory_bytes"].as_u64()
                })
        });
    }
    // What a node has done for programs the others read.
    for command in
        [&["lock", "run", "--cluster-name", "b", "x", "--", "true"][..], &["mem", "ls", "--cluster-name", "b"]]
    {
        assert!(verbena(command).current_dir(cluster.path()).status().unwrap().success(), "{command:?}");
    }
    wait_until(cluster, "a", "b has served programs", |members| {
        let count = |at: usize, what: &str| members[at]["load"]["counts"][what].as_u64();
        let served = ["locks", "memory", "requests"].iter().all(|what| count(1, what) > Some(0));
        served && ["locks", "memory"].iter().all(|what| count(2, what) == Some(0))
    });
    // One that is stopped says nothing, and holds up no answer: all that is seen until it goes on came without it.
    c.signal(Signal::STOP);
    wait_until(cluster, "a", "c is silent", |members| members[2]["told"]["age_ms"].as_u64() > Some(500));
    wait_until(cluster, "a", "b still tells", |members| {
        let age = |at: usize| members[at]["told"]["age_ms"].as_u64();
        age(1) < Some(1000) && age(2) > Some(500)
    });
    // How loaded it is is what it was, and known to be so.
    wait_until(cluster, "a", "c's load is old", |members| {
        is_fresh(&members[1]["load"]) && members[2]["load"]["age_ms"].as_u64() > Some(1200)
    });
    c.signal(Signal::CONT);
    wait_until(cluster, "a", "c tells again", |members| {
        let tells = |member: &Value| member["told"]["age_ms"].as_u64() < Some(300) && is_fresh(&member["load"]);
        members.len() == 3 && members.iter().all(tells)
    });
    // Who tells settles too, and so nobody stays departed for ever (rule P6): a view after that is without who was killed.
    c.kill();
    a.wait_until("two in", |status| are_in(status, &[1, 2]));
    let began = Instant::now();
    loop {
        let c = cluster.start("c");
        a.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
        if a.status().1["departed"] == 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "the one that was killed is never settled");
        c.signal(Signal::TERM);
        assert!(c.ended().success());
    }
}
