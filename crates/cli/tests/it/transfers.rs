//! Transfers by real processes that are killed and stopped, of sources that change, and to targets that two clients write: nothing that stands is ever wrong, and the
//! same command, given again, ends with what the source has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_testkit::programs::verbena;

use crate::common::traffic::{Ended, started};

/// How long a command may take, faults included.
const LIMIT: Duration = Duration::from_secs(90);
/// Tries of a command behind the fault: a part that another one still writes is refused for a moment.
const TRIES: u32 = 100;
/// How names begin of what is under way.
const UNDER_WAY: [&[u8]; 2] = [b".~verbena.", b".ftp-part."];
const WAYS: [&[&str]; 5] =
    [&["--channel", "tcp"], &["--channel", "quic"], &["--channel", "udp"], &["--channel", "descriptor"], &["--plain"]];

/// What happens to a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Nothing,
    ClientKilled,
    ServerKilled,
    ClientStopped,
    ServerStopped,
    SourceWritten,
    SourceReplaced,
    Rival,
}

const FAULTS: [Fault; 8] = [
    Fault::Nothing,
    Fault::ClientKilled,
    Fault::ServerKilled,
    Fault::ClientStopped,
    Fault::ServerStopped,
    Fault::SourceWritten,
    Fault::SourceReplaced,
    Fault::Rival,
];

/// A server, again at its port after each end.
struct Server {
    directory: PathBuf,
    port: u16,
    process: Option<Ended>,
}

impl Server {
    fn start(&mut self) {
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = verbena(&["ftp", "serve", "--json", "--root", "served", "--listen", &listen]);
        command.args(["--anonymous-write", "--atomic", "--stall", "5s", "--session-stall", "5s"]);
        let (process, line) = started(command.current_dir(&self.directory), |line| line.contains(r#""serving""#));
        let serving: Value = serde_json::from_str(&line).unwrap();
        let url = serving["url"].as_str().unwrap().trim_end_matches('/').to_owned();
        self.port = url.rsplit(':').next().unwrap().parse().unwrap();
        self.process = Some(process);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process.as_ref().unwrap().0), signal).unwrap();
    }
}

/// The files of a tree, by their paths; those that are under way are left out.
fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(directory) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries.map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                left.push(path);
            } else if !UNDER_WAY.iter().any(|name| entry.file_name().as_encoded_bytes().starts_with(name))
                && let Ok(bytes) = std::fs::read(&path)
            {
                found.insert(path.strip_prefix(root).unwrap().to_owned(), bytes);
            }
        }
    }
    found
}

fn bytes(random: &mut Pcg64, length: u64) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Fills a tree: a file that takes its time, others of every size, an empty one.
fn fill(root: &Path, random: &mut Pcg64) {
    std::fs::create_dir_all(root.join("deep")).unwrap();
    let large = (4 << 20) + random.next_u64() % (6 << 20);
    std::fs::write(root.join("big"), bytes(random, large)).unwrap();
    std::fs::write(root.join("empty"), b"").unwrap();
    for nth in 0..6 {
        let length = random.next_u64() % (1 << (8 + 2 * nth));
        std::fs::write(root.join(format!("deep/{nth}")), bytes(random, length)).unwrap();
    }
}

/// The source of another client.
fn rival_of(from: &Path) -> PathBuf {
    let mut name = from.file_name().unwrap().to_owned();
    name.push("-rival");
    from.with_file_name(name)
}

struct World {
    directory: PathBuf,
    server: Server,
    random: Pcg64,
    /// Transfers by what happened to them while they ran, and by their way.
    struck: BTreeMap<Fault, u32>,
    by_way: [u32; WAYS.len()],
    again: u32,
}

/// One transfer: from where to where, by paths here and as the command names them.
struct Transfer {
    way: usize,
    from: PathBuf,
    to: PathBuf,
    words: Vec<String>,
}

impl World {
    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn begin(&self, words: &[String]) -> Child {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        verbena(&words).current_dir(&self.directory).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// A tree or a file, there or back.
    fn transfer(&mut self, nth: usize) -> Transfer {
        let (way, is_put, is_file) = (nth % WAYS.len(), self.below(2) == 0, self.below(4) == 0);
        let (here, there) = (format!("here-{nth}"), format!("served/there-{nth}"));
        let (from, to) = if is_put { (&here, &there) } else { (&there, &here) };
        let [from, to] = [from, to].map(|name| self.directory.join(name));
        std::fs::create_dir(&to).unwrap();
        fill(&from, &mut self.random);
        let file = if is_file { "/big" } else { "" };
        let url = format!("ftp://127.0.0.1:{}/there-{nth}", self.server.port);
        let (source, target) = if is_put { (format!("{here}{file}"), url) } else { (format!("{url}{file}"), here) };
        let target = if is_file { format!("{target}/") } else { target };
        let mut words: Vec<String> = ["cp", "--json"].map(str::to_owned).into();
        words.extend(WAYS[way].iter().map(|word| (*word).to_owned()));
        if WAYS[way] != ["--channel", "descriptor"] {
            words.extend(["--limit", "120mbit"].map(str::to_owned));
        }
        words.extend([source, target]);
        if is_file {
            for other in std::fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().path()) {
                match other.is_dir() {
                    true => std::fs::remove_dir_all(&other).unwrap(),
                    false if !other.ends_with("big") => std::fs::remove_file(&other).unwrap(),
                    false => {}
                }
            }
        }
        Transfer { way, from, to, words }
    }

    /// Waits for the end of a command: whether all arrived.
    fn end(child: &mut Child) -> bool {
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status.success();
            }
            if begun.elapsed() > LIMIT {
                child.kill().unwrap();
                child.wait().unwrap();
                panic!("a transfer has not ended within {LIMIT:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// One transfer with a fault, and the same command until all has arrived.
    fn one(&mut self, nth: usize, fault: Fault) {
        let transfer = self.transfer(nth);
        let mut versions = vec![files(&transfer.from)];
        let rival = (fault == Fault::Rival).then(|| {
            // Another tree of the same names, to or from another place, to the same target.
            let other = rival_of(&transfer.from);
            let mut random = self.random.clone();
            for path in versions[0].keys() {
                std::fs::create_dir_all(other.join(path).parent().unwrap()).unwrap();
                // Of another size: plain FTP takes files of one size and second for equal.
                let length = versions[0][path].len() as u64 + 1;
                std::fs::write(other.join(path), bytes(&mut random, length)).unwrap();
            }
            versions.push(files(&other));
            let mut words = transfer.words.clone();
            let (at, name) = (words.len() - 2, transfer.from.file_name().unwrap().to_str().unwrap());
            words[at] = words[at].replace(name, &format!("{name}-rival"));
            self.begin(&words)
        });
        let mut client = self.begin(&transfer.words);
        std::thread::sleep(Duration::from_millis(10 + self.below(250)));
        let was_running = client.try_wait().unwrap().is_none();
        self.strike(fault, &mut client, &transfer, &mut versions);
        let mut is_done = World::end(&mut client);
        if was_running {
            *self.struck.entry(fault).or_default() += 1;
        }
        if let Some(mut rival) = rival {
            World::end(&mut rival);
        }
        World::check(&transfer, &versions, fault);
        // A source that changed is another one now, and what a rival put is taken away by the next command.
        is_done &= !matches!(fault, Fault::Rival | Fault::SourceWritten | Fault::SourceReplaced);
        for _ in 0..TRIES {
            if is_done {
                break;
            }
            self.again += 1;
            is_done = World::end(&mut self.begin(&transfer.words));
            World::check(&transfer, &versions, fault);
            if !is_done {
                std::thread::sleep(Duration::from_millis(200));
            }
        }
        assert!(is_done, "{fault:?}: {:?} never ends well", transfer.words);
        let output =
            std::process::Command::new("diff").arg("-r").args([&transfer.from, &transfer.to]).output().unwrap();
        assert!(
            output.status.success(),
            "{fault:?}, {:?}: {}",
            transfer.words,
            String::from_utf8_lossy(&output.stdout)
        );
        self.by_way[transfer.way] += 1;
        for path in [&transfer.from, &transfer.to, &rival_of(&transfer.from)] {
            let _ = std::fs::remove_dir_all(path);
        }
    }

    fn strike(
        &mut self,
        fault: Fault,
        client: &mut Child,
        transfer: &Transfer,
        versions: &mut Vec<BTreeMap<PathBuf, Vec<u8>>>,
    ) {
        let stopped = Duration::from_millis(200 + self.below(2500));
        let big = transfer.from.join("big");
        match fault {
            Fault::Nothing | Fault::Rival => {}
            Fault::ClientKilled => client.kill().unwrap(),
            Fault::ServerKilled => {
                self.server.signal(Signal::KILL);
                self.server.process = None;
                self.server.start();
            }
            Fault::ClientStopped => {
                if client.try_wait().unwrap().is_none() {
                    kill_process(Pid::from_child(client), Signal::STOP).unwrap();
                    std::thread::sleep(stopped);
                    kill_process(Pid::from_child(client), Signal::CONT).unwrap();
                }
            }
            Fault::ServerStopped => {
                self.server.signal(Signal::STOP);
                std::thread::sleep(stopped);
                self.server.signal(Signal::CONT);
            }
            // Longer by some bytes, which makes another size whatever the clock says.
            Fault::SourceWritten => {
                use std::io::Write;
                let mut file = std::fs::OpenOptions::new().append(true).open(&big).unwrap();
                file.write_all(b"more").unwrap();
                versions.push(files(&transfer.from));
            }
            Fault::SourceReplaced => {
                let other = transfer.from.with_extension("other");
                let length = 1 + self.below(8 << 20);
                std::fs::write(&other, bytes(&mut self.random, length)).unwrap();
                std::fs::rename(&other, &big).unwrap();
                versions.push(files(&transfer.from));
            }
        }
    }

    /// What stands under its name is one version of it, whole.
    fn check(transfer: &Transfer, versions: &[BTreeMap<PathBuf, Vec<u8>>], fault: Fault) {
        for (path, bytes) in files(&transfer.to) {
            let is_known = versions.iter().any(|version| version.get(&path) == Some(&bytes));
            assert!(
                is_known,
                "{fault:?}, {:?}: {} has {} bytes that are no version of it",
                transfer.words,
                path.display(),
                bytes.len()
            );
        }
    }
}

#[test]
fn nothing_that_stands_is_wrong() {
    let is_long = std::env::var_os("VERBENA_LONG").is_some();
    let transfers = if is_long { 1000 } else { 24 };
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("served")).unwrap();
    let mut server = Server { directory: directory.path().to_owned(), port: 0, process: None };
    server.start();
    let (random, directory) = (Pcg64::seed_from_u64(3), directory.path().to_owned());
    let mut world = World { directory, server, random, struck: BTreeMap::new(), by_way: [0; WAYS.len()], again: 0 };
    // 8 and 5 have no divisor in common: each fault meets each way.
    for nth in 0..transfers {
        world.one(nth, FAULTS[nth % FAULTS.len()]);
    }
    println!(
        "{transfers} transfers, 0 wrong; {:?} while they ran, {:?} by way, {} commands again",
        world.struck, world.by_way, world.again
    );
    assert!(world.by_way.iter().all(|count| *count >= transfers as u32 / 6), "{:?}", world.by_way);
    let struck = |fault| world.struck.get(&fault).copied().unwrap_or(0);
    assert!(world.struck.values().sum::<u32>() >= transfers as u32 / 3, "{:?}", world.struck);
    assert!(!is_long || FAULTS.into_iter().all(|fault| struck(fault) >= transfers as u32 / 16), "{:?}", world.struck);
}
