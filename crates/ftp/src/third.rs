//! A session between two servers, which a client tells both of (rule T17). No byte of a file goes through the client.
//!
//! ```text
//!  client                     listener                          connector
//!    | TPRT tcp+quic 1-16 ADDRESS >|  of the connector               |
//!    |< 229 (tcp |||41234| TOKEN)  |                                 |
//!    | TCON ADDRESS 1-16 (tcp |||41234| TOKEN) --------------------->|  may it connect there?
//!    |<------------------------------------------------------------- | 200, or 504
//!    | STOR or RETR ..............>|  150                            |
//!    | RETR or STOR ................................................>|  150
//!    |                             |<==== streams with the token ====|
//!    | STAT ......................>|  211, bytes moved               |
//!    |<............ 226, with what the session came to ............. |
//! ```
//! Either server may be the one that connects: the first that its user's rights let. Where none does, the caller has other ways.

use std::net::IpAddr;
use std::time::Duration;

use verbena_transfer::{ChannelKind, Failure, MOST_STREAMS, Progress, Summary};

use crate::address::canonical;
use crate::client::{CopyError, Location};
use crate::dialogue::{Argument, Dialogue, Reply};
use crate::endpoint;
use crate::listed::ListedKind;
use crate::offer::Offer;
use crate::remote::{facts_by_mlst, name_of};

/// How often the servers are asked how far they are.
const ASKED_EVERY: Duration = Duration::from_millis(200);

/// What is copied from one server to another.
#[derive(Clone, Debug)]
pub struct BetweenOptions {
    /// The source: a directory or a file.
    pub from: Location,
    /// The target.
    pub to: Location,
    /// Streams, 1 to 16. `None` adds streams while they pay (rule T13).
    pub streams: Option<u16>,
    /// Channels in order of preference. None: all that both servers have and may use.
    pub channels: Vec<ChannelKind>,
    /// How long a server may take for an answer.
    pub timeout: Duration,
}

/// Copies a tree, or one file, from server to server. `report` is called several times a second; `false` breaks the copy off.
///
/// # Errors
/// [`CopyError::NoThird`] where the servers have no session with each other; otherwise a server refuses, or the session ended before its end.
pub fn copy_between(options: &BetweenOptions, report: &mut dyn FnMut(&Progress) -> bool) -> Result<Summary, CopyError> {
    let mut from = Dialogue::open(&options.from, options.timeout)?;
    let mut to = Dialogue::open(&options.to, options.timeout)?;
    for server in [&mut from, &mut to] {
        if !server.has_feature("TCON")? {
            return Err(CopyError::NoThird(format!("{} does not have TCON", server.place())));
        }
    }
    let target = target_there(&mut from, &mut to, options)?;
    check_apart((&mut from, &mut to), (&options.from.path, &target), false)?;
    let mut pair = Pair { options, from, to, target };
    let (there, back) = (seen_by(&mut pair.from, &mut pair.to)?, seen_by(&mut pair.to, &mut pair.from)?);
    let is_near = there == back || (there.is_loopback() && back.is_loopback());
    let is_private = options.from.tls.is_some() || options.to.tls.is_some();
    let offer = Offer::of(&options.channels, is_private, is_near)?.for_servers();
    let mut offer = offer.ok_or_else(|| CopyError::NoThird("two servers have no udp with each other".into()))?;
    if options.streams.is_some() && options.channels.is_empty() {
        offer.drop_local();
    }
    let mut reasons = Vec::new();
    loop {
        for source_connects in [true, false] {
            match pair.attempt(&offer, source_connects, (there, back), report) {
                Err(CopyError::NoThird(why)) => reasons.push(why),
                Err(error) => return Err(error),
                Ok(mut summary) => {
                    summary.name(Some(name_of(&options.from.path)).filter(|name| !name.is_empty()));
                    let (one, other) = (pair.from.place(), pair.to.place());
                    let (one, other) = if source_connects { (one, other) } else { (other, one) };
                    let way = format!("token: {one} connects to {other}, and no byte goes through this machine");
                    tracing::info!(way, "files went from server to server");
                    summary.notes.splice(0..0, reasons.into_iter().chain([way]));
                    return Ok(summary);
                }
            }
        }
        // Two servers of one machine and of two users hand nothing over.
        if !(offer.has_local() && offer.drop_local()) {
            return Err(CopyError::NoThird(reasons.join("; ")));
        }
    }
}

/// The address of a server as the other one reaches it: what this side calls loopback is this machine.
pub(crate) fn seen_by(server: &mut Dialogue, other: &mut Dialogue) -> Result<IpAddr, CopyError> {
    let address = canonical(server.peer()?.ip());
    if address.is_loopback() && !canonical(other.peer()?.ip()).is_loopback() { other.here() } else { Ok(address) }
}

/// Whether two paths of one server, of a source and a target, can be copied: not if they are one, nor a target in its source, nor, where the target is cleared of what
/// the source does not have, a source in its target.
pub(crate) fn check_apart(
    (from, to): (&mut Dialogue, &mut Dialogue),
    (source, target): (&[u8], &[u8]),
    clears: bool,
) -> Result<(), CopyError> {
    let (one, other) = (from.peer()?, to.peer()?);
    if (canonical(one.ip()), one.port()) != (canonical(other.ip()), other.port()) {
        return Ok(());
    }
    let parts = |path: &[u8]| -> Vec<Vec<u8>> {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        parts.map(<[u8]>::to_vec).collect()
    };
    let (source, target) = (parts(source), parts(target));
    let why = match (target.starts_with(&source), source.starts_with(&target)) {
        (true, true) => "source and target are one, on one server",
        (true, false) => "the target is in the source, on one server",
        (false, true) if clears => "the source is in the target, on one server, from which --delete would remove it",
        _ => return Ok(()),
    };
    Err(CopyError::Within(format!("{why}: nothing was copied or removed")))
}

/// The path of the target. A file goes into a directory under its own name.
pub(crate) fn target_there(
    from: &mut Dialogue,
    to: &mut Dialogue,
    options: &BetweenOptions,
) -> Result<Vec<u8>, CopyError> {
    let (source, target) = (&options.from.path, &options.to.path);
    if source.ends_with(b"/") {
        return Ok(target.clone());
    }
    let is_file = facts_by_mlst(from, source)?.is_some_and(|listed| listed.kind == ListedKind::File);
    let kind = match facts_by_mlst(to, target) {
        // Nothing may be there yet.
        Err(CopyError::Refused { .. }) => None,
        other => other?.map(|listed| listed.kind),
    };
    let is_into = is_file && (target.ends_with(b"/") || kind == Some(ListedKind::Directory));
    Ok(match is_into {
        true => [target.strip_suffix(b"/").unwrap_or(target), b"/", name_of(source)].concat(),
        false => target.clone(),
    })
}

/// Two servers, logged in.
struct Pair<'a> {
    options: &'a BetweenOptions,
    from: Dialogue,
    to: Dialogue,
    target: Vec<u8>,
}

impl Pair<'_> {
    /// One session. `there` and `back` are the addresses of source and target, each as the other one reaches it.
    fn attempt(
        &mut self,
        offer: &Offer,
        source_connects: bool,
        (there, back): (IpAddr, IpAddr),
        report: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Summary, CopyError> {
        let counts = match self.options.streams {
            None => format!("1-{MOST_STREAMS}"),
            Some(streams) => streams.clamp(1, MOST_STREAMS).to_string(),
        };
        let (connector, listener, at, from) = match source_connects {
            true => (&mut self.from, &mut self.to, back, there),
            false => (&mut self.to, &mut self.from, there, back),
        };
        let argument = format!("{} {counts} {from}", offer.argument());
        let reply = listener.ask("TPRT", &Argument::new(argument.as_bytes())?)?;
        let answer = String::from_utf8_lossy(&reply.text).into_owned();
        let endpoints = endpoint::read(&answer, at).filter(|endpoints| reply.code == 229 && offer.has(endpoints));
        let Some(endpoints) = endpoints else { return Err(no_third(listener, &reply)) };
        let argument = format!("{at} {counts} {}", endpoint::written(&endpoints));
        let reply = connector.ask("TCON", &Argument::new(argument.as_bytes())?)?;
        if reply.code != 200 {
            // The port is closed again.
            listener.ask("ABOR", &Argument::new(b"")?)?;
            return Err(no_third(connector, &reply));
        }
        let (source, target) = (Argument::new(&self.options.from.path)?, Argument::new(&self.target)?);
        self.to.command("STOR", &target, 1)?;
        if let Err(error) = self.from.command("RETR", &source, 1) {
            abort(&mut self.to)?;
            return Err(error);
        }
        self.follow(source_connects, report)
    }

    /// Waits for the end of a session on both servers.
    fn follow(
        &mut self,
        source_connects: bool,
        report: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Summary, CopyError> {
        let mut ends: [Option<Reply>; 2] = [None, None];
        let mut progress = Progress::default();
        loop {
            for (server, end) in [&mut self.from, &mut self.to].into_iter().zip(&mut ends) {
                if end.is_none() {
                    progress.bytes = progress.bytes.max(status(server, end)?);
                }
            }
            let is_over = ends.iter().all(Option::is_some);
            // One side has failed: the other one would wait for it.
            let has_failed = ends.iter().flatten().any(|reply| reply.code / 100 != 2);
            let is_stopped = !is_over && !report(&progress);
            if is_stopped || (has_failed && !is_over) {
                for (server, end) in [&mut self.from, &mut self.to].into_iter().zip(&mut ends) {
                    if end.is_none() {
                        *end = Some(abort(server)?);
                    }
                }
            }
            match ends {
                _ if is_stopped => return Err(CopyError::Stopped),
                [Some(source), Some(target)] => return self.ended(&source, &target, source_connects),
                other => ends = other,
            }
            std::thread::sleep(ASKED_EVERY);
        }
    }

    fn ended(&self, source: &Reply, target: &Reply, source_connects: bool) -> Result<Summary, CopyError> {
        let connector = if source_connects { source } else { target };
        if connector.code == 425 {
            let server = if source_connects { &self.from } else { &self.to };
            return Err(no_third(server, connector));
        }
        let summary = summary(target);
        match [("RETR", source), ("STOR", target)].into_iter().find(|(_, reply)| reply.code / 100 != 2) {
            // Files that failed are named.
            Some((_, reply)) if reply.code == 450 && !summary.failures.is_empty() => Ok(summary),
            Some((verb, reply)) => Err(reply.refused(verb)),
            None => Ok(summary),
        }
    }
}

fn no_third(server: &Dialogue, reply: &Reply) -> CopyError {
    CopyError::NoThird(format!(
        "{} says: {}",
        server.place(),
        String::from_utf8_lossy(reply.last()).trim_end_matches('.')
    ))
}

/// Breaks a session off: the last word about it. That about `ABOR` comes behind it.
fn abort(server: &mut Dialogue) -> Result<Reply, CopyError> {
    let end = server.ask("ABOR", &Argument::new(b"")?)?;
    server.reply()?;
    Ok(end)
}

/// Asks how many bytes have moved. The last word about the transfer may come first.
fn status(server: &mut Dialogue, end: &mut Option<Reply>) -> Result<u64, CopyError> {
    let mut reply = server.ask("STAT", &Argument::new(b"")?)?;
    while reply.code != 211 {
        *end = Some(reply);
        reply = server.reply()?;
    }
    let moved = |line: &[u8]| std::str::from_utf8(line).ok()?.trim().strip_suffix(" bytes moved")?.parse().ok();
    Ok(reply.text.split(|byte| *byte == b'\n').find_map(moved).unwrap_or(0))
}

/// What a server says that the session came to.
fn summary(reply: &Reply) -> Summary {
    let mut summary = Summary::default();
    for line in reply.text.split(|byte| *byte == b'\n').filter_map(|line| line.strip_prefix(b" ")) {
        let (word, rest) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
        let rest = rest.trim_ascii_start();
        let text = String::from_utf8_lossy(rest);
        let mut words = text.split(' ');
        match word {
            b"Files" => summary.files = text.parse().unwrap_or(0),
            b"Bytes" => summary.bytes = text.parse().unwrap_or(0),
            b"Streams" => {
                summary.streams = words.next().and_then(|count| count.parse().ok()).unwrap_or(0);
                summary.channel = words.next().and_then(|channel| channel.parse().ok());
            }
            b"Note" => summary.notes.push(printable(&text)),
            b"Failed" => {
                let at = rest.iter().position(|byte| *byte == b'\t').unwrap_or(rest.len());
                let why = printable(&String::from_utf8_lossy(&rest[..at]));
                summary.failures.push((rest.get(at + 1..).unwrap_or_default().to_vec(), failure(&why)));
            }
            _ => {}
        }
    }
    summary
}

/// A failure, of its words.
fn failure(why: &str) -> Failure {
    let known = [Failure::Changed, Failure::Damaged, Failure::TakenOver];
    let (source, target) = (Failure::Source(String::new()).to_string(), Failure::Target(String::new()).to_string());
    match (known.into_iter().find(|known| known.to_string() == why), why.strip_prefix(source.as_str())) {
        (Some(known), _) => known,
        (None, Some(rest)) => Failure::Source(rest.to_owned()),
        (None, None) => Failure::Target(why.strip_prefix(target.as_str()).unwrap_or(why).to_owned()),
    }
}

/// What another machine says must not move the cursor of a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}
