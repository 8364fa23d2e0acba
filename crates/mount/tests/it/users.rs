//! A mount for all users: each operation is the caller's.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::setup::Pair;

/// What a shell says as another user, and whether it succeeded.
fn as_user(uid: u32, at: &Path, script: &str) -> (bool, String) {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", &format!("umask 027; {script}")]).current_dir("/").env("D", at).uid(uid).gid(uid);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).replace(at.to_str().unwrap(), "D"))
}

#[test]
fn each_user_may_do_what_it_may_do_below() {
    let Some(pair) = Pair::new(|options| options.allow_other = true) else { return };
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    // The temporary directory itself is its owner's alone.
    mode(pair.slow.parent().unwrap(), 0o755);
    mode(&pair.slow, 0o755);
    for name in ["by-mount", "beside"] {
        let folder = pair.slow.join(name);
        fs::create_dir_all(folder.join("closed")).unwrap();
        fs::write(folder.join("closed/secret"), b"s").unwrap();
        fs::write(folder.join("readable"), b"r").unwrap();
        mode(&folder, 0o1777);
        mode(&folder.join("closed"), 0o700);
        mode(&folder.join("readable"), 0o644);
    }
    let scripts = [
        (1234, "echo own > $D/own && mkdir $D/owndir && ln -s x $D/ownlink && mkfifo $D/ownfifo"),
        (1234, "cat $D/readable"),
        (1234, "echo x >> $D/readable"),
        (1234, "cat $D/closed/secret"),
        (1234, "ls $D/closed"),
        (1234, "rm -f $D/readable"),
        (1234, "chmod 600 $D/readable"),
        (4321, "cat $D/own"),
        (4321, "rm -f $D/own"),
        (4321, "mv $D/own $D/other"),
        (4321, "touch $D/owndir/x"),
        (1234, "chmod 4755 $D/own && ln $D/own $D/own2 && test -w $D/own && test ! -w $D/readable"),
        (1234, "mv $D/own2 $D/owndir/moved && ls $D/owndir"),
    ];
    for (uid, script) in scripts {
        let ours = as_user(uid, &pair.fast.join("by-mount"), script);
        let theirs = as_user(uid, &pair.slow.join("beside"), script);
        assert_eq!(ours, theirs, "{uid}: {script}");
    }
    for name in ["own", "owndir", "ownfifo", "readable"] {
        let told = |folder: &str| {
            let told = fs::symlink_metadata(pair.slow.join(folder).join(name)).unwrap();
            (told.uid(), told.gid(), told.mode(), told.nlink())
        };
        assert_eq!(told("by-mount"), told("beside"), "{name}");
    }
    // What root does on the same threads afterwards is done as root.
    fs::write(pair.fast.join("by-mount/roots"), b"x").unwrap();
    assert_eq!(fs::metadata(pair.slow.join("by-mount/roots")).unwrap().uid(), 0);
}
