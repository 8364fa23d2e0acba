//! What is refused before anything is mounted, and how a mount is asked, checked, replaced and taken away.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use verbena_bank::Kind;
use verbena_client::Socket;
use verbena_mount::{Identity, MountOptions, check, mount, status, umount};

use crate::setup::Pair;

fn refusal(options: &MountOptions) -> String {
    match mount(options) {
        Ok(_) => panic!("it mounted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn bad_input_is_refused_by_name_and_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let (slow, fast) = (folder.path().join("slow"), folder.path().join("fast"));
    for path in [slow.join("inner"), fast.clone()] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(folder.path().join("file"), b"x").unwrap();
    let options = MountOptions::new(&slow, &fast);
    let with = |change: &dyn Fn(&mut MountOptions)| {
        let mut options = options.clone();
        change(&mut options);
        refusal(&options)
    };
    assert!(with(&|o| o.at = slow.join("inner")).contains("is inside"));
    assert!(with(&|o| o.below = fast.clone()).contains("is inside"));
    assert!(with(&|o| o.at = folder.path().to_owned()).contains("is inside"));
    assert!(with(&|o| o.below = folder.path().join("none")).contains("the directory below must be a directory"));
    assert!(with(&|o| o.at = folder.path().join("file")).contains("is no directory"));
    assert!(with(&|o| o.at = "/proc".into()).contains("mount of kind proc already"));
    assert!(with(&|o| o.encrypt = true).contains("--bank none has no blocks"));
    assert!(with(&|o| o.near = 64 << 20).contains("not with --bank none"));
    let near = |o: &mut MountOptions| (o.bank, o.near) = ("memcached:///no/such.sock".parse().unwrap(), 400_000);
    assert!(with(&near).contains("at least eight blocks of 65536"));
    let memory = |bytes| with(&|o| o.bank = Kind::Memory(bytes));
    assert!(memory(64 << 20).contains("needs the socket of a helper"));
    let helper = Socket::new(Some(folder.path()), None).unwrap();
    let small = |o: &mut MountOptions| (o.bank, o.helpers) = (Kind::Memory(1000), vec![helper.clone()]);
    assert!(with(&small).contains("no room for a block"));
    let secret = folder.path().join("secret");
    fs::write(&secret, "zz").unwrap();
    let secretly = |o: &mut MountOptions| {
        o.bank = "memcached:///no/such.sock".parse().unwrap();
        o.secret = Some(secret.clone());
    };
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(with(&secretly).contains("chmod 600"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(with(&secretly).contains("64 hexadecimal digits"));
    assert!(umount(&fast, false).unwrap_err().to_string().contains("no Verbena mount"));
    assert!(status(&fast).is_err());
}

#[test]
fn a_mount_answers_for_itself_and_stands_alone() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    assert!(status(&pair.fast).unwrap().contains("known_files "));
    let again = MountOptions::new(&pair.slow, &pair.fast);
    assert!(refusal(&again).contains("mount of kind fuse.verbena already"));
    let other = tempfile::tempdir().unwrap();
    assert!(refusal(&MountOptions::new(&pair.fast, other.path())).contains("is a Verbena mount itself"));
    umount(&pair.fast, false).unwrap();
    assert!(status(&pair.fast).is_err());
}

#[test]
fn a_check_measures_times_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let below = check(folder.path()).unwrap();
    assert!(below.measured && below.clocks.has_changed && below.clocks.grain > 0);
    if below.kind == "ext4" || below.kind == "tmpfs" {
        assert_eq!(below.identity, Identity::Number);
        assert_eq!(below.weaknesses(), Vec::<String>::new());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
