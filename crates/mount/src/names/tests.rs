//! What a mount says of names, over a temporary directory and a bank that does not answer.

use std::path::Path;
use std::time::SystemTime;

use verbena_bank::{Bank, Memcached, Options, Placement, Secret};

use super::*;
use crate::below::has_births;
use crate::cache::Cache;
use crate::caller::{Caller, Identities};
use crate::files::Files;
use crate::handles::{DirectoryNames, Handle};
use crate::lookups::NameLookup;
use crate::nodes::ROOT;

fn cache(below: Below) -> Cache {
    let daemons = "memcached://127.0.0.1:1".parse().unwrap();
    let verbena_bank::Kind::Memcached(daemons) = daemons else { panic!("no daemons") };
    let bank = Bank::Memcached(Memcached::new(daemons, Options::default()).unwrap(), Placement::default());
    let blocks = Blocks::new(Secret::new([7; 32]), bank, Rules::default());
    Cache::new(Arc::new(blocks), BlockSize::default(), below, Rules::default()).unwrap()
}

const CALLER: Caller = Caller { uid: 0, gid: 0, pid: 0 };

/// Nothing where files have no births; says so.
fn files(root: &Path) -> Option<Files> {
    if !has_births(root) {
        return None;
    }
    let cache = cache(Below::look(root).unwrap());
    let names = cache.names(Promise::Age(Duration::from_secs(3600)));
    assert!(names.is_some());
    Some(Files::new(crate::below::hold(root).unwrap(), Identities::Own, Some(cache), names, true).unwrap())
}

#[test]
fn names_are_said_where_files_have_births_and_not_of_sealed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let below = Below::look(folder.path()).unwrap();
    let are_said = |has_births: bool, has_changed: bool| {
        let clocks = Clocks { has_changed, ..below.clocks };
        let cache = cache(Below { has_births, clocks, ..below.clone() });
        [Promise::Open, Promise::Sealed, Promise::Age(Duration::from_secs(1))]
            .map(|promise| cache.names(promise).is_some())
    };
    assert_eq!(are_said(true, true), [true, false, true]);
    assert_eq!(are_said(true, false), [false, false, true], "a directory's times can be set back");
    assert_eq!(are_said(false, true), [false; 3], "a name alone tells no file from the next");
}

#[test]
fn what_a_mount_makes_counts_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let Some(files) = files(folder.path()) else { return };
    let names = files.names.as_ref().unwrap();
    let before = Arrival::now().since_start();
    let made = files.make_directory(CALLER, ROOT, OsStr::new("d"), 0o755).unwrap();
    for id in [ROOT, made.id] {
        assert!(names.since(&files.nodes.node(id).unwrap()).unwrap() >= before, "{id}");
    }
}

#[test]
fn a_directory_is_kept_that_did_not_change_since_a_moment_before_it_was_listed() {
    let folder = tempfile::tempdir().unwrap();
    let pause = || std::thread::sleep(Duration::from_millis(50));
    pause();
    let Some(files) = files(folder.path()) else { return };
    let (names, node) = (files.names.as_ref().unwrap(), files.nodes.node(ROOT).unwrap());
    let look = || rustix::fs::fstat(node.fd().unwrap()).ok();
    let collect = || {
        let directory = node.open(rustix::fs::OFlags::RDONLY).unwrap();
        names.collect(Arrival::now(), &node, (&directory, &look().unwrap()), || Some(vec![]))
    };
    pause();
    // Another change could have the same time: it is not over yet.
    let directory = std::fs::File::open(folder.path()).unwrap();
    directory.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    pause();
    assert!(collect().is_none());
    directory.set_modified(SystemTime::now()).unwrap();
    pause();
    let changed = collect().unwrap();
    std::fs::write(folder.path().join("f"), b"").unwrap();
    assert!(names.keep(&node, changed, look) && names.bytes() == 0);
    pause();
    assert!(names.keep(&node, collect().unwrap(), || None) && names.bytes() == 0, "it cannot be looked at");
    assert!(names.keep(&node, collect().unwrap(), look) && names.bytes() > 0);
    assert!(matches!(names.find(&node, OsStr::new("g")), NameAnswer::Missing(_)));
}

#[test]
fn an_open_directory_is_listed_below_if_what_is_known_of_it_is_too_old_by_then() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("new"), b"").unwrap();
    let Some(files) = files(folder.path()) else { return };
    let old = NameEntry {
        name: b"old".to_vec(),
        number: 1,
        born: None,
        kind: FileType::RegularFile.as_raw_mode(),
        attributes: None,
        target: None,
        extended: None,
    };
    let listed = |age: Duration| {
        let taken = Arrival::now().since_start() - Time::try_from(age.as_nanos()).unwrap();
        let mut from = DirectoryNames::default();
        from.known = Some(Arc::new(Listing::new(taken, None, vec![old.clone()])));
        let handle = files.handles.add(Handle::directory(files.nodes.node(ROOT).unwrap(), None, from));
        let mut names = vec![];
        let list = files.list(handle, 0, None, |listed| {
            names.push(listed.name.to_owned());
            false
        });
        list.unwrap();
        names.retain(|name| ![".", ".."].map(OsStr::new).contains(&name.as_os_str()));
        names
    };
    assert_eq!(listed(Duration::from_secs(1800)), ["old"]);
    assert_eq!(listed(Duration::from_secs(3600)), ["new"]);
}

#[test]
fn an_open_that_cannot_be_answered_leaves_no_handle_and_the_next_one_finds_news_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("f");
    std::fs::write(&path, b"x").unwrap();
    let Some(files) = files(folder.path()) else { return };
    let Ok(NameLookup::File(found)) = files.look_up(CALLER, ROOT, OsStr::new("f")) else { panic!("no file") };
    std::fs::write(&path, b"longer").unwrap();
    let open = || {
        let (handle, _, is_news) = files.open(CALLER, found.id, libc::O_RDONLY).unwrap();
        (handle, is_news)
    };
    let [first, second] = [open(), open()];
    assert!(first.1 && second.1, "the kernel may believe what it was told");
    files.dropped(first.0);
    files.not_dropped(second.0);
    assert_eq!(files.handles.len(), 1);
    let third = open();
    assert!(third.1);
    files.dropped(third.0);
    assert!(!open().1);
}

/// What stands beside a file that is locked is asked for anew.
#[test]
fn a_file_that_was_renamed_here_is_known_by_its_new_name() {
    let folder = tempfile::tempdir().unwrap();
    let Some(files) = files(folder.path()) else { return };
    let [a, b] = ["a", "b"].map(|name| files.make_directory(CALLER, ROOT, OsStr::new(name), 0o755).unwrap().id);
    let make = |parent, name| files.make_node(CALLER, parent, OsStr::new(name), libc::S_IFREG | 0o644, 0).unwrap().id;
    let [f, g] = [make(a, "f"), make(b, "g")];
    let rename = |from: (u64, &str), to: (u64, &str), flags: rustix::fs::RenameFlags| {
        files.rename(CALLER, (from.0, OsStr::new(from.1)), (to.0, OsStr::new(to.1)), flags.bits())
    };
    let places = || [f, g].map(|id| files.nodes.node(id).unwrap().place().unwrap());
    let stand = |f: (u64, &str), g: (u64, &str)| assert_eq!(places(), [f, g].map(|(id, name)| (id, name.into())));
    rename((a, "f"), (b, "h"), rustix::fs::RenameFlags::empty()).unwrap();
    stand((b, "h"), (b, "g"));
    rename((b, "g"), (b, "h"), rustix::fs::RenameFlags::EXCHANGE).unwrap();
    stand((b, "g"), (b, "h"));
    rename((b, "g"), (b, "h"), rustix::fs::RenameFlags::NOREPLACE).unwrap_err();
    stand((b, "g"), (b, "h"));
}
