//! `verbena traces` as its users see it: options in, files out.

use std::hash::Hasher;
use std::path::{Path, PathBuf};

use clap::Parser;
use siphasher::sip::SipHasher13;
use verbena_bench::traces::{self, TraceError, TracesArgs, Written};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    traces: TracesArgs,
}

fn traces(arguments: &[&str], out: &Path) -> Result<Written, TraceError> {
    let out = out.to_str().unwrap();
    let arguments = ["traces"].into_iter().chain(arguments.iter().copied()).chain(["--out", out]);
    traces::run(&Command::try_parse_from(arguments).unwrap().traces)
}

fn hash(path: &Path) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(&std::fs::read(path).unwrap());
    format!("{:016x}", hasher.finish())
}

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

#[test]
fn a_seed_gives_the_same_bytes_for_ever() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("trace.csv");
    let golden = [
        (&["zipf", "--seed", "7", "--requests", "20000"][..], "e909fd601335800d"),
        (&["zipf", "--seed", "8", "--requests", "20000"][..], "ae81d882c0577272"),
        (&["zipf", "--alpha", "1", "--size", "uniform:200:1000000", "--objects", "20"][..], "82d6847540d5a9f1"),
        (&["updates", "--seed", "7", "--rate", "3.5"][..], "8c8f7477e8b0f6bc"),
    ];
    let found = golden.map(|(arguments, _)| {
        assert!(traces(arguments, &out).unwrap().records >= 10_000);
        (arguments, hash(&out))
    });
    assert_eq!(found.each_ref().map(|(arguments, hash)| (*arguments, hash.as_str())), golden);
}

#[test]
fn a_generated_trace_is_read_back_to_the_same_bytes() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first.csv"), folder.path().join("second.csv"));
    traces(&["zipf", "--requests", "3000"], &first).unwrap();
    let written = traces(&["keys", first.to_str().unwrap()], &second).unwrap();
    assert_eq!(written, Written { records: 3_000, skipped: 0 });
    let text = std::fs::read_to_string(&second).unwrap();
    assert_eq!(text.lines().next(), Some("time_s,key,size_bytes"));
    // Times count from the first request's; keys and sizes are as they were.
    let tails = |path| -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split_once(',').unwrap().1.to_owned()).collect()
    };
    assert_eq!(tails(&first), tails(&second));
}

#[test]
fn the_real_key_trace_is_read() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("keys.csv");
    let trace = testdata("twitter_cluster52_200k.csv.gz");
    let written = traces(&["keys", trace.to_str().unwrap()], &out).unwrap();
    assert_eq!(written, Written { records: 200_000, skipped: 0 });
    let written = traces(&["keys", trace.to_str().unwrap(), "--first", "2"], &out).unwrap();
    assert_eq!(written.records, 2);
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(text, "time_s,key,size_bytes\n0,13053225291711363978,737\n0,61177148907475485,248\n");
}

#[test]
fn logs_become_csv() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let (log, out) = (folder.path().join("access.log"), folder.path().join("out.csv"));
    std::fs::write(
        &log,
        "h - - [10/Oct/2000:13:55:36 -0700] \"GET /a,b HTTP/1.0\" 200 17\n\
         h - - [10/Oct/2000:13:55:39 -0700] \"-\" 408 -\n",
    )
    .unwrap();
    assert_eq!(traces(&["clf", log.to_str().unwrap()], &out).unwrap(), Written { records: 1, skipped: 1 });
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "time_s,key,size_bytes\n0,\"/a,b\",17\n");

    let records: Vec<u8> = [893_964_001u32, 1, 4, 985, 0x0002_0103, 893_964_002, 1, 5, 7, 0x0002_0103]
        .into_iter()
        .flat_map(u32::to_be_bytes)
        .collect();
    std::fs::write(&log, records).unwrap();
    assert_eq!(traces(&["worldcup98", log.to_str().unwrap()], &out).unwrap().records, 2);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "time_s,key,size_bytes\n0,4,985\n1,5,7\n");
}

#[test]
fn malformed_input_leaves_nothing_behind() {
    let _turn = crate::turn();
    let folder = tempfile::tempdir().unwrap();
    let (log, out) = (folder.path().join("log"), folder.path().join("out.csv"));
    let good = "time_s,key,size_bytes\n".to_owned() + &"1,a,2\n".repeat(50_000);
    for (law, content, place) in [
        ("keys", good.clone() + "1,a\n", "line 50002, column 4"),
        ("clf", "h - - [10/Oct/2000:13:55:36 -0700] \"GET / HTTP/1.0\" 200 1\noops\n".to_owned(), "line 2, column 5"),
        ("worldcup98", "x".repeat(47), "byte 40"),
    ] {
        std::fs::write(&log, content).unwrap();
        let refusal = traces(&[law, log.to_str().unwrap()], &out).unwrap_err().to_string();
        assert!(refusal.contains(place) && refusal.contains("log"), "{law}: {refusal}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["log"], "{law}");
    }

    // What stood there before stays.
    std::fs::write(&out, "older").unwrap();
    std::fs::write(&log, "").unwrap();
    assert!(traces(&["keys", log.to_str().unwrap()], &out).is_err());
    assert!(traces(&["zipf", "--alpha", "30"], &out).is_err());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "older");
}
