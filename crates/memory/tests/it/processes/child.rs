//! A node in a process of its own: this test's program, started once more, and told by lines what to do.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::processes::station::{PATIENCE, Station};
use crate::processes::work;

const PROVIDER: &str = "VERBENA_MEMORY_PROVIDER";
const RANK: &str = "VERBENA_MEMORY_RANK";

/// What a child says begins with it: its harness says things too.
const SAYS: &str = "@";

pub struct Node {
    process: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// What it said before something that was waited for.
    before: Vec<String>,
    pub rank: u32,
    pub address: String,
}

impl Node {
    pub fn start(provider: &str, rank: u32) -> Node {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["processes::child", "--exact", "--nocapture", "--test-threads=1"])
            .env(PROVIDER, provider)
            .env(RANK, rank.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (tell, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if let Some((_, said)) = line.split_once(SAYS)
                    && tell.send(said.to_owned()).is_err()
                {
                    return;
                }
            }
        });
        let mut node = Node { process, input, lines, before: vec![], rank, address: String::new() };
        node.address = node.hear("address ");
        node
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// What it says that begins so. What it says before that is kept.
    pub fn hear(&mut self, begins: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{begins} does not come"));
            match line.strip_prefix(begins) {
                Some(rest) => return rest.to_owned(),
                None => self.before.push(line),
            }
        }
    }

    /// All that it says until it says this, or its end.
    pub fn all_until(&mut self, last: &str) -> Vec<String> {
        let mut said = std::mem::take(&mut self.before);
        if said.last().is_none_or(|line| line != last) {
            let more = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok());
            said.extend(more.take_while(|line| line != last));
        }
        said.retain(|line| line != last);
        said
    }

    /// With SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            self.kill();
        }
    }
}

/// The next view, of the station and these nodes, of which so many are homes; the station is one.
pub fn next_view(number: u32, homes: usize, station: &Station, nodes: &mut [Node]) {
    let own = [(1, station.address.clone())];
    let members: Vec<(u32, String)> =
        own.into_iter().chain(nodes.iter().map(|node| (node.rank, node.address.clone()))).collect();
    let shown: Vec<String> = members.iter().map(|(rank, address)| format!("{rank} {address}")).collect();
    station.view(number, homes, &members);
    for node in &mut *nodes {
        node.tell(&format!("view {number} {homes} {}", shown.join(" ")));
        node.hear("learnt");
    }
    station.in_effect();
    for node in &mut *nodes {
        node.tell("effect");
        node.hear("acts");
    }
}

/// Does what the parent says, in its process.
pub fn serve() {
    let (Ok(provider), Ok(rank)) = (std::env::var(PROVIDER), std::env::var(RANK)) else { return };
    let station = Arc::new(Station::open(&provider, rank.parse().unwrap()));
    println!("{SAYS}address {}", station.address);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["view", number, homes, ref members @ ..] => {
                let members: Vec<(u32, String)> =
                    members.chunks(2).map(|pair| (pair[0].parse().unwrap(), pair[1].to_owned())).collect();
                station.view(number.parse().unwrap(), homes.parse().unwrap(), &members);
                println!("{SAYS}learnt");
            }
            ["effect"] => {
                station.in_effect();
                println!("{SAYS}acts");
            }
            ["work", operations] => {
                let (station, rank, operations) = (station.clone(), rank.parse().unwrap(), operations.parse().unwrap());
                // It hears of views meanwhile.
                std::thread::spawn(move || {
                    work::run(&station, rank, operations, |line| println!("{SAYS}{line}"));
                    println!("{SAYS}done");
                });
            }
            ["fill", name] => work::fill(&station, rank.parse().unwrap(), name, || println!("{SAYS}filling")),
            _ => panic!("{line} is nothing to do"),
        }
    }
}
