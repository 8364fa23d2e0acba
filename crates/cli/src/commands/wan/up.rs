//! `verbena wan up`: the networks of a file, for as long as it runs.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command as Process, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use tokio::sync::mpsc;
use verbena_wan::{Plan, Wan, read_file};

use super::control::{Answer, Connection, Name, Request};
use super::exec::GRACE;
use super::file;
use super::guard::Guard;
use super::report::Report;
use super::start::Place;
use crate::commands::child::{exit_code, system};
use crate::commands::running::{self, Signals, say};
use crate::error::Result;
use crate::namespaces::may_make_networks;
use crate::output::{Format, output};

/// Make the sites and links of a file, and run the links until `wan down` or a signal ends them.
///
/// Sites are network namespaces that this process alone holds: they are gone with it, however it ends. `wan exec` runs commands in them, `wan set` changes
/// links, and `wan show` shows what links do. SIGINT, SIGTERM and `wan down` end the process, and the commands that `wan exec` runs there.
///
/// Without root this works where user namespaces may be made. It needs the command `ip` (package iproute2).
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example of a file:
  [[site]]
  name = \"paris\"

  [[site]]
  name = \"tokyo\"
  addresses = [\"10.2.0.1\", \"fd02::1\"]

  [[link]]
  name = \"sea\"
  between = [\"paris\", \"tokyo\"]
  delay = \"120ms\"
  loss = \"0.1%\"
  there = { rate = \"20mbit\" }

Examples:
  verbena wan up lab.toml
  verbena wan up lab.toml --detach && verbena wan exec paris -- ping -c 3 tokyo
  verbena wan down")]
pub struct Command {
    /// The file with sites and links.
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    #[command(flatten)]
    name: Name,
    /// Return when it is up, and let it run on until `wan down`.
    #[arg(long)]
    detach: bool,
    /// Look at the file, say what is wrong with it, and make nothing.
    #[arg(long, conflicts_with = "detach")]
    check: bool,
    #[command(flatten)]
    format: Format,
}

/// `wan exec` has ended its command by then, and has said how that ended.
const TOLD: Duration = GRACE.saturating_add(Duration::from_millis(500));

/// What is printed when something happens.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Up { name: String, pid: u32, sites: Vec<Site>, links: Vec<String> },
    Down { name: String },
}

#[derive(Debug, Serialize)]
struct Site {
    name: String,
    addresses: Vec<String>,
}

impl Command {
    /// Runs it until a command or a signal ends it.
    pub fn run(self) -> Result<ExitCode> {
        let plan = file::read(&self.file)?;
        match self {
            Command { check: true, .. } => Ok(ExitCode::SUCCESS),
            Command { detach: true, .. } => self.detach(),
            _ => self.keep_up(plan).map(|()| ExitCode::SUCCESS),
        }
    }

    fn keep_up(self, plan: Plan) -> Result<()> {
        let claim = self.name.claim()?;
        // While this thread is the only one: a process of several cannot have a user namespace of its own.
        may_make_networks()?;
        let name = self.name.name;
        running::block_on(async {
            let mut signals = Signals::listen()?;
            let up = Line::Up { name: name.clone(), pid: std::process::id(), sites: sites(&plan), links: links(&plan) };
            let wan = Wan::up(plan)?;
            let _guard = Guard::start(&wan, TOLD)?;
            let wan = Arc::new(Mutex::new(wan));
            let (down, mut told) = mpsc::unbounded_channel();
            let listener = UnixListener::bind(claim.socket()).map_err(system("listen for commands"))?;
            let served = Served { wan, began: Instant::now(), down };
            std::thread::spawn(move || served.listen(&listener));
            say(self.format.json, &up, in_words);
            tokio::select! {
                () = signals.until_told_to_end() => {}
                _ = told.recv() => {}
            }
            say(self.format.json, &Line::Down { name }, in_words);
            Ok(())
        })
    }

    /// Another process of this program does it, in a session of its own. It keeps no descriptor of this process open: a reader that waits for the end
    /// of what this one prints does not wait for it.
    fn detach(self) -> Result<ExitCode> {
        let program = std::env::current_exe().map_err(system("find this program"))?;
        let mut process = Process::new(program);
        process.args(["wan", "up", "--name", &self.name.name]).arg(&self.file);
        process.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if self.format.json {
            process.arg("--json");
        }
        // SAFETY: setsid(2) takes no lock and allocates nothing.
        unsafe { process.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
        let mut child = process.spawn().map_err(system("start the process that keeps the WAN up"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(system("read what it says"))?;
        }
        if line.is_empty() {
            // It has ended, and said why.
            let ended = child.wait_with_output().map_err(system("watch it"))?;
            anstream::stderr().write_all(&ended.stderr)?;
            return Ok(exit_code(ended.status));
        }
        output().write_all(line.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn sites(plan: &Plan) -> Vec<Site> {
    let addresses = |site: &verbena_wan::Site| site.addresses.iter().map(ToString::to_string).collect();
    plan.sites.iter().map(|site| Site { name: site.name.clone(), addresses: addresses(site) }).collect()
}

fn links(plan: &Plan) -> Vec<String> {
    plan.links.iter().map(|link| link.name.clone()).collect()
}

fn in_words(line: &Line) -> String {
    match line {
        Line::Up { name, sites, links, .. } => {
            let site = |site: &Site| format!("{} ({})", site.name, site.addresses.join(" "));
            let sites: Vec<String> = sites.iter().map(site).collect();
            format!("the WAN {name} is up: sites {}; links {}", sites.join(", "), links.join(", "))
        }
        Line::Down { name } => format!("the WAN {name} is down"),
    }
}

/// What commands ask about.
#[derive(Clone)]
struct Served {
    wan: Arc<Mutex<Wan>>,
    began: Instant,
    down: mpsc::UnboundedSender<()>,
}

impl Served {
    /// Until the process ends.
    fn listen(self, listener: &UnixListener) {
        for stream in listener.incoming().flatten() {
            let served = self.clone();
            std::thread::spawn(move || served.serve(stream));
        }
    }

    fn serve(self, stream: UnixStream) {
        // The command that asks may go away at any time.
        let Ok(mut connection) = Connection::new(stream) else { return };
        let Ok((request, _)) = connection.receive::<Request>() else { return };
        match self.answer(request, &mut connection) {
            Ok(Some(answer)) => drop(connection.send(&answer, &[])),
            Ok(None) => {}
            Err(error) => {
                let refused = Answer::Refused { problem: error.to_string(), exit_code: error.exit_code() };
                drop(connection.send(&refused, &[]));
            }
        }
        // The other end sees by this when the WAN has ended.
        drop(connection.wait(None));
    }

    fn answer(&self, request: Request, connection: &mut Connection) -> Result<Option<Answer>> {
        let mut wan = self.wan.lock().unwrap_or_else(PoisonError::into_inner);
        match request {
            Request::Look => return Ok(Some(Answer::Report(Report::of(&wan, self.began)?))),
            Request::Set { link, which, options, folder } => {
                wan.change(&link, which.into(), &options, &|path| read_file(&folder, path))?;
            }
            Request::Enter { site } => {
                let owner = File::open("/proc/self/ns/user").map_err(system("open this user namespace"))?;
                let answer = Answer::Site(Place::of(wan.plan(), &site));
                // The command that asked may have gone.
                drop(connection.send(&answer, &[wan.site(&site)?.as_fd(), owner.as_fd()]));
                return Ok(None);
            }
            Request::Down => {
                // Before the process ends; the command that asked may have gone.
                drop(connection.send(&Answer::Done, &[]));
                // The channel is closed when it ends already.
                let _ = self.down.send(());
                return Ok(None);
            }
        }
        Ok(Some(Answer::Done))
    }
}
