//! Moving the bytes of one transfer between a file and a data connection. Runs on a thread of its own that may wait for
//! either; both are given up when the connection is shut down, and the connection after a time without a byte.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ascii::{FromWire, to_wire};
use crate::command::Representation;
use verbena_transfer::FileError;

use crate::error::TransferError;
use crate::limits::{self, Limits};
use crate::listing::Form;
use crate::machine::{Outcome, Place, What};
use crate::rights::Rights;
use crate::work;
use verbena_transfer::{Entries, Facts, From, Kind, Part, Root};
use verbena_transfer::{VirtualPath, is_pattern, matches};

/// Bytes that are read or written at once.
const BLOCK: usize = 256 << 10;

/// A file that is open for a transfer, before there is a data connection.
pub(crate) enum Opened {
    Source { file: File, to: u64, from: u64 },
    Target { target: Target, name: Option<Vec<u8>>, announced: Option<u64> },
    Listing(Listing),
}

/// Where an upload is written.
pub(crate) enum Target {
    InPlace(File),
    Part(Part),
}

/// A listing that is written as the directory is read.
pub(crate) struct Listing {
    form: Form,
    prefix: Vec<u8>,
    pattern: Option<Vec<u8>>,
    entries: Option<Entries>,
    single: Option<(Vec<u8>, Facts)>,
}

/// Opens what a transfer moves.
pub(crate) fn open(root: &Root, what: &What) -> Result<Opened, FileError> {
    match what {
        What::Retrieve { path, from, to } => {
            let (mut file, facts) = root.read(path)?;
            if *from > facts.size {
                return Err(FileError::BehindEnd);
            }
            file.seek(SeekFrom::Start(*from))?;
            Ok(Opened::Source { file, from: *from, to: *to })
        }
        What::Store { path, place, announced } => {
            let (target, name) = match place {
                Place::Byte(byte) => (Target::InPlace(root.write(path, From::Byte(*byte))?), None),
                Place::End => (Target::InPlace(root.write(path, From::End)?), None),
                Place::Whole => (Target::Part(root.write_part(path)?), None),
                Place::Unique => {
                    let (file, name) = root.write_unique(path, "ftp")?;
                    (Target::InPlace(file), Some(name))
                }
            };
            Ok(Opened::Target { target, name, announced: *announced })
        }
        // The caller runs a session for a tree.
        What::SendTree { .. } | What::ReceiveTree { .. } => Err(FileError::NotRegular),
        What::List { path, form, prefix } => Ok(Opened::Listing(listing(root, path, *form, prefix)?)),
    }
}

fn listing(root: &Root, path: &VirtualPath, form: Form, argument: &[u8]) -> Result<Listing, FileError> {
    let (directory, name) = match argument.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => argument.split_at(slash + 1),
        None => (&b""[..], argument),
    };
    let mut listing = Listing { form, prefix: Vec::new(), pattern: None, entries: None, single: None };
    match root.facts(path) {
        Ok(facts) if facts.kind == Kind::Directory => {
            if !argument.is_empty() {
                listing.prefix = if name.is_empty() { directory.to_vec() } else { [argument, b"/"].concat() };
            }
            listing.entries = Some(root.entries(path)?);
        }
        Ok(_) if matches!(form, Form::Facts(_)) => return Err(FileError::NotDirectory),
        Ok(facts) => {
            listing.prefix = directory.to_vec();
            listing.single = Some((path.name().unwrap_or(b"/").to_vec(), facts));
        }
        Err(FileError::NotFound) if path.name().is_some_and(is_pattern) && !matches!(form, Form::Facts(_)) => {
            listing.prefix = directory.to_vec();
            listing.pattern = path.name().map(<[u8]>::to_vec);
            listing.entries = Some(root.entries(&path.parent())?);
        }
        Err(error) => return Err(error),
    }
    Ok(listing)
}

impl Opened {
    /// What the client is told before the data connection.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Opened::Source { file, from, to } => {
                let size = file.metadata().map(|data| data.len().min(*to).saturating_sub(*from)).ok();
                Outcome::Opened { size, name: None }
            }
            Opened::Target { name, .. } => Outcome::Opened { size: None, name: name.clone() },
            Opened::Listing(_) => Outcome::Opened { size: None, name: None },
        }
    }
}

/// A file of a user with a quota, before an upload.
pub(crate) struct Before {
    path: VirtualPath,
    bytes: u64,
    /// Bytes that are dropped at once, and give room.
    dropped: u64,
}

impl Before {
    pub(crate) fn look(root: &Root, what: &What) -> Option<Before> {
        let What::Store { path, place, .. } = what else { return None };
        let bytes = if *place == Place::Unique { 0 } else { limits::size(root, path) };
        let dropped = if let Place::Byte(first) = place { bytes.saturating_sub(*first) } else { 0 };
        Some(Before { path: path.clone(), bytes, dropped })
    }

    /// The file is open.
    pub(crate) fn opened(&mut self, limits: &Limits, opened: &Opened) {
        if let Opened::Target { name: Some(name), .. } = opened
            && let Some(path) = self.path.descend(name)
        {
            self.path = path;
        }
        limits.changed(self.dropped, 0);
    }

    /// The upload has ended, one way or the other.
    pub(crate) fn ended(&self, root: &Root, limits: &Limits, taken: u64) {
        limits.changed(self.bytes - self.dropped + taken, limits::size(root, &self.path));
    }
}

/// A data connection, in clear or not.
pub(crate) trait Connection: Read + Write + Send {
    /// Says that nothing more will be sent.
    fn end(&mut self) -> std::io::Result<()>;

    /// Its socket.
    fn socket(&self) -> &std::net::TcpStream;
}

impl Connection for std::net::TcpStream {
    fn end(&mut self) -> std::io::Result<()> {
        self.shutdown(std::net::Shutdown::Write)
    }

    fn socket(&self) -> &std::net::TcpStream {
        self
    }
}

/// What the mover is told of its transfer.
pub(crate) struct Context<'a> {
    pub representation: Representation,
    pub rights: Rights,
    pub moved: &'a AtomicU64,
    /// Whether the client is still there: asked before a whole file is put in its place.
    pub is_client_there: &'a dyn Fn() -> bool,
    /// What the user may use.
    pub limits: Option<&'a Limits>,
    /// Bytes that were taken of the quota.
    pub taken: &'a AtomicU64,
}

impl Context<'_> {
    pub(crate) fn block(&self) -> Vec<u8> {
        vec![0; self.limits.map_or(BLOCK, |limits| limits.block(BLOCK))]
    }

    pub(crate) fn passed(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(limits) = self.limits {
            limits.passed(bytes as u64);
        }
    }

    /// Takes room of the user's quota.
    pub(crate) fn take_room(&self, bytes: usize) -> Result<(), TransferError> {
        if let Some(limits) = self.limits {
            limits::take(limits, bytes as u64)?;
            self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes what there is room for.
    fn write(&self, file: &mut File, bytes: &[u8]) -> Result<(), TransferError> {
        self.take_room(bytes.len())?;
        file.write_all(bytes).map_err(from_file)
    }
}

/// Moves everything. `Ok` says that all of it arrived, or was given to the kernel to send.
pub(crate) fn transfer(
    opened: Opened,
    connection: &mut dyn Connection,
    context: &Context<'_>,
) -> Result<(), TransferError> {
    match opened {
        Opened::Source { file, from, to } => retrieve(file, to.saturating_sub(from), connection, context),
        Opened::Target { target, announced, .. } => store(target, announced, connection, context),
        Opened::Listing(listing) => list(listing, connection, context),
    }
}

pub(crate) fn broken(error: std::io::Error) -> TransferError {
    match error.kind() {
        // The end of SO_RCVTIMEO or SO_SNDTIMEO.
        ErrorKind::WouldBlock | ErrorKind::TimedOut => TransferError::Stalled,
        _ => TransferError::Broken,
    }
}

pub(crate) fn from_file(error: std::io::Error) -> TransferError {
    TransferError::File(error.into())
}

fn retrieve(
    mut file: File,
    mut rest: u64,
    connection: &mut dyn Connection,
    context: &Context<'_>,
) -> Result<(), TransferError> {
    let mut block = context.block();
    let mut lines = Vec::new();
    while rest > 0 {
        let most = usize::try_from(rest).map_or(block.len(), |rest| rest.min(block.len()));
        let read = match file.read(&mut block[..most]) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(from_file(error)),
        };
        rest -= read as u64;
        let bytes = match context.representation {
            Representation::Image => &block[..read],
            Representation::Ascii => {
                lines.clear();
                to_wire(&block[..read], &mut lines);
                lines.as_slice()
            }
        };
        send(bytes, connection, context)?;
    }
    connection.end().map_err(broken)
}

fn send(bytes: &[u8], connection: &mut dyn Connection, context: &Context<'_>) -> Result<(), TransferError> {
    connection.write_all(bytes).map_err(broken)?;
    context.passed(bytes.len());
    Ok(())
}

fn store(
    mut target: Target,
    announced: Option<u64>,
    connection: &mut dyn Connection,
    context: &Context<'_>,
) -> Result<(), TransferError> {
    let mut block = context.block();
    let (mut decoder, mut text) = (FromWire::default(), Vec::new());
    let mut received = 0u64;
    let file = match &mut target {
        Target::InPlace(file) => file,
        Target::Part(part) => &mut part.file,
    };
    loop {
        let read = match connection.read(&mut block) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(broken(error)),
        };
        received += read as u64;
        context.passed(read);
        match context.representation {
            Representation::Image => context.write(file, &block[..read])?,
            Representation::Ascii => {
                text.clear();
                decoder.take(&block[..read], &mut text);
                if read == 0 {
                    decoder.end(&mut text);
                }
                context.write(file, &text)?;
            }
        }
        if read == 0 {
            break;
        }
    }
    // A client that speaks TLS may wait for the answer to its close_notify; one that has gone misses nothing.
    let _ = connection.end();
    match target {
        Target::InPlace(_) => Ok(()),
        Target::Part(_) if announced.is_some_and(|announced| received < announced) => Err(TransferError::Short),
        // A client that was killed ends its data connection as one that is done does.
        Target::Part(_) if !(context.is_client_there)() => Err(TransferError::Broken),
        Target::Part(part) => Ok(part.publish()?),
    }
}

fn list(listing: Listing, connection: &mut dyn Connection, context: &Context<'_>) -> Result<(), TransferError> {
    let Listing { form, prefix, pattern, entries, single } = listing;
    let now = work::now();
    let mut lines = Vec::with_capacity(BLOCK);
    let entries = single.into_iter().map(Ok).chain(entries.into_iter().flatten());
    for entry in entries {
        let (name, facts) = entry?;
        if pattern.as_ref().is_some_and(|pattern| !matches(pattern, &name)) {
            continue;
        }
        form.write(&[prefix.as_slice(), &name].concat(), &facts, context.rights, now, &mut lines);
        if lines.len() >= BLOCK {
            send(&lines, connection, context)?;
            lines.clear();
        }
    }
    send(&lines, connection, context)?;
    connection.end().map_err(broken)
}
