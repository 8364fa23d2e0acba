//! The records of open updates, each in a file that outlives its process and not the boot (rule P6).
//!
//! ```text
//!  0        8          24      32          40        48                 64
//!  | format | boot id  | rank, start | names key | checksum of these | 0 |
//!  512 + 512 n: the n-th slot, all zeroes while it is free
//!  | number + 1 | dependencies, all ones for everything, one less for all | checksum | dependency ... |
//!  behind the last slot: the format again
//! ```
//!
//! All numbers are little-endian. A slot lies within a page of the page cache, so a process that is killed has written it
//! or has not. The kernel has what was written when the process is gone; there is no synchronisation, because another boot
//! believes nothing of it. The file is written and not mapped: a mapping of a file that is truncated kills the process.
//!
//! The incarnation holds the lock of its file as long as it writes there. A reader that gets the lock knows that nothing
//! is added any more.

use std::fs::{self, File, OpenOptions};
use std::hash::Hasher;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use siphasher::sip::SipHasher13;
use verbena_cluster::View;
use verbena_content::record::{Recorded, Records};
use verbena_content::{Dependency, MAX_OPEN_UPDATES, Scope};
use verbena_terms::{Format, Incarnation};

const FORMAT: Format = Format::new(*b"VCOU", 2);
const HEAD: usize = 512;
const SLOT: usize = 512;
/// Words in front of a slot's dependencies.
const SLOT_HEAD: usize = 3;
/// An update of more dependencies is written down as one of all copies.
const MOST_DEPENDENCIES: usize = SLOT / 8 - SLOT_HEAD;
const EVERYTHING: u64 = u64::MAX;
const ALL: u64 = u64::MAX - 1;
const END: u64 = (HEAD + MAX_OPEN_UPDATES * SLOT) as u64;

/// The directory in which the nodes of one machine keep their records.
pub(crate) struct OpenUpdates {
    directory: PathBuf,
    /// None where the kernel does not say: then nothing is believed.
    boot: Option<u128>,
    own: Option<Own>,
}

/// The record of the present incarnation.
struct Own {
    file: File,
    path: PathBuf,
    /// The number in each slot; 0 where it is free.
    slots: Vec<u64>,
}

impl OpenUpdates {
    /// Those in this directory, which is made when the first incarnation begins.
    pub(crate) fn in_directory(directory: PathBuf) -> OpenUpdates {
        OpenUpdates { directory, boot: verbena_ipc::boot_id().ok(), own: None }
    }

    /// Whether each record says that nothing is open. One that says nothing may hide something.
    pub(crate) fn is_quiet(&self) -> bool {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) => return error.kind() == ErrorKind::NotFound,
        };
        let mut of = entries.flatten().filter_map(|entry| incarnation_of(&entry.path()));
        of.all(|who| matches!(self.read_file(who, 0, true), Recorded::Open(open) if open.is_empty()))
    }

    fn path(&self, who: Incarnation) -> PathBuf {
        self.directory.join(format!("{}-{}", who.rank.0, who.start))
    }

    fn make(&self, me: Incarnation, names: u64) -> std::io::Result<Own> {
        crate::local::store::make_directory(&self.directory).map_err(std::io::Error::other)?;
        let boot = self.boot.ok_or_else(|| std::io::Error::other("the kernel does not name its boot"))?;
        let (path, made) = (self.path(me), self.directory.join(format!("new-{}-{}", me.rank.0, me.start)));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&made)?;
        // Lock the file before it has its name, so that no reader sees it without an owner.
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Room that is there cannot be missing later.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, END + 8)?;
        file.write_all_at(&head(boot, me, names), 0)?;
        file.write_all_at(&FORMAT.header(), END)?;
        fs::rename(&made, &path)?;
        Ok(Own { file, path, slots: vec![0; MAX_OPEN_UPDATES] })
    }

    fn read_file(&self, of: Incarnation, names: u64, lease_is_over: bool) -> Recorded {
        let file = match File::open(self.path(of)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Recorded::Unknown("it is not on this machine"),
            Err(_) => return Recorded::Unknown("it cannot be opened"),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) if !lease_is_over => return Recorded::InUse,
            Ok(()) | Err(Errno::WOULDBLOCK) => {}
            Err(_) => return Recorded::Unknown("it cannot be locked"),
        }
        match file.metadata() {
            Ok(data) if data.uid() != rustix::process::geteuid().as_raw() => {
                return Recorded::Unknown("it is of another user");
            }
            Ok(data) if data.len() != END + 8 => return Recorded::Unknown("it is not whole"),
            Ok(_) => {}
            Err(_) => return Recorded::Unknown("it cannot be read"),
        }
        let mut bytes = vec![0; END as usize + 8];
        if file.read_exact_at(&mut bytes, 0).is_err() {
            return Recorded::Unknown("it cannot be read");
        }
        self.parse(&bytes, of, names)
    }

    fn parse(&self, bytes: &[u8], of: Incarnation, names: u64) -> Recorded {
        let Some(boot) = self.boot else { return Recorded::Unknown("the kernel does not name its boot") };
        let theirs = word(bytes, 4);
        if bytes[..8] != FORMAT.header() || bytes[END as usize..] != FORMAT.header() {
            return Recorded::Unknown("it is not whole");
        }
        if bytes[..HEAD] != head(boot, of, theirs) {
            return Recorded::Unknown("it is damaged, or of another boot");
        }
        let mut open = Vec::new();
        for slot in bytes[HEAD..END as usize].chunks_exact(SLOT).filter(|slot| word(slot, 0) != 0) {
            match update(slot) {
                Some(update) => open.push(update),
                None => return Recorded::Unknown("it is damaged"),
            }
        }
        match open.is_empty() || theirs == names {
            true => Recorded::Open(open),
            false => Recorded::Unknown("its names are hashed under another key"),
        }
    }
}

impl Records for OpenUpdates {
    fn begin(&mut self, me: Incarnation, names: u64, open: &[(u64, Scope)]) {
        let made = self.make(me, names).and_then(|mut own| {
            open.iter().try_for_each(|(number, scope)| own.put(*number, scope))?;
            Ok(own)
        });
        self.own = match made {
            Ok(own) => Some(own),
            Err(error) => {
                let _ = fs::remove_file(self.path(me));
                let directory = self.directory.display();
                tracing::warn!(%error, %directory, "open updates cannot be recorded: if this node dies, others wait for its longest transaction");
                None
            }
        };
    }

    fn opened(&mut self, number: u64, scope: &Scope) {
        let Some(own) = &mut self.own else { return };
        if let Err(error) = own.put(number, scope) {
            tracing::warn!(%error, "an open update cannot be recorded: if this node dies, others wait for its longest transaction");
            own.void();
            self.own = None;
        }
    }

    fn ended(&mut self, number: u64) {
        // What stays in the record is waited for in vain, and no more than that.
        if let Some(own) = &mut self.own
            && let Some(at) = own.slots.iter().position(|&slot| slot == number + 1)
            && own.file.write_all_at(&[0; 8], slot_offset(at)).is_ok()
        {
            own.slots[at] = 0;
        }
    }

    fn read(&mut self, of: Incarnation, names: u64, lease_is_over: bool) -> Recorded {
        self.read_file(of, names, lease_is_over)
    }

    fn forget(&mut self, view: &View) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some(who) = incarnation_of(&path) else { continue };
            let is_named = view.member(who).is_some() || view.has_departed(who);
            let is_dead = || {
                let file = File::open(&path).ok();
                file.is_some_and(|file| rustix::fs::flock(file, FlockOperation::NonBlockingLockShared).is_ok())
            };
            if !is_named && is_dead() {
                // What is left over costs room alone.
                let _ = fs::remove_file(&path);
            }
        }
    }
}

impl Own {
    fn put(&mut self, number: u64, scope: &Scope) -> std::io::Result<()> {
        let free = self.slots.iter().position(|&slot| slot == 0);
        let at = free.ok_or_else(|| std::io::Error::other("more updates than a record has room for"))?;
        self.file.write_all_at(&slot(number, scope), slot_offset(at))?;
        self.slots[at] = number + 1;
        Ok(())
    }

    /// A record that lacks an open update must not be believed.
    fn void(&self) {
        let voided = self.file.write_all_at(&[0; HEAD], 0).or_else(|_| self.file.set_len(0));
        voided.or_else(|_| fs::remove_file(&self.path)).expect("invariant: what was made can be removed");
    }
}

fn slot_offset(at: usize) -> u64 {
    (HEAD + at * SLOT) as u64
}

fn head(boot: u128, who: Incarnation, names: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&FORMAT.header());
    head[8..24].copy_from_slice(&boot.to_le_bytes());
    head[24..32].copy_from_slice(&who.to_word().to_le_bytes());
    head[32..40].copy_from_slice(&names.to_le_bytes());
    let sum = checksum(&head[..40]);
    head[40..48].copy_from_slice(&sum.to_le_bytes());
    head
}

fn slot(number: u64, scope: &Scope) -> Vec<u8> {
    let set = scope.dependencies();
    let (count, set) = match scope {
        Scope::On(_) if set.len() <= MOST_DEPENDENCIES => (set.len() as u64, set),
        Scope::Everything => (EVERYTHING, &[][..]),
        Scope::On(_) | Scope::All => (ALL, &[][..]),
    };
    let mut words = vec![number + 1, count, 0];
    words.extend(set.iter().map(|dependency| dependency.0));
    words[2] = slot_checksum(words[0], words[1], set);
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The update in a slot that is not free, if it is sound.
fn update(slot: &[u8]) -> Option<(u64, Scope)> {
    let (number, count) = (word(slot, 0), word(slot, 1));
    let length = if matches!(count, EVERYTHING | ALL) { 0 } else { usize::try_from(count).ok()? };
    if length > MOST_DEPENDENCIES {
        return None;
    }
    let set: Vec<Dependency> = (SLOT_HEAD..SLOT_HEAD + length).map(|at| Dependency(word(slot, at))).collect();
    let scope = match count {
        EVERYTHING => Scope::Everything,
        ALL => Scope::All,
        _ => Scope::On(set.clone().into_boxed_slice()),
    };
    (word(slot, 2) == slot_checksum(number, count, &set) && scope.is_well_formed()).then_some((number - 1, scope))
}

fn slot_checksum(number: u64, count: u64, set: &[Dependency]) -> u64 {
    let words = [number, count].into_iter().chain(set.iter().map(|dependency| dependency.0));
    checksum(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
}

/// Against accidents, not against people.
fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("invariant: eight bytes"))
}

fn incarnation_of(path: &Path) -> Option<Incarnation> {
    let (rank, start) = path.file_name()?.to_str()?.split_once('-')?;
    Some(Incarnation::new(rank.parse().ok()?, start.parse().ok()?))
}

#[cfg(test)]
mod tests;
