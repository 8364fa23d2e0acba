//! Pools under each scheme of the chapter, switched while they run, with a node beside them that only lends.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use verbena_testkit::programs::{json, verbena, wait_for};

use crate::processes::{Ended, connect, pool, started, statistic, wait_until_open};

const KIB: usize = 1 << 10;

/// A node that lends memory, serves nobody, and is no home of the pool.
fn passive(directory: &Path) -> Ended {
    let mut command: Command = verbena(&["node", "--json", "--pool-memory", "4MiB", "--pool-passive"]);
    command.args(["--cluster-lease", "1s"]);
    command.arg("--node-runtime").arg(directory.join("run")).arg("--node-state").arg(directory.join("state"));
    let log = std::fs::File::create(directory.join("passive.log")).unwrap();
    started(command.current_dir(directory).stderr(log), |line| line.contains(r#""event":"listening""#)).0
}

/// Values of 32 KiB: as many as two pools of 4 MiB hold, and half as many again.
fn fill(at: &str, scheme: &str) -> (usize, usize) {
    let value = |nth: usize| vec![nth as u8; 32 * KIB];
    let mut client = connect(at);
    for nth in 0..360 {
        client.set(&format!("{scheme}-{nth}"), 0, 0, &value(nth)).unwrap();
    }
    let mut found = 0;
    for nth in 0..360 {
        if let Some(got) = client.get(&format!("{scheme}-{nth}")).unwrap() {
            assert!(got.bytes == value(nth), "{scheme}: the value of another key, or half of one");
            found += 1;
        }
    }
    (found, 360)
}

#[test]
fn a_passive_node_s_memory_is_used_by_the_schemes_that_use_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (_first, one) = pool(directory, "first", &["--memory", "4MiB", "--scheme", "ccwr"]);
    let (_second, two) = pool(directory, "second", &["--memory", "4MiB", "--scheme", "ccwr"]);
    let _third = passive(directory);
    wait_until_open(&one, 3);
    let homes = statistic(&one, "pool_keys") + statistic(&two, "pool_keys");
    assert!(homes >= 32, "what the passive node would be home of is at the others: {homes}");
    let scheme = |more: &[&str]| {
        let (code, shown) = json(&[&["pool", "scheme", "--json", "--server", &two], more].concat(), directory);
        assert_eq!(code, 0, "{shown}");
        shown["scheme"].as_str().unwrap_or_default().to_owned()
    };
    let ask_one = |name: &str| connect(&one).scheme().unwrap() == name;
    assert_eq!(scheme(&[]), "ccwr");
    let mut found = vec![];
    for name in ["ccwr", "mtacc", "bcc", "ac", "hybcc", "adaptive"] {
        assert_eq!(scheme(&[name]), name);
        wait_for("the other pool to go by it", || ask_one(name));
        connect(&one).flush().unwrap();
        // What was flushed gives its memory back, and all nodes hear of it.
        wait_for("memory to be free", || statistic(&two, "bytes") + statistic(&one, "bytes") == 0);
        std::thread::sleep(std::time::Duration::from_millis(200));
        let (hits, all) = fill(&one, name);
        println!("{name}: {hits} of {all} found, by a client of the first pool");
        found.push(hits);
        // Another client changes and deletes what the first one stored.
        let mut client = connect(&two);
        let key = format!("{name}-359");
        client.set(&key, 0, 0, b"new").unwrap();
        assert!(connect(&one).get(&key).unwrap().is_none_or(|got| got.bytes == b"new"));
        client.delete(&key).unwrap();
        assert_eq!(connect(&one).get(&key).unwrap(), None);
    }
    // 128 objects of 32 KiB in a node, less what their heads and the buffer take.
    let [ccwr, mtacc, bcc, alone, hybcc, adaptive] = found[..] else { panic!("{found:?}") };
    assert!((200..=256).contains(&ccwr), "two nodes of three: {found:?}");
    // How much more than two can hold depends on hints that nodes send twenty times a second.
    assert!(mtacc > 256 && hybcc > 256, "all three: {found:?}");
    assert!(alone <= 128, "one: {found:?}");
    assert!(bcc <= 256 && adaptive > alone, "{found:?}");
    let taken: u64 = [&one, &two].map(|at| statistic(at, "pool_taken_in")).iter().sum();
    assert!(taken > 0 && statistic(&one, "pool_offered") > 0);
    // A name that is none changes nothing.
    let wrong = verbena(&["pool", "scheme", "lru", "--server", &two]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let refused = connect(&two).choose_scheme("lru").unwrap_err().to_string();
    assert!(refused.contains("there are ac, bcc"), "{refused}");
    assert_eq!(scheme(&[]), "adaptive");
    let settings: Vec<(String, String)> = connect(&one).statistics("settings").unwrap();
    assert!(settings.contains(&("pool_scheme".into(), "adaptive".into())), "{settings:?}");
    // What each node says of itself, the others know.
    let mut client = connect(&two);
    // How much each node has by now depends on hints that may have come late: more is stored until each has enough.
    let mut rounds = 0;
    wait_for("the passive node's memory to be seen", || {
        if rounds > 0 {
            fill(&one, &format!("more-{rounds}"));
        }
        rounds += 1;
        (0..400).for_each(|_| drop(client.get("hot").unwrap()));
        let (code, shown) =
            json(&["pool", "top", "--json", "--count", "1", "--interval", "100ms", "--server", &two], directory);
        assert_eq!(code, 0, "{shown}");
        let nodes = shown["nodes"].as_array().cloned().unwrap_or_default();
        let lent = |node: &Value| node["lent_bytes"] == 4 << 20 && node["used_bytes"].as_u64() > Some(2 << 20);
        let passive = nodes.iter().filter(|node| node["role"] == "passive").count();
        nodes.len() == 3 && passive == 1 && nodes.iter().all(lent) && shown["hottest"][0]["key"] == "hot"
    });
}

/// A pool goes by the scheme of its first node, and one that joins says so.
#[test]
fn a_node_that_joins_goes_by_the_scheme_of_the_pool() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let (first, one) = pool(directory, "first", &["--memory", "4MiB", "--scheme", "ccwr"]);
    wait_until_open(&one, 1);
    let (_second, two) = pool(directory, "second", &["--memory", "4MiB", "--scheme", "mtacc"]);
    wait_until_open(&two, 2);
    let schemes = || [&one, &two].map(|at| connect(at).scheme().unwrap());
    wait_for("one scheme", || schemes() == ["ccwr", "ccwr"]);
    let log = |name: &str| std::fs::read_to_string(directory.join(format!("{name}.log"))).unwrap();
    wait_for("the second to say so", || log("second").contains("goes by another scheme"));
    let said = log("second");
    assert!(said.contains("scheme=ccwr") && said.contains("configured=mtacc"), "{said}");
    assert!(!log("first").contains("another scheme"), "it is the pool's own");
    // It is the pool's also when the first one has gone, and it can be changed.
    drop(first);
    wait_until_open(&two, 1);
    assert_eq!(connect(&two).scheme().unwrap(), "ccwr");
    connect(&two).choose_scheme("bcc").unwrap();
    let (_third, three) = pool(directory, "third", &["--memory", "4MiB", "--scheme", "mtacc"]);
    wait_until_open(&three, 2);
    wait_for("the third to go by it", || connect(&three).scheme().unwrap() == "bcc");
}
