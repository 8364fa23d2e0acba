//! `verbena ftp`: a directory, served to every FTP client; and files of any FTP server.

pub mod address;
pub mod files;
mod who;

use std::io::{BufRead, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde::Serialize;
use verbena_ftp::{DataTls, Rights, ServeOptions, Server, TlsOptions, set_password};
use verbena_terms::Lapse;

use super::at_least_one;
use super::running::{self, Signals, Told, say};
use crate::error::{Error, Result};
use crate::listening::ip_and_port;
use crate::output::{Format, output};

/// Serve files over FTP, to every client, and use any FTP server.
#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(Box<Serve>),
    Passwd(Passwd),
    Who(who::Who),
    Kick(who::Kick),
    Get(files::Get),
    Put(files::Put),
    Ls(files::Ls),
    Rm(files::Rm),
    Mv(files::Mv),
    #[command(name = "sha256")]
    Sha256(files::Sha256),
}

/// Serve a directory over FTP: read-only, to anonymous users and on this machine alone, unless options say more.
///
/// Every FTP client can talk to it (docs/reference/FTP.md). No name leads out of the directory. SIGTERM and SIGINT take no more connections and let transfers under way end, for at most
/// --drain; a second one ends it at once. SIGHUP reads the file of users again.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp serve --root /srv/data
  verbena ftp serve --root /srv/data --listen 0.0.0.0:2121 --users users.toml --no-anonymous
  verbena ftp serve --root /srv/data --listen [::]:21 --users users.toml --tls cert.pem,key.pem --tls-required
  curl ftp://127.0.0.1:2121/")]
pub struct Serve {
    /// The directory that is served.
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Where clients connect; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 2121)), value_parser = listen)]
    listen: SocketAddr,
    /// A file of users, with their passwords' hashes, homes and rights; `verbena ftp passwd` writes it.
    #[arg(long, value_name = "FILE")]
    users: Option<PathBuf>,
    /// Refuse anonymous users.
    #[arg(long, requires = "users")]
    no_anonymous: bool,
    /// Let anonymous users upload and replace files.
    #[arg(long, conflicts_with = "no_anonymous")]
    anonymous_write: bool,
    /// An anonymous upload replaces a file when it is whole, and not before. Clients cannot resume it then.
    #[arg(long)]
    atomic: bool,
    /// Ports of passive data connections, such as 50000-50100; the system's choice if it is not given.
    #[arg(long, value_name = "FROM-TO", value_parser = ports)]
    passive_ports: Option<RangeInclusive<u16>>,
    /// The IPv4 address at which clients reach this server from behind address translation (NAT).
    #[arg(long, value_name = "ADDRESS")]
    outer_address: Option<Ipv4Addr>,
    /// Append a line for each transfer to this file, in the form of xferlog(5).
    #[arg(long, value_name = "FILE")]
    transfer_log: Option<PathBuf>,
    /// Connections at one time; further ones are refused.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = at_least_one())]
    connections: usize,
    /// Connections of one address at one time; further ones are refused.
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = at_least_one())]
    connections_per_address: usize,
    /// Failed logins after which an address is banned for --ban-time; 0 bans none.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    ban_after: u32,
    /// How long an address is banned, and within which time its failed logins count.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(600), value_parser = Lapse::or_seconds)]
    ban_time: Lapse,
    /// The unix socket of `verbena ftp who` and `kick`. Without it, ftp-PORT.sock in the user's directory for sockets.
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Give metrics to Prometheus at http://ADDRESS/metrics.
    #[arg(long, value_name = "ADDRESS", value_parser = metrics_at)]
    metrics: Option<SocketAddr>,
    /// A PEM file with the server's certificate, a comma, and one with its key: clients may encrypt by AUTH TLS.
    #[arg(long, value_name = "CERT,KEY", value_parser = certificate)]
    tls: Option<(PathBuf, PathBuf)>,
    /// Refuse logins and data in clear.
    #[arg(long, requires = "tls")]
    tls_required: bool,
    /// Take only encrypted data connections that resume the TLS session of the control connection, so that no other client gets data. Python's ftplib and
    /// rclone cannot do that.
    #[arg(long, requires = "tls")]
    tls_resumed: bool,
    /// Take an upload for complete although its TLS ends without close_notify. It may have been cut off.
    #[arg(long, requires = "tls")]
    tls_unclean_end: bool,
    /// How long a data connection may move nothing, before it is closed.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(60), value_parser = Lapse::or_seconds)]
    stall: Lapse,
    /// How long a session of `verbena cp` may move nothing, before it is closed; large files are hashed meanwhile.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(600), value_parser = Lapse::or_seconds)]
    session_stall: Lapse,
    /// How long a control connection may be silent, before it is closed.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(300), value_parser = Lapse::or_seconds)]
    idle: Lapse,
    /// How long transfers under way may go on after the signal to stop.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(30), value_parser = Lapse::or_seconds)]
    drain: Lapse,
    #[command(flatten)]
    format: Format,
}

/// Set the password of a user in a file of users; file and user are made if they are missing.
///
/// A terminal is asked for the password twice; otherwise the first line of standard input is the password. The file has its Argon2id hash. A new user may read
/// only: `rights = ["read", "write", "delete"]` below the user in the file gives more, and `home = "DIR"` another directory (docs/reference/FTP.md).
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena ftp passwd users.toml alice
  echo 'correct horse' | verbena ftp passwd users.toml alice")]
pub struct Passwd {
    /// The file of users.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The user.
    #[arg(value_name = "NAME")]
    name: String,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(untagged)]
enum Line {
    Serving {
        event: &'static str,
        root: PathBuf,
        address: SocketAddr,
        url: String,
        pid: u32,
        control: Option<PathBuf>,
        metrics: Option<SocketAddr>,
    },
    Ended {
        event: &'static str,
    },
}

/// A line, for people.
fn words(line: &Line) -> String {
    match line {
        Line::Serving { root, url, pid, .. } => format!("serving {} at {url} (process {pid})", root.display()),
        Line::Ended { .. } => "ended".into(),
    }
}

impl Command {
    /// Runs it.
    pub fn run(self) -> Result<()> {
        match self {
            Command::Serve(serve) => serve.run(),
            Command::Passwd(passwd) => passwd.run(),
            Command::Who(who) => who.run(),
            Command::Kick(kick) => kick.run(),
            Command::Get(get) => get.run(),
            Command::Put(put) => put.run(),
            Command::Ls(ls) => ls.run(),
            Command::Rm(rm) => rm.run(),
            Command::Mv(mv) => mv.run(),
            Command::Sha256(sha256) => sha256.run(),
        }
    }
}

impl Serve {
    fn run(self) -> Result<()> {
        // A control connection, its data connection and a file.
        running::raise_open_files(3 * self.connections as u64 + 64);
        let (json, options) = (self.format.json, self.options());
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let server = Server::bind(options)?;
            let (address, url) = (server.address(), server.url());
            let (handle, control, metrics) = (server.handle(), server.control(), server.metrics());
            let (root, pid) = (self.root.clone(), std::process::id());
            let serving = Line::Serving { event: "serving", root, address, url, pid, control, metrics };
            say(json, &serving, words);
            let (told, stop) = tokio::sync::oneshot::channel::<()>();
            let running = server.run(async {
                // Its sender is dropped when a signal came.
                let _ = stop.await;
            });
            tokio::pin!(running);
            let mut told = Some(told);
            loop {
                tokio::select! {
                    () = &mut running => break,
                    signal = signals.next() => match (signal, told.take()) {
                        (Told::Reload, kept) => {
                            told = kept;
                            match handle.reload() {
                                Ok(users) => tracing::info!(users, "the file of users was read again"),
                                Err(error) => tracing::error!(%error, "the file of users was not read again: those of before stay"),
                            }
                        }
                        (Told::End, Some(told)) => drop(told),
                        // Told twice.
                        (Told::End, None) => break,
                    },
                }
            }
            say(json, &Line::Ended { event: "ended" }, words);
            Ok(())
        })
    }

    fn options(&self) -> ServeOptions {
        let anonymous = match (self.no_anonymous, self.anonymous_write) {
            (true, _) => None,
            (false, true) => Some(Rights { write: true, ..Rights::READ }),
            (false, false) => Some(Rights::READ),
        };
        let control = self.control.clone().or_else(|| {
            let directory = verbena_ipc::runtime_directory();
            directory
                .map_err(|error| tracing::warn!(%error, "`verbena ftp who` has no socket: give one by --control"))
                .ok()
        });
        let tls = self.tls.as_ref().map(|(certificate, key)| TlsOptions {
            is_required: self.tls_required,
            data: if self.tls_resumed { DataTls::Resumed } else { DataTls::Any },
            takes_unclean_end: self.tls_unclean_end,
            ..TlsOptions::new(certificate, key)
        });
        ServeOptions {
            listen: self.listen,
            users: self.users.clone(),
            anonymous,
            atomic_stores: self.atomic,
            passive_ports: self.passive_ports.clone(),
            outer_address: self.outer_address,
            transfer_log: self.transfer_log.clone(),
            ban_after: self.ban_after,
            ban_lasts: self.ban_time.0,
            control,
            metrics: self.metrics,
            most_sessions: self.connections,
            most_sessions_per_address: self.connections_per_address,
            drain_timeout: self.drain.0,
            stall_timeout: self.stall.0,
            session_stall_timeout: self.session_stall.0,
            idle_timeout: self.idle.0,
            tls,
            ..ServeOptions::new(&self.root)
        }
    }
}

impl Passwd {
    fn run(self) -> Result<()> {
        let password = match std::io::stdin().is_terminal() {
            true => asked_twice(&self.name)?,
            false => line()?,
        };
        if password.is_empty() {
            return Err(Error::Refused {
                problem: "an empty password would let anyone in: nothing was changed".into(),
                exit_code: 2,
            });
        }
        set_password(Path::new(&self.file), &self.name, password.as_bytes())?;
        Ok(writeln!(output(), "the password of {} is in {}", self.name, self.file.display())?)
    }
}

fn asked_twice(name: &str) -> Result<String> {
    let first = hidden(&format!("password of {name}: "))?;
    let second = hidden("once more: ")?;
    if first != second {
        return Err(Error::Refused { problem: "the two passwords differ: nothing was changed".into(), exit_code: 1 });
    }
    Ok(first)
}

/// Asks on the terminal, which does not show what is typed.
fn hidden(prompt: &str) -> Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let system = |error: rustix::io::Errno| Error::System { doing: "hide what is typed", source: error.into() };
    let stdin = std::io::stdin();
    let shown = tcgetattr(&stdin).map_err(system)?;
    let mut silent = shown.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    let mut stderr = std::io::stderr();
    write!(stderr, "{prompt}")?;
    stderr.flush()?;
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(system)?;
    let typed = line();
    tcsetattr(&stdin, OptionalActions::Flush, &shown).map_err(system)?;
    writeln!(stderr)?;
    typed
}

fn line() -> Result<String> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|source| Error::System { doing: "read the password", source })?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

fn certificate(given: &str) -> std::result::Result<(PathBuf, PathBuf), String> {
    match given.split_once(',') {
        Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => Ok((certificate.into(), key.into())),
        _ => Err("not CERT,KEY, for example cert.pem,key.pem".into()),
    }
}

fn listen(given: &str) -> std::result::Result<SocketAddr, String> {
    ip_and_port(given, "127.0.0.1:2121, or 0.0.0.0:2121 for every interface")
}

fn metrics_at(given: &str) -> std::result::Result<SocketAddr, String> {
    ip_and_port(given, "127.0.0.1:9121")
}

fn ports(given: &str) -> std::result::Result<RangeInclusive<u16>, String> {
    let wrong = || "not FROM-TO, for example 50000-50100".to_owned();
    let (from, to) = given.split_once('-').ok_or_else(wrong)?;
    let (from, to): (u16, u16) = (from.trim().parse().map_err(|_| wrong())?, to.trim().parse().map_err(|_| wrong())?);
    if from == 0 || from > to {
        return Err(format!("{from}-{to} has no ports: write the lower one, from 1 on, first"));
    }
    Ok(from..=to)
}
