//! Which queues a helper has made, so that none outlives it for longer than until the next start.
//!
//! The kernel keeps a queue until a process removes it. The helper removes those of a client when the client is gone,
//! however it went. But nothing removes the queues of a helper that was killed. So the helper writes down what it is
//! about to make, makes it, and writes down what it made, in a file beside its socket, `node.sock.queues`, which only
//! the holder of the socket's lock writes:
//!
//! ```text
//!  0        4         6    8                   24              32        and then for each queue
//!  +--------+---------+----+-------------------+---------------+        +-------+--------+------------+
//!  | "VIPQ" | version |  0 | the boot's number | ipc namespace |        |  key  | number | changed, s |
//!  +--------+---------+----+-------------------+---------------+        +-------+--------+------------+
//!                                               little endian            0       4        8           16
//! ```
//!
//! Key 0 is a free place; number -1 a queue that is about to be made, at that time. The next helper removes the queues
//! in the record that are still the same: made by this user, in this boot and namespace, with that key (which was drawn
//! by lot) and number, and not changed since. The number of a queue that was only about to be made is unknown; such a
//! queue must have been made within a minute. Anything else is left alone: one queue too many is better than removing
//! another program's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use verbena_terms::{Format, HEADER_BYTES};

use crate::boot::boot_id;
use crate::error::Error;
use crate::queue::{LONGEST_TEXT, Queue};

const RECORD: Format = Format::new(*b"VIPQ", 1);
const HEAD_BYTES: usize = HEADER_BYTES + 24;
const ENTRY_BYTES: usize = 16;
/// More queues than any kernel has.
const MOST_ENTRIES: usize = 1 << 16;
const ABOUT_TO_BE: i32 = -1;
/// How long after it was written down a queue may have been made, seconds.
const MAKING_S: u64 = 60;
/// A key that is taken is drawn again.
const DRAWS: usize = 8;

/// Where queues are the same: a boot, and a namespace of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Realm {
    boot: [u8; 16],
    namespace: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    key: i32,
    number: i32,
    changed_s: u64,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    realm: Realm,
    entries: Vec<Entry>,
}

impl Record {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Record, String> {
        let rest = RECORD.check(bytes).map_err(|error| error.to_string())?;
        let Some((realm, entries)) = rest.split_first_chunk::<24>() else {
            return Err(format!("{} bytes where its head has {HEAD_BYTES}", bytes.len()));
        };
        let (entries, cut) = entries.as_chunks::<ENTRY_BYTES>();
        if !cut.is_empty() || entries.len() > MOST_ENTRIES {
            return Err(format!("{} bytes, which is no number of queues", bytes.len()));
        }
        let realm = Realm::from_bytes(realm);
        Ok(Record { realm, entries: entries.iter().map(Entry::from_bytes).collect() })
    }

    /// Removes what is still the same as it was. How many queues that were.
    fn sweep(&self, uid: u32) -> u64 {
        let left = self.entries.iter().filter(|entry| entry.key != 0);
        left.filter(|entry| entry.find(uid).is_some_and(|queue| queue.remove().is_ok())).count() as u64
    }
}

impl Realm {
    fn here() -> Result<Realm, Error> {
        let boot = boot_id()?;
        let path = Path::new("/proc/self/ns/ipc");
        let namespace = fs::metadata(path).map_err(|error| Error::file("look at", path, error))?.ino();
        Ok(Realm { boot: boot.to_le_bytes(), namespace })
    }

    fn from_bytes(bytes: &[u8; 24]) -> Realm {
        let [boot @ .., n0, n1, n2, n3, n4, n5, n6, n7] = *bytes;
        Realm { boot, namespace: u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]) }
    }
}

impl Entry {
    const FREE: Entry = Entry { key: 0, number: 0, changed_s: 0 };

    fn from_bytes(bytes: &[u8; ENTRY_BYTES]) -> Entry {
        let [k0, k1, k2, k3, n0, n1, n2, n3, changed @ ..] = *bytes;
        let (key, number) = (i32::from_le_bytes([k0, k1, k2, k3]), i32::from_le_bytes([n0, n1, n2, n3]));
        Entry { key, number, changed_s: u64::from_le_bytes(changed) }
    }

    fn bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&self.key.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..].copy_from_slice(&self.changed_s.to_le_bytes());
        bytes
    }

    /// The queue, if it is the one that was written down.
    fn find(&self, uid: u32) -> Option<Queue> {
        let queue = Queue::with_key(self.key).ok()?;
        let state = queue.state().ok()?;
        let is_it = match self.number {
            ABOUT_TO_BE => (self.changed_s..=self.changed_s.saturating_add(MAKING_S)).contains(&state.changed_s),
            number => queue.number() == number && state.changed_s == self.changed_s,
        };
        (is_it && state.key == self.key && state.maker == uid).then_some(queue)
    }
}

/// Makes queues, and keeps the record of them.
#[derive(Debug)]
pub(crate) struct Queues {
    path: PathBuf,
    uid: u32,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    file: File,
    entries: Vec<Entry>,
}

/// A queue that stands in the record. Removed when dropped.
#[derive(Debug)]
pub(crate) struct Recorded {
    queue: Queue,
    place: usize,
    queues: Arc<Queues>,
    is_left: bool,
}

impl Queues {
    /// Those of the helper with this socket, under its lock; what an earlier one left is removed. How many queues that were.
    ///
    /// # Errors
    /// If there is a record that cannot be read. Nothing was removed then.
    pub(crate) fn swept(socket: &Path, uid: u32) -> Result<(Queues, u64), Error> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".queues");
        let path = PathBuf::from(path);
        let mut swept = 0;
        match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Ok(file) => {
                let mut bytes = Vec::new();
                let most = (HEAD_BYTES + MOST_ENTRIES * ENTRY_BYTES) as u64;
                file.take(most + 1).read_to_end(&mut bytes).map_err(|error| Error::file("read", &path, error))?;
                let record = Record::parse(&bytes).map_err(|what| Error::Record { path: path.clone(), what })?;
                if record.realm == Realm::here()? {
                    swept = record.sweep(uid);
                }
                fs::remove_file(&path).map_err(|error| Error::file("remove", &path, error))?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::file("open", &path, error)),
        }
        Ok((Queues { path, uid, open: Mutex::new(None) }, swept))
    }

    /// Makes a queue that the helper's user may reach, and `user`.
    pub(crate) fn make(self: &Arc<Self>, user: u32) -> Result<Recorded, Error> {
        let failed = |source| Error::System { doing: "make a message queue", source };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match &mut *open {
            Some(open) => open,
            none => none.insert(self.begin()?),
        };
        let place = open.entries.iter().position(|entry| entry.key == 0).unwrap_or(open.entries.len());
        for _ in 0..DRAWS {
            let key = getrandom::u32().map_err(|error| failed(io::Error::other(error.to_string())))? as i32;
            // IPC_PRIVATE, which is no key.
            if key == libc::IPC_PRIVATE {
                continue;
            }
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            self.write(open, place, Entry { key, number: ABOUT_TO_BE, changed_s: now.saturating_sub(1) })?;
            let made = Queue::make(key);
            match made.and_then(|queue| self.settle(queue, user)) {
                Ok((queue, changed_s)) => {
                    // From here on it is removed with the value.
                    let recorded = Recorded { queue, place, queues: self.clone(), is_left: false };
                    let written = self.write(open, place, Entry { key, number: queue.number(), changed_s });
                    if let Err(error) = written {
                        std::mem::forget(recorded);
                        let _ = queue.remove();
                        return Err(error);
                    }
                    return Ok(recorded);
                }
                Err(error) => {
                    self.write(open, place, Entry::FREE)?;
                    if error.kind() != ErrorKind::AlreadyExists {
                        return Err(failed(error));
                    }
                }
            }
        }
        Err(failed(ErrorKind::AlreadyExists.into()))
    }

    /// When the queue was last changed, after it was shared and found to be large enough.
    fn settle(&self, queue: Queue, user: u32) -> io::Result<(Queue, u64)> {
        let settle = || {
            if user != self.uid {
                queue.share_with(user)?;
            }
            let state = queue.state()?;
            if state.most_bytes < LONGEST_TEXT as u64 {
                return Err(io::Error::other("kernel.msgmnb is too small for one message of ours"));
            }
            Ok((queue, state.changed_s))
        };
        settle().inspect_err(|_| drop(queue.remove()))
    }

    fn begin(&self) -> Result<Open, Error> {
        let failed = |error| Error::file("write", &self.path, error);
        let options = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.path);
        let file = options().map_err(failed)?;
        let realm = Realm::here()?;
        let head = [&RECORD.header()[..], &realm.boot, &realm.namespace.to_le_bytes()].concat();
        file.write_all_at(&head, 0).map_err(failed)?;
        Ok(Open { file, entries: Vec::new() })
    }

    fn write(&self, open: &mut Open, place: usize, entry: Entry) -> Result<(), Error> {
        let at = HEAD_BYTES + place * ENTRY_BYTES;
        open.file.write_all_at(&entry.bytes(), at as u64).map_err(|error| Error::file("write", &self.path, error))?;
        match open.entries.get_mut(place) {
            Some(old) => *old = entry,
            None => open.entries.push(entry),
        }
        Ok(())
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_some_and(|open| open.entries.iter().all(|entry| entry.key == 0)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Recorded {
    pub(crate) fn queue(&self) -> Queue {
        self.queue
    }

    /// Leaves it to its client, which removes it after taking what is in it; otherwise the next helper removes it.
    pub(crate) fn leave(&mut self) {
        self.is_left = true;
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if self.is_left && self.queue.state().is_ok_and(|state| state.messages > 0) {
            return;
        }
        // It is gone if another process of this user removed it.
        let _ = self.queue.remove();
        let mut open = self.queues.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &mut *open {
            // What is written there now is no queue any more: to leave it does no harm.
            let _ = self.queues.write(open, self.place, Entry::FREE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn exists(queue: Queue) -> bool {
        queue.state().is_ok_and(|state| state.key == queue.key())
    }

    /// As a helper that is killed: nothing is dropped.
    fn left_behind(socket: &Path, count: usize) -> Vec<Queue> {
        let queues = Arc::new(Queues::swept(socket, uid()).unwrap().0);
        let made: Vec<Recorded> = (0..count).map(|_| queues.make(uid()).unwrap()).collect();
        let left = made.iter().map(Recorded::queue).collect();
        std::mem::forget((made, queues));
        left
    }

    #[test]
    fn what_is_dropped_is_gone_and_what_was_left_is_swept() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let record = directory.path().join("s.sock.queues");
        let (queues, swept) = Queues::swept(&socket, uid()).unwrap();
        assert_eq!((swept, record.exists()), (0, false));
        let queues = Arc::new(queues);
        let (one, two) = (queues.make(uid()).unwrap(), queues.make(uid()).unwrap());
        let names = [one.queue(), two.queue()];
        drop(one);
        assert_eq!(names.map(exists), [false, true]);
        let three = queues.make(uid()).unwrap();
        assert_eq!(fs::metadata(&record).unwrap().len(), (HEAD_BYTES + 2 * ENTRY_BYTES) as u64);
        drop((two, three, queues));
        assert!(!exists(names[1]) && !record.exists());

        let left = left_behind(&socket, 3);
        assert!(left.iter().all(|queue| exists(*queue)));
        assert_eq!(Queues::swept(&socket, uid()).unwrap().1, 3);
        assert!(!left.iter().any(|queue| exists(*queue)) && !record.exists());
    }

    #[test]
    fn nobody_elses_queue_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let record = directory.path().join("s.sock.queues");
        let left = left_behind(&socket, 1)[0];
        let honest = fs::read(&record).unwrap();
        let number = HEAD_BYTES + 4;
        // Another number, another time, another boot, another namespace.
        for at in [number, number + 4, HEADER_BYTES, HEADER_BYTES + 16] {
            let mut other = honest.clone();
            other[at] ^= 1;
            fs::write(&record, &other).unwrap();
            assert_eq!(Queues::swept(&socket, uid()).unwrap().1, 0, "byte {at}");
            assert!(exists(left), "byte {at}");
        }
        // Made by another user.
        fs::write(&record, &honest).unwrap();
        assert_eq!(Queues::swept(&socket, uid() + 1).unwrap().1, 0);
        assert!(exists(left));
        // About to be made long before.
        let mut about = honest.clone();
        about[number..number + 4].copy_from_slice(&ABOUT_TO_BE.to_le_bytes());
        let made = u64::from_le_bytes(about[number + 4..][..8].try_into().unwrap());
        for (written, swept) in [(made - MAKING_S - 1, 0), (made + 1, 0), (made - MAKING_S, 1)] {
            about[number + 4..].copy_from_slice(&written.to_le_bytes());
            fs::write(&record, &about).unwrap();
            assert_eq!(Queues::swept(&socket, uid()).unwrap().1, swept, "{made} {written}");
            assert_eq!(exists(left), swept == 0);
        }
    }

    #[test]
    fn a_record_that_is_none_is_an_error_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s.sock");
        let record = directory.path().join("s.sock.queues");
        let left = left_behind(&socket, 1)[0];
        let honest = fs::read(&record).unwrap();
        let mut newer = honest.clone();
        newer[4] = 9;
        for bad in [&honest[..honest.len() - 1], &honest[..HEAD_BYTES - 1], &newer, b"", b"something else altogether"] {
            fs::write(&record, bad).unwrap();
            let refused = Queues::swept(&socket, uid()).unwrap_err();
            assert!(matches!(&refused, Error::Record { .. }) && refused.to_string().contains("s.sock.queues"));
            assert_eq!(fs::read(&record).unwrap(), bad);
            assert!(exists(left));
        }
        left.remove().unwrap();
    }
}
