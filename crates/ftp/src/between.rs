//! Files from one server of any kind to another one.
//!
//! **Direct** (FXP): the target listens by `PASV`, and the source connects to it by `PORT`, where both servers allow that; most do not, because it is the bounce attack of
//! RFC 2577. The address is the one at which this side has reached the target: one that the target names could be anybody's. Not behind TLS, which
//! this form of FTP cannot bind to its sessions, and not with a rate, which this side could not keep.
//!
//! **Through the client** otherwise: a download and an upload joined, in constant memory.
//!
//! Either way a file stands if both servers have as many bytes in the end, and the source has the size and time of before. What stands at the target counts if both servers'
//! `HASH` of it is equal; the whole of a file that went directly is hashed by both, where both can.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::address::canonical;
use crate::client::{CopyError, Location};
use crate::dialogue::Argument;
use crate::limits::RateLimit;
use crate::remote::{Moved, Remote, Report};
use crate::third::{check_apart, seen_by};

/// The slowest rate at which a transfer between two servers is waited for, in bytes a second.
const SLOWEST: u64 = 64 << 10;
/// How long a server may take to answer `PORT` before files go another way.
const PORT_WITHIN: Duration = Duration::from_secs(10);
/// How long a target may take for what is under way to it, beside the time of its bytes.
const STORED_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may take to break an upload off that nothing comes for. Many servers do not hear `ABOR` while they wait for a connection.
const ABORTED_WITHIN: Duration = Duration::from_secs(5);

/// Whether files may go directly from server to server, and how they went.
#[derive(Debug, Default)]
pub(crate) struct Direct {
    is_off: AtomicBool,
    why: Mutex<Option<String>>,
    went_direct: AtomicBool,
    went_through: AtomicBool,
}

impl Direct {
    pub(crate) fn of(from: &Location, to: &Location, limit: Option<&RateLimit>) -> Direct {
        let direct = Direct::default();
        if from.tls.is_some() || to.tls.is_some() {
            direct.refuse("TLS protects each half on its own".into());
        } else if limit.is_some() {
            direct.refuse("--limit counts what passes here".into());
        }
        direct
    }

    fn refuse(&self, why: String) {
        tracing::info!(why, "files go through this machine");
        self.is_off.store(true, Ordering::Release);
        let mut kept = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = kept.get_or_insert(why);
    }

    /// The ways that files took, and why.
    pub(crate) fn ways(&self) -> Vec<String> {
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let ways = [
            (
                &self.went_direct,
                "fxp: the source connects to the target, and no byte goes through this machine".to_owned(),
            ),
            (&self.went_through, format!("client: bytes go through this machine{why}")),
        ];
        ways.into_iter().filter(|(went, _)| went.load(Ordering::Acquire)).map(|(_, way)| way).collect()
    }
}

/// Connections to two servers.
pub(crate) struct Between {
    pub(crate) from: Remote,
    pub(crate) to: Remote,
    direct: Arc<Direct>,
    timeout: Duration,
}

impl Between {
    pub(crate) fn connect(
        (from, to): (&Location, &Location),
        limit: Option<&RateLimit>,
        timeout: Duration,
        direct: &Arc<Direct>,
    ) -> Result<Between, CopyError> {
        let connected = |location| Ok::<_, CopyError>(Remote::connect(location, timeout)?.limited(limit.cloned()));
        Ok(Between { from: connected(from)?, to: connected(to)?, direct: direct.clone(), timeout })
    }

    /// See [`check_apart`].
    pub(crate) fn check_apart(&mut self, source: &[u8], target: &[u8], clears: bool) -> Result<(), CopyError> {
        check_apart((&mut self.from.dialogue, &mut self.to.dialogue), (source, target), clears)
    }

    pub(crate) fn quit(self) {
        self.from.quit();
        self.to.quit();
    }

    /// Copies one file, and gives it the time of its source.
    ///
    /// # Errors
    /// [`CopyError::NotDirect`]: it can be tried again on new connections, and goes another way then.
    pub(crate) fn copy(&mut self, source: &[u8], target: &[u8], report: Report<'_>) -> Result<Moved, CopyError> {
        let version = (self.from.size(source)?, self.from.modified(source)?);
        let stands = self.to.size(target)?;
        let kept = self.proven(source, target, version.0, stands)?;
        let (mut size, mut is_direct) = (kept, false);
        if stands.is_none() || stands != version.0 || Some(kept) != version.0 {
            let direct = match self.direct.is_off.load(Ordering::Acquire) {
                true => None,
                false => self.directly(source, target, kept, version.0)?,
            };
            is_direct = direct.is_some();
            size = match direct {
                Some(size) => size,
                None => self.through((source, version.0), target, kept, report)?,
            };
        }
        let changed = || CopyError::Changed(String::from_utf8_lossy(source).into_owned());
        let (after, there) = ((self.from.size(source)?, self.from.modified(source)?), self.to.size(target)?);
        if after != version || there.is_some_and(|there| there != size) || version.0.is_some_and(|all| all != size) {
            return Err(changed());
        }
        if is_direct
            && let Some(digest) = self.from.hash_there(source, None)?
            && self.to.hash_there(target, None)?.is_some_and(|other| other != digest)
        {
            return Err(changed());
        }
        if let Some(modified) = version.1 {
            self.to.set_modified(target, modified)?;
        }
        Ok(Moved { size, kept })
    }

    /// How many bytes at the target are the source's, as both servers' hashes say.
    fn proven(
        &mut self,
        source: &[u8],
        target: &[u8],
        size: Option<u64>,
        stands: Option<u64>,
    ) -> Result<u64, CopyError> {
        let Some(stands) = stands.filter(|stands| *stands > 0 && size.is_some_and(|size| *stands <= size)) else {
            return Ok(0);
        };
        let Some(digest) = self.from.hash_there(source, Some(stands))? else { return Ok(0) };
        let is_equal = self.to.hash_there(target, Some(stands))?.is_some_and(|other| other == digest);
        Ok(if is_equal { stands } else { 0 })
    }

    fn through(
        &mut self,
        (source, size): (&[u8], Option<u64>),
        target: &[u8],
        kept: u64,
        report: Report<'_>,
    ) -> Result<u64, CopyError> {
        self.direct.went_through.store(true, Ordering::Release);
        let mut at = kept;
        let mut input = self.from.retrieve(source, &mut at)?;
        let mut output = self.to.upload(target, at, size)?;
        let mut block = self.from.block();
        loop {
            let read = match input.read(&mut block) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.from.dialogue.io(error)),
            };
            if let Err(error) = output.write_all(&block[..read]) {
                drop(output);
                // The server's reason says more: no space, no quota.
                self.to.dialogue.ended()?;
                return Err(self.to.dialogue.io(error));
            }
            self.from.passed(read);
            at += read as u64;
            if !report(at) {
                return Err(CopyError::Stopped);
            }
        }
        drop(input);
        // The target is not told that this is all before the source has said so.
        self.from.dialogue.ended()?;
        output.finish().map_err(|error| self.to.dialogue.io(error))?;
        self.to.dialogue.ended()?;
        Ok(at)
    }

    /// The whole size, or `None` if a server does not allow it.
    fn directly(
        &mut self,
        source: &[u8],
        target: &[u8],
        kept: u64,
        size: Option<u64>,
    ) -> Result<Option<u64>, CopyError> {
        let (source, target) = (Argument::new(source)?, Argument::new(target)?);
        // A source that tells no size may still be sent; its length is then the target's.
        let Some(size) = size else { return Ok(None) };
        let host = seen_by(&mut self.to.dialogue, &mut self.from.dialogue)?;
        let (from, to) = (&mut self.from.dialogue, &mut self.to.dialogue);
        let port = to.passive()?;
        let (verb, argument) = port_command(SocketAddr::new(host, port));
        from.send(verb, &Argument::new(argument.as_bytes())?)?;
        // One that connects at this command already may never answer it.
        let Some(reply) = from.reply_within(self.timeout.min(PORT_WITHIN))? else {
            self.direct.refuse(format!("{} does not answer {verb}", from.place()));
            return Err(CopyError::NotDirect);
        };
        if reply.code / 100 != 2 {
            let words = String::from_utf8_lossy(reply.last()).trim_end_matches('.').to_owned();
            self.direct.refuse(format!("{} does not connect to {}: {words}", from.place(), to.place()));
            return Ok(None);
        }
        let at = match kept {
            0 => 0,
            kept if from.ask("REST", &Argument::new(kept.to_string().as_bytes())?)?.code == 350 => kept,
            _ => 0,
        };
        to.send(if at == 0 { "STOR" } else { "APPE" }, &target)?;
        from.send("RETR", &source)?;
        let all = Duration::from_secs((size - at) / SLOWEST);
        let why = match from.ends_within(self.timeout + all)? {
            // A target that took the source for a stranger waits on, and the source may have sent all into the buffers between them.
            None => to.ends_within(self.timeout.min(STORED_WITHIN + all))?,
            why => why,
        };
        if let Some(why) = why {
            self.direct.refuse(why);
            // Until the upload has ended, the file can be written by nothing else. Servers that do not hear this end both with their connections.
            for server in [from, to] {
                let _ = server.send("ABOR", &Argument::new(b"")?);
            }
            let _ = self.to.dialogue.ends_within(self.timeout.min(ABORTED_WITHIN));
            return Err(CopyError::NotDirect);
        }
        self.direct.went_direct.store(true, Ordering::Release);
        Ok(Some(size))
    }
}

/// `PORT` or `EPRT`.
fn port_command(address: SocketAddr) -> (&'static str, String) {
    let port = address.port();
    match canonical(address.ip()) {
        IpAddr::V4(host) => {
            let [a, b, c, d] = host.octets();
            ("PORT", format!("{a},{b},{c},{d},{},{}", port >> 8, port & 255))
        }
        IpAddr::V6(host) => ("EPRT", format!("|2|{host}|{port}|")),
    }
}

/// Copies one file from server to server: what was moved, and the ways that it took.
///
/// # Errors
/// A server refuses, or has gone, or the source has changed meanwhile.
pub fn copy_file_between(
    (from, to): (&Location, &Location),
    target: &[u8],
    limit: Option<&RateLimit>,
    timeout: Duration,
) -> Result<(Moved, Vec<String>), CopyError> {
    let direct = Arc::new(Direct::of(from, to, limit));
    let once = || {
        let mut both = Between::connect((from, to), limit, timeout, &direct)?;
        both.check_apart(&from.path, target, false)?;
        let moved = both.copy(&from.path, target, &mut |_| true)?;
        both.quit();
        Ok(moved)
    };
    let moved = match once() {
        Err(CopyError::NotDirect) => once()?,
        other => other?,
    };
    Ok((moved, direct.ways()))
}
