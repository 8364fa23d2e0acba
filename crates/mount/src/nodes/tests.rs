//! Files of a temporary directory, as names alone and as descriptors.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;

fn nodes(root: &Path) -> Nodes {
    Nodes::new(crate::below::hold(root).unwrap(), false).unwrap()
}

fn key(path: &Path) -> (u64, u64) {
    let told = path.symlink_metadata().unwrap();
    (told.dev(), told.ino())
}

fn named(nodes: &Nodes, parent: &Arc<Node>, root: &Path, path: &str, kind: FileType) -> Arc<Node> {
    let path = root.join(path);
    let (device, number) = key(&path);
    nodes.name(parent, path.file_name().unwrap(), NamedBy::Number(device, number), kind)
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
    assert_eq!((f.id, nodes.len()), (key(&root.join("a/b/f")).1, 4));
    assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
    assert!([&a, &b, &f].iter().all(|node| node.is_held()));
    // It lives on without its name, and is the same node by whatever way it is looked up.
    fs::rename(root.join("a/b/f"), root.join("g")).unwrap();
    assert_eq!(fs::read(f.path().unwrap()).unwrap(), b"text");
    assert!(Arc::ptr_eq(&f, &nodes.look_up(&top, OsStr::new("g")).unwrap().0));
    nodes.forget(f.id, 2);
    nodes.forget(b.id, 1);
    assert_eq!(nodes.len(), 2);
    let (device, number) = f.key().unwrap();
    assert!(nodes.known(device, number).is_none());
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
    assert_eq!(top.state.names_since(), 0);
    fs::write(root.join("new"), b"new").unwrap();
    fs::rename(root.join("new"), root.join("replaced")).unwrap();
    fs::remove_file(root.join("gone")).unwrap();
    fs::rename(root.join("moved"), root.join("elsewhere")).unwrap();
    for node in [&replaced, &gone, &moved] {
        assert_eq!(node.fd().unwrap_err(), Errno::STALE);
    }
    assert!(top.state.names_since() > 0, "the names of the directory are not believed any more");
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
    assert!(Arc::ptr_eq(&new, &nodes.known(new.key().unwrap().0, new.key().unwrap().1).unwrap()));
}

#[test]
fn a_file_that_is_its_path_is_known_by_its_path_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    fs::create_dir(root.join("d")).unwrap();
    for name in ["d/f", "d/g"] {
        fs::write(root.join(name), b"text").unwrap();
    }
    let nodes = Nodes::new(crate::below::hold(root).unwrap(), true).unwrap();
    let top = nodes.node(ROOT).unwrap();
    let version = |path: &str| {
        let told = root.join(path).symlink_metadata().unwrap();
        NamedBy::Path(((told.mtime(), told.mtime_nsec() as u32), told.len()))
    };
    let d = nodes.name(&top, OsStr::new("d"), version("d"), FileType::Directory);
    let [f, g] = ["f", "g"].map(|name| {
        let version = version(&format!("d/{name}"));
        nodes.name(&d, OsStr::new(name), version, FileType::RegularFile)
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
    nodes.moved(f.key().unwrap(), None);
    assert_eq!(f.place(), None);
    fs::rename(root.join("d/f"), root.join("d/h")).unwrap();
    fs::write(root.join("d/f"), b"other").unwrap();
    let other = found("f");
    assert!(!Arc::ptr_eq(&other, &f) && Arc::ptr_eq(&found("h"), &f));
    let again = nodes.name(&d, OsStr::new("f"), version("d/f"), FileType::RegularFile);
    assert!(Arc::ptr_eq(&again, &other));
    nodes.forget(other.id, 2);
    assert!(nodes.known_by(&d, OsStr::new("f"), version("d/f")).is_none());
}
