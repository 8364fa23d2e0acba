//! How the other commands reach the process that keeps a WAN up: by a socket that is this user's alone, a line of JSON there and one back.

use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use verbena_ipc::{Claim, runtime_directory};
use verbena_wan::Which;

use super::report::Report;
use super::start::Place;
use crate::commands::child::system;
use crate::error::{Error, Result};

/// The longest line, in bytes.
const LONGEST: usize = 8 << 20;
/// Descriptors that come with a line: a network and the user namespace that owns it.
const DESCRIPTORS: usize = 2;
/// Longer than anything takes that is asked here.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than a process that was killed keeps its locks.
const DYING: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const SUFFIX: &str = ".wan";

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// What links have done.
    Look,
    /// Options of a link. Files that they name are relative to `folder`.
    Set { link: String, which: Direction, options: String, folder: PathBuf },
    /// The network of a site, for as long as the connection lasts.
    Enter { site: String },
    /// End.
    Down,
}

/// The ways of a link that are meant.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Direction {
    Both,
    There,
    Back,
}

/// What is answered.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Report(Report),
    Done,
    /// What a command there has. With it come the descriptors of the site's network and of the user namespace that this belongs to.
    Site(Place),
    Refused {
        problem: String,
        exit_code: u8,
    },
}

impl From<Direction> for Which {
    fn from(direction: Direction) -> Which {
        match direction {
            Direction::Both => Which::Both,
            Direction::There => Which::There,
            Direction::Back => Which::Back,
        }
    }
}

/// Which WAN is meant, where several are up.
#[derive(Args, Clone, Debug)]
pub struct Name {
    /// Which WAN, where several are up at once.
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = name)]
    pub name: String,
}

fn name(text: &str) -> std::result::Result<String, String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match (1..=32).contains(&text.len()) && text.bytes().all(is_good) {
        true => Ok(text.to_owned()),
        false => Err("a name is 1 to 32 letters, digits, - or _".into()),
    }
}

impl Name {
    /// The right to keep the WAN of this name up. What one that was killed has left is removed.
    pub fn claim(&self) -> Result<Claim> {
        let (directory, file, began) = (directory()?, format!("{}{SUFFIX}", self.name), Instant::now());
        loop {
            match Claim::take(&directory, &file) {
                // One that was killed may not be all gone yet. Until then it can be connected to, and does not answer.
                Err(verbena_ipc::Error::AlreadyServed { .. })
                    if began.elapsed() < DYING && self.ask(&Request::Look).is_err() =>
                {
                    sleep(LOOK_EVERY);
                }
                Err(verbena_ipc::Error::AlreadyServed { pid, .. }) => {
                    return Err(Error::WanIsUp { name: self.name.clone(), pid });
                }
                other => return Ok(other.map_err(verbena_client::Error::from)?),
            }
        }
    }

    /// Whether one was up that did not end by itself, and has left its socket.
    pub fn has_left_something(&self) -> Result<bool> {
        Ok(directory()?.join(format!("{}{SUFFIX}", self.name)).exists())
    }

    /// A connection to the process that keeps it up.
    pub fn connect(&self) -> Result<Connection> {
        let directory = directory()?;
        match UnixStream::connect(directory.join(format!("{}{SUFFIX}", self.name))) {
            Ok(stream) => Connection::new(stream),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                Err(self.not_up())
            }
            Err(error) => Err(system("reach the WAN")(error)),
        }
    }

    /// Asks for one thing.
    pub fn ask(&self, request: &Request) -> Result<Answer> {
        self.connect()?.ask(self, request).map(|(answer, _)| answer)
    }

    fn not_up(&self) -> Error {
        let mut others = directory().map_or_else(|_| vec![], |directory| others(&directory));
        others.retain(|name| *name != self.name);
        Error::NoWan { name: self.name.clone(), others }
    }
}

fn directory() -> Result<PathBuf> {
    runtime_directory().map_err(|error| verbena_client::Error::from(error).into())
}

/// Names of those that are up.
fn others(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let names = names.filter_map(|name| Some(name.to_str()?.strip_suffix(SUFFIX)?.to_owned()));
    let mut up: Vec<_> =
        names.filter(|name| UnixStream::connect(directory.join(format!("{name}{SUFFIX}"))).is_ok()).collect();
    up.sort();
    up
}

/// A connection between a command and the process that keeps a WAN up.
#[derive(Debug)]
pub struct Connection(UnixStream);

impl Connection {
    /// Reads and writes on it end after `PATIENCE`.
    pub fn new(stream: UnixStream) -> Result<Self> {
        let set = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        set.map_err(system("reach the WAN"))?;
        Ok(Connection(stream))
    }

    /// Sends the request to the WAN of this name and takes its answer, with descriptors if there are any.
    ///
    /// # Errors
    /// What was answered instead, with its exit code. [`Error::NoWan`] for one that was killed: it takes connections until it is all gone, and ends them.
    pub fn ask(&mut self, name: &Name, request: &Request) -> Result<(Answer, Vec<OwnedFd>)> {
        let mut ask = || -> io::Result<_> {
            self.send(request, &[])?;
            self.receive()
        };
        let answered = ask().map_err(|error| match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => name.not_up(),
            _ => system("ask the process that keeps the WAN up")(error),
        });
        match answered? {
            (Answer::Refused { problem, exit_code }, _) => Err(Error::Refused { problem, exit_code }),
            answered => Ok(answered),
        }
    }

    /// Sends one line.
    pub fn send(&mut self, what: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut line = serde_json::to_vec(what)?;
        line.push(b'\n');
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("more descriptors than a message here takes"));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
        self.0.write_all(&line[sent..])
    }

    /// Receives one line, and the descriptors that came with its beginning.
    pub fn receive<T: DeserializeOwned>(&mut self) -> io::Result<(T, Vec<OwnedFd>)> {
        let mut bytes = vec![0; 64 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg(&self.0, &mut buffer, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        // The kernel drops descriptors that this process may not have any more (cmsg(3)).
        if message.flags.contains(ReturnFlags::CTRUNC) {
            return Err(Errno::MFILE.into());
        }
        let received = message.bytes;
        let mut descriptors = vec![];
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        bytes.truncate(received);
        while bytes.last().is_some_and(|last| *last != b'\n') {
            let mut more = [0; 4096];
            match self.0.read(&mut more)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                _ if bytes.len() > LONGEST => return Err(io::Error::other("a line that does not end")),
                count => bytes.extend_from_slice(&more[..count]),
            }
        }
        if bytes.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok((serde_json::from_slice(&bytes)?, descriptors))
    }

    /// Until the other end is gone: nothing more is said.
    pub fn wait(mut self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)?;
        match self.0.read(&mut [0]) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Err(ErrorKind::TimedOut.into())
            }
            _ => Ok(()),
        }
    }
}

impl From<Connection> for UnixStream {
    fn from(Connection(stream): Connection) -> UnixStream {
        stream
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
