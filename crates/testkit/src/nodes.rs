//! Helpers as processes: started, watched, stopped, killed. What a test forgets is killed when the test ends.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::programs::{json, verbena};

/// The longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster's files.
pub struct Cluster {
    directory: tempfile::TempDir,
    /// Where each node is, if the file does not say it.
    addresses: Vec<(String, String)>,
}

/// A helper that runs.
pub struct Node {
    name: String,
    directory: PathBuf,
    child: Child,
    events: Receiver<Value>,
    is_kept_by_etcd: bool,
}

impl Cluster {
    /// Nodes `a`, `b` and `c` on shared memory, with this lease.
    pub fn on_shm(lease: &str) -> Self {
        Cluster::new(lease, &["a", "b", "c"].map(|name| (name, format!("shm://{name}"))))
    }

    /// The same on loopback, on addresses of their own, so that tests that run at the same time do not meet.
    pub fn on_tcp(lease: &str) -> Self {
        static NTH: AtomicU16 = AtomicU16::new(0);
        let host = Cluster::own_host();
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let address = |port: u16| format!("tcp://{host}:{}", port + 10 * nth);
        Cluster::new(lease, &[("a", address(7001)), ("b", address(7002)), ("c", address(7003))])
    }

    /// An address of loopback that this process has for itself.
    pub fn own_host() -> String {
        let [_, high, low, _] = std::process::id().to_le_bytes();
        format!("127.{}.{}.{}", 1 + low % 250, high, 1 + std::process::id() % 250)
    }

    /// A cluster of these members, names and addresses, with this lease.
    pub fn new(lease: &str, members: &[(&str, String)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut file = format!("[cluster]\nlease = \"{lease}\"\n");
        for (name, address) in members {
            file.push_str(&format!("[[cluster.members]]\nname = \"{name}\"\naddress = \"{address}\"\n"));
        }
        file.push_str(&format!("[node]\nruntime = {:?}\n", directory.path().join("run")));
        std::fs::write(directory.path().join("verbena.toml"), file).unwrap();
        Cluster { directory, addresses: vec![] }
    }

    /// One that these endpoints of etcd keep; nodes of these names and addresses may join.
    pub fn kept_by_etcd(lease: &str, endpoints: &[String], nodes: &[(&str, String)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = format!(
            "[cluster]\nprovider = \"etcd\"\nlease = \"{lease}\"\n[etcd]\nendpoints = {endpoints:?}\n[node]\nruntime = {:?}\n",
            directory.path().join("run")
        );
        std::fs::write(directory.path().join("verbena.toml"), file).unwrap();
        let addresses = nodes.iter().map(|(name, address)| ((*name).to_owned(), address.clone())).collect();
        Cluster { directory, addresses }
    }

    /// Sets more in the file that all nodes share.
    pub fn set(&self, text: &str) {
        let path = self.path().join("verbena.toml");
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, before + text).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a member, and waits until it listens.
    pub fn start(&self, name: &str) -> Node {
        self.start_with(name, &[])
    }

    /// The same, with more in its environment.
    pub fn start_with(&self, name: &str, environment: &[(&str, &str)]) -> Node {
        self.start_changed(name, |command| {
            command.envs(environment.iter().copied());
        })
    }

    /// The same, with a command that is changed before.
    pub fn start_changed(&self, name: &str, change: impl FnOnce(&mut Command)) -> Node {
        let directory = self.path().to_owned();
        let state = directory.join(format!("state-{name}"));
        let log = std::fs::File::create(directory.join(format!("{name}.log"))).unwrap();
        let mut command = verbena(&["node", "--json", "--cluster-name", name, "--node-state"]);
        command.arg(state);
        change(&mut command);
        let address = self.addresses.iter().find(|(other, _)| other == name);
        command.args(address.iter().flat_map(|(_, address)| ["--cluster-address", address.as_str()]));
        let mut child = command.current_dir(&directory).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (tell, events) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
                if tell.send(event).is_err() {
                    return;
                }
            }
        });
        let node = Node { name: name.into(), directory, child, events, is_kept_by_etcd: address.is_some() };
        node.wait_for("listening");
        node
    }

    /// What is left in the directory where helpers and programs meet.
    pub fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path().join("run")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<_> = names.filter(|name| !name.ends_with(".lock")).collect();
        left.sort();
        left
    }
}

impl Node {
    /// Waits for an event of this kind, passing over others.
    pub fn wait_for(&self, kind: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let event = self.events.recv_timeout(until.saturating_duration_since(Instant::now()));
            let event = event.unwrap_or_else(|_| panic!("{}: no {kind:?} in time; its log: {}", self.name, self.log()));
            // 2027-11-21T17:04:05.123456Z
            let is_timed = event["time"].as_str().is_some_and(|time| time.len() == 27 && time.ends_with('Z'));
            assert!(is_timed, "{event}");
            if event["event"] == kind {
                return event;
            }
        }
    }

    /// How it says that it is, with the exit code of the question.
    pub fn status(&self) -> (i32, Value) {
        // A name alone is half of a configuration where etcd keeps: the address does not matter here.
        let arguments = ["status", "--json", "--cluster-name", &self.name];
        let address = if self.is_kept_by_etcd { &["--cluster-address", "tcp://127.0.0.1:1"][..] } else { &[] };
        json(&[&arguments[..], address].concat(), &self.directory)
    }

    /// As which life it is in the view that is in effect.
    pub fn rank(&self) -> u64 {
        self.status().1["incarnation"]["rank"].as_u64().unwrap()
    }

    /// Asks again and again until it is as expected; how long that took.
    pub fn wait_until(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Duration {
        let began = Instant::now();
        let mut last = Value::Null;
        while began.elapsed() < PATIENCE {
            last = self.status().1;
            if is_it(&last) {
                return began.elapsed();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{}: not {what} in time: {last:#}; its log: {}", self.name, self.log());
    }

    /// One that is stopped stands still when this returns: the system tells one thread, and the others run on until that one had its turn.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let began = Instant::now();
        while signal == Signal::STOP && !self.stands_still() {
            assert!(began.elapsed() < PATIENCE, "{}: not stopped in time", self.name);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stands_still(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.map(|thread| thread.unwrap().path().join("stat")).all(|stat| {
            // Behind the name, which may have anything in it, comes the state (proc_pid_stat(5)); a thread that has ended since has none.
            std::fs::read_to_string(stat)
                .map_or(true, |stat| stat.rsplit_once(") ").unwrap().1.starts_with(['T', 'Z', 'X']))
        })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that it has used, of all its threads.
    pub fn used(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        // Behind the name, which may have anything in it: user and system time are the 12th and the 13th (proc_pid_stat(5)).
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
        Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
    }

    /// Kills it with -9.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn ended(mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None if Instant::now() > until => panic!("{} did not end; its log: {}", self.name, self.log()),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join(format!("{}.log", self.name))).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The incarnations in the view that is in effect and acknowledged here, by rank; nothing if there is none.
pub fn in_effect(status: &Value) -> Option<Vec<(u64, u64)>> {
    let whole = status["view"] == status["in_effect"] && status["view"] == status["acknowledged"];
    let members = status["member_list"].as_array()?;
    let start =
        |member: &Value| Some((member["incarnation"]["rank"].as_u64()?, member["incarnation"]["start"].as_u64()?));
    members.iter().map(start).collect::<Option<Vec<_>>>().filter(|_| whole && status["state"] == "member")
}

/// Whether these ranks, and no others, are in the view that is in effect.
pub fn are_in(status: &Value, ranks: &[u64]) -> bool {
    in_effect(status).is_some_and(|members| members.iter().map(|(rank, _)| *rank).eq(ranks.iter().copied()))
}
