//! `verbena cp`: trees of files to and from an FTP server of ours.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use percent_encoding::percent_decode_str;
use serde::Serialize;
use verbena_ftp::{ChannelKind, CopyOptions, Direction, Location, Progress};
use verbena_terms::Lapse;

use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// Copy a tree of files to or from `verbena ftp serve`, over several connections at once. Type the same line again after any end: it goes on where it was.
///
/// Each file arrives beside its place and is renamed when it is whole, as the root of its tree of BLAKE3 hashes proves. What stands already is not sent again. One side is a directory
/// here, the other ftp://USER:PASSWORD@HOST:PORT/PATH.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes: 0 all files stand; 1 some do not, or the server is gone: type the line again

Examples:
  verbena cp data ftp://alice:secret@host:2121/in
  verbena cp ftp://host:2121/ here
  verbena cp --channel quic --explain data ftp://alice:secret@host:2121/in")]
pub struct Command {
    /// Where the files are.
    #[arg(value_name = "FROM")]
    from: String,
    /// Where they go: a directory that exists.
    #[arg(value_name = "TO")]
    to: String,
    /// Connections that carry files at once: 1 to 16. Without it, connections are added while they pay.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=16))]
    streams: Option<u16>,
    /// What files go over: tcp, or quic, which is encrypted. Several are tried in their order.
    #[arg(long, value_name = "CHANNEL", value_delimiter = ',', default_value = "tcp", value_parser = str::parse::<ChannelKind>)]
    channel: Vec<ChannelKind>,
    /// Say what was measured, and why connections were added or not.
    #[arg(long)]
    explain: bool,
    /// Count files before they are on the disk here: faster, and what the machine's own crash leaves is sent again.
    #[arg(long)]
    no_sync: bool,
    /// How long the server may take for an answer.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(30), value_parser = Lapse::or_seconds)]
    timeout: Lapse,
    #[command(flatten)]
    format: Format,
}

#[derive(Serialize)]
struct Copied {
    /// Files and directories that stand.
    entries: u64,
    bytes: u64,
    seconds: f64,
    /// Connections that were made.
    streams: u16,
    /// What was measured and decided about them.
    notes: Vec<String>,
    failures: Vec<Failed>,
}

#[derive(Serialize)]
struct Failed {
    file: String,
    why: String,
}

impl Command {
    /// Copies.
    pub fn run(self) -> Result<()> {
        let refused = |problem: &str| Error::Refused { problem: problem.into(), exit_code: 2 };
        let (direction, url, local) = match (self.from.starts_with("ftp://"), self.to.starts_with("ftp://")) {
            (true, false) => (Direction::Get, &self.from, &self.to),
            (false, true) => (Direction::Put, &self.to, &self.from),
            (true, true) => return Err(refused("both sides are servers: copy by way of a directory here")),
            (false, false) => {
                return Err(refused("neither side is ftp://USER:PASSWORD@HOST:PORT/PATH; on one machine use cp"));
            }
        };
        let remote = location(url).map_err(|problem| Error::Refused { problem, exit_code: 2 })?;
        let options = CopyOptions {
            remote,
            local: PathBuf::from(local),
            direction,
            streams: self.streams,
            channels: self.channel,
            is_durable: !self.no_sync,
            timeout: self.timeout.0,
        };
        let (began, mut shown) = (Instant::now(), Instant::now());
        let shows = !self.format.json && std::io::stderr().is_terminal();
        let mut report = |progress: &Progress| {
            if shows && shown.elapsed() >= SHOWN_EVERY {
                shown = Instant::now();
                let rate = progress.bytes as f64 / began.elapsed().as_secs_f64() / 1e6;
                // Who cannot be told misses nothing but this.
                let _ = write!(
                    std::io::stderr(),
                    "\r{} files, {:.1} MB/s, {}\x1b[K",
                    progress.files,
                    rate,
                    String::from_utf8_lossy(&progress.last)
                );
            }
            true
        };
        let copied = verbena_ftp::copy(&options, &mut report);
        if shows {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let summary = copied?;
        let seconds = began.elapsed().as_secs_f64();
        let failures: Vec<Failed> = summary
            .failures
            .iter()
            .map(|(file, why)| Failed { file: String::from_utf8_lossy(file).into_owned(), why: why.to_string() })
            .collect();
        let all_stand = failures.is_empty();
        let mut out = output();
        if self.format.json {
            let (streams, notes) = (summary.streams, summary.notes);
            write_json(
                &mut out,
                &Copied { entries: summary.files, bytes: summary.bytes, seconds, streams, notes, failures },
            )?;
        } else {
            if self.explain {
                for note in &summary.notes {
                    writeln!(out, "{note}")?;
                }
            }
            for Failed { file, why } in &failures {
                writeln!(out, "{file}: {why}")?;
            }
            writeln!(
                out,
                "{} files and directories stand, {} bytes were sent in {seconds:.1} s over {} connections",
                summary.files, summary.bytes, summary.streams
            )?;
        }
        if all_stand { Ok(()) } else { Err(Error::No) }
    }
}

/// `ftp://[USER[:PASSWORD]@]HOST[:PORT]/PATH`.
fn location(text: &str) -> std::result::Result<Location, String> {
    let wrong = |why: &str| format!("not ftp://USER:PASSWORD@HOST:PORT/PATH: {why}");
    let url = url::Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("it names no host"))?;
    let (user, password) = match url.username() {
        "" => ("anonymous".to_owned(), "verbena@".to_owned()),
        user => (decoded(user), url.password().map(decoded).unwrap_or_default()),
    };
    let path = decoded(url.path());
    let port = url.port().unwrap_or(21);
    Ok(Location {
        host: host.trim_matches(['[', ']']).to_owned(),
        port,
        user,
        password,
        path: if path.is_empty() { "/".into() } else { path },
    })
}
