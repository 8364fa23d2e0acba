//! One helper as a process: what it says, to whom it answers, how it ends.

use rustix::process::Signal;
use verbena_testkit::nodes::{Cluster, are_in};
use verbena_testkit::programs::{json, verbena};

use crate::common::traffic::started;

#[test]
fn a_node_alone_is_a_member_at_once_and_leaves_when_told() {
    let cluster = Cluster::new("2s", &[]);
    let node = cluster.start("solo");
    node.wait_until("in", |status| are_in(status, &[1]));
    let status = node.status().1;
    assert_eq!(status["name"], "solo");
    assert!(status["fabric"]["why"].as_str().unwrap().contains("shm"), "{status}");

    let text = verbena(&["status", "--cluster-name", "solo"]).current_dir(cluster.path()).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("state    member, incarnation 1.1") && text.contains("member   solo"), "{text}");
    let metrics =
        verbena(&["status", "--metrics", "--cluster-name", "solo"]).current_dir(cluster.path()).output().unwrap();
    let metrics = String::from_utf8(metrics.stdout).unwrap();
    assert!(metrics.contains("verbena_node_members 1") && metrics.ends_with("# EOF\n"), "{metrics}");

    node.signal(Signal::INT);
    node.wait_for("ended");
    assert_eq!(node.ended().code(), Some(0));
    assert_eq!(cluster.left(), Vec::<String>::new());
}

#[test]
fn without_a_helper_the_path_that_was_tried_is_named() {
    let cluster = Cluster::new("2s", &[]);
    let other = cluster.start("other");
    let output = verbena(&["status"]).current_dir(cluster.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{told}");
    assert!(told.contains("run/local.sock") && told.contains("beside it: other"), "{told}");
    drop(other);
}

#[test]
fn a_second_helper_of_a_name_is_refused() {
    let cluster = Cluster::new("2s", &[]);
    let first = cluster.start("solo");
    let second =
        verbena(&["node", "--cluster-name", "solo", "--node-state", "elsewhere"]).current_dir(cluster.path()).output();
    let second = second.unwrap();
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1), "{told}");
    assert!(told.contains("is served by"), "{told}");
    drop(first);
}

#[test]
fn on_hangup_the_configuration_is_read_again() {
    let cluster = Cluster::new("2s", &[]);
    let file = cluster.path().join("verbena.toml");
    let good = std::fs::read_to_string(&file).unwrap();
    let node = cluster.start("solo");
    let logged = |what: &str| {
        node.signal(Signal::HUP);
        for _ in 0..500 {
            if node.log().contains(what) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        panic!("{what:?} is not in the log: {}", node.log());
    };
    std::fs::write(&file, good.replace("\"2s\"", "\"5s\"")).unwrap();
    logged("takes effect at the next start");
    assert!(node.log().contains("cluster.lease"), "{}", node.log());
    std::fs::write(&file, format!("{good}\nstaet = 3\n")).unwrap();
    logged("the running one stays");
    assert!(node.log().contains("there is no such key"), "{}", node.log());
    std::fs::write(&file, &good).unwrap();
    assert!(are_in(&node.status().1, &[1]), "it goes on");
}

/// A program takes two descriptors, a connection one: the soft limit of a shell is soon reached.
#[test]
fn as_many_files_may_be_open_as_the_system_allows() {
    let cluster = Cluster::new("2s", &[]);
    let limited = |name: &str, limit: &str| {
        let script = format!("{limit} && exec \"$0\" node --json --cluster-name {name} --node-state {name}");
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_verbena")]).current_dir(cluster.path());
        let log = std::fs::File::create(cluster.path().join(format!("{name}.log"))).unwrap();
        let (node, _) = started(shell.stderr(log), |line| line.contains("listening"));
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", node.0.id())).unwrap();
        let files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap().to_owned();
        let words: Vec<_> = files.split_whitespace().map(str::to_owned).collect();
        let log = std::fs::read_to_string(cluster.path().join(format!("{name}.log"))).unwrap();
        (words[3].clone(), words[4].clone(), log)
    };
    let (soft, hard, _) = limited("soft", "ulimit -Sn 200");
    assert_eq!(soft, hard, "raised");
    let (soft, _, log) = limited("hard", "ulimit -n 200");
    assert_eq!(soft, "200");
    assert!(log.contains("most=200") && log.contains("needed="), "{log}");
}

/// The papers' onloading: the thread that serves programs has a core, and nothing else of the node is bound to one.
#[test]
fn who_serves_programs_stays_on_the_core_that_it_is_given() {
    let cores = verbena_terms::usable_cores().unwrap();
    let core = cores.last().unwrap().to_string();
    let cluster = Cluster::new("2s", &[]);
    let node = cluster.start_changed("solo", |command| _ = command.args(["--ipc-progress-core", &core]));
    node.wait_until("in", |status| are_in(status, &[1]));
    let threads = std::fs::read_dir(format!("/proc/{}/task", node.id())).unwrap();
    let (mut bound, mut others) = (vec![], 0);
    for thread in threads {
        // Some end at any time.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let value = |of: &str| status.lines().find_map(|line| line.strip_prefix(of)).unwrap().trim().to_owned();
        if value("Cpus_allowed_list:") == core {
            bound.push(value("Name:"));
        } else {
            others += 1;
        }
    }
    assert!(cores.len() < 2 || bound == ["verbena-ipc"] && others > 3, "{bound:?}, and {others} others");
    // It polls, as far as others leave it the core: one that sleeps uses next to nothing.
    let (used, since) = (node.used(), std::time::Instant::now());
    std::thread::sleep(std::time::Duration::from_secs(2));
    let share = (node.used() - used).as_secs_f64() / since.elapsed().as_secs_f64();
    assert!(share > 0.1, "{share} of a core");
    let none = ["node", "--ipc-progress-core", "9999", "--cluster-name", "other", "--node-state", "other"];
    let output = verbena(&none).current_dir(cluster.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && told.contains("this process cannot use core 9999"), "{told}");
}

#[test]
fn a_member_with_another_lease_is_told_by_the_keeper() {
    let cluster = Cluster::new("2s", &["a", "b"].map(|name| (name, format!("shm://{name}"))));
    let a = cluster.start("a");
    let file = cluster.path().join("verbena.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"2s\"", "\"3s\"")).unwrap();
    let b = cluster.start("b");
    let refused = b.wait_for("refused");
    assert!(refused["reason"].as_str().unwrap().contains("set the same cluster.lease"), "{refused}");
    b.wait_until("told why", |status| status["refused"].as_str().is_some_and(|why| why.contains("cluster.lease")));
    drop((a, b));
}

#[test]
fn a_broken_configuration_starts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["node", "--cluster-members", r#"[{ name = "a", address = "ftp://a" }]"#, "--cluster-name", "a"];
    let output = verbena(&arguments).current_dir(&directory).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--cluster-members: cluster.members: auto cannot be used here"), "{told}");
    let (code, _) = json(&["config", "show", "--json"], directory.path());
    assert_eq!(code, 0, "and without that flag it is right");
}
