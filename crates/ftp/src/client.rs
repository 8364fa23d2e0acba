//! Copying trees to and from a server that speaks TPRT: the same call again goes on where the last one was.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    CHUNK_BYTES, ChannelKind, FileError, Later, Links, MOST_STREAMS, Progress, Root, SessionError, SessionSettings,
    Sources, Store, Summary, TunerSettings, VirtualPath, Walk, receive, send,
};

use crate::dialogue::{Argument, Dialogue};
use crate::endpoint;
use crate::trust::ClientTls;

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
    /// This side: a directory that exists. The tree is copied into it, or out of it.
    pub local: PathBuf,
    /// Which way.
    pub direction: Direction,
    /// Streams, 1 to 16. `None` adds streams while they pay (rule T13).
    pub streams: Option<u16>,
    /// Channels, in order of preference. One that was named alone is used, or the copy fails.
    pub channels: Vec<ChannelKind>,
    /// Whether files are on this disk before they count. The server's side always is.
    pub is_durable: bool,
    /// How long the server may take for an answer.
    pub timeout: Duration,
}

/// Why a copy ended before its end. What stands stays; the same call goes on there.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The server cannot be reached, or has gone.
    #[error("{place}: {error}")]
    Io {
        /// Host and port.
        place: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// A command was refused.
    #[error("{command}: the server says: {reply}")]
    Refused {
        /// Without passwords.
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
    #[error("it was broken off; run the same command again to go on")]
    Stopped,
    /// A name that no command can carry.
    #[error("{0:?} holds a line end or a NUL, which FTP cannot name")]
    Name(String),
    /// The directory on this side.
    #[error("{}: {error}", path.display())]
    Local {
        /// Which.
        path: PathBuf,
        /// Why.
        error: FileError,
    },
    /// The session ended.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Copies a tree. `report` is called as files come to their end; `false` breaks the copy off.
///
/// # Errors
/// The server does not speak TPRT (500 or 502 to the command), refuses, or has gone; or the directory here cannot be opened.
/// Files that could not be copied are no error: [`Summary::failures`] names them.
pub fn copy(options: &CopyOptions, report: &mut dyn FnMut(&Progress) -> bool) -> Result<Summary, CopyError> {
    let remote = &options.remote;
    let path = Argument::new(&remote.path)?;
    let local = |error| CopyError::Local { path: options.local.clone(), error };
    let root = Arc::new(Root::open(&options.local).map_err(local)?);
    let walk = match options.direction {
        Direction::Put => Some(Walk::new(root.clone(), VirtualPath::root()).map_err(local)?),
        Direction::Get => None,
    };
    let mut control = Dialogue::open(remote, options.timeout)?;
    let (first, streams) = match options.streams {
        None => (1, MOST_STREAMS),
        Some(streams) => (streams.clamp(1, MOST_STREAMS), streams.clamp(1, MOST_STREAMS)),
    };
    let names: Vec<&str> = options.channels.iter().map(|channel| channel.name()).collect();
    let counts = if first == streams { first.to_string() } else { format!("{first}-{streams}") };
    let reply = control.command("TPRT", &Argument::new(format!("{} {counts}", names.join(",")).as_bytes())?, 2)?;
    let answer = String::from_utf8_lossy(&reply.text).into_owned();
    let endpoint = endpoint::read(&answer, control.peer()?.ip());
    let endpoint = endpoint.filter(|endpoint| options.channels.contains(&endpoint.channel));
    let endpoint = endpoint.ok_or_else(|| reply.refused("TPRT"))?;
    control.command(if walk.is_some() { "STOR" } else { "RETR" }, &path, 1)?;
    let timeout = options.timeout;
    let make = move |number| endpoint.make(number, streams, timeout);
    let made: std::io::Result<Vec<_>> = (0..first).map(|number| Ok((number, make(number)?))).collect();
    let mut links = Links { first: made.map_err(|error| control.io(error))?, ..Links::default() };
    if first < streams {
        links.later = Later::Make(Box::new(make));
        links.tuner = Some(TunerSettings { first, most: streams, channel: endpoint.channel, others: Vec::new() });
    }
    let settings = SessionSettings::new(1, streams);
    let summary = match walk {
        Some(walk) => send(links, Sources::new(root, VirtualPath::root()), walk, settings, report)?,
        None => {
            let store = Store::new(root, VirtualPath::root(), CHUNK_BYTES, options.is_durable);
            receive(links, store, settings, report)?
        }
    };
    // Files that failed are named in the summary; the server's last word is about them.
    match control.ended("the end") {
        Err(CopyError::Refused { .. }) if !summary.failures.is_empty() => {}
        other => drop(other?),
    }
    Ok(summary)
}
