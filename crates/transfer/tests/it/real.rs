//! Whole sessions on real files and sockets, also cut at random bytes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use verbena_transfer::{
    Channel, Entry, EntryKind, Root, SessionError, SessionSettings, Sources, Store, Summary, VirtualPath, Walk,
    receive, say_hello, send, take_hello,
};

type Channels = Vec<Box<dyn Channel>>;

/// Pairs of connected sockets; each byte of the way to the receiver counts down `cut`.
fn pairs(streams: u16, cut: Option<u64>) -> (Channels, Channels) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let token = [7; 16];
    let (mut ours, mut theirs) = (Channels::new(), Channels::new());
    for number in 0..streams {
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        say_hello(&mut near, token, number, streams, 1 << 20).unwrap();
        let mut far = listener.accept().unwrap().0;
        assert_eq!(take_hello(&mut far, &token, Duration::from_secs(60)).unwrap(), (number, streams));
        if let Some(cut) = cut {
            far = relay(far, cut);
        }
        ours.push(Box::new(near));
        theirs.push(Box::new(far));
    }
    (ours, theirs)
}

/// A connection behind one that is cut after some bytes.
fn relay(from: TcpStream, cut: u64) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let end = listener.accept().unwrap().0;
    let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut back_from, &mut back_to);
        let _ = back_to.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let (mut from, mut to) = (from, to);
        let _ = std::io::copy(&mut (&mut from).take(cut), &mut to);
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    });
    end
}

fn settings(streams: u16) -> SessionSettings {
    SessionSettings::new(1, streams)
}

fn transfer(from: &Path, to: &Path, streams: u16, cut: Option<u64>) -> (Result<Summary, SessionError>, Summary) {
    let (ours, theirs) = pairs(streams, cut);
    let (from, to) = (Arc::new(Root::open(from).unwrap()), Arc::new(Root::open(to).unwrap()));
    let receiver = std::thread::spawn(move || {
        let store = Store::new(to, VirtualPath::root(), 1 << 20, false);
        receive(theirs, store, settings(streams), &mut |_| true)
    });
    let walk = Walk::new(from.clone(), VirtualPath::root()).unwrap();
    let sent = send(ours, Sources::new(from, VirtualPath::root()), walk, settings(streams), &mut |_| true);
    let received = receiver.join().unwrap();
    if sent.is_ok() && cut.is_none() {
        assert!(received.is_ok(), "{received:?}");
    }
    (sent, received.unwrap_or_default())
}

/// Every path below a directory, with what it is.
fn tree(root: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut stack = vec![root.to_owned()];
    while let Some(directory) = stack.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            let data = path.symlink_metadata().unwrap();
            let what = if data.is_symlink() {
                [b"link ", std::fs::read_link(&path).unwrap().as_os_str().as_bytes()].concat()
            } else if data.is_dir() {
                stack.push(path);
                b"directory".to_vec()
            } else {
                let time = data.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
                let head = format!("{:o} {time} ", data.permissions().mode());
                [head.into_bytes(), std::fs::read(&path).unwrap()].concat()
            };
            found.insert(name, what);
        }
    }
    found
}

/// Asserts that two trees are equal, and names what is not.
#[track_caller]
pub fn same(from: &Path, to: &Path) {
    let (from, to) = (tree(from), tree(to));
    let names: std::collections::BTreeSet<&Vec<u8>> = from.keys().chain(to.keys()).collect();
    for name in names {
        let (one, other) = (from.get(name), to.get(name));
        let show = |what: Option<&Vec<u8>>| {
            what.map(|what| (what.len(), what[..what.len().min(40)].escape_ascii().to_string()))
        };
        let first = one.zip(other).and_then(|(one, other)| one.iter().zip(other).position(|(one, other)| one != other));
        assert!(one == other, "{}: {:?} is {:?}, first at {first:?}", name.escape_ascii(), show(one), show(other));
    }
}

/// A source of chance.
pub fn chance(seed: u64) -> Pcg64 {
    Pcg64::seed_from_u64(seed)
}

pub fn fill(root: &Path, chance: &mut Pcg64) {
    let mut random = |size: usize| (0..size).map(|_| chance.next_u64() as u8).collect::<Vec<u8>>();
    std::fs::create_dir_all(root.join("deep/er")).unwrap();
    for (name, size) in [
        (&b"big"[..], 5_000_001),
        (b"one chunk", 1 << 20),
        (b"deep/two", (2 << 20) + 1),
        (b" blanks ", 10),
        (b"deep/caf\xe9\xff\n", 1000),
        (b"deep/er/empty", 0),
    ] {
        std::fs::write(root.join(std::ffi::OsStr::from_bytes(name)), random(size)).unwrap();
    }
    for at in 0..200 {
        std::fs::write(root.join(format!("deep/er/{at}")), random(2000)).unwrap();
    }
    std::fs::set_permissions(root.join("big"), std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("../outside", root.join("deep/link")).unwrap();
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(300 << 20).unwrap();
    sparse.write_all_at(b"middle", 150 << 20).unwrap();
}

#[test]
fn a_tree_arrives_whole_and_the_second_time_nothing_is_sent() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(from.path(), &mut Pcg64::seed_from_u64(1));
    let (sent, received) = transfer(from.path(), to.path(), 2, None);
    let sent = sent.unwrap();
    assert_eq!((&sent.failures, &received.failures), (&vec![], &vec![]));
    assert_eq!((sent.files, received.files), (211, 211));
    same(from.path(), to.path());
    let blocks = std::fs::metadata(to.path().join("sparse")).unwrap().blocks();
    assert!(blocks * 512 < 4 << 20, "{blocks} blocks: the holes were filled");
    let (again, _) = transfer(from.path(), to.path(), 2, None);
    let again = again.unwrap();
    assert_eq!(again.failures, vec![]);
    // Small files go without a question; none of the others does.
    assert_eq!((again.files, again.bytes < 500_000), (211, true), "{}", again.bytes);
    // One byte in the middle: one chunk, and the file in place is replaced, not written.
    let reader = std::fs::File::open(to.path().join("deep/two")).unwrap();
    let before = std::fs::read(to.path().join("deep/two")).unwrap();
    let file = std::fs::File::options().write(true).open(from.path().join("deep/two")).unwrap();
    file.write_all_at(b"!", 1_500_000).unwrap();
    let (changed, _) = transfer(from.path(), to.path(), 2, None);
    let changed = changed.unwrap();
    assert_eq!((changed.failures, changed.bytes - again.bytes), (vec![], 1 << 20));
    let mut still = Vec::new();
    (&reader).read_to_end(&mut still).unwrap();
    assert!(still == before, "a reader of the old file saw the new one");
    same(from.path(), to.path());
}

#[test]
fn a_session_that_is_cut_at_any_byte_goes_on_where_it_was() {
    let rounds = if std::env::var_os("VERBENA_LONG").is_some() { 40 } else { 3 };
    for seed in 0..rounds {
        let mut chance = Pcg64::seed_from_u64(seed);
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill(from.path(), &mut chance);
        std::fs::remove_file(from.path().join("sparse")).unwrap();
        let mut cuts = 0;
        let mut cut = 100_000;
        loop {
            let streams = 1 + (chance.next_u64() % 3) as u16;
            cut += chance.next_u64() % 3_000_000;
            match transfer(from.path(), to.path(), streams, Some(cut)).0 {
                Ok(summary) => {
                    assert_eq!(summary.failures, vec![]);
                    break;
                }
                Err(_) => cuts += 1,
            }
            assert!(cuts < 200, "no end after {cuts} sessions");
        }
        assert!(cuts > 0);
        same(from.path(), to.path());
    }
}

#[test]
fn a_change_of_the_source_shows() {
    let from = tempfile::tempdir().unwrap();
    std::fs::write(from.path().join("a"), vec![1; 3000]).unwrap();
    let mut sources = Sources::new(Arc::new(Root::open(from.path()).unwrap()), VirtualPath::root());
    let entry = Entry { path: b"a".to_vec(), kind: EntryKind::File, mode: 0o644 };
    let first = sources.open(1, &entry).unwrap();
    let (seconds, nanoseconds) = first.identity.changed;
    let changed = std::time::UNIX_EPOCH + Duration::new(seconds as u64, nanoseconds);
    assert!(!first.is_young && changed.elapsed().unwrap() >= Duration::from_millis(20), "it is waited for");
    assert_eq!(sources.look(1).unwrap().identity, first.identity);
    std::fs::File::options().write(true).open(from.path().join("a")).unwrap().write_all_at(b"2", 0).unwrap();
    let second = sources.look(1).unwrap();
    assert_ne!(second.identity, first.identity);
    assert_eq!(second.identity.size, first.identity.size);
    // Put back by name and time: the descriptor still is the file that was read.
    std::fs::rename(from.path().join("a"), from.path().join("b")).unwrap();
    std::fs::write(from.path().join("a"), "another").unwrap();
    assert_eq!(sources.look(1).unwrap().identity.inode, first.identity.inode);
}

#[test]
fn who_comes_without_the_token_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    say_hello(&mut near, [1; 16], 0, 1, 1 << 20).unwrap();
    let mut far = listener.accept().unwrap().0;
    assert!(take_hello(&mut far, &[2; 16], Duration::from_secs(60)).is_err());
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    near.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut far = listener.accept().unwrap().0;
    assert!(take_hello(&mut far, &[2; 16], Duration::from_secs(60)).is_err());
    let silent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut far = listener.accept().unwrap().0;
    assert!(take_hello(&mut far, &[2; 16], Duration::from_millis(50)).is_err());
    drop(silent);
}
