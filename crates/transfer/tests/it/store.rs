//! The store on real files: one writer, what a hostile sender names, what is left of an earlier session.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use verbena_transfer::{Basis, Entry, EntryKind, Failure, Identity, Root, Store, VirtualPath};

fn store(root: &Path) -> Store {
    Store::new(Arc::new(Root::open(root).unwrap()), VirtualPath::root().join(b"in").unwrap(), 1024, true)
}

fn entry(path: &[u8]) -> Entry {
    Entry { path: path.to_vec(), kind: EntryKind::File, mode: 0o644 }
}

fn identity(size: u64) -> Identity {
    Identity { size, ..Identity::default() }
}

#[test]
fn who_takes_a_part_over_is_its_only_writer() {
    let root = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (store(root.path()), store(root.path()));
    assert_eq!(one.prepare(1, &entry(b"a"), &identity(2048)), Ok(Basis::Part(vec![])));
    let hash = one.write(1, 0, &[1; 1024], false).unwrap();
    one.record(1, &identity(2048), &[Some(hash), None]);
    assert_eq!(other.prepare(1, &entry(b"a"), &identity(2048)), Ok(Basis::Part(vec![(0, hash)])));
    // The block of the session before, late.
    assert_eq!(one.write(1, 0, &[9; 1024], false), Err(Failure::TakenOver));
    one.record(1, &identity(2048), &[None, None]);
    assert_eq!(one.publish(1, &identity(2048)), Err(Failure::TakenOver));
    assert_eq!(other.verify(1, 0, 1024, false), Some(hash));
    other.write(1, 1024, &[2; 1024], false).unwrap();
    other.publish(1, &identity(2048)).unwrap();
    assert_eq!(one.write(1, 0, &[9; 1024], false), Err(Failure::TakenOver));
    let content = std::fs::read(root.path().join("in/a")).unwrap();
    assert_eq!(content, [[1; 1024], [2; 1024]].concat());
    let left: Vec<_> = std::fs::read_dir(root.path().join("in")).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// A session that was killed before it had made its part, or once that was in its place, leaves its record alone.
#[test]
fn a_record_that_is_alone_goes_with_the_next_session() {
    let root = tempfile::tempdir().unwrap();
    let names = || -> Vec<_> {
        let entries = std::fs::read_dir(root.path().join("in")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    for stands in [false, true] {
        let mut killed = store(root.path());
        assert_eq!(killed.prepare(1, &entry(b"a"), &identity(3)).unwrap() == Basis::Target(3), stands);
        if stands {
            killed.copy_target(1).unwrap();
        }
        std::mem::forget(killed);
        let part = names().into_iter().find(|name| name.ends_with(".part")).unwrap();
        std::fs::remove_file(root.path().join("in").join(part)).unwrap();
        assert!(names().iter().any(|name| name.ends_with(".record")));
        let mut next = store(root.path());
        assert_eq!(next.prepare(1, &entry(b"a"), &identity(3)).unwrap() == Basis::Target(3), stands);
        if !stands {
            next.write(1, 0, b"abc", true).unwrap();
        }
        next.publish(1, &identity(3)).unwrap();
        drop(next);
        assert_eq!(
            (names(), std::fs::read(root.path().join("in/a")).unwrap()),
            (vec!["a".to_owned()], b"abc".to_vec())
        );
    }
}

/// A writer that is stopped within its system call holds the lock for ever; the next session goes on in a copy.
#[test]
fn a_writer_that_does_not_let_go_blocks_nobody() {
    let root = tempfile::tempdir().unwrap();
    let (mut one, mut other) = (store(root.path()), store(root.path()));
    one.prepare(1, &entry(b"a"), &identity(1024)).unwrap();
    let hash = one.write(1, 0, &[1; 1024], true).unwrap();
    one.record(1, &identity(1024), &[Some(hash)]);
    let part = std::fs::read_dir(root.path().join("in")).unwrap().map(|entry| entry.unwrap().path());
    let part = part.into_iter().find(|path| path.extension().is_some_and(|end| end == "part")).unwrap();
    let held = std::fs::File::open(part).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockShared).unwrap();
    assert_eq!(other.prepare(1, &entry(b"a"), &identity(1024)), Ok(Basis::Part(vec![(0, hash)])));
    assert_eq!(other.verify(1, 0, 1024, true), Some(hash));
    assert_eq!(one.write(1, 0, &[9; 1024], true), Err(Failure::TakenOver));
    other.publish(1, &identity(1024)).unwrap();
    assert_eq!(std::fs::read(root.path().join("in/a")).unwrap(), [1; 1024]);
}

#[test]
fn no_name_of_a_sender_leads_out() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("in")).unwrap();
    std::fs::write(directory.path().join("secret"), "secret").unwrap();
    let mut store = store(&root);
    for (number, path) in
        [&b"../a"[..], b"a/../../b", b"/a/../../../c", b"a//b", b".", b"a\0b", b".~verbena.0000000000000000.record"]
            .iter()
            .enumerate()
    {
        assert!(store.prepare(number as u32, &entry(path), &identity(1)).is_err(), "{path:?}");
    }
    // A link that becomes a directory.
    let link = Entry { path: b"out".to_vec(), kind: EntryKind::Link(b"../..".to_vec()), mode: 0 };
    assert_eq!(store.prepare(10, &link, &identity(0)), Ok(Basis::Done));
    assert!(store.prepare(11, &entry(b"out/planted"), &identity(1)).is_err());
    // A link in the place of a file is replaced, not followed.
    symlink("../../secret", root.join("in/file")).unwrap();
    store.prepare(12, &entry(b"file"), &identity(3)).unwrap();
    store.write(12, 0, b"new", true).unwrap();
    store.publish(12, &identity(3)).unwrap();
    assert_eq!(std::fs::read(directory.path().join("secret")).unwrap(), b"secret");
    assert_eq!(std::fs::read(root.join("in/file")).unwrap(), b"new");
    assert!(!directory.path().join("planted").exists());
}
