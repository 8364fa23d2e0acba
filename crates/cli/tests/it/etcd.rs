//! Nodes that etcd keeps: killed, paused and started again, and etcd with them (rules C1 to C4).

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use verbena_testkit::nodes::{Cluster, Node, in_effect};

use verbena_testkit::etcds::Etcds;

const LEASE: Duration = Duration::from_secs(2);
const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three nodes that may join, on addresses that are as much their own as the port of their etcd.
fn cluster(etcds: &Etcds) -> Cluster {
    let [low, high] = etcds.port(0).to_le_bytes();
    let address = |nth: usize| format!("tcp://127.{}.{low}.{}:7001", 1 + high % 250, nth + 1);
    let nodes: Vec<(&str, String)> = NAMES.into_iter().zip((0..).map(address)).collect();
    Cluster::kept_by_etcd("2s", &etcds.endpoints(), &nodes)
}

/// Whether these lives, and no others, are in the view that is in effect.
fn are_in(status: &Value, nodes: &[u64]) -> bool {
    let mut ranks = nodes.to_vec();
    ranks.sort_unstable();
    in_effect(status).is_some_and(|members| members.iter().map(|(rank, _)| *rank).eq(ranks))
}

fn all_in(nodes: &[&Node]) -> Vec<u64> {
    let names = |status: &Value| {
        in_effect(status)?;
        let list = status["member_list"].as_array()?;
        list.iter().map(|member| Some(member["name"].as_str()?.to_owned())).collect::<Option<Vec<_>>>()
    };
    for node in nodes {
        node.wait_until("all in", |status| names(status).is_some_and(|names| names.len() == nodes.len()));
    }
    nodes.iter().map(|node| node.rank()).collect()
}

fn keeper(node: &Node) -> u64 {
    node.status().1["keeper"].as_u64().unwrap()
}

#[test]
fn the_office_of_the_keeper_survives_its_holders() {
    let Some(etcds) = Etcds::start() else { return };
    let cluster = cluster(&etcds);
    let [a, b, c] = NAMES.map(|name| cluster.start(name));
    let ranks = all_in(&[&a, &b, &c]);
    let first = keeper(&a);
    assert!(ranks.contains(&first), "{first} of {ranks:?}");
    assert_eq!((keeper(&b), keeper(&c)), (first, first));

    // The keeper is killed: another one follows, and its lives go on.
    let mut nodes: Vec<(u64, Node)> = ranks.into_iter().zip([a, b, c]).collect();
    let at = nodes.iter().position(|(rank, _)| *rank == first).unwrap();
    let (_, killed) = nodes.remove(at);
    let name = NAMES[at];
    killed.kill();
    let left: Vec<u64> = nodes.iter().map(|(rank, _)| *rank).collect();
    for (_, node) in &nodes {
        node.wait_until("two in", |status| are_in(status, &left));
    }
    let second = keeper(&nodes[0].1);
    assert!(left.contains(&second), "{second} of {left:?}");

    // Its next life has a new rank.
    let again = cluster.start(name);
    let ranks = all_in(&[&nodes[0].1, &nodes[1].1, &again]);
    assert!(ranks[2] > *left.iter().max().unwrap() && ranks[2] > first, "{ranks:?}");

    // The keeper is paused for longer than a lease, and comes back as another life.
    let at = nodes.iter().position(|(rank, _)| *rank == second).unwrap();
    let (_, paused) = nodes.remove(at);
    paused.signal(Signal::STOP);
    let left = [nodes[0].0, ranks[2]];
    nodes[0].1.wait_until("two in", |status| are_in(status, &left));
    paused.signal(Signal::CONT);
    all_in(&[&nodes[0].1, &again, &paused]);
    assert!(paused.rank() > ranks[2]);
    assert!(paused.wait_for("expelled")["next"].is_null(), "its next rank is not known yet");

    // In good order, the keeper among them, they leave nothing behind.
    for node in [paused, again, nodes.remove(0).1] {
        node.signal(Signal::TERM);
        assert_eq!(node.ended().code(), Some(0));
    }
    assert_eq!(cluster.left(), Vec::<String>::new(), "something was left behind");
}

#[test]
fn without_quorum_leases_run_out_and_the_same_lives_go_on_with_it() {
    let Some(etcds) = Etcds::start() else { return };
    let cluster = cluster(&etcds);
    let nodes = NAMES.map(|name| cluster.start(name));
    let ranks = all_in(&nodes.each_ref());

    // One member of etcd that is stuck, even if it leads, is no news.
    let leader = etcds.leader();
    etcds.pause(leader);
    let next = etcds.leader_but(Some(leader));
    std::thread::sleep(2 * LEASE);
    for node in &nodes {
        node.wait_until("the same lives in", |status| are_in(status, &ranks));
    }

    // Two are: whoever keeps cannot prove it.
    etcds.pause(next);
    for node in &nodes {
        node.wait_until("without lease", |status| status["state"] == "lapsed");
    }
    assert!(nodes.iter().any(|node| node.log().contains("etcd does not answer")), "{}", nodes[0].log());
    etcds.resume(next);
    etcds.resume(leader);
    for node in &nodes {
        node.wait_until("in again", |status| are_in(status, &ranks));
    }
}

#[test]
fn nodes_know_each_other_by_the_names_in_their_certificates() {
    let Some(etcds) = Etcds::start() else { return };
    let cluster = cluster(&etcds);
    cluster.set(&format!("[fabric]\nkeys = {:?}\n", cluster.path().join("keys")));
    let keys = |arguments: &[&str]| {
        let words = [&["keys"], arguments].concat();
        let output = verbena_testkit::programs::verbena(&words).current_dir(cluster.path()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    keys(&["init"]);
    NAMES.iter().for_each(|name| keys(&["node", name]));
    let [a, b, c] = NAMES.map(|name| cluster.start(name));
    all_in(&[&a, &b, &c]);
    // The next life has a rank that the others have to find the name of.
    c.kill();
    let c = cluster.start("c");
    all_in(&[&a, &b, &c]);
    c.kill();
    // With another's certificate it is refused, and nothing else is disturbed.
    for ending in ["pem", "key"] {
        let file = |name| cluster.path().join("keys").join(format!("member-{name}.{ending}"));
        std::fs::copy(file("b"), file("c")).unwrap();
    }
    let refused =
        verbena_testkit::programs::verbena(&["node", "--cluster-name", "c", "--cluster-address", "tcp://127.0.0.1:1"])
            .args(["--node-state", "state-c"])
            .current_dir(cluster.path())
            .output()
            .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("member-c.pem is not for c.member.verbena"), "{said}");
    all_in(&[&a, &b]);
}

#[test]
fn nodes_end_when_what_they_joined_is_lost() {
    let Some(etcds) = Etcds::start() else { return };
    let cluster = cluster(&etcds);
    let nodes = NAMES.map(|name| cluster.start(name));
    all_in(&nodes.each_ref());
    etcds.controlled(0, &["del", "--prefix", "/verbena/"]);
    for (name, node) in NAMES.into_iter().zip(nodes) {
        let log = cluster.path().join(format!("{name}.log"));
        assert_eq!(node.ended().code(), Some(1));
        let log = std::fs::read_to_string(log).unwrap();
        assert!(log.contains("it was deleted or restored while the node ran"), "{log}");
    }
    let nodes = NAMES.map(|name| cluster.start(name));
    all_in(&nodes.each_ref());
}

#[test]
fn what_is_wrong_with_etcd_is_said_by_the_key_to_look_at() {
    let directory = tempfile::tempdir().unwrap();
    let run = |file: &str, arguments: &[&str]| {
        std::fs::write(directory.path().join("verbena.toml"), file).unwrap();
        let output = verbena_testkit::programs::verbena(arguments).current_dir(directory.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) =
        run("[cluster]\nprovider = \"etcd\"\n[etcd]\nendpoints = [\"http://10.0.0.1:2379\"]\n", &["node"]);
    assert_eq!(code, Some(2), "{said}");
    for key in ["cluster.name", "cluster.address"] {
        assert!(said.contains(key) && said.contains("needed with the provider etcd"), "{said}");
    }
    let whole = "[cluster]\nprovider = \"etcd\"\nname = \"a\"\naddress = \"tcp://127.0.0.1:7001\"\n";
    let (code, said) = run(whole, &["config", "check"]);
    assert!(code == Some(2) && said.contains("etcd.endpoints"), "{said}");
    let (code, said) = run(&format!("{whole}[etcd]\nendpoints = [\"10.0.0.1\"]\n"), &["config", "check"]);
    assert!(code == Some(2) && said.contains("etcd.endpoints"), "{said}");
    let (code, said) = run(&format!("{whole}[etcd]\nendpoints = [\"http://10.0.0.1:2379\"]\n"), &["config", "check"]);
    assert_eq!(code, Some(0), "{said}");
}
