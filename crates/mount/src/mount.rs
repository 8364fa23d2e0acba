//! The library entries of `verbena fs mount`, `check`, `status`, `purge` and `umount`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use nix::mount::{MntFlags, umount2};
use rustix::process::{Resource, Rlimit};
use verbena_bank::{
    Bank, BlockSize, Blocks, Clocks, Daemons, Introduction, Kind, Memcached, MemoryOptions, Near, Options, Placement,
    Request, Rules, Secret, SharedMemory,
};
use verbena_client::Socket;

use crate::below::{Below, KIND, SOURCE, hold, kind_of, mounts};
use crate::cache::Cache;
use crate::caller::Identities;
use crate::error::{MountError, UmountError};
use crate::explain::EXPLAIN;
use crate::files::Files;
use crate::fuse::{Mounting, Serving, serve};
use crate::promise::Promise;
use crate::purge::{PURGE, Purged};
use crate::secret::{machine_secret, secret_of};
use crate::status::{STATUS, status_text};

/// What `verbena fs mount` is given.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// The directory below, on any mounted file system.
    pub below: PathBuf,
    /// An empty directory where the mount appears.
    pub at: PathBuf,
    /// Where blocks are kept.
    pub bank: Kind,
    /// The helper's sockets, for a bank in its memory.
    pub helpers: Vec<Socket>,
    /// How blocks are spread over daemons.
    pub placement: Placement,
    /// Bytes of a block.
    pub block: BlockSize,
    /// What is promised of reads.
    pub promise: Promise,
    /// The name of the volume: clients with the same name and secret share blocks.
    pub volume: Option<String>,
    /// A file with the volume's secret. Without one, all mounts of the same directory by this user on this machine share blocks of a bank in memory; blocks of daemons no other client finds.
    pub secret: Option<PathBuf>,
    /// Whether blocks are sealed before they go into the bank. Mounts that do and mounts that do not share none.
    pub encrypt: bool,
    /// Bytes of this process's own memory for blocks, before the bank; 0 is none.
    pub near: u64,
    /// Whether all users may use the mount, each with its own identity below. Only for root.
    pub allow_other: bool,
    /// How long a daemon may take before its blocks are misses.
    pub deadline: Duration,
    /// Threads that serve the kernel, at least 2.
    pub threads: usize,
    /// How far the times below can be trusted, if that is known better than a measurement says.
    pub clocks: Option<Clocks>,
    /// For tests: rules that are switched off.
    #[doc(hidden)]
    pub rules: Rules,
}

impl MountOptions {
    /// A plain mount of `below` at `at`, with nothing cached.
    pub fn new(below: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Self {
        MountOptions {
            below: below.into(),
            at: at.into(),
            bank: Kind::None,
            helpers: vec![],
            placement: Placement::default(),
            block: BlockSize::default(),
            promise: Promise::default(),
            volume: None,
            secret: None,
            encrypt: false,
            near: 0,
            allow_other: false,
            deadline: Options::default().deadline,
            threads: 8,
            clocks: None,
            rules: Rules::default(),
        }
    }
}

/// A mount that this process serves. It ends, with the mount, when it is dropped.
pub struct Mounted {
    at: PathBuf,
    files: Arc<Files>,
    serving: Serving,
    notes: Vec<String>,
}

/// Mounts. Nothing is mounted if this fails.
///
/// The mask of new files (`umask`) of this process becomes 0: the kernel has applied each caller's before it asks.
pub fn mount(options: &MountOptions) -> Result<Mounted, MountError> {
    let below = directory(&options.below, "the directory below")?;
    replace_dead(&options.at);
    let at = directory(&options.at, "the mount point")?;
    refuse(&below, &at, options)?;
    let below = Below::look(&below)?;
    let mut notes = vec![];
    let cache = match &options.bank {
        Kind::Memcached(daemons) => {
            let blocks = in_daemons(options, daemons, &below, &mut notes)?;
            Some(cache(options, blocks, below.clone(), &mut notes)?)
        }
        Kind::Memory(bytes) => {
            let blocks = in_memory(options, *bytes, &below, &mut notes)?;
            Some(cache(options, blocks, below.clone(), &mut notes)?)
        }
        Kind::None => {
            notes.push("nothing is cached: every read and stat goes to the file system below".to_owned());
            None
        }
    };
    raise_descriptors();
    rustix::process::umask(rustix::fs::Mode::empty());
    let root = hold(&below.root).map_err(std::io::Error::from)?;
    let identities = if options.allow_other { Identities::Callers } else { Identities::Own };
    let (believed, missed) = if cache.is_some() && !options.allow_other {
        (options.promise.believed(), options.promise.missed())
    } else {
        (Duration::ZERO, Duration::ZERO)
    };
    // Another user may not list or search what this one may.
    let names = cache.as_ref().filter(|_| !options.allow_other).and_then(|cache| cache.names(options.promise));
    let believes = !believed.is_zero();
    let files = Files::new(root, identities, cache, names, believes).map_err(std::io::Error::from)?;
    let files = Arc::new(files);
    let mounting = Mounting {
        at: &at,
        source: format!("{SOURCE}{}", below.root.display()),
        for_all: options.allow_other,
        threads: options.threads.max(2),
        believed,
        missed,
    };
    let serving = serve(files.clone(), &mounting).map_err(|error| MountError::Fuse { at: at.clone(), error })?;
    Ok(Mounted { at, files, serving, notes })
}

impl Mounted {
    /// Which promise it gives and what weakens it, one sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// What it counted, a line each.
    pub fn status(&self) -> String {
        status_text(&self.files)
    }

    /// Takes the mount away. Files that are open there must be closed before.
    pub fn umount(self) -> std::io::Result<()> {
        self.serving.end()
    }

    /// Serves until the mount is taken away.
    pub fn wait(self) -> std::io::Result<()> {
        self.serving.wait()
    }
}

/// What a file system can carry: `verbena fs check`.
pub fn check(below: &Path) -> Result<Below, MountError> {
    Ok(Below::look(&directory(below, "the directory to check")?)?)
}

/// What a mount counted, asked of the process that serves it: `verbena fs status`.
pub fn status(at: &Path) -> Result<String, UmountError> {
    ours(at)?;
    let mut buffer = vec![0; 64 << 10];
    let length = rustix::fs::getxattr(at, STATUS, &mut buffer[..])
        .map_err(|error| UmountError::Silent { at: at.to_owned(), error: error.into() })?;
    buffer.truncate(length);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// Nothing that a mount keeps of a file or a tree is used any more: `verbena fs purge`. Links are followed to the file, and not inside the tree.
pub fn purge(path: &Path) -> Result<Purged, UmountError> {
    let silent = |error: std::io::Error| UmountError::Silent { at: path.to_owned(), error };
    let found = path.canonicalize().map_err(silent)?;
    if kind_of(&found).is_none_or(|kind| kind != KIND) {
        return Err(UmountError::NotOurs { at: found });
    }
    let mut buffer = vec![0; 4 << 10];
    let length = rustix::fs::getxattr(&found, PURGE, &mut buffer[..]).map_err(|error| match error {
        rustix::io::Errno::NODATA => UmountError::NoBank { at: found.clone() },
        rustix::io::Errno::PERM => UmountError::NotYours { at: found.clone() },
        error => silent(error.into()),
    })?;
    buffer.truncate(length);
    Ok(Purged::parse(&String::from_utf8_lossy(&buffer)))
}

/// Why the last open or read of a file did not come from the bank, or that it did: `verbena fs status --explain`.
pub fn explain(file: &Path) -> Result<String, UmountError> {
    let silent = |error: std::io::Error| UmountError::Silent { at: file.to_owned(), error };
    if kind_of(&std::path::absolute(file).map_err(silent)?).is_none_or(|kind| kind != KIND) {
        return Err(UmountError::NotOurs { at: file.to_owned() });
    }
    let mut buffer = vec![0; 4 << 10];
    let length = rustix::fs::getxattr(file, EXPLAIN, &mut buffer[..]).map_err(|error| match error {
        rustix::io::Errno::NODATA => UmountError::NoBank { at: file.to_owned() },
        error => silent(error.into()),
    })?;
    buffer.truncate(length);
    Ok(String::from_utf8_lossy(&buffer).into_owned())
}

/// Takes a mount away from another process than the one that serves it: `verbena fs umount`. `lazy` does it although
/// files are open there.
pub fn umount(at: &Path, lazy: bool) -> Result<(), UmountError> {
    ours(at)?;
    let refused = |error| UmountError::Refused { at: at.to_owned(), error };
    if rustix::process::geteuid().is_root() {
        let flags = if lazy { MntFlags::MNT_DETACH } else { MntFlags::empty() };
        return umount2(at, flags).map_err(|error| refused(error.into()));
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(at);
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(refused(std::io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))),
        Err(error) => Err(refused(error)),
    }
}

fn ours(at: &Path) -> Result<(), UmountError> {
    // Not by its canonical path: a mount whose process is gone answers nothing.
    let at = std::path::absolute(at).unwrap_or_else(|_| at.to_owned());
    let is_ours = mounted_at(&at).is_some_and(|kind| kind == KIND);
    if is_ours { Ok(()) } else { Err(UmountError::NotOurs { at }) }
}

fn mounted_at(at: &Path) -> Option<String> {
    mounts()?.into_iter().rev().find(|mount| mount.point == at).map(|mount| mount.kind)
}

/// A mount of ours whose process was killed is taken away, so that one command brings it back.
fn replace_dead(at: &Path) {
    let is_dead = std::fs::metadata(at).is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN));
    if is_dead {
        // If it stays, the look at the mount point says why.
        _ = umount(at, true);
    }
}

fn directory(path: &Path, part: &'static str) -> Result<PathBuf, MountError> {
    let wrong = |error| MountError::Path { path: path.to_owned(), part, error };
    let found = path.canonicalize().map_err(wrong)?;
    if found.metadata().map_err(wrong)?.is_dir() {
        Ok(found)
    } else {
        Err(MountError::NoDirectory { path: found, part })
    }
}

fn refuse(below: &Path, at: &Path, options: &MountOptions) -> Result<(), MountError> {
    for (inner, outer) in [(at, below), (below, at)] {
        if inner.starts_with(outer) {
            return Err(MountError::Inside { inner: inner.to_owned(), outer: outer.to_owned() });
        }
    }
    if let Some(kind) = mounted_at(at) {
        return Err(MountError::Taken { at: at.to_owned(), kind });
    }
    if kind_of(below).is_some_and(|kind| kind == KIND) {
        return Err(MountError::Twice { below: below.to_owned() });
    }
    if options.allow_other && !rustix::process::geteuid().is_root() {
        return Err(MountError::AllowOther);
    }
    if options.encrypt && options.bank == Kind::None {
        return Err(MountError::Encrypt);
    }
    if options.near > 0 && (options.bank == Kind::None || near(options).is_none()) {
        return Err(MountError::Near { bytes: options.near, block: options.block.bytes() });
    }
    Ok(())
}

/// A bank of daemons.
fn in_daemons(
    options: &MountOptions,
    daemons: &Daemons,
    below: &Below,
    notes: &mut Vec<String>,
) -> Result<Blocks, MountError> {
    let volume = volume(options, below);
    let secret = match &options.secret {
        Some(path) => secret_of(path)?,
        None => {
            notes.push("without --secret no other mount finds these blocks".to_owned());
            Secret::random().map_err(MountError::NoSecret)?
        }
    };
    let memcached = Memcached::new(daemons.clone(), Options { deadline: options.deadline, ..Options::default() })?;
    let bank = Bank::Memcached(memcached, options.placement);
    let blocks = Blocks::new(of_volume(options, &secret, &volume), bank, options.rules).with_near(near(options));
    // A mount that shares no secret is a volume of its own.
    match options.secret {
        Some(_) => introduce(&blocks, daemons, &volume, options.block, notes)?,
        None => look_for(&blocks, daemons, notes),
    }
    Ok(blocks)
}

/// A daemon that does not answer costs reads below and nothing else, so it is a mount all the same.
fn look_for(blocks: &Blocks, daemons: &Daemons, notes: &mut Vec<String>) {
    let Bank::Memcached(memcached, _) = blocks.bank() else { return };
    let ask = |daemon| (daemon, Request::Get { name: b"verbena:mount".to_vec() });
    let answers = memcached.exchange(&(0..daemons.list().len()).map(ask).collect::<Vec<_>>());
    for (daemon, answer) in daemons.list().iter().zip(answers) {
        if answer.is_none() {
            notes.push(silent(&daemon.address));
        }
    }
}

fn silent(daemon: &impl std::fmt::Display) -> String {
    format!("warning: no memcached daemon answers at {daemon}: its blocks are misses until one does")
}

/// A bank in memory of the helper.
fn in_memory(options: &MountOptions, bytes: u64, below: &Below, notes: &mut Vec<String>) -> Result<Blocks, MountError> {
    let (secret, volume) = match (&options.secret, options.helpers.first()) {
        (Some(path), _) => (secret_of(path)?, volume(options, below)),
        (None, Some(helper)) => {
            let secret = machine_secret(helper.directory()).or_else(|error| {
                notes.push(format!("no other mount finds these blocks: {error}"));
                Secret::random().map_err(MountError::NoSecret)
            })?;
            // Another file system can stand at the same path tomorrow, with the same numbers of files.
            (secret, format!("{}\0{}\0{}", volume(options, below), below.device, below.filesystem))
        }
        (None, None) => return Err(MountError::NoHelper),
    };
    let memory =
        MemoryOptions { sockets: options.helpers.clone(), block: options.block, bytes, deadline: options.deadline };
    let memory = SharedMemory::new(memory)?.ok_or(MountError::Memory { bytes, block: options.block.bytes() })?;
    let status = memory.status();
    let at = || if status.homes.is_empty() { String::new() } else { format!(" at {}", status.homes.join(", ")) };
    notes.push(format!("the bank is {} MiB of the helper's memory{}", status.bytes >> 20, at()));
    if let Some(problem) = status.problem {
        notes.push(format!("the helper gives no more: {problem} (the mount asks again for as long as it runs)"));
    }
    Ok(Blocks::new(of_volume(options, &secret, &volume), Bank::Memory(memory), options.rules).with_near(near(options)))
}

fn near(options: &MountOptions) -> Option<Near> {
    Near::new(options.near, options.block)
}

fn of_volume(options: &MountOptions, secret: &Secret, volume: &str) -> Secret {
    if options.encrypt { secret.encrypted(volume) } else { secret.of_volume(volume) }
}

fn volume(options: &MountOptions, below: &Below) -> String {
    options.volume.clone().unwrap_or_else(|| below.root.display().to_string())
}

fn cache(
    options: &MountOptions,
    blocks: Blocks,
    mut below: Below,
    notes: &mut Vec<String>,
) -> Result<Cache, MountError> {
    below.clocks = options.clocks.unwrap_or(below.clocks);
    notes.push(match options.promise {
        Promise::Open => format!(
            "an open sees all that was closed before it; a file is cached {} ms after its last change",
            below.margin().as_millis()
        ),
        Promise::Sealed => {
            "files are taken to be sealed: one that changes after it was closed may be read as it was".to_owned()
        }
        Promise::Age(age) => {
            format!("names, missing names, attributes and bytes are at most {} ms old", age.as_millis())
        }
    });
    if options.allow_other && options.promise != Promise::Open {
        notes
            .push("a mount for all users asks below for every name, so that each caller's permissions hold".to_owned());
    }
    if options.near > 0 {
        notes.push(format!("{} KiB of this process's memory are asked before the bank", options.near >> 10));
    }
    if options.encrypt {
        notes.push("blocks are sealed in the bank: only mounts with this secret and --encrypt read them".to_owned());
    }
    notes.extend(below.weaknesses());
    Ok(Cache::new(Arc::new(blocks), options.block, below, options.rules)?)
}

fn introduce(
    blocks: &Blocks,
    daemons: &Daemons,
    volume: &str,
    size: BlockSize,
    notes: &mut Vec<String>,
) -> Result<(), MountError> {
    for (daemon, introduction) in daemons.list().iter().zip(blocks.introduce(volume, size)) {
        let (daemon, volume) = (daemon.address.to_string(), volume.to_owned());
        match introduction {
            Introduction::Agreed => {}
            Introduction::Down => notes.push(silent(&daemon)),
            Introduction::OtherSecret => return Err(MountError::OtherSecret { daemon, volume }),
            Introduction::OtherList => return Err(MountError::OtherList { daemon, volume }),
            Introduction::TooSmall => return Err(MountError::Block { daemon, bytes: size.bytes() }),
        }
    }
    Ok(())
}

/// Every file that the kernel knows takes a descriptor.
fn raise_descriptors() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    // Where it cannot be raised, opens answer EMFILE earlier.
    _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
