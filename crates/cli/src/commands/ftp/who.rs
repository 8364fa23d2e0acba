//! `verbena ftp who` and `kick`: the sessions of a `verbena ftp serve` of this user, by its socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::Args;
use verbena_ftp::SessionFacts;
use verbena_ipc::usual_directory;
use verbena_terms::Lapse;

use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// How long the server may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer: some 200 bytes a session.
const LONGEST: u64 = 64 << 20;

/// Which server.
#[derive(Args, Debug)]
pub struct Server {
    /// The server's socket, as its --control names it. Without it, that of the one server that this user runs.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

/// List the sessions of `verbena ftp serve`: number, address, user, age, and what it moves.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes: 0 done; 3 no server runs

Examples:
  verbena ftp who
  verbena ftp who --json --control /run/verbena/ftp-21.sock")]
pub struct Who {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    format: Format,
}

/// End sessions of `verbena ftp serve`, with their transfers. What has arrived stays, as after any break.
///
/// The client may come again. To keep a user out, change the file of users and send the server SIGHUP first.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Exit codes: 0 they end; 1 there was no session of one of the numbers; 3 no server runs

Examples:
  verbena ftp kick 17")]
pub struct Kick {
    /// Numbers of sessions, as `verbena ftp who` shows them.
    #[arg(value_name = "NUMBER", required = true)]
    sessions: Vec<u64>,
    #[command(flatten)]
    server: Server,
}

fn refused(problem: String, exit_code: u8) -> Error {
    Error::Refused { problem, exit_code }
}

impl Server {
    fn socket(&self) -> Result<PathBuf> {
        if let Some(path) = &self.control {
            return Ok(path.clone());
        }
        let directory = usual_directory();
        let is_ours = |name: &str| name.starts_with("ftp-") && name.ends_with(".sock");
        let found = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let sockets = found.filter(|entry| is_ours(&entry.file_name().to_string_lossy())).map(|entry| entry.path());
        // What a killed server left answers nothing.
        let sockets: Vec<PathBuf> = sockets.filter(|path| UnixStream::connect(path).is_ok()).collect();
        match sockets.as_slice() {
            [one] => Ok(one.clone()),
            [] => {
                let place = directory.display();
                Err(refused(
                    format!(
                        "no FTP server of this user runs ({place} has no socket of one); `verbena ftp serve` starts one, and --control names the socket of another"
                    ),
                    3,
                ))
            }
            many => {
                let names: Vec<String> = many.iter().map(|path| path.display().to_string()).collect();
                Err(refused(format!("several FTP servers run: choose one by --control: {}", names.join(", ")), 2))
            }
        }
    }

    /// Asks, and gives the status and the body.
    fn ask(&self, path: &Path, request: &str) -> Result<(u16, String)> {
        let asked = || {
            let mut stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.write_all(format!("{request} HTTP/1.1\r\nHost: ftp\r\nConnection: close\r\n\r\n").as_bytes())?;
            let mut text = String::new();
            stream.take(LONGEST).read_to_string(&mut text)?;
            Ok::<_, std::io::Error>(text)
        };
        let text = asked().map_err(|error| {
            refused(
                format!(
                    "no FTP server answers at {}: {error}; is it the path that --control of `verbena ftp serve` names?",
                    path.display()
                ),
                3,
            )
        })?;
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        match (status, text.split_once("\r\n\r\n")) {
            (Some(status), Some((_, body))) => Ok((status, body.to_owned())),
            _ => Err(refused(format!("what listens at {} is no `verbena ftp serve`", path.display()), 1)),
        }
    }
}

impl Who {
    /// Lists them.
    pub fn run(self) -> Result<()> {
        let (_, body) = self.server.ask(&self.server.socket()?, "GET /sessions")?;
        let sessions: Vec<SessionFacts> = serde_json::from_str(&body)?;
        let mut out = output();
        if self.format.json {
            return write_json(&mut out, &sessions);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.as_secs());
        for SessionFacts { id, address, user, since, is_encrypted, doing, bytes } in sessions {
            let age = Lapse(Duration::from_secs(now.saturating_sub(since))).to_string();
            let (user, mark) = (user.unwrap_or_else(|| "-".into()), if is_encrypted { "tls" } else { "-" });
            let doing = doing.map(|doing| format!("{} ({bytes} bytes)", printable(&doing))).unwrap_or_default();
            writeln!(out, "{id:>6}  {:<24} {:<16} {mark:<4} {age:>8}  {doing}", address.to_string(), printable(&user))?;
        }
        Ok(())
    }
}

/// A client's words must not move the cursor of a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

impl Kick {
    /// Ends them.
    pub fn run(self) -> Result<()> {
        let socket = self.server.socket()?;
        let mut all = true;
        for id in self.sessions {
            let (status, _) = self.server.ask(&socket, &format!("DELETE /sessions/{id}"))?;
            all &= status == 200;
            match status {
                200 => writeln!(output(), "{id} ends")?,
                _ => writeln!(output(), "there is no session {id}")?,
            }
        }
        if all { Ok(()) } else { Err(Error::No) }
    }
}
