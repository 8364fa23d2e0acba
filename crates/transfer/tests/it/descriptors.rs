//! The channel `descriptor`: files are handed over, and stand as those that are sent.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    Channel, ChannelKind, DescriptorListener, Endpoint, Ends, Entry, EntryKind, Failure, Frame, Identity, Links, Look,
    Root, Sender, SenderAction, SessionError, SessionSettings, Sources, Store, Summary, VirtualPath, Walk, receive,
    send, write_frame,
};

use crate::real::{fill, same};

const LIMIT: Duration = Duration::from_secs(60);

/// The two ends of a stream, proven.
fn pair() -> (Box<dyn Channel>, Box<dyn Channel>) {
    let mut token = [0; 16];
    getrandom::fill(&mut token).unwrap();
    let (handed_on, arriving) = std::sync::mpsc::channel();
    let _listening = DescriptorListener::bind(&token).unwrap().start(token, 1, handed_on).unwrap();
    let address = ([127, 0, 0, 1], 0).into();
    let endpoint = Endpoint { channel: ChannelKind::Descriptor, address, token, fingerprint: None, secret: None };
    let near = endpoint.make(0, 1, LIMIT).unwrap();
    (near, arriving.recv_timeout(LIMIT).unwrap().1)
}

fn receiving(to: &Path, channel: Box<dyn Channel>) -> std::thread::JoinHandle<Result<Summary, SessionError>> {
    let root = Arc::new(Root::open(to).unwrap());
    std::thread::spawn(move || {
        let store = Store::new(root, VirtualPath::root(), 1 << 20, false);
        receive(Links::from(vec![channel]), store, SessionSettings::new(1, 1), &mut |_| true)
    })
}

fn transfer(from: &Path, to: &Path, is_put: bool) -> (Summary, Summary) {
    let (near, far) = pair();
    let (out, into) = if is_put { (near, far) } else { (far, near) };
    let receiver = receiving(to, into);
    let root = Arc::new(Root::open(from).unwrap());
    let walk = Walk::new(root.clone(), VirtualPath::root()).unwrap();
    let sources = Sources::new(root, VirtualPath::root());
    let sent = send(Links::from(vec![out]), sources, walk, SessionSettings::new(1, 1), &mut |_| true).unwrap();
    let received = receiver.join().unwrap().unwrap();
    assert_eq!((&sent.failures, &received.failures), (&vec![], &vec![]));
    assert_eq!((sent.channel, received.channel), (Some(ChannelKind::Descriptor), Some(ChannelKind::Descriptor)));
    assert_eq!(sent.bytes, received.bytes, "bytes that are copied");
    (sent, received)
}

fn hands_over(from: &Path, to: &Path, is_put: bool, files: u64) {
    let sent = transfer(from, to, is_put).0;
    assert_eq!(sent.files, files);
    same(from, to);
    let blocks = std::fs::metadata(to.join("sparse")).unwrap().blocks();
    assert!(blocks * 512 < 4 << 20, "{blocks} blocks: the holes were filled");
    // What stands is not copied again, but for small files.
    let again = transfer(from, to, is_put).0;
    assert_eq!((again.files, again.bytes < 500_000), (files, true), "{}", again.bytes);
    // One byte in the middle: one chunk. A reader of the old file keeps it.
    let reader = std::fs::File::open(to.join("deep/two")).unwrap();
    let before = std::fs::read(to.join("deep/two")).unwrap();
    std::fs::File::options().write(true).open(from.join("deep/two")).unwrap().write_all_at(b"!", 1_500_000).unwrap();
    let changed = transfer(from, to, is_put).0;
    assert_eq!(changed.bytes - again.bytes, 1 << 20);
    let mut still = vec![0; before.len()];
    reader.read_exact_at(&mut still, 0).unwrap();
    assert!(still == before, "a reader of the old file saw the new one");
    same(from, to);
}

#[test]
fn a_tree_is_handed_over_whole_and_the_second_time_nothing_is_copied() {
    for is_put in [true, false] {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fill(from.path(), &mut crate::real::chance(1));
        hands_over(from.path(), to.path(), is_put, 211);
    }
}

/// A file system that is there until this is dropped.
struct Mounted(tempfile::TempDir);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path().join("on")).status();
    }
}

#[test]
fn where_blocks_are_shared_a_part_is_a_clone_of_its_source() {
    let directory = Mounted(tempfile::tempdir().unwrap());
    let (image, on) = (directory.0.path().join("image"), directory.0.path().join("on"));
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    std::fs::create_dir(&on).unwrap();
    let ran = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let output = std::process::Command::new(program).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    };
    let made = ran("mkfs.xfs", &["-q".as_ref(), "-m".as_ref(), "reflink=1".as_ref(), image.as_os_str()])
        && ran("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), on.as_os_str()]);
    if !made {
        println!("skipped: no XFS can be made and mounted here");
        return;
    }
    let (from, to) = (on.join("from"), on.join("to"));
    for path in [&from, &to] {
        std::fs::create_dir(path).unwrap();
    }
    fill(&from, &mut crate::real::chance(2));
    let large: Vec<u8> = (0..100u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(from.join("large"), &large).unwrap();
    let free = || rustix::fs::statvfs(&on).unwrap();
    rustix::fs::sync();
    let before = free().f_bfree * free().f_frsize;
    hands_over(&from, &to, true, 212);
    rustix::fs::sync();
    let taken = before - free().f_bfree * free().f_frsize;
    assert!(taken < 40 << 20, "{taken} bytes were taken for a copy of 100 MiB that shares its blocks");
    assert!(std::fs::read(to.join("large")).unwrap() == large);
}

/// A stream of which so many bytes arrive, and nothing more either way.
struct Cut(Box<dyn Channel>, usize);

struct CutReader(Box<dyn Read + Send>, usize, Box<dyn Fn() + Send + Sync>);

impl Read for CutReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(self.1);
        if most == 0 {
            (self.2)();
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        let read = self.0.read(&mut buffer[..most])?;
        self.1 -= read;
        Ok(read)
    }
}

impl Channel for Cut {
    fn ends(self: Box<Self>) -> std::io::Result<Ends> {
        let ends = self.0.ends()?;
        let close: Arc<dyn Fn() + Send + Sync> = Arc::from(ends.close);
        let also = close.clone();
        let read = Box::new(CutReader(ends.read, self.1, Box::new(move || also())));
        Ok(Ends { read, close: Box::new(move || close()), ..ends })
    }
}

#[test]
fn a_session_that_is_cut_at_any_byte_goes_on_where_it_was() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(from.path(), &mut crate::real::chance(3));
    std::fs::remove_file(from.path().join("sparse")).unwrap();
    let (mut cuts, mut most) = (0, 100);
    loop {
        let (near, far) = pair();
        let receiver = receiving(to.path(), Box::new(Cut(far, most)));
        let root = Arc::new(Root::open(from.path()).unwrap());
        let walk = Walk::new(root.clone(), VirtualPath::root()).unwrap();
        let sources = Sources::new(root, VirtualPath::root());
        let sent = send(Links::from(vec![near]), sources, walk, SessionSettings::new(1, 1), &mut |_| true);
        let received = receiver.join().unwrap();
        if received.is_ok() {
            assert_eq!(sent.unwrap().failures, vec![]);
            break;
        }
        cuts += 1;
        most += 1777;
    }
    assert!(cuts > 5, "{cuts} cuts");
    same(from.path(), to.path());
}

#[test]
fn what_is_no_regular_file_or_does_not_come_ends_the_session() {
    for handed in [None, Some(OwnedFd::from(std::fs::File::open("/dev/zero").unwrap()))] {
        let to = tempfile::tempdir().unwrap();
        let (near, far) = pair();
        let receiver = receiving(to.path(), far);
        let ends = near.ends().unwrap();
        let mut write = ends.write;
        if let Some(descriptor) = handed {
            ends.handover.as_ref().unwrap().give(descriptor);
        }
        let entry = Entry { path: b"a".to_vec(), kind: EntryKind::File, mode: 0o644 };
        let identity = Identity { size: 9, ..Identity::default() };
        write_frame(&mut *write, &Frame::Offer { file: 1, entry, identity }, b"").unwrap();
        let error = receiver.join().unwrap().unwrap_err().to_string();
        assert!(error.contains("a file was not handed over"), "{error}");
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 0);
    }
    // Bytes of a chunk are none of this channel.
    let to = tempfile::tempdir().unwrap();
    let (near, far) = pair();
    let receiver = receiving(to.path(), far);
    let mut write = near.ends().unwrap().write;
    let chunk = Frame::Chunk { session: 1, file: 1, offset: 0, sequence: 1, is_whole_file: true, hash: [0; 32] };
    write_frame(&mut *write, &chunk, b"abc").unwrap();
    write.flush().unwrap();
    assert!(matches!(receiver.join().unwrap(), Err(SessionError::Protocol(_))));
}

#[test]
fn a_source_that_ends_early_is_not_told_to_stand() {
    let settings = SessionSettings { is_handed_over: true, ..SessionSettings::new(1, 1) };
    let mut sender = Sender::new(settings);
    let file = sender.add(Entry { path: b"a".to_vec(), kind: EntryKind::File, mode: 0o644 });
    sender.frame(0, Frame::Credit { total: 8 << 20 });
    let look = Look { identity: Identity { size: 2 << 20, ..Identity::default() }, is_young: false };
    sender.opened(file, Ok(look));
    sender.frame(0, Frame::Ready { file });
    let copies = sender
        .actions()
        .iter()
        .filter(|action| matches!(action, SenderAction::Send { frame: Frame::Copy { length: 0x10_0000, .. }, .. }))
        .count();
    assert_eq!(copies, 2);
    sender.frame(0, Frame::Copied { file, chunk: 0, hash: Some([1; 32]) });
    assert_eq!(sender.actions(), [], "a look while a chunk is still being copied");
    sender.frame(0, Frame::Copied { file, chunk: 1, hash: None });
    assert_eq!(sender.actions(), [SenderAction::Look(file)]);
    sender.looked(file, Ok(look));
    let settled = SenderAction::Settled { file, result: Err(Failure::Changed) };
    assert!(sender.actions().contains(&settled));
}
