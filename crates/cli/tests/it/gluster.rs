//! `verbena bank gluster`: a volume's files, with the command killed in between; and a volume of a real glusterd.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use verbena_testkit::programs::{self, output, verbena};

const CLIENT: &str = "volume v-client-0\n    type protocol/client\n    option ping-timeout 42\nend-volume\n\nvolume v-md-cache\n    type performance/md-cache\n    subvolumes v-client-0\nend-volume\n";
const BRICK: &str = "volume v-posix\n    type storage/posix\nend-volume\n\nvolume /b\n    type debug/io-stats\n    subvolumes v-posix\nend-volume\n\nvolume v-server\n    type protocol/server\n    subvolumes /b\nend-volume\n";

fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let place = entry.unwrap().path();
            if place.is_dir() {
                folders.push(place.clone());
            }
            found.insert(place.clone(), if place.is_dir() { vec![] } else { fs::read(place).unwrap() });
        }
    }
    found
}

#[test]
fn a_command_that_is_killed_leaves_nothing_that_disable_does_not_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let (state, library) = (folder.path().join("state"), folder.path().join("library"));
    let (volume, user) = (state.join("vols/v"), library.join("xlator/user"));
    [&volume, &user].into_iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    fs::write(volume.join("v.tcp-fuse.vol"), CLIENT).unwrap();
    fs::write(volume.join("v.h.b.vol"), BRICK).unwrap();
    let command = |what: &str| {
        let mut command = verbena(&["bank", "gluster", what, "v", "--state", state.to_str().unwrap()]);
        command.arg("--library").arg(&library);
        if what == "enable" {
            command.args(["--bank", "memcached://h:1,h:2"]);
        }
        command
    };
    let refused = command("enable").output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && text.contains("make -C adapters/gluster install"), "{text}");
    for name in ["cmcache.so", "smcache.so"] {
        fs::write(user.join(name), "").unwrap();
    }
    let plain = files(folder.path());

    let check = || -> Value { serde_json::from_str(&output(command("check").arg("--json"))).unwrap() };
    output(&mut command("enable"));
    let report = check();
    assert_eq!((&report["enabled"], &report["unfinished"]), (&Value::Bool(true), &Value::Bool(false)), "{report}");
    assert_eq!(report["loaded"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(report["above"][0]["translator"], "performance/md-cache", "{report}");
    let loaded = files(folder.path());
    // glusterd wrote a file anew, and runs the filter on it.
    let client = volume.join("v.tcp-fuse.vol");
    fs::write(&client, CLIENT).unwrap();
    assert_eq!(check()["unfinished"], true);
    output(Command::new(library.join("filter/verbena-bank")).arg(&client));
    assert_eq!(files(folder.path()), loaded);

    for turn in 0..4_u32 {
        for what in ["disable", "enable"] {
            let mut victim = command(what).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(u64::from(turn) * 4000));
            victim.kill().unwrap();
            victim.wait().unwrap();
            output(&mut command("disable"));
            assert_eq!(files(folder.path()), plain, "{what}, turn {turn}");
            assert_eq!(check()["loaded"], Value::Array(vec![]));
        }
        output(&mut command("enable"));
    }
}

/// In the long runs alone: glusterd in networks and directories of its own, twenty seconds.
#[test]
fn a_volume_of_glusterd_reads_from_the_bank_until_it_is_disabled() {
    let versions = fs::read_dir("/usr/lib/x86_64-linux-gnu/glusterfs").into_iter().flatten().flatten();
    let library = versions.map(|entry| entry.path()).find(|version| version.join("xlator").is_dir());
    let is_root = rustix::process::geteuid().is_root();
    let (Some(library), true, true) = (library, is_root, Path::new("/usr/include/glusterfs/xlator.h").exists()) else {
        println!("skipped: GlusterFS with its headers is not installed, or not root");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut script = Command::new("timeout");
    script.args(["300", "unshare", "-mnpf", "--propagation", "slave", "--mount-proc", "bash"]);
    script.arg(root.join("tests/gluster.sh")).arg(folder.path()).arg(programs::path("verbena"));
    script.arg(root.join("../../adapters/gluster")).arg(library);
    let run = script.output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success() && said.contains("\ndone\n"), "{said}");
    let counts = said.lines().find(|line| line.starts_with("counts hits=")).unwrap_or_else(|| panic!("{said}"));
    let hits: u64 = counts["counts hits=".len()..].split(' ').next().unwrap().parse().unwrap();
    assert!(hits >= 8, "{said}");
}
