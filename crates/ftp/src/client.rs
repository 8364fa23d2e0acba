//! Copying trees to and from a server that speaks TPRT: the same call again goes on where the last one was.

use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    CHUNK_BYTES, Channel, FileError, Progress, Root, SessionError, SessionSettings, Sources, Store, Summary,
    VirtualPath, Walk, receive, say_hello, send,
};

use crate::dialogue::{Argument, Dialogue};
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
    /// Streams, 1 to 16.
    pub streams: u16,
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

/// The port and the token in the answer to `TPRT`.
fn endpoint(reply: &str) -> Option<(u16, [u8; 16])> {
    let inside = reply.split_once("(tcp |||")?.1.split_once(')')?.0;
    let (port, token) = inside.split_once("| ")?;
    let mut bytes = [0; 16];
    if token.len() != 32 || !token.is_ascii() {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(token.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some((port.parse().ok()?, bytes))
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
    let streams = options.streams.clamp(1, verbena_transfer::MOST_STREAMS);
    let reply = control.command("TPRT", &Argument::new(format!("tcp {streams}").as_bytes())?, 2)?;
    let answer = String::from_utf8_lossy(&reply.text).into_owned();
    let (port, token) = endpoint(&answer).ok_or_else(|| reply.refused("TPRT"))?;
    control.command(if walk.is_some() { "STOR" } else { "RETR" }, &path, 1)?;
    let mut channels: Vec<Box<dyn Channel>> = Vec::new();
    let peer = control.peer()?;
    for number in 0..streams {
        let made = TcpStream::connect_timeout(&(peer.ip(), port).into(), options.timeout).and_then(|mut stream| {
            say_hello(&mut stream, token, number, streams, CHUNK_BYTES as u32)?;
            Ok(stream)
        });
        channels.push(Box::new(made.map_err(|error| control.io(error))?));
    }
    let settings = SessionSettings::new(1, streams);
    let summary = match walk {
        Some(walk) => send(channels, Sources::new(root, VirtualPath::root()), walk, settings, report)?,
        None => {
            let store = Store::new(root, VirtualPath::root(), CHUNK_BYTES, options.is_durable);
            receive(channels, store, settings, report)?
        }
    };
    // Files that failed are named in the summary; the server's last word is about them.
    match control.ended("the end") {
        Err(CopyError::Refused { .. }) if !summary.failures.is_empty() => {}
        other => drop(other?),
    }
    Ok(summary)
}
