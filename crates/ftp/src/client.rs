//! Copying trees to and from a server that speaks TPRT: the same call again goes on where the last one was.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use verbena_transfer::{
    CHUNK_BYTES, ChannelKind, FileError, Later, Links, MOST_STREAMS, Progress, Root, SessionError, SessionSettings,
    Sources, Store, Summary, TunerSettings, VirtualPath, Walk, receive, send,
};

use crate::endpoint;

/// The longest reply that is read.
const LONGEST_REPLY: u64 = 64 << 10;

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
    /// The directory there.
    pub path: String,
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
        /// The server's words.
        reply: String,
    },
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

/// An argument of a command: without CR, LF and NUL.
struct Argument<'a>(&'a str);

impl<'a> Argument<'a> {
    fn new(text: &'a str) -> Result<Argument<'a>, CopyError> {
        match text.contains(['\r', '\n', '\0']) {
            true => Err(CopyError::Name(text.to_owned())),
            false => Ok(Argument(text)),
        }
    }
}

struct Control {
    stream: BufReader<TcpStream>,
    place: String,
}

impl Control {
    fn connect(remote: &Location, timeout: Duration) -> Result<Control, CopyError> {
        let place = format!("{}:{}", remote.host, remote.port);
        let io = |error| CopyError::Io { place: place.clone(), error };
        let mut last = std::io::Error::other("the name has no address");
        for address in (remote.host.as_str(), remote.port).to_socket_addrs().map_err(io)? {
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(timeout)).map_err(io)?;
                    let mut control = Control { stream: BufReader::new(stream), place: place.clone() };
                    control.reply("connecting", '2')?;
                    return Ok(control);
                }
                Err(error) => last = error,
            }
        }
        Err(io(last))
    }

    fn io(&self, error: std::io::Error) -> CopyError {
        CopyError::Io { place: self.place.clone(), error }
    }

    /// Sends a command and reads its reply, which must begin with `class`.
    fn command(&mut self, verb: &str, argument: &Argument<'_>, class: char) -> Result<String, CopyError> {
        let line = if argument.0.is_empty() { format!("{verb}\r\n") } else { format!("{verb} {}\r\n", argument.0) };
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| self.io(error))?;
        self.reply(verb, class)
    }

    fn reply(&mut self, command: &str, class: char) -> Result<String, CopyError> {
        let mut text = String::new();
        loop {
            let mut line = Vec::new();
            let read = (&mut self.stream).take(LONGEST_REPLY).read_until(b'\n', &mut line);
            if read.map_err(|error| self.io(error))? == 0 || text.len() as u64 > LONGEST_REPLY {
                return Err(self.io(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let is_last = line.get(3..4) == Some(" ") && line.bytes().take(3).all(|byte| byte.is_ascii_digit());
            text.push_str(&line);
            if is_last {
                return match line.starts_with(class) {
                    true => Ok(text),
                    false => Err(CopyError::Refused { command: command.to_owned(), reply: text }),
                };
            }
            text.push('\n');
        }
    }
}

/// Copies a tree. `report` is called as files come to their end; `false` breaks the copy off.
///
/// # Errors
/// The server does not speak TPRT (500 or 502 to the command), refuses, or has gone; or the directory here cannot be opened.
/// Files that could not be copied are no error: [`Summary::failures`] names them.
pub fn copy(options: &CopyOptions, report: &mut dyn FnMut(&Progress) -> bool) -> Result<Summary, CopyError> {
    let remote = &options.remote;
    let (user, password, path) =
        (Argument::new(&remote.user)?, Argument::new(&remote.password)?, Argument::new(&remote.path)?);
    let local = |error| CopyError::Local { path: options.local.clone(), error };
    let root = Arc::new(Root::open(&options.local).map_err(local)?);
    let walk = match options.direction {
        Direction::Put => Some(Walk::new(root.clone(), VirtualPath::root()).map_err(local)?),
        Direction::Get => None,
    };
    let mut control = Control::connect(remote, options.timeout)?;
    control.command("USER", &user, '3')?;
    control.command("PASS", &password, '2')?;
    let (first, streams) = match options.streams {
        None => (1, MOST_STREAMS),
        Some(streams) => (streams.clamp(1, MOST_STREAMS), streams.clamp(1, MOST_STREAMS)),
    };
    let names: Vec<&str> = options.channels.iter().map(|channel| channel.name()).collect();
    let counts = if first == streams { first.to_string() } else { format!("{first}-{streams}") };
    let reply = control.command("TPRT", &Argument::new(&format!("{} {counts}", names.join(",")))?, '2')?;
    let peer = control.stream.get_ref().peer_addr().map_err(|error| control.io(error))?;
    let endpoint = endpoint::read(&reply, peer.ip()).filter(|endpoint| options.channels.contains(&endpoint.channel));
    let endpoint = endpoint.ok_or(CopyError::Refused { command: "TPRT".into(), reply })?;
    control.command(if walk.is_some() { "STOR" } else { "RETR" }, &path, '1')?;
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
    match control.reply("the end", '2') {
        Err(CopyError::Refused { .. }) if !summary.failures.is_empty() => {}
        other => drop(other?),
    }
    Ok(summary)
}
