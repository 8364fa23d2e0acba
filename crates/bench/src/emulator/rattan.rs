//! `rattan`, a network emulator in Rust (crate `rattan`), as the program that it is.
//!
//! It makes a network for the command that it starts, and links it with the one that it was started in. The command only waits here: both networks
//! are entered from outside.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use verbena_namespaces::Namespace;
use verbena_terms::Lapse;

use super::paths::Ends;
use crate::error::BenchError;
use crate::programs::in_path;
use crate::report::FabricFound;

pub(super) const NAME: &str = "rattan";

const HOW_TO_GET_IT: &str = "there is no rattan: cargo install rattan --version 0.1.1";
/// It puts its networks into /run/netns, where they would stay after it was killed: so it has a /run of its own.
const BY_ITSELF: &str = "mount -t tmpfs tmpfs /run && exec \"$0\" \"$@\"";
/// Says who it is and what the other end is called, and waits to be let go.
const WAITER: &str = "echo waits $$ $RATTAN_BASE; exec cat";
const WAITS: &str = "waits ";
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs for as long as this is held.
pub(super) struct Rattan {
    process: Child,
    /// It ends when this is closed, however that comes.
    waiter: Option<ChildStdin>,
    near: Namespace,
    far: Namespace,
    address: IpAddr,
}

/// One for each of these delays, there and back; none where there is no such program, or it does not work here. And what to say of it.
pub(super) fn all(delays: &[Duration]) -> Result<(Vec<Rattan>, FabricFound), BenchError> {
    let found =
        |measured, because: String| FabricFound { name: NAME.to_owned(), measured, because, capabilities: None };
    let Some(program) = in_path("rattan") else { return Ok((vec![], found(false, HOW_TO_GET_IT.to_owned()))) };
    let started: Result<Result<Vec<Rattan>, String>, BenchError> =
        delays.iter().map(|delay| Rattan::start(&program, *delay)).collect();
    Ok(match started? {
        Ok(all) => (all, found(true, format!("{}; as it comes, by packet sockets", version(&program)))),
        Err(why) => (vec![], found(false, format!("it does not run here: {why}"))),
    })
}

fn version(program: &PathBuf) -> String {
    let said = Command::new(program).arg("--version").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().next().unwrap_or(NAME).to_owned()
}

impl Rattan {
    /// Why not, if it did not come up.
    fn start(program: &PathBuf, delay: Duration) -> Result<Result<Self, String>, BenchError> {
        let far = Namespace::new()?;
        let begun = far.visit(|| begin(program, delay))?;
        let ready = begun.and_then(|(mut process, said)| {
            let waiter = process.stdin.take();
            match waits(&mut process) {
                Some(line) => Ok((process, waiter, line)),
                None => {
                    drop(waiter);
                    end(&mut process);
                    Err(io::Error::other(told(said)))
                }
            }
        });
        let (process, waiter, line) = match ready {
            Ok(ready) => ready,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let names =
            line.trim().split_once(' ').and_then(|(id, address)| Some((id.parse().ok()?, address.parse().ok()?)));
        let Some((id, address)) = names else { return Ok(Err(format!("it said {line:?}"))) };
        Ok(Ok(Rattan { near: Namespace::of_process(id)?, process, waiter, far, address }))
    }

    pub(super) fn ends(&self) -> Ends<'_> {
        Ends { near: &self.near, far: &self.far, address: self.address }
    }
}

impl Drop for Rattan {
    fn drop(&mut self) {
        drop(self.waiter.take());
        end(&mut self.process);
    }
}

/// In the network of this thread, with what it says of errors.
fn begin(program: &PathBuf, delay: Duration) -> io::Result<(Child, File)> {
    let said = tempfile::tempfile()?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", BY_ITSELF]).arg(program).arg("link");
    if !delay.is_zero() {
        let delay = Lapse(delay).to_string();
        command.args(["--uplink-delay", &delay, "--downlink-delay", &delay]);
    }
    command.args(["--", "sh", "-c", WAITER]);
    let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(said.try_clone()?).spawn()?;
    Ok((process, said))
}

/// What the command says of itself, behind what the program has to say before; `None` if it does not come in time.
fn waits(process: &mut Child) -> Option<String> {
    let output = process.stdout.take()?;
    let (sender, line) = sync_channel(1);
    // Reads until the process ends, at the latest.
    std::thread::spawn(move || {
        let lines = BufReader::new(output).lines().map_while(Result::ok);
        for line in lines {
            if let Some(rest) = line.strip_prefix(WAITS) {
                // The waiting thread may have given up.
                let _ = sender.send(rest.to_owned());
            }
        }
    });
    line.recv_timeout(PATIENCE).ok()
}

fn told(mut said: File) -> String {
    let mut text = String::new();
    let _ = said.rewind().and_then(|()| said.read_to_string(&mut text));
    if text.trim().is_empty() { "it said nothing".to_owned() } else { text.trim().to_owned() }
}

/// It ends by itself when its command does, and then nothing of it is left.
fn end(process: &mut Child) {
    let until = Instant::now() + PATIENCE;
    while matches!(process.try_wait(), Ok(None)) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = process.kill();
    let _ = process.wait();
}
