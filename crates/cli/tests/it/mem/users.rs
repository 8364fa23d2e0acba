//! Nodes of one cluster that different users run: a helper takes programs of its own user alone, and what these own is no other's.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_res_gid, set_thread_res_uid};
use verbena_client::wire::LockMode;
use verbena_client::{Error, Failure, Memory, Socket};
use verbena_testkit::nodes::{Cluster, are_in};

use super::commands::{ended, good, json, mem, said};
use super::{connect, why};

/// Whoever runs node `c`. He is in no file of the system.
const STRANGER: u32 = 54_321;

/// What the other user has: a copy of the program, for where it was built he may not look, and directories.
struct Stranger(PathBuf);

impl Stranger {
    fn at(cluster: &Cluster) -> Stranger {
        let own = cluster.path().join("stranger");
        std::fs::set_permissions(cluster.path(), Permissions::from_mode(0o755)).unwrap();
        for directory in [&own, &cluster.path().join("state-c")] {
            std::fs::create_dir(directory).unwrap();
            chown(directory, Some(STRANGER), Some(STRANGER)).unwrap();
        }
        std::fs::copy(env!("CARGO_BIN_EXE_verbena"), cluster.path().join("verbena")).unwrap();
        Stranger(own)
    }

    /// Has a command run by him, where his node is met.
    fn changes(&self, command: &mut Command) {
        command.arg("--node-runtime").arg(self.0.join("run")).uid(STRANGER).gid(STRANGER);
    }

    fn mem(&self, cluster: &Cluster, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(cluster.path().join("verbena"));
        command.arg("mem").args(arguments).args(["--cluster-name", "c"]).current_dir(cluster.path());
        self.changes(&mut command);
        ended(command, input)
    }

    /// What becomes of a segment's lock that he asks for, in a program of his.
    fn locks(&self, name: &str) -> Result<(), Error> {
        self.does(|memory| {
            let hold = memory.lock(name, LockMode::Shared, Some(Duration::from_secs(10)))?;
            memory.unlock(hold)
        })
    }

    fn does(&self, what: impl FnOnce(&mut Memory) -> Result<(), Error> + Send) -> Result<(), Error> {
        let in_his_name = || {
            // Of this thread alone, and the kernel says of a connection whose the thread is that makes it.
            let (uid, gid) = (Uid::from_raw(STRANGER), Gid::from_raw(STRANGER));
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
            let socket = Socket::new(Some(&self.0.join("run")), Some("c")).unwrap();
            what(&mut Memory::connect(&socket, Duration::from_secs(10)).unwrap())
        };
        std::thread::scope(|scope| scope.spawn(in_his_name).join().unwrap())
    }

    fn said(&self, cluster: &Cluster, arguments: &[&str], input: &[u8]) -> String {
        good(self.mem(cluster, arguments, input), arguments)
    }
}

fn is_refused(output: &Output, owner: u32, what: &str) {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && output.stdout.is_empty(), "{what}: {output:?}");
    assert!(complaint.contains(&format!("belongs to user {owner}")), "{what}: {complaint}");
}

fn is_not_to_be_locked(asked: Result<(), Error>, owner: u32) {
    match asked {
        Err(Error::Memory { why: Failure::NotYours, text }) => {
            assert!(text.ends_with(&format!("belongs to user {owner}")), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_another_user_owns_is_not_to_be_had() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: only root can become another user");
    }
    let cluster = Cluster::on_tcp("2s");
    let stranger = Stranger::at(&cluster);
    let nodes = ["a", "b"].map(|name| cluster.start(name));
    let _third = cluster.start_changed("c", |command| {
        let mut his = Command::new(cluster.path().join("verbena"));
        his.args(command.get_args()).current_dir(cluster.path());
        *command = his;
        stranger.changes(command);
    });
    for node in &nodes {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    // At a home that he runs too: whose a segment is decides, and not where it is.
    for (name, home) in [("at-ours", "b"), ("at-his", "c")] {
        said(&cluster, "a", &["put", name, "--new", "--placement", home], b"ours");
        let before = json(&cluster, "a", &["stat", name]);
        assert_eq!((&before["home"], &before["bytes"]), (&home.into(), &4.into()));
        let tried: [(&[&str], &[u8]); 4] = [
            (&["get", name], b""),
            (&["put", name], b"his!"),
            (&["put", name, "--offset", "1"], b"!"),
            (&["rm", name], b""),
        ];
        for (arguments, input) in tried {
            is_refused(&stranger.mem(&cluster, arguments, input), 0, &format!("{arguments:?}"));
        }
        is_not_to_be_locked(stranger.locks(name), 0);
        assert_eq!(json(&cluster, "a", &["stat", name]), before);
        assert_eq!(said(&cluster, "b", &["get", name], b""), "ours");
    }
    // The other way round, root or not.
    stranger.said(&cluster, &["put", "his", "--new", "--placement", "a"], b"his");
    assert_eq!(stranger.said(&cluster, &["get", "his"], b""), "his");
    for arguments in [&["get", "his"][..], &["rm", "his"]] {
        is_refused(&mem(&cluster, "a", arguments, b""), STRANGER, &format!("{arguments:?}"));
    }
    assert_eq!(stranger.said(&cluster, &["get", "his"], b""), "his");
    // What runs at his own node he reads in place, but for what is others'.
    let owns = |name: &str| stranger.does(|memory| memory.window(name).map(drop));
    assert_eq!(why(owns("at-his")), Failure::NotYours);
    stranger.said(&cluster, &["put", "his-here", "--new", "--placement", "c"], b"his");
    owns("his-here").unwrap();
    assert_eq!(why(owns("his")), Failure::Elsewhere);
    stranger.said(&cluster, &["rm", "his-here"], b"");
    let mut ours = connect(&cluster, "a");
    let [his, our] = ["his", "at-his"].map(|name| ours.stat(name).unwrap());
    assert_eq!((his.is_yours, our.is_yours), (false, true));
    is_not_to_be_locked(ours.lock(his.id, LockMode::Shared, None).map(drop), STRANGER);
    stranger.locks("his").unwrap();
    stranger.said(&cluster, &["rm", "his"], b"");
}
