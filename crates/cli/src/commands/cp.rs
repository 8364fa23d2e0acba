//! `verbena cp`: trees of files, and single files, to and from an FTP server of ours or any other, and on this machine.

mod between;
mod local;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use verbena_ftp::{
    Change, ChannelKind, CopyOptions, Direction, ListedKind, Measured, Moved, PlainOptions, PlainSides, Progress,
    RateLimit, Remote, Summary,
};
use verbena_wan::Rate;

use super::ftp::address::{Reach, is_remote};
use super::ftp::files;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// Copy files and trees of files: on this machine, to and from `verbena ftp serve` over several connections at once, and to and from any other FTP server. The
/// same command, given again after any end, goes on where it was.
///
/// A side is a directory or file here, or ftp://USER:PASSWORD@HOST:PORT/PATH. Each file arrives beside its place, and is renamed when it is whole, as
/// the root of its tree of BLAKE3 hashes proves. Parts of files over 64 KiB that have arrived are not sent again. A server without the command TPRT gets plain
/// FTP, unless --channel names other channels than tcp. Between two servers of `verbena ftp serve`, of which one may connect to the other, no byte passes here.
/// Between two sides on this machine, files of equal size, mode and time are not copied again.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes: 0 all files have arrived; 1 some have not, or the server is gone: give the same command again; 2 the command line is wrong

Examples:
  verbena cp data ftp://alice:secret@host:2121/in
  verbena cp ftp://host:2121/ here
  verbena cp --explain data ftp://alice:secret@host:2121/in
  verbena cp --channel quic data ftp://alice:secret@host:2121/in
  verbena cp --limit 200mbit data ftp://alice:secret@host:2121/in
  verbena cp a.bin ftp://alice:secret@host/in/
  verbena cp --explain ftp://alice:secret@one/data ftp://bob:secret@two/in
  verbena cp data copy
  verbena cp --preserve --delete data copy")]
pub struct Command {
    /// The source: a file or directory here, or ftp://USER:PASSWORD@HOST:PORT/PATH.
    #[arg(value_name = "FROM")]
    from: String,
    /// The target: a directory here that exists, or there; for a single file, also its new path. Between two sides here, the last directory of the path is made.
    #[arg(value_name = "TO")]
    to: String,
    /// Connections that carry files at once: 1 to 16. Without it, connections are added while they pay.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=16))]
    streams: Option<u16>,
    /// What files go over: tcp; quic or udp, which are encrypted; or descriptor, by which a server of this user on this machine copies from the files themselves, over
    /// one connection. Several, with commas between them, are tried in their order. Without it, what both sides have and may use is measured on the files, and
    /// the best is kept; with --tls nothing goes in clear between machines.
    #[arg(long, value_name = "CHANNEL", value_delimiter = ',', value_parser = str::parse::<ChannelKind>)]
    channel: Vec<ChannelKind>,
    /// How fast bytes go at most, over all connections together: 200mbit or 1.5gbit (bits a second), from 64kbit on. Not for the channel descriptor.
    #[arg(long, value_name = "RATE", value_parser = limit)]
    limit: Option<Rate>,
    /// Nothing: directories are always copied with all below them. For those who are used to it.
    #[arg(short, long, hide = true)]
    recursive: bool,
    /// Say what was measured, and why the channel was changed and connections were added, or not.
    #[arg(long)]
    explain: bool,
    /// Do not wait until files are on the disk here: faster, but after a crash of this machine files may have to be sent again.
    #[arg(long)]
    no_sync: bool,
    /// Leave files alone that are newer at the target. This option and the three below copy by plain FTP, where a side is a server.
    #[arg(long)]
    update: bool,
    /// Leave out files and directories of this name; * stands for any letters, and ? for one. May be given several times.
    #[arg(long, value_name = "NAME")]
    exclude: Vec<String>,
    /// Remove what FROM does not have, and what --exclude does not name.
    #[arg(long)]
    delete: bool,
    /// Change nothing, and print what would be done.
    #[arg(long)]
    dry_run: bool,
    /// Compare the contents of files of equal size, mode and time too, and not take them for equal. For two sides here: a session with `verbena ftp serve`
    /// always compares files over 64 KiB.
    #[arg(long)]
    checksum: bool,
    /// Keep also hard links, extended attributes (user.*), modes of directories, and times of directories and links. For two sides here.
    #[arg(long)]
    preserve: bool,
    /// Do not hash what is copied: faster, but nothing proves that what stands is what was read, and a file that was under way begins anew. For two sides here.
    #[arg(long)]
    no_proof: bool,
    /// Copy by plain FTP, as with a server of another kind.
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// Connections of plain FTP where the command line does not say how many.
const PLAIN_CONNECTIONS: u16 = 4;

#[derive(Serialize)]
struct Copied {
    /// Between two servers: token, fxp, client, or fxp and client.
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<&'static str>,
    /// Files and directories that stand.
    entries: u64,
    bytes: u64,
    seconds: f64,
    /// What files went over in the end; none by plain FTP.
    channel: Option<&'static str>,
    /// Connections that were made.
    streams: u16,
    /// Of the link, the last time; none if the files were too small for it.
    measured: Option<Link>,
    /// What was measured and decided about channel and connections.
    notes: Vec<String>,
    failures: Vec<Failed>,
}

#[derive(Serialize)]
struct Link {
    bytes_per_second: u64,
    round_trip_ms: f64,
    /// Those that were sent again included.
    packets: u64,
    packets_again: u64,
}

impl Link {
    fn of(measured: Measured) -> Option<Link> {
        let Measured { rate, round_trip_us, packets, again } = measured;
        let round_trip_ms = round_trip_us as f64 / 1e3;
        (rate > 0).then_some(Link { bytes_per_second: rate, round_trip_ms, packets, packets_again: again })
    }
}

/// Of plain FTP.
#[derive(Serialize)]
struct CopiedPlainly {
    /// Between two servers, as above.
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    entries: u64,
    bytes: u64,
    seconds: f64,
    changes: Vec<Changed>,
    failures: Vec<Failed>,
}

#[derive(Serialize)]
struct Changed {
    change: &'static str,
    file: String,
}

impl Changed {
    fn of(change: &Change) -> Changed {
        let (change, path) = match change {
            Change::Make(path) => ("make", path),
            Change::Copy(path) => ("copy", path),
            Change::Remove(path) | Change::RemoveDirectory(path) => ("remove", path),
        };
        Changed { change, file: String::from_utf8_lossy(path).into_owned() }
    }

    fn say(&self, out: &mut impl Write) -> Result<()> {
        Ok(writeln!(out, "{} {}", self.change, named(&self.file))?)
    }
}

/// The progress of a session, on a terminal.
struct Shown {
    shows: bool,
    began: Instant,
    last: Instant,
}

impl Shown {
    fn new(format: &Format, began: Instant) -> Shown {
        Shown { shows: !format.json && std::io::stderr().is_terminal(), began, last: began }
    }

    fn report(&mut self, progress: &Progress) -> bool {
        if self.shows && self.last.elapsed() >= SHOWN_EVERY {
            self.last = Instant::now();
            let rate = progress.bytes as f64 / self.began.elapsed().as_secs_f64() / 1e6;
            // If standard error is gone, only the progress is lost.
            let _ = write!(
                std::io::stderr(),
                "\r{} files, {:.1} MB/s{}, {}\x1b[K",
                progress.files,
                rate,
                over(progress.streams, progress.channel),
                String::from_utf8_lossy(&progress.last)
            );
        }
        true
    }

    fn clear(&self) {
        if self.shows {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[derive(Serialize)]
struct Failed {
    file: String,
    why: String,
}

impl Command {
    /// Copies.
    pub fn run(self) -> Result<()> {
        let began = Instant::now();
        let (direction, url, local) = match (is_remote(&self.from), is_remote(&self.to)) {
            (true, false) => (Direction::Get, &self.from, &self.to),
            (false, true) => (Direction::Put, &self.to, &self.from),
            (true, true) => return self.between(began),
            (false, false) => return self.locally(began),
        };
        self.check_is_not_local()?;
        let remote = self.reach.location(url).map_err(files::refused)?;
        let local = PathBuf::from(local);
        self.check_channels()?;
        let options = CopyOptions {
            remote,
            local,
            direction,
            streams: self.streams,
            channels: self.channel.clone(),
            is_durable: !self.no_sync,
            limit: self.rate_limit(),
            timeout: self.reach.timeout(),
        };
        let mut shown = Shown::new(&self.format, began);
        let mut report = |progress: &Progress| shown.report(progress);
        let copied = if self.is_plain().is_some() { None } else { Some(verbena_ftp::copy(&options, &mut report)) };
        shown.clear();
        let summary = match copied {
            // A user who names only channels other than tcp does not get plain FTP, which goes over tcp.
            Some(Err(error)) if error.is_without_sessions() && self.may_be_plain() => None,
            Some(copied) => Some(copied?),
            None => None,
        };
        let Some(summary) = summary else {
            return match self.single(&options)? {
                Some(moved) => self.say_single(moved, Vec::new(), began),
                None => self.plainly(options, began),
            };
        };
        self.say(summary, None, began)
    }

    /// What a session came to. `way` is that between two servers.
    fn say(&self, summary: Summary, way: Option<&'static str>, began: Instant) -> Result<()> {
        let seconds = began.elapsed().as_secs_f64();
        let failures = failed(&summary);
        let all_stand = failures.is_empty();
        let mut out = output();
        if self.format.json {
            let copied = Copied {
                way,
                entries: summary.files,
                bytes: summary.bytes,
                seconds,
                channel: summary.channel.map(ChannelKind::name),
                streams: summary.streams,
                measured: Link::of(summary.measured),
                notes: summary.notes,
                failures,
            };
            write_json(&mut out, &copied)?;
        } else {
            if self.explain {
                for note in &summary.notes {
                    writeln!(out, "{note}")?;
                }
            }
            say_failures(&mut out, &failures)?;
            writeln!(
                out,
                "{} files and directories stand, {} bytes were sent in {seconds:.1} s{}",
                summary.files,
                summary.bytes,
                over(summary.streams, summary.channel)
            )?;
        }
        if all_stand { Ok(()) } else { Err(Error::No) }
    }

    fn rate_limit(&self) -> Option<RateLimit> {
        self.limit.map(|rate| RateLimit::new(rate.in_bits_per_s() / 8))
    }

    /// The option that chooses plain FTP.
    fn is_plain(&self) -> Option<&'static str> {
        if self.plain { Some("--plain") } else { self.is_for_trees() }
    }

    /// The option that compares two trees.
    fn is_for_trees(&self) -> Option<&'static str> {
        let options = [
            (self.update, "--update"),
            (self.delete, "--delete"),
            (self.dry_run, "--dry-run"),
            (!self.exclude.is_empty(), "--exclude"),
        ];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, name)| name)
    }

    /// Plain FTP goes over tcp.
    fn may_be_plain(&self) -> bool {
        self.channel.is_empty() || self.channel.contains(&ChannelKind::Tcp)
    }

    /// Where another channel is named, no option may choose plain FTP; and descriptor alone has one connection.
    fn check_channels(&self) -> Result<()> {
        if let Some(option) = self.is_plain().filter(|_| !self.may_be_plain()) {
            return Err(files::refused(format!(
                "{option} copies by plain FTP, which goes over tcp, and --channel does not name tcp: nothing was sent. Leave out one of the two; \
                 --tls encrypts plain FTP"
            )));
        }
        if self.streams.is_some() && self.channel == [ChannelKind::Descriptor] {
            return Err(files::refused(
                "--channel descriptor copies over one connection, and --streams is for tcp, quic and udp: nothing was sent. Leave out one of the two",
            ));
        }
        if self.limit.is_some() && self.channel == [ChannelKind::Descriptor] {
            return Err(files::refused(
                "--channel descriptor copies on this machine, where no rate is kept: nothing was sent. Leave out --limit, or name tcp, quic or udp",
            ));
        }
        Ok(())
    }

    /// Copies a tree file by file, as every server can.
    fn plainly(&self, options: CopyOptions, began: Instant) -> Result<()> {
        let CopyOptions { remote, local, direction, .. } = options;
        let sides = match direction {
            Direction::Get => PlainSides::Get(remote, local),
            Direction::Put => PlainSides::Put(local, remote),
        };
        self.copy_plainly(sides, Vec::new(), began)
    }

    /// Copies a tree between two sides, of which a server is one. `notes` say why not another way.
    fn copy_plainly(&self, sides: PlainSides, mut notes: Vec<String>, began: Instant) -> Result<()> {
        let summary = verbena_ftp::copy_plain(&PlainOptions {
            sides,
            connections: self.streams.unwrap_or(PLAIN_CONNECTIONS),
            limit: self.rate_limit(),
            timeout: self.reach.timeout(),
            is_update: self.update,
            exclude: self.exclude.iter().map(|name| name.clone().into_bytes()).collect(),
            deletes: self.delete,
            is_dry: self.dry_run,
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let text = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
        let changes: Vec<Changed> = summary.changes.iter().map(Changed::of).collect();
        let failures: Vec<Failed> =
            summary.failures.iter().map(|(path, why)| Failed { file: text(path), why: why.clone() }).collect();
        let (all_stand, entries, bytes) = (failures.is_empty(), summary.entries, summary.bytes);
        let way = between::name_of(&summary.ways);
        notes.extend(summary.ways);
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &CopiedPlainly { way, notes, entries, bytes, seconds, changes, failures })?;
        } else {
            notes.iter().filter(|_| self.explain).try_for_each(|note| writeln!(out, "{note}"))?;
            changes.iter().filter(|_| self.dry_run).try_for_each(|changed| changed.say(&mut out))?;
            say_failures(&mut out, &failures)?;
            let count = changes.len();
            writeln!(
                out,
                "{entries} files and directories stand, {count} changes, {bytes} bytes were sent in {seconds:.1} s by plain FTP"
            )?;
        }
        if all_stand { Ok(()) } else { Err(Error::No) }
    }

    /// Copies one file by plain FTP, if it is one.
    fn single(&self, options: &CopyOptions) -> Result<Option<Moved>> {
        let CopyOptions { remote, local, direction, limit, .. } = options;
        let is_file = match direction {
            Direction::Put => local.is_file(),
            Direction::Get => !remote.path.ends_with(b"/"),
        };
        let for_trees = || match self.is_for_trees() {
            Some(option) => Err(files::refused(format!("{option} compares directories, and this is one file"))),
            None => Ok(()),
        };
        if !is_file {
            return Ok(None);
        }
        let mut connection = Remote::connect(remote, self.reach.timeout())?.limited(limit.clone());
        let moved = match direction {
            Direction::Put => {
                for_trees()?;
                files::put(&mut connection, local, &remote.path, false, &mut |_| true)?
            }
            Direction::Get if connection.facts(&remote.path)?.kind != ListedKind::File => return Ok(None),
            Direction::Get => {
                for_trees()?;
                files::get(&mut connection, &remote.path, local, &mut |_| true)?
            }
        };
        connection.quit();
        Ok(Some(moved))
    }

    fn say_single(&self, moved: Moved, ways: Vec<String>, began: Instant) -> Result<()> {
        let (seconds, bytes) = (began.elapsed().as_secs_f64(), moved.size - moved.kept);
        let mut out = output();
        match self.format.json {
            true => {
                let (way, notes, failures) = (between::name_of(&ways), ways, Vec::new());
                let (channel, measured) = (None, None);
                write_json(
                    &mut out,
                    &Copied { way, entries: 1, bytes, seconds, channel, streams: 1, measured, notes, failures },
                )
            }
            false if self.explain => {
                ways.iter().try_for_each(|way| writeln!(out, "{way}"))?;
                Ok(writeln!(out, "the file stands, {bytes} bytes were sent in {seconds:.1} s by plain FTP")?)
            }
            false => Ok(writeln!(out, "the file stands, {bytes} bytes were sent in {seconds:.1} s by plain FTP")?),
        }
    }
}

/// The lowest rate: below it one read or write takes so long that the other side gives up.
const LOWEST: u64 = 64_000;

fn limit(given: &str) -> std::result::Result<Rate, String> {
    let rate: Rate = given.parse()?;
    if rate.in_bits_per_s() < LOWEST { Err("a rate from 64kbit on, such as 200mbit".into()) } else { Ok(rate) }
}

/// What a session goes over, for people.
fn over(streams: u16, channel: Option<ChannelKind>) -> String {
    let channel = channel.map_or(String::new(), |channel| format!(" by {channel}"));
    format!(" over {streams} connection{}{channel}", if streams == 1 { "" } else { "s" })
}

fn failed(summary: &Summary) -> Vec<Failed> {
    let text = |file: &[u8]| String::from_utf8_lossy(file).into_owned();
    summary.failures.iter().map(|(file, why)| Failed { file: text(file), why: why.to_string() }).collect()
}

/// Failures that have one cause are said once: a tree into a place that cannot be written has as many as files.
const NAMED: usize = 3;

fn say_failures(out: &mut impl Write, failures: &[Failed]) -> Result<()> {
    let mut causes: Vec<(&str, Vec<&str>)> = Vec::new();
    for Failed { file, why } in failures {
        match causes.iter_mut().find(|(cause, _)| cause == why) {
            Some((_, files)) => files.push(file),
            None => causes.push((why, vec![file])),
        }
    }
    for (why, files) in causes {
        match files.as_slice() {
            [first, rest @ ..] if files.len() > NAMED => {
                writeln!(out, "{}, and {} more: {why}", named(first), rest.len())?;
            }
            few => few.iter().try_for_each(|file| writeln!(out, "{}: {why}", named(file)))?,
        }
    }
    Ok(())
}

/// The root of the tree has no name of its own.
fn named(file: &str) -> &str {
    if file.is_empty() { "." } else { file }
}
