//! Copying trees and files to and from a server that speaks TPRT: the same call again goes on where the last one was.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    CHUNK_BYTES, Channel, ChannelKind, Endpoint, FileError, Later, Links, LocalError, MOST_STREAMS, PlaceError,
    Progress, Root, SessionError, SessionSettings, Sources, Store, Summary, TunerSettings, VirtualPath, Walk, receive,
    send, source_place, target_place,
};

use crate::dialogue::{Argument, Dialogue};
use crate::endpoint;
use crate::limits::RateLimit;
use crate::listed::ListedKind;
use crate::offer::Offer;
use crate::remedy::{in_a_sentence, of_io, of_local, of_reply};
use crate::remote::{facts_by_mlst, name_of};
use crate::trust::ClientTls;
use crate::watched::Watched;

/// Where the server is, and as whom.
#[derive(Clone, Debug)]
pub struct Location {
    /// A name or an address.
    pub host: String,
    /// 21, mostly.
    pub port: u16,
    /// The user's name.
    pub user: String,
    /// The password.
    pub password: String,
    /// The file or directory there, as the server's bytes.
    pub path: Vec<u8>,
    /// TLS; `None` sends everything in clear.
    pub tls: Option<ClientTls>,
}

/// Which way files go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the server.
    Get,
    /// To the server.
    Put,
}

/// What is copied.
#[derive(Clone, Debug)]
pub struct CopyOptions {
    /// The server's side.
    pub remote: Location,
    /// This side. A directory that exists: the tree is copied into it, or out of it. For one file: it, or where it goes.
    pub local: PathBuf,
    /// Which way.
    pub direction: Direction,
    /// Streams, 1 to 16. `None` adds streams while they pay (rule T13).
    pub streams: Option<u16>,
    /// Channels, in order of preference: one of them is used, or the copy fails. None: the session has all that may be used, and finds by measuring
    /// which is (rule T13).
    pub channels: Vec<ChannelKind>,
    /// Whether files are on this disk before they count. The server's side always is.
    pub is_durable: bool,
    /// How fast bytes go over the network; none: as fast as they do. With a limit nothing goes over the channel `descriptor`, whose bytes the other side copies.
    pub limit: Option<RateLimit>,
    /// How long the server may take for an answer.
    pub timeout: Duration,
}

/// Why a copy ended before its end. What stands stays; the same call goes on there.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The server cannot be reached, or has gone.
    #[error("{place}: {error}{}", of_io(error))]
    Io {
        /// Host and port.
        place: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// A command was refused.
    #[error("{command}: the server says: {}{}", reply.trim_end_matches('.'), of_reply(command, *code))]
    Refused {
        /// With its argument, but for a password.
        command: String,
        /// The reply's code.
        code: u16,
        /// The server's words.
        reply: String,
    },
    /// The authorities cannot be read.
    #[error("{0}")]
    Trust(String),
    /// The file changed, here or there, while it was read; nothing was put in the target's place on this side.
    #[error("{0}: it changed while it was read, or does not have the size that it should; run the same command again")]
    Changed(String),
    /// A file on this side cannot be read.
    #[error("{name}: {error}")]
    Read {
        /// Which, as it is called there.
        name: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The caller broke it off.
    #[error("the copy was broken off; run the same command again to go on")]
    Stopped,
    /// A name that no command can carry.
    #[error("{0:?} holds a line end or a NUL, which FTP cannot name")]
    Name(String),
    /// The directory on this side.
    #[error("{}: {}{}", path.display(), in_a_sentence(*error), of_local(*error))]
    Local {
        /// Which.
        path: PathBuf,
        /// Why.
        error: FileError,
    },
    /// None of the channels that were named may be used.
    #[error(
        "{0} cannot be used: descriptor is for two sides on one machine, and with TLS nothing goes in clear between machines, as by tcp; leave out --channel"
    )]
    NoChannel(String),
    /// A file whose name here is not known.
    #[error("{0} ends with no name of a file: name the file, or say what it is to be called here")]
    NoName(String),
    /// A file could not go directly from server to server: another way is there.
    #[error("the servers refused to send the file directly")]
    NotDirect,
    /// Two servers that have no session with each other.
    #[error("the servers do not connect to each other: {0}")]
    NoThird(String),
    /// Source and target are on this machine, and one lies in the other.
    #[error("{0}")]
    Within(String),
    /// The session ended.
    #[error(transparent)]
    Session(#[from] SessionError),
}

impl From<PlaceError> for CopyError {
    fn from(error: PlaceError) -> CopyError {
        match error {
            PlaceError::File { path, error } => CopyError::Local { path, error },
            PlaceError::NoName(name) => CopyError::NoName(name),
        }
    }
}

impl From<LocalError> for CopyError {
    fn from(error: LocalError) -> CopyError {
        match error {
            LocalError::Place(error) => error.into(),
            LocalError::Session(error) => error.into(),
            LocalError::Within { .. } => CopyError::Within(error.to_string()),
        }
    }
}

impl CopyError {
    /// The error without the file's path, for a list that names the file.
    pub(crate) fn of_a_file(&self) -> String {
        match self {
            CopyError::Refused { command, code, reply } => {
                let command = command.split(' ').next().unwrap_or_default().to_owned();
                CopyError::Refused { command, code: *code, reply: reply.clone() }.to_string()
            }
            CopyError::Local { error, .. } => error.to_string(),
            CopyError::Read { error, .. } => error.to_string(),
            other => other.to_string(),
        }
    }

    /// Whether two servers have no session with each other.
    pub fn is_without_third(&self) -> bool {
        matches!(self, CopyError::NoThird(_) | CopyError::NoChannel(_))
    }

    /// Whether the server does not have TPRT, or there is no channel of those that were asked for.
    pub fn is_without_sessions(&self) -> bool {
        match self {
            CopyError::Refused { command, code: 500 | 502 | 504, .. } => command.starts_with("TPRT"),
            CopyError::NoChannel(_) => true,
            _ => false,
        }
    }
}

/// What a session carries: from or to where here, and there.
struct Sides {
    root: Arc<Root>,
    base: VirtualPath,
    there: Vec<u8>,
    /// Of one file: its name, for messages.
    name: Option<Vec<u8>>,
}

impl Sides {
    fn find(options: &CopyOptions, control: &mut Dialogue) -> Result<Sides, CopyError> {
        let there = options.remote.path.clone();
        let is_upload = options.direction == Direction::Put;
        let is_file_here = is_upload && options.local.is_file();
        let facts = match is_file_here || (!is_upload && !there.ends_with(b"/")) {
            true => facts_by_mlst(control, &there),
            false => Ok(None),
        };
        let facts = match facts {
            // Where it goes there may be nothing yet.
            Err(CopyError::Refused { .. }) if is_upload => None,
            other => other?,
        };
        let kind = facts.map(|listed| listed.kind);
        if !is_upload && kind == Some(ListedKind::File) {
            let (root, base) = target(&options.local, &there)?;
            let name = Some(name_of(&there).to_vec());
            return Ok(Sides { root: Arc::new(root), base, there, name });
        }
        let (root, base) = source_place(&options.local)?;
        let root = Arc::new(root);
        if !is_file_here {
            return Ok(Sides { root, base, there, name: None });
        }
        let is_into = there.ends_with(b"/") || kind == Some(ListedKind::Directory);
        let there = match options.local.file_name() {
            Some(name) if is_into => [there.strip_suffix(b"/").unwrap_or(&there), b"/", name.as_bytes()].concat(),
            _ => there,
        };
        let name = options.local.file_name().map(|name| name.as_bytes().to_vec());
        Ok(Sides { root, base, there, name })
    }
}

/// Where a file of a server goes on this side: below which directory, and by which name. A directory takes the name there.
///
/// # Errors
/// There is no name, or what stands there is a device or the like, which a file does not replace.
pub fn target(to: &Path, there: &[u8]) -> Result<(Root, VirtualPath), CopyError> {
    target_place(to, name_of(there)).map_err(|error| match error {
        PlaceError::NoName(_) => CopyError::NoName(String::from_utf8_lossy(there).into_owned()),
        other => other.into(),
    })
}

/// What client and server agreed on.
struct Agreed {
    endpoints: Vec<Endpoint>,
    /// The one stream of a session that hands files over.
    made: Option<Box<dyn Channel>>,
    /// Why channels that were offered are not used.
    notes: Vec<String>,
    offer: Offer,
}

/// Asks for a session. Whether descriptors can be handed over shows when their stream is made: where not, the session goes over another channel.
fn agree(
    control: &mut Dialogue,
    mut offer: Offer,
    (first, most): (u16, u16),
    timeout: Duration,
) -> Result<Agreed, CopyError> {
    let counts = if first == most { first.to_string() } else { format!("{first}-{most}") };
    let mut notes = Vec::new();
    loop {
        let argument = format!("{} {counts}", offer.argument());
        let reply = control.command("TPRT", &Argument::new(argument.as_bytes())?, 2)?;
        let answer = String::from_utf8_lossy(&reply.text).into_owned();
        let endpoints = endpoint::read(&answer, control.peer()?.ip()).filter(|endpoints| offer.has(endpoints));
        let endpoints = endpoints.ok_or_else(|| reply.refused("TPRT"))?;
        let Some(local) = endpoints.iter().find(|endpoint| endpoint.channel.is_local()) else {
            return Ok(Agreed { endpoints, made: None, notes, offer });
        };
        match local.make(0, 1, timeout) {
            Ok(stream) => return Ok(Agreed { endpoints, made: Some(stream), notes, offer }),
            Err(error) if offer.drop_local() => notes.push(format!("descriptor cannot be used: {error}")),
            Err(error) => return Err(control.io(error)),
        }
    }
}

/// Copies a tree, or one file. `report` is called as files come to their end; `false` breaks the copy off.
///
/// # Errors
/// The server does not speak TPRT (500 or 502 to the command), refuses, or has gone; or the directory here cannot be opened.
/// Files that could not be copied are no error: [`Summary::failures`] names them.
pub fn copy(options: &CopyOptions, report: &mut dyn FnMut(&Progress) -> bool) -> Result<Summary, CopyError> {
    let remote = &options.remote;
    let local = |error| CopyError::Local { path: options.local.clone(), error };
    if options.direction == Direction::Put {
        // Nothing is asked of a server if there is nothing to send.
        std::fs::metadata(&options.local).map_err(|error| local(error.into()))?;
    }
    let mut control = Dialogue::open(remote, options.timeout)?;
    let (first, streams) = match options.streams {
        None => (1, MOST_STREAMS),
        Some(streams) => (streams.clamp(1, MOST_STREAMS), streams.clamp(1, MOST_STREAMS)),
    };
    let offer = Offer::of(&options.channels, remote.tls.is_some(), control.is_one_machine()?)?;
    // More than one stream is of another channel, and so is what has a rate.
    let is_not_local = options.limit.is_some() || options.channels.is_empty() && options.streams.is_some();
    let offer = if is_not_local { offer.without_local() } else { offer };
    let Agreed { endpoints, made, mut notes, offer } = agree(&mut control, offer, (first, streams), options.timeout)?;
    // One that is made already carries everything.
    let (first, streams) = if made.is_some() { (1, 1) } else { (first, streams) };
    let channels: Vec<ChannelKind> = endpoints.iter().map(|endpoint| endpoint.channel).collect();
    let numbers = streams * channels.len() as u16;
    let Sides { root, base, there, name } = Sides::find(options, &mut control)?;
    let walk = match options.direction {
        Direction::Put => Some(Walk::new(root.clone(), base.clone()).map_err(local)?),
        Direction::Get => None,
    };
    control.command(if walk.is_some() { "STOR" } else { "RETR" }, &Argument::new(&there)?, 1)?;
    // Acknowledgements are not slowed down.
    let limits = options.limit.as_ref().map(|limit| match options.direction {
        Direction::Get => [Some(limit.0.clone()), None],
        Direction::Put => [None, Some(limit.0.clone())],
    });
    let timeout = options.timeout;
    let make = move |number: u16| -> std::io::Result<Box<dyn Channel>> {
        let endpoint = endpoints.get(usize::from(number / streams));
        let channel = endpoint.ok_or(std::io::ErrorKind::InvalidInput)?.make(number, numbers, timeout)?;
        Ok(match limits.clone() {
            Some(limits) => Box::new(Watched { channel, moved: Arc::default(), limits, running: None }),
            None => channel,
        })
    };
    let made: std::io::Result<Vec<_>> = match made {
        Some(stream) => Ok(vec![(0, stream)]),
        None => (0..first).map(|number| Ok((number, make(number)?))).collect(),
    };
    let mut links = Links { first: made.map_err(|error| control.io(error))?, ..Links::default() };
    let reason = offer.reason(&channels);
    let tuner = TunerSettings { first, most: streams, channels };
    if tuner.has_a_choice() {
        links.later = Later::Make(Box::new(make));
        links.tuner = Some(tuner);
    }
    let settings = SessionSettings::new(1, numbers);
    // Streams on datagrams hear nothing of the end of the server, and would be silent for a minute before they gave up.
    let mut is_gone = false;
    let mut watched = |progress: &Progress| {
        is_gone = control.is_gone();
        !is_gone && report(progress)
    };
    let summary = match walk {
        Some(mut walk) => send(links, Sources::new(root, base), &mut walk, settings, &mut watched)
            .map(|summary| summary.with_unread(walk.unread)),
        None => {
            let store = Store::new(root, base, CHUNK_BYTES, options.is_durable);
            receive(links, store, settings, &mut watched)
        }
    };
    if is_gone && summary.is_err() {
        return Err(control.io(std::io::ErrorKind::UnexpectedEof.into()));
    }
    let mut summary = summary?;
    // Files that failed are named in the summary; the server's last word is about them.
    match control.ended() {
        Err(CopyError::Refused { .. }) if !summary.failures.is_empty() => {}
        other => drop(other?),
    }
    summary.name(name.as_deref());
    notes.extend(reason);
    summary.notes.splice(0..0, notes);
    Ok(summary)
}
