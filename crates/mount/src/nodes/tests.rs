//! Files of a temporary directory, as names alone and as descriptors.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;

fn nodes(root: &Path) -> Nodes {
    Nodes::new(crate::below::hold(root).unwrap(), Naming::Birth).unwrap()
}

fn key(path: &Path) -> NodeKey {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
    NodeKey::of(&fd, &fstat(&fd).unwrap(), true)
}

fn named(nodes: &Nodes, parent: &Arc<Node>, root: &Path, path: &str, kind: FileType) -> Arc<Node> {
    let path = root.join(path);
    nodes.name(parent, path.file_name().unwrap(), NamedBy::Number(key(&path)), kind).unwrap()
}

#[test]
fn a_file_known_by_names_alone_is_held_when_it_is_needed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/f"), b"text").unwrap();
    let nodes = nodes(root);
    let top = nodes.node(ROOT).unwrap();
    let a = named(&nodes, &top, root, "a", FileType::Directory);
    let b = named(&nodes, &a, root, "a/b", FileType::Directory);
    let f = named(&nodes, &b, root, "a/b/f", FileType::RegularFile);
    assert!(![&a, &b, &f].iter().any(|node| node.is_held()));
    assert_eq!((f.id, nodes.len()), (key(&root.join("a/b/f")).number, 4));
    assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
    assert!([&a, &b, &f].iter().all(|node| node.is_held()));
    // It lives on without its name, and is the same node by whatever way it is looked up.
    fs::rename(root.join("a/b/f"), root.join("g")).unwrap();
    assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
    assert!(Arc::ptr_eq(&f, &nodes.look_up(&top, OsStr::new("g")).unwrap().0));
    nodes.forget(f.id, 2);
    nodes.forget(b.id, 1);
    assert_eq!(nodes.len(), 2);
    assert!(nodes.found(f.key().unwrap(), None).is_none());
}

#[test]
fn another_file_of_the_name_is_not_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    for name in ["replaced", "gone", "moved"] {
        fs::write(root.join(name), b"old").unwrap();
    }
    let nodes = nodes(root);
    let top = nodes.node(ROOT).unwrap();
    let [replaced, gone, moved] =
        ["replaced", "gone", "moved"].map(|name| named(&nodes, &top, root, name, FileType::RegularFile));
    assert_eq!(top.state.names_since(), None);
    fs::write(root.join("new"), b"new").unwrap();
    fs::rename(root.join("new"), root.join("replaced")).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    fs::rename(root.join("moved"), root.join("elsewhere")).unwrap();
    for node in [&replaced, &gone, &moved] {
        assert_eq!(node.fd().unwrap_err(), Errno::STALE);
    }
    assert!(top.state.names_since().is_some(), "the names of the directory are not believed any more");
    // What moved is the same file where it is found.
    assert!(Arc::ptr_eq(&moved, &nodes.look_up(&top, OsStr::new("elsewhere")).unwrap().0));
    assert_eq!(fs::read(moved.path().unwrap()).unwrap(), b"old");
    assert!(!Arc::ptr_eq(&replaced, &nodes.look_up(&top, OsStr::new("replaced")).unwrap().0));
}

#[test]
fn a_file_is_held_before_its_name_goes() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("f"), b"text").unwrap();
    let nodes = nodes(root);
    let top = nodes.node(ROOT).unwrap();
    let f = named(&nodes, &top, root, "f", FileType::RegularFile);
    assert_eq!(nodes.hold(&top, OsStr::new("f")).unwrap(), (f.key().unwrap(), FileType::RegularFile));
    fs::remove_file(root.join("f")).unwrap();
    assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
    assert_eq!(fstat(f.fd().unwrap()).unwrap().st_nlink, 0);
}

#[test]
fn a_number_that_was_given_to_a_file_of_another_kind_is_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("d")).unwrap();
    let nodes = nodes(root);
    let top = nodes.node(ROOT).unwrap();
    let old = named(&nodes, &top, root, "d", FileType::RegularFile);
    assert_eq!(old.fd().unwrap_err(), Errno::STALE);
    let (new, _) = nodes.look_up(&top, OsStr::new("d")).unwrap();
    assert!(new.id != old.id && new.key() == old.key());
    nodes.forget(old.id, 1);
    assert!(Arc::ptr_eq(&new, &nodes.found(new.key().unwrap(), None).unwrap()));
}

#[test]
fn a_file_that_is_its_path_is_known_by_its_path_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("d")).unwrap();
    for name in ["d/f", "d/g"] {
        fs::write(root.join(name), b"text").unwrap();
    }
    let nodes = Nodes::new(crate::below::hold(root).unwrap(), Naming::Path).unwrap();
    let top = nodes.node(ROOT).unwrap();
    let version = |path: &str| {
        let told = root.join(path).symlink_metadata().unwrap();
        NamedBy::Path(((told.mtime(), told.mtime_nsec() as u32), told.len()))
    };
    let d = nodes.name(&top, OsStr::new("d"), version("d"), FileType::Directory).unwrap();
    let [f, g] = ["f", "g"].map(|name| {
        let version = version(&format!("d/{name}"));
        nodes.name(&d, OsStr::new(name), version, FileType::RegularFile).unwrap()
    });
    assert_eq!(f.path_inside(root).unwrap(), b"/d/f");
    assert!(f.key().is_none() && f.number(5) == f.id, "its number here is no other mount's");
    // The directory's times move, and it is itself; a file of another size is another one.
    fs::write(root.join("d/new"), b"").unwrap();
    fs::write(root.join("d/g"), b"longer").unwrap();
    assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
    assert_eq!(g.fd().unwrap_err(), Errno::STALE);
    assert!(d.is_held() && f.is_held() && f.path_inside(root).unwrap() == b"/d/f");
    // Looked up below, each is the node that the kernel knows by the name.
    let found = |name: &str| nodes.look_up(&d, OsStr::new(name)).unwrap().0;
    assert!(Arc::ptr_eq(&found("f"), &f) && Arc::ptr_eq(&found("g"), &g) && g.is_held());
    // What has the name afterwards is another file.
    nodes.moved((d.id, OsStr::new("f")), None, false);
    assert_eq!(f.place(), None);
    fs::rename(root.join("d/f"), root.join("d/h")).unwrap();
    fs::write(root.join("d/f"), b"other").unwrap();
    let other = found("f");
    assert!(!Arc::ptr_eq(&other, &f) && Arc::ptr_eq(&found("h"), &f));
    let again = nodes.name(&d, OsStr::new("f"), version("d/f"), FileType::RegularFile).unwrap();
    assert!(Arc::ptr_eq(&again, &other));
    nodes.forget(other.id, 2);
    assert!(nodes.known_by(&d, OsStr::new("f"), version("d/f")).is_none());
}

/// Nothing of a file system but the directory at the top: names that lead nowhere.
#[test]
fn no_more_files_than_a_stack_holds_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(folder.path());
    let mut deepest = nodes.node(ROOT).unwrap();
    let mut depth = 0;
    for number in 1_u64..100_000 {
        let by = NamedBy::Number(NodeKey { device: 1, number: number << 32, born: Some((1, 2)) });
        let Some(next) = nodes.name(&deepest, OsStr::new("d"), by, FileType::Directory) else { break };
        (deepest, depth) = (next, depth + 1);
    }
    assert_eq!((depth, nodes.len()), (Node::DEEPEST, Node::DEEPEST + 1));
    assert_eq!(deepest.fd().unwrap_err(), Errno::STALE);
}

#[test]
fn a_directory_that_moved_is_looked_up_where_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir_all(root.join("a")).unwrap();
    fs::create_dir(root.join("sub")).unwrap();
    let nodes = nodes(root);
    let top = nodes.node(ROOT).unwrap();
    let a = named(&nodes, &top, root, "a", FileType::Directory);
    let sub = named(&nodes, &top, root, "sub", FileType::Directory);
    fs::rename(root.join("a"), root.join("sub/a2")).unwrap();
    let by = NamedBy::Number(a.key().unwrap());
    assert!(nodes.name(&sub, OsStr::new("a2"), by, FileType::Directory).is_none(), "it is asked for below");
    assert!(Arc::ptr_eq(&nodes.look_up(&sub, OsStr::new("a2")).unwrap().0, &a) && a.is_held());
    assert!(nodes.name(&sub, OsStr::new("a2"), by, FileType::Directory).is_some());
}

#[test]
fn a_number_that_is_given_again_is_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::write(root.join("f"), b"text").unwrap();
    let nodes = nodes(root);
    let top = nodes.node(ROOT).unwrap();
    let key = key(&root.join("f"));
    assert!(key.born.is_some());
    let before = NodeKey { born: Some((1, 0)), ..key };
    let old = nodes.name(&top, OsStr::new("gone"), NamedBy::Number(before), FileType::RegularFile).unwrap();
    let (new, stat) = nodes.look_up(&top, OsStr::new("f")).unwrap();
    assert!(!Arc::ptr_eq(&old, &new) && new.id != old.id && !old.is_held());
    // Programs see one number of it for as long as it is known.
    assert_eq!((old.number(stat.st_ino), new.number(stat.st_ino)), (key.number, new.id));
    let again = nodes.name(&top, OsStr::new("f"), NamedBy::Number(before), FileType::RegularFile).unwrap();
    assert!(Arc::ptr_eq(&again, &old));
    assert_eq!(again.fd().unwrap_err(), Errno::STALE);
}

/// By this mount. What has the old name afterwards is another directory, whether the first was held or not.
#[test]
fn a_directory_that_is_its_path_and_was_renamed_is_not_what_has_its_old_name() {
    for (is_needed, is_held) in [(true, true), (false, true), (false, false)] {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("a")).unwrap();
        fs::write(root.join("a/x"), b"kept").unwrap();
        let nodes = Nodes::new(crate::below::hold(root).unwrap(), Naming::Path).unwrap();
        let top = nodes.node(ROOT).unwrap();
        let name =
            |name: &str| nodes.name(&top, OsStr::new(name), NamedBy::Path(((1, 0), 2)), FileType::Directory).unwrap();
        let a = name("a");
        assert!(!is_needed || a.fd().is_ok());
        if is_held {
            nodes.hold(&top, OsStr::new("a")).unwrap();
        }
        fs::rename(root.join("a"), root.join("b")).unwrap();
        nodes.moved((ROOT, OsStr::new("a")), Some((ROOT, OsStr::new("b"))), false);
        fs::create_dir(root.join("a")).unwrap();
        let new = name("a");
        assert!(!Arc::ptr_eq(&new, &a));
        assert_eq!(fs::read_dir(new.path().unwrap()).unwrap().count(), 0);
        assert_eq!(fs::read_dir(a.path().unwrap()).unwrap().count(), 1);
        // It is one node, by whatever way it is found.
        assert!(Arc::ptr_eq(&nodes.look_up(&top, OsStr::new("b")).unwrap().0, &a));
        // Exchanged, each has the other's name; and taken away, it is found nowhere.
        let c = name("c");
        nodes.moved((ROOT, OsStr::new("b")), Some((ROOT, OsStr::new("c"))), true);
        assert!(Arc::ptr_eq(&name("c"), &a) && Arc::ptr_eq(&name("b"), &c));
        nodes.moved((ROOT, OsStr::new("b")), None, false);
        fs::rename(root.join("b"), root.join("c")).unwrap();
        fs::create_dir(root.join("b")).unwrap();
        assert_eq!((c.fd().unwrap_err(), c.place()), (Errno::STALE, None));
    }
}
