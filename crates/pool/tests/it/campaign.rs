//! Pools that are killed, paused, drained and switched while clients of all of them use every command, in memory that is always full: nothing old, torn or of another
//! key is read.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use rustix::process::Signal;
use verbena_namespaces::{Block, Crossing, Namespace, or_skipped};
use verbena_testkit::programs::wait_for;

use crate::history::{History, Outcome};
use crate::processes::{Ended, PATIENCE, connect, pool, pool_at, signal, statistic, wait_until_open};

/// Keys, those with low numbers the most wanted, and the longest value: more than three pools of 1 MiB hold.
const KEYS: u64 = 300;
const LONGEST: u64 = 24_000;
const SCHEMES: [&str; 6] = ["ac", "bcc", "ccwr", "mtacc", "hybcc", "adaptive"];

/// What a value of a key is: each has a serial number that no other one has.
fn value(key: u64, serial: u64) -> Vec<u8> {
    let mut bytes = format!("{key} {serial} ").into_bytes();
    let length = serial.wrapping_mul(0x9E37_79B9_7F4A_7C15) % LONGEST;
    bytes.resize(bytes.len() + length as usize, (serial % 251) as u8);
    bytes
}

/// The serial number of a value that was read. It must be whole, and of its key.
fn serial_of(key: u64, bytes: &[u8]) -> u64 {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
    let serial = head.split(' ').nth(1).and_then(|serial| serial.parse().ok());
    let serial = serial.unwrap_or_else(|| panic!("{head:?} is no value"));
    assert!(bytes == value(key, serial), "key {key}: {head:?}: torn, or of another key");
    serial
}

/// A value and its cas number, or that there is none.
type Found = Option<(Vec<u8>, String)>;

/// A connection that says what it is told to.
struct Wire(BufReader<TcpStream>);

impl Wire {
    fn connect(at: &str) -> std::io::Result<Wire> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Wire(BufReader::new(stream)))
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// A command, with the value behind it: the first line of its answer.
    fn ask(&mut self, line: &str, value: &[u8]) -> std::io::Result<String> {
        let mut all = format!("{line}\r\n").into_bytes();
        if !value.is_empty() {
            all.extend_from_slice(value);
            all.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&all)?;
        self.line()
    }

    fn body(&mut self, length: &str) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut bytes)?;
        bytes.truncate(bytes.len() - 2);
        Ok(bytes)
    }

    /// What a command that reads found, or what the server refused it with.
    fn read(&mut self, line: &str) -> std::io::Result<Result<Found, String>> {
        let answer = self.ask(line, b"")?;
        let words: Vec<&str> = answer.split(' ').collect();
        match words.as_slice() {
            ["END" | "EN"] => Ok(Ok(None)),
            ["VALUE", _, _, length, cas @ ..] => {
                let (bytes, cas) = (self.body(length)?, cas.join(""));
                assert_eq!(self.line()?, "END");
                Ok(Ok(Some((bytes, cas))))
            }
            ["VA", length, ..] => Ok(Ok(Some((self.body(length)?, String::new())))),
            _ => Ok(Err(answer)),
        }
    }
}

/// A client: what it does goes into the history of all.
struct Client {
    at: String,
    random: Pcg64,
    wire: Option<Wire>,
    history: Arc<Mutex<History>>,
    serial: Arc<AtomicU64>,
    done: Arc<AtomicU64>,
}

impl Client {
    fn record(&self, key: u64, asked: Instant, is_known: bool, outcome: Outcome) {
        let answered = is_known.then(Instant::now);
        self.history.lock().unwrap().record(key, asked, answered, outcome);
    }

    fn below(&mut self, end: u64) -> u64 {
        self.random.next_u64() % end
    }

    fn once(&mut self) {
        let Some(mut wire) = self.wire.take() else {
            // A pool that is gone is there again a little later.
            self.wire = Wire::connect(&self.at).ok();
            return std::thread::sleep(Duration::from_millis(2));
        };
        let key = self.below(KEYS) * self.below(KEYS) / KEYS;
        let done = match self.below(10_000) {
            0 => self.flush(&mut wire),
            1..500 => self.delete(&mut wire, key),
            500..3500 => self.store(&mut wire, key),
            3500..3800 => wire.ask(&format!("touch key-{key} 1000"), b"").map(drop),
            _ => self.read(&mut wire, key),
        };
        if done.is_ok() {
            self.done.fetch_add(1, Ordering::Relaxed);
            self.wire = Some(wire);
        }
    }

    fn read(&mut self, wire: &mut Wire, key: u64) -> std::io::Result<()> {
        let line = match self.below(4) {
            0 => format!("mg key-{key} v"),
            1 => format!("gat 1000 key-{key}"),
            2 => format!("gets key-{key}"),
            _ => format!("get key-{key}"),
        };
        let asked = Instant::now();
        if let Ok(found) = wire.read(&line)? {
            let outcome = found.map_or(Outcome::Miss, |(bytes, _)| Outcome::Hit(serial_of(key, &bytes)));
            self.record(key, asked, true, outcome);
        }
        Ok(())
    }

    fn store(&mut self, wire: &mut Wire, key: u64) -> std::io::Result<()> {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = value(key, serial);
        let length = bytes.len();
        let mut asked = Instant::now();
        let line = match self.below(8) {
            0 => format!("add key-{key} 0 0 {length}"),
            1 => format!("replace key-{key} 0 0 {length}"),
            2 => {
                let Ok(Some((found, cas))) = wire.read(&format!("gets key-{key}"))? else { return Ok(()) };
                self.record(key, asked, true, Outcome::Hit(serial_of(key, &found)));
                asked = Instant::now();
                format!("cas key-{key} 0 0 {length} {cas}")
            }
            3 => format!("ms key-{key} {length}"),
            _ => format!("set key-{key} 0 0 {length}"),
        };
        let answer = wire.ask(&line, &bytes);
        match answer.as_deref() {
            Ok("STORED" | "HD") => self.record(key, asked, true, Outcome::Set(serial)),
            Err(_) | Ok("SERVER_ERROR outcome unknown") => self.record(key, asked, false, Outcome::Set(serial)),
            Ok(_) => {}
        }
        answer.map(drop)
    }

    fn delete(&mut self, wire: &mut Wire, key: u64) -> std::io::Result<()> {
        let line = if self.below(2) == 0 { format!("md key-{key}") } else { format!("delete key-{key}") };
        let asked = Instant::now();
        // A deletion of which this is not known says nothing.
        if matches!(wire.ask(&line, b"")?.as_str(), "DELETED" | "NOT_FOUND" | "HD" | "NF") {
            self.record(key, asked, true, Outcome::Deleted);
        }
        Ok(())
    }

    fn flush(&mut self, wire: &mut Wire) -> std::io::Result<()> {
        let asked = Instant::now();
        if wire.ask("flush_all", b"")? == "OK" {
            (0..KEYS).for_each(|key| self.record(key, asked, true, Outcome::Deleted));
        }
        Ok(())
    }
}

/// Clients of all pools, each on a thread.
struct Clients {
    history: Arc<Mutex<History>>,
    /// Operations that were answered.
    done: Arc<AtomicU64>,
    stops: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Clients {
    /// Several at each of these pools.
    fn start(pools: &[String], each: u64) -> Clients {
        let (history, stops) = (Arc::new(Mutex::new(History::default())), Arc::new(AtomicBool::new(false)));
        let (serial, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let all = pools.iter().flat_map(|at| (0..each).map(move |_| at)).zip(1..);
        let threads = all.map(|(at, seed)| {
            let (history, stops) = (history.clone(), stops.clone());
            let (random, serial, done) = (Pcg64::seed_from_u64(seed), serial.clone(), done.clone());
            let mut client = Client { at: at.clone(), random, wire: None, history, serial, done };
            std::thread::spawn(move || {
                while !stops.load(Ordering::Relaxed) {
                    client.once();
                }
            })
        });
        let threads = threads.collect();
        Clients { history, done, stops, threads }
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn wait_for(&self, more: u64) {
        let from = self.done();
        wait_for("clients to get answers", || {
            assert!(
                !self.threads.iter().any(std::thread::JoinHandle::is_finished),
                "a client has read what it must not"
            );
            self.done() >= from + more
        });
    }

    fn end(self) -> History {
        self.stops.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        Arc::into_inner(self.history).unwrap().into_inner().unwrap()
    }
}

/// What happened to the pools.
#[derive(Debug, Default)]
struct Faults {
    kills: u32,
    pauses: u32,
    short_pauses: u32,
    drains: u32,
    schemes: u32,
    cuts: u32,
}

/// One of the pools.
struct One {
    directory: PathBuf,
    more: Vec<String>,
    at: String,
    /// Its own, where it has one.
    network: Option<Namespace>,
    running: Option<Ended>,
}

impl One {
    /// Starts it, again where it listened before.
    fn start(&mut self, log: &str) {
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let start = || pool_at(&self.directory, log, &self.at, &more);
        let (process, at) = match &self.network {
            Some(network) => network.enter(start).unwrap(),
            None => start(),
        };
        (self.running, self.at) = (Some(process), at);
    }

    fn process(&self) -> &Ended {
        self.running.as_ref().unwrap()
    }

    fn pause(&self, duration: Duration) {
        signal(self.process(), Signal::STOP);
        std::thread::sleep(duration);
        signal(self.process(), Signal::CONT);
    }
}

/// Three pools of one cluster.
struct Pools {
    all: Vec<One>,
    /// Where their networks cross, with the address of each.
    crossing: Option<(Crossing, [Ipv4Addr; 3])>,
    faults: Faults,
    /// Reads of other nodes' memory, as far as those that were killed had said so.
    remote: u64,
}

impl Pools {
    /// Each has a directory, and further options.
    fn start(own: [(PathBuf, Vec<String>); 3]) -> Pools {
        let one = |(directory, more)| One { directory, more, at: "127.0.0.1:0".into(), network: None, running: None };
        Pools { all: own.map(one).into(), crossing: None, faults: Faults::default(), remote: 0 }.begun()
    }

    fn begun(mut self) -> Pools {
        for (nth, one) in self.all.iter_mut().enumerate() {
            one.more.extend(["--memory", "1MiB", "--pool-patience", "500ms"].map(str::to_owned));
            one.start(&format!("{nth}"));
        }
        self.wait_until_open();
        self
    }

    fn at(&self) -> Vec<String> {
        self.all.iter().map(|one| one.at.clone()).collect()
    }

    fn wait_until_open(&self) {
        self.all.iter().for_each(|one| wait_until_open(&one.at, 3));
    }

    fn sum(&self, name: &str) -> u64 {
        self.all.iter().map(|one| statistic(&one.at, name)).sum()
    }

    /// One fault of this kind at this pool, from which they come back.
    fn fault(&mut self, kind: u64, random: &mut Pcg64) {
        let nth = (random.next_u64() % 3) as usize;
        let one = &mut self.all[nth];
        let faults = &mut self.faults;
        let log = format!("{}-{}-{}", one.at, faults.kills, faults.drains);
        match kind {
            0 | 1 => {
                self.remote += statistic(&one.at, "pool_remote_reads");
                signal(one.process(), Signal::KILL);
                one.running = None;
                std::thread::sleep(Duration::from_millis(random.next_u64() % 1500));
                faults.kills += 1;
                one.start(&log);
            }
            // Beyond its lease: what it was home of goes to others, is changed there, and comes back.
            2 => {
                one.pause(Duration::from_millis(2500));
                faults.pauses += 1;
            }
            3 => {
                one.pause(Duration::from_millis(300));
                faults.short_pauses += 1;
            }
            4 => {
                self.remote += statistic(&one.at, "pool_remote_reads");
                signal(one.process(), Signal::TERM);
                assert!(one.running.take().unwrap().ends_well(), "{} has not left well", one.at);
                faults.drains += 1;
                one.start(&log);
            }
            // The others and it hear nothing of each other, or one side alone does not. Clients reach all.
            5 if let Some((crossing, addresses)) = &self.crossing => {
                let (own, all) = (Block::from(addresses[nth]), Block::new(addresses[nth], 24));
                let mut ways = vec![(own, all), (all, own)];
                if !random.next_u64().is_multiple_of(3) {
                    ways.swap_remove((random.next_u64() % 2) as usize);
                }
                ways.iter().for_each(|(from, to)| crossing.close(*from, *to).unwrap());
                std::thread::sleep(Duration::from_millis(500 + random.next_u64() % 2500));
                ways.iter().for_each(|(from, to)| crossing.open(*from, *to).unwrap());
                faults.cuts += 1;
            }
            _ => {
                let name = SCHEMES[(random.next_u64() % SCHEMES.len() as u64) as usize];
                wait_for("a pool to take a scheme", || connect(&one.at).choose_scheme(name).is_ok());
                faults.schemes += 1;
            }
        }
        self.wait_until_open();
    }
}

/// Some of each fault; in the long runs a hundred kills, and half as many pauses beyond a lease.
fn nothing_old_is_read(mut pools: Pools) {
    let is_long = std::env::var_os("VERBENA_LONG").is_some();
    let clients = Clients::start(&pools.at(), 2);
    clients.wait_for(2000);
    let mut random = Pcg64::seed_from_u64(7);
    let kinds = if is_long { 300 } else { 6 };
    for kind in 0..kinds {
        pools.fault(kind % 6, &mut random);
        clients.wait_for(if is_long { 3500 } else { 500 });
    }
    pools.remote += pools.sum("pool_remote_reads");
    let evicted = pools.sum("pool_evicted");
    let operations = clients.done();
    let history = clients.end();
    let (reads, hits) = (history.reads(), history.hits());
    println!(
        "{operations} operations, {hits} hits of {reads} reads, {} of other nodes' memory, {} unknown, {evicted} evicted of those that run, {:?}",
        pools.remote,
        history.unknown(),
        pools.faults
    );
    let violations = history.violations();
    assert!(
        violations.is_empty(),
        "{} of {operations}:\n{}",
        violations.len(),
        violations[..violations.len().min(5)].join("\n")
    );
    // A short run begins with empty pools.
    let (hits_wanted, remote_wanted) = if is_long { (40, 20) } else { (20, 5) };
    assert!(hits * 100 > reads * hits_wanted, "{hits} hits of {reads} reads");
    assert!(
        pools.remote * 100 > hits as u64 * remote_wanted,
        "{} of {hits} hits came from other nodes' memory",
        pools.remote
    );
    assert!(evicted > 0, "the memory was never full");
    assert!(!is_long || operations >= 1_000_000, "{operations} operations");
    let Faults { kills, pauses, drains, schemes, cuts, .. } = pools.faults;
    assert!(
        kills >= kinds as u32 / 3 && pauses.min(drains).min(schemes.max(cuts)) >= kinds as u32 / 6,
        "{:?}",
        pools.faults
    );
}

#[test]
fn nothing_old_is_read_whatever_happens_to_pools_on_shm() {
    let directory = tempfile::tempdir().unwrap();
    nothing_old_is_read(Pools::start(std::array::from_fn(|_| (directory.path().to_owned(), vec![]))));
}

/// Directories and options of three nodes at these addresses, which share nothing but a network.
fn apart(directory: &Path, addresses: [Ipv4Addr; 3]) -> [(PathBuf, Vec<String>); 3] {
    let names = ["a", "b", "c"];
    let line = |(name, address)| format!("{{ name = \"{name}\", address = \"tcp://{address}:6301\" }}");
    let members: Vec<String> = names.into_iter().zip(addresses).map(line).collect();
    let config = directory.join("pools.toml");
    let text =
        format!("[cluster]\nmembers = [{}]\n[fabric]\nprovider = \"tcp\"\ninsecure = true\n", members.join(", "));
    std::fs::write(&config, text).unwrap();
    names.map(|name| {
        let own = directory.join(name);
        std::fs::create_dir(&own).unwrap();
        (own, ["--config", config.to_str().unwrap(), "--cluster-name", name].map(str::to_owned).to_vec())
    })
}

#[test]
fn nothing_old_is_read_whatever_happens_to_pools_on_tcp() {
    let directory = tempfile::tempdir().unwrap();
    let [low, high, ..] = std::process::id().to_le_bytes();
    let addresses = [1, 2, 3].map(|nth| Ipv4Addr::new(127, 1 + low % 250, high, nth));
    nothing_old_is_read(Pools::start(apart(directory.path(), addresses)));
}

/// Clients are in the middle, and reach pools that are cut off from each other.
#[test]
fn nothing_old_is_read_whatever_happens_to_pools_in_networks_that_are_cut() {
    let Some(middle) = or_skipped(Namespace::new()).unwrap() else { return };
    middle.join().unwrap();
    let crossing = Crossing::new(middle, Ipv4Addr::new(10, 79, 0, 1)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let addresses = [1, 2, 3].map(|nth| Ipv4Addr::new(10, 79, 1, nth));
    let all = apart(directory.path(), addresses).into_iter().zip(addresses).map(|((directory, more), address)| {
        let network = Namespace::new().unwrap();
        crossing.connect(&format!("to-{}", address.octets()[3]), &network, &[address]).unwrap();
        One { directory, more, at: format!("{address}:0"), network: Some(network), running: None }
    });
    let all = all.collect();
    let crossing = Some((crossing, addresses));
    nothing_old_is_read(Pools { all, crossing, faults: Faults::default(), remote: 0 }.begun());
}

/// So that we know that the tests above see: two pools with directories of their own are two caches.
#[test]
fn two_islands_are_stale() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let ((_first, a), (_second, b)) = (pool(one.path(), "a", &[]), pool(other.path(), "b", &[]));
    wait_until_open(&a, 1);
    wait_until_open(&b, 1);
    let clients = Clients::start(&[a, b], 1);
    clients.wait_for(2000);
    let violations = clients.end().violations();
    assert!(!violations.is_empty(), "nothing old was seen");
}
