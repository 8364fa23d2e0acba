//! The rows of memory. No time is held against anything; counts are.

use verbena_bench::{Findings, Measurement};
use verbena_namespaces::Namespace;

use super::{has_xdp, measured};

/// Those whose labels are these, whole: one mode's name is within another's.
fn of<'a>(findings: &'a Findings, quantity: &str, labels: &[&str]) -> Vec<&'a Measurement> {
    let is_label = |one: &Measurement, label: &str| one.labels.iter().any(|(_, value)| value == label);
    let has = |one: &&Measurement| one.quantity == quantity && labels.iter().all(|label| is_label(one, label));
    findings.measurements.iter().filter(has).collect()
}

pub fn values_are_got_and_put() {
    let findings = measured("memory.ops", 4);
    let fabrics: Vec<&str> =
        findings.fabrics.iter().filter(|fabric| fabric.measured).map(|fabric| fabric.name.as_str()).collect();
    assert!(["shm", "tcp"].iter().all(|always| fabrics.contains(always)), "{:?}", findings.fabrics);
    assert_eq!(fabrics.contains(&"xdp"), has_xdp(), "{:?}", findings.fabrics);
    const SIZES: [f64; 6] = [1.0, 64.0, 1024.0, 16384.0, 131_072.0, 1_048_576.0];
    let sizes = |found: &[&Measurement]| -> Vec<f64> { found.iter().map(|one| one.x).collect() };
    // Of the memory of xdp, which is the kernel's, there are no windows.
    let with_windows: Vec<&str> = fabrics.iter().copied().filter(|fabric| *fabric != "xdp").collect();
    for fabric in &fabrics {
        for operation in ["get at the home", "window at the home"] {
            let at_home = of(&findings, "latency", &[*fabric, operation]);
            assert_eq!(sizes(&at_home) == SIZES, with_windows.contains(fabric), "{fabric}, {operation}: {at_home:?}");
        }
        for operation in ["get", "put"] {
            for mode in ["mq", "rmq", "rcq", "adaptive"] {
                let strict = of(&findings, "latency", &[*fabric, operation, mode, "strict"]);
                assert_eq!(sizes(&strict), SIZES, "{fabric}, {operation}, {mode}");
                assert!(strict.iter().all(|one| one.rounds.iter().all(|round| round.count >= 5)), "{strict:?}");
            }
            for coherence in ["null", "read", "write", "version", "delta(8)", "temporal(20000us)"] {
                assert_eq!(of(&findings, "latency", &[fabric, operation, coherence]).len(), 1, "{fabric}, {coherence}");
            }
        }
    }
    let claims = findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count();
    assert_eq!(claims, 6 * fabrics.len() + 2 * with_windows.len());
}

pub fn many_get_values() {
    let findings = measured("memory.scale", 4);
    let ways = [
        "mq, one node, one home",
        "rmq, one node, one home",
        "rcq, one node, one home",
        "adaptive, one node, one home",
        "adaptive, 2 nodes, one home",
        "adaptive, 2 nodes, 3 homes",
    ];
    for way in ways {
        let gets = of(&findings, "gets", &[way]);
        let threads: Vec<f64> = gets.iter().map(|one| one.x).collect();
        assert_eq!(threads, [1.0, 4.0, 16.0, 64.0, 512.0], "{way}");
        // Each of them got something in each round.
        assert!(gets.iter().all(|one| one.rounds.iter().all(|round| round.count as f64 >= one.x)), "{gets:?}");
    }
    let narrow = ["adaptive, 2 nodes, one home behind a narrow link", "adaptive, 2 nodes, 3 homes behind narrow links"];
    let has_links = findings.fabrics.iter().any(|fabric| fabric.name == "tcp behind narrow links" && fabric.measured);
    assert_eq!(has_links, Namespace::new().is_ok(), "{:?}", findings.fabrics);
    for way in narrow {
        let threads: Vec<f64> = of(&findings, "gets", &[way]).iter().map(|one| one.x).collect();
        assert_eq!(threads, if has_links { &[1.0, 4.0, 16.0, 64.0][..] } else { &[] }, "{way}");
    }
    assert_eq!(findings.ratios.len(), 3 + usize::from(has_links));
    if has_links {
        // 2 Mbit/s are no more gets of 64 bytes, and the best of the rounds was more than a hundredth of that.
        let gets = of(&findings, "gets", &[narrow[0]]);
        let behind = gets.into_iter().find(|one| one.x == 64.0).unwrap().spread;
        assert!(behind.median < 3_906.0 && behind.max > 39.0, "{behind:?} gets a second");
    }
}

pub fn a_proxy_monitors_servers() {
    let findings = measured("memory.onload", 4);
    let servers = |quantity: &str, place: &str| {
        let its = of(&findings, quantity, &[place]);
        assert!(its.iter().all(|one| one.rounds.iter().all(|round| round.count >= 1)), "{its:?}");
        its.iter().map(|one| one.x).collect::<Vec<f64>>()
    };
    assert_eq!(servers("response time", "no monitor"), [0.0]);
    for place in ["monitor on the proxy's core", "monitor on the other core"] {
        assert_eq!(servers("response time", place), [4.0, 8.0, 16.0, 32.0], "{place}");
        // That a tenth of what is due was read in all rounds together the row itself sees to.
        let reads = of(&findings, "boards read", &[place]);
        assert_eq!(reads.len(), 4, "{reads:?}");
    }
    assert_eq!(findings.ratios.len(), 16);
    assert_eq!(findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count(), 1);
}

pub fn checkpoints_are_saved() {
    let findings = measured("memory.checkpoint", 4);
    for way in ["one node and its memory", "three nodes, memory of a fourth", "three nodes, memory of four"] {
        for mode in ["mq", "rmq", "rcq", "adaptive"] {
            for quantity in ["time of a save", "saves"] {
                let saves = of(&findings, quantity, &[way, mode]);
                let processes: Vec<f64> = saves.iter().map(|one| one.x).collect();
                let expected: &[f64] = if mode == "rcq" { &[1.0, 4.0, 16.0] } else { &[1.0, 4.0, 16.0, 64.0] };
                assert_eq!(processes, expected, "{way}, {mode}, {quantity}");
                // All of them saved in each round.
                assert!(
                    saves.iter().all(|one| one.rounds.iter().all(|round| round.count as f64 >= one.x)),
                    "{saves:?}"
                );
            }
        }
    }
    let note = findings.notes.iter().find(|note| note.contains("all parts of a checkpoint of one era")).unwrap();
    let numbers: Vec<u64> = note.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [looked_at, saves, restarts, rolled_back] = numbers[..] else { panic!("{note}") };
    // Each process saves at least one part and looks at one, in each of nine rounds, in three ways: 1 and 4 and 16 in four modes, 64 in three.
    let fewest = 9 * 3 * (4 * (1 + 4 + 16) + 3 * 64);
    assert!(looked_at >= fewest && saves >= fewest, "{note}");
    assert!(restarts > 0 && rolled_back > restarts, "{note}");
    assert_eq!(findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count(), 13);
}

pub fn applications_ask_for_what_they_need() {
    let findings = measured("memory.apps", 4);
    let percent = [20.0, 40.0, 60.0, 80.0, 100.0];
    let memory = ["shm", "tcp"]
        .into_iter()
        .flat_map(|fabric| ["mq", "rmq", "rcq", "adaptive"].into_iter().map(move |mode| format!("{mode}, {fabric}")));
    let gluster = of(&findings, "time of a query", &["GlusterFS"]).len();
    let why = findings.notes.iter().find(|note| note.contains("is not measured"));
    assert_eq!((gluster, why.is_none()), if why.is_none() { (10, true) } else { (0, false) });
    let can_mount = |name: &str| std::path::Path::new("/usr/sbin").join(name).exists();
    if rustix::process::geteuid().is_root() && can_mount("glusterfs") && can_mount("glusterfsd") {
        assert_eq!(why, None);
    } else {
        println!("skipped: GlusterFS: {why:?}");
    }
    let places = memory.chain(["server over TCP", "computing alone", "GlusterFS"].map(str::to_owned));
    for place in places {
        for (application, xs) in
            [("B-tree", &percent[..]), ("R-tree", &percent), ("directory", &[1_000.0, 10_000.0, 100_000.0])]
        {
            if place == "GlusterFS" && (gluster == 0 || application == "directory") {
                continue;
            }
            let times = of(&findings, "time of a query", &[application, &place]);
            assert_eq!(times.iter().map(|one| one.x).collect::<Vec<_>>(), xs, "{application}, {place}");
            // What is asked for is the same wherever it is, and nothing where there is only computing.
            let asked: Vec<f64> = of(&findings, "asked for in a query", &[application, &place])
                .iter()
                .map(|one| {
                    assert_eq!(one.spread.min, one.spread.max, "{one:?}");
                    one.spread.median
                })
                .collect();
            let served: Vec<f64> = of(&findings, "asked for in a query", &[application, "server over TCP"])
                .iter()
                .map(|one| one.spread.median)
                .collect();
            if place == "computing alone" {
                assert!(asked.iter().all(|asked| *asked == 0.0), "{application}: {asked:?}");
                continue;
            }
            assert_eq!(asked, served, "{application}, {place}");
            let fewest = if application == "B-tree" { 5.0 } else { 40.0 };
            assert!(asked.is_sorted() && asked.iter().all(|asked| *asked >= fewest), "{application}: {asked:?}");
        }
    }
    let over_gluster = 2 * 2 * gluster;
    assert_eq!(findings.ratios.iter().filter(|ratio| ratio.claim.is_some()).count(), 13 * 2 * 3 + over_gluster);
}
