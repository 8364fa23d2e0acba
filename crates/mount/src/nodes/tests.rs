//! Files of a temporary directory, as names alone and as descriptors.

use std::fs;
use std::path::Path;

use super::*;
use crate::below::has_births;

fn nodes(root: &Path) -> Nodes {
    Nodes::new(crate::below::hold(root).unwrap(), true).unwrap()
}

fn key(path: &Path) -> NodeKey {
    let fd = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
    NodeKey::of(&fd, &fstat(&fd).unwrap(), true)
}

fn named(nodes: &Nodes, parent: &Arc<Node>, root: &Path, path: &str, kind: FileType) -> Arc<Node> {
    let path = root.join(path);
    nodes.name(parent, path.file_name().unwrap(), key(&path), kind).unwrap()
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
    assert!(nodes.found(f.key).is_none());
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
    assert_eq!(nodes.hold(&top, OsStr::new("f")).unwrap(), f.key);
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
    assert!(new.id != old.id && new.key == old.key);
    nodes.forget(old.id, 1);
    assert!(Arc::ptr_eq(&new, &nodes.found(new.key).unwrap()));
}

/// Nothing of a file system but the directory at the top: names that lead nowhere.
#[test]
fn no_more_files_than_a_stack_holds_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = nodes(folder.path());
    let mut deepest = nodes.node(ROOT).unwrap();
    let mut depth = 0;
    for number in 1_u64..100_000 {
        let key = NodeKey { device: 1, number: number << 32, born: Some((1, 2)) };
        let Some(next) = nodes.name(&deepest, OsStr::new("d"), key, FileType::Directory) else { break };
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
    assert!(nodes.name(&sub, OsStr::new("a2"), a.key, FileType::Directory).is_none(), "it is asked for below");
    assert!(Arc::ptr_eq(&nodes.look_up(&sub, OsStr::new("a2")).unwrap().0, &a) && a.is_held());
    assert!(nodes.name(&sub, OsStr::new("a2"), a.key, FileType::Directory).is_some());
}

#[test]
fn a_number_that_is_given_again_is_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    if !has_births(root) {
        return;
    }
    fs::write(root.join("f"), b"text").unwrap();
    let nodes = nodes(root);
    let top = nodes.node(ROOT).unwrap();
    let key = key(&root.join("f"));
    assert!(key.born.is_some());
    let before = NodeKey { born: Some((1, 0)), ..key };
    let old = nodes.name(&top, OsStr::new("gone"), before, FileType::RegularFile).unwrap();
    let (new, stat) = nodes.look_up(&top, OsStr::new("f")).unwrap();
    assert!(!Arc::ptr_eq(&old, &new) && new.id != old.id && !old.is_held());
    // Programs see one number of it for as long as it is known.
    assert_eq!((old.number(stat.st_ino), new.number(stat.st_ino)), (key.number, new.id));
    let again = nodes.name(&top, OsStr::new("f"), before, FileType::RegularFile).unwrap();
    assert!(Arc::ptr_eq(&again, &old));
    assert_eq!(again.fd().unwrap_err(), Errno::STALE);
}
