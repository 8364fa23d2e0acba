//! `verbena pool` with real processes: two pools of one user are one cache, also while one of them is paused and killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use verbena_pool::Client;
use verbena_testkit::programs::{verbena, wait_for};

/// How long a client waits for an answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A process that ends with the test.
pub struct Ended(Child);

impl Ended {
    pub fn of(process: Child) -> Ended {
        Ended(process)
    }

    /// Waits until it has ended by itself: whether all went well.
    pub fn ends_well(mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program, and gives the first line of this kind that it prints.
pub fn started(command: &mut Command, is_it: impl Fn(&str) -> bool) -> (Ended, String) {
    let mut process = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let line = lines.by_ref().map(Result::unwrap).find(|line| is_it(line)).expect("it says that it serves");
    // It must not find its output closed.
    std::thread::spawn(move || lines.for_each(drop));
    (process, line)
}

/// A pool as a user starts it, but for the directories, which are this test's.
pub fn pool(directory: &Path, log: &str, more: &[&str]) -> (Ended, String) {
    pool_at(directory, log, "127.0.0.1:0", more)
}

pub fn pool_at(directory: &Path, log: &str, listen: &str, more: &[&str]) -> (Ended, String) {
    let (process, serving) = pool_with(directory, log, listen, more);
    (process, serving["address"].as_str().unwrap().to_owned())
}

/// The same, with all that it says of itself.
pub fn pool_with(directory: &Path, log: &str, listen: &str, more: &[&str]) -> (Ended, Value) {
    let (runtime, state) = (directory.join("run"), directory.join("state"));
    let mut command = verbena(&["pool", "--json", "--listen", listen, "--cluster-lease", "1s"]);
    command.arg("--node-runtime").arg(runtime).arg("--node-state").arg(state).args(more);
    let log = std::fs::File::create(directory.join(format!("{log}.log"))).unwrap();
    let command = command.current_dir(directory).stderr(log);
    let (process, line) = started(command, |line| line.contains(r#""event":"serving""#));
    (process, serde_json::from_str(&line).unwrap())
}

pub fn connect(at: &str) -> Client {
    Client::connect(at, PATIENCE).unwrap()
}

pub fn statistic(at: &str, name: &str) -> u64 {
    let all = connect(at).statistics("").unwrap();
    all.iter().find(|(found, _)| found == name).unwrap().1.parse().unwrap()
}

/// Waits until changes of all keys are decided, and this many nodes lend memory. The keys expire: while nodes join, an entry may be lost (rule K7), and then no
/// flush finds the object, whose memory would be used until room is needed.
pub fn wait_until_open(at: &str, members: u64) {
    wait_for("all homes to decide", || {
        let mut client = connect(at);
        let is_set = (0..32).all(|nth| client.set(&format!("open-{nth}"), 0, 1, b"?").is_ok());
        is_set && statistic(at, "pool_members") == members
    });
}

pub fn signal(process: &Ended, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(process.0.id()).unwrap()).unwrap(), signal).unwrap();
}

fn value(client: &mut Client, key: &str) -> Option<String> {
    client.get(key).unwrap().map(|found| String::from_utf8(found.bytes).unwrap())
}

#[test]
fn two_pools_are_one_cache() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("memcached.sock");
    let (_first, a) = pool(directory.path(), "a", &["--memory", "8MiB", "--socket", socket.to_str().unwrap()]);
    let (second, b) = pool(directory.path(), "b", &["--memory", "8MiB"]);
    wait_until_open(&a, 2);
    wait_until_open(&b, 2);
    let (mut one, mut other) = (connect(&a), connect(&b));
    let mut hits = 0;
    for nth in 0..400 {
        let key = format!("key-{nth}");
        one.set(&key, 7, 0, format!("one {nth}").as_bytes()).unwrap();
        let read = value(&mut other, &key);
        assert!(read.as_deref().is_none_or(|read| read == format!("one {nth}")), "{key}: {read:?}");
        hits += u32::from(read.is_some());
        match nth % 4 {
            0 => assert!(other.delete(&key).unwrap(), "{key}"),
            1 => other.set(&key, 0, 0, b"other").unwrap(),
            2 => assert!(other.touch(&key, 1000).unwrap(), "{key}"),
            _ => continue,
        }
        let expected = [None, Some("other".to_owned()), Some(format!("one {nth}"))][nth % 4].clone();
        let read = value(&mut one, &key);
        assert!(read.is_none() || read == expected, "{key}: {read:?}");
        hits += u32::from(read.is_some());
    }
    assert!(hits > 500, "{hits} hits of 600 reads that could be");
    assert!(statistic(&b, "pool_remote_reads") > 0, "nothing was read from the other's memory");

    // A value of many frames, through the socket.
    let large: Vec<u8> = (0..900_000u32).map(|nth| (nth % 251) as u8).collect();
    connect(socket.to_str().unwrap()).set("large", 0, 0, &large).unwrap();
    assert_eq!(other.get("large").unwrap().map(|found| found.bytes), Some(large));
    other.flush().unwrap();
    assert_eq!((value(&mut one, "key-3"), value(&mut other, "key-3")), (None, None));
    the_protocol(&a, &b, &socket);

    // What one says of itself, and the command as a client.
    let ask = |arguments: &[&str], at: &str| {
        let output = verbena(&[&["pool"], arguments, &["--server", at, "--json"]].concat()).output().unwrap();
        (output.status.code().unwrap(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default())
    };
    assert_eq!(ask(&["set", "greeting", "hello", "--expires", "1h"], &a).0, 0);
    let (code, got) = ask(&["get", "greeting"], &b);
    assert_eq!((code, &got["value"]), (0, &Value::from("hello")), "{got}");
    let (code, listed) = ask(&["ls"], &a);
    assert!(code == 0 && listed.as_array().unwrap().iter().any(|one| one["key"] == "greeting"), "{listed}");
    // Copies that were fetched, whose keys have other values by now, are not listed.
    let mut copied = 0;
    for nth in 0..40 {
        let key = format!("twice-{nth}");
        other.set(&key, 0, 0, b"first").unwrap();
        (0..4).for_each(|_| drop(value(&mut one, &key)));
        copied += one.statistics("objects").unwrap().iter().filter(|(copy, _)| *copy == key).count();
        other.set(&key, 0, 0, b"second").unwrap();
    }
    let listed = ask(&["ls"], &a).1;
    let old = listed.as_array().unwrap().iter().filter(|one| one["key"].as_str().unwrap().starts_with("twice-"));
    assert_eq!((old.count(), copied > 0), (0, true), "{copied} were copied, {listed}");
    // Whole seconds alone.
    assert_eq!((ask(&["set", "x", "y", "--expires", "1500ms"], &a).0, ask(&["touch", "x", "0.5"], &a).0), (2, 2));
    assert_eq!(ask(&["touch", "greeting", "2h"], &b).0, 0);
    assert_eq!(ask(&["rm", "greeting"], &b).0, 0);
    assert_eq!((ask(&["get", "greeting"], &a).0, ask(&["rm", "greeting"], &a).0), (1, 1));
    assert_eq!(ask(&["stat"], &a).1["limit_maxbytes"], 8 << 20);
    assert_eq!(ask(&["flush"], &b).0, 0);
    drop(second);
    assert_eq!(ask(&["get", "greeting"], "127.0.0.1:1").0, 3, "no pool is there");
}

/// Text and meta commands, cut anywhere, what is refused, and a client of the binary protocol.
fn the_protocol(a: &str, b: &str, socket: &Path) {
    let long = "k".repeat(251);
    let dialogue: [(&str, &str); 16] = [
        ("set p 5 0 3\r\nabc\r\n", "STORED\r\n"),
        ("get p none\r\n", "VALUE p 5 3\r\nabc\r\nEND\r\n"),
        (
            "append p 0 0 1\r\nd\r\nadd p 0 0 1\r\nx\r\nreplace q 0 0 1\r\nx\r\n",
            "STORED\r\nNOT_STORED\r\nNOT_STORED\r\n",
        ),
        (
            "set n 0 0 2\r\n41\r\nincr n 1\r\ndecr n 50\r\nincr p 1\r\n",
            "STORED\r\n42\r\n0\r\nCLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
        ),
        ("set quiet 0 0 1 noreply\r\nz\r\nget quiet\r\n", "VALUE quiet 0 1\r\nz\r\nEND\r\n"),
        ("mg p v f s\r\n", "VA 4 f5 s4\r\nabcd\r\n"),
        ("mg none v\r\nmn\r\n", "EN\r\nMN\r\n"),
        ("ms m S2\r\nmn\r\n", "CLIENT_ERROR"),
        ("ms m 2\r\nhi\r\nmd m q\r\nmg m v q\r\nmn\r\n", "HD\r\nMN\r\n"),
        ("mg stub N30 v\r\nmg stub v\r\n", "VA 0 W\r\n\r\nVA 0 Z\r\n\r\n"),
        ("cas p 0 0 1 1\r\nx\r\n", "EXISTS\r\n"),
        ("bogus\r\nversion\r\n", "ERROR\r\nVERSION "),
        ("verbosity 1\r\nstats nothing\r\n", "OK\r\nERROR\r\n"),
        ("set big 0 0 2000000\r\n", "SERVER_ERROR object too large for cache\r\n"),
        ("gat 100 p\r\n", "VALUE p 5 4\r\nabcd\r\nEND\r\n"),
        ("delete p\r\ndelete p\r\nget p\r\n", "DELETED\r\nNOT_FOUND\r\nEND\r\n"),
    ];
    let mut streams = (TcpStream::connect(a).unwrap(), TcpStream::connect(b).unwrap());
    for (nth, (asked, expected)) in dialogue.iter().enumerate() {
        let stream = if nth % 2 == 0 { &mut streams.0 } else { &mut streams.1 };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        for part in asked.as_bytes().chunks(nth % 5 + 1) {
            stream.write_all(part).unwrap();
        }
        if asked.starts_with("set big") {
            // The value is swallowed, and then the stream is in step again.
            stream.write_all(&vec![b'x'; 2_000_000]).unwrap();
            stream.write_all(b"\r\nmn\r\n").unwrap();
        }
        let mut answered = vec![0; expected.len()];
        stream.read_exact(&mut answered).unwrap();
        assert_eq!(String::from_utf8_lossy(&answered), *expected, "to {asked:?}");
        if !expected.ends_with("\r\n") || asked.starts_with("set big") {
            stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {}
        }
    }
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("get {long}\r\nmn\r\n").as_bytes()).unwrap();
    let mut answered = [0; 16];
    let read = stream.read(&mut answered).unwrap();
    assert!(answered[..read].starts_with(b"CLIENT_ERROR"), "{:?}", String::from_utf8_lossy(&answered[..read]));
    let mut binary = TcpStream::connect(a).unwrap();
    binary.set_read_timeout(Some(PATIENCE)).unwrap();
    binary.write_all(&[&[0x80, 0][..], &[0; 22]].concat()).unwrap();
    let mut answered = vec![];
    binary.read_to_end(&mut answered).unwrap();
    assert_eq!((answered[0], answered[1]), (0x81, 0), "a binary error, and then the end");
}

/// pymemcache is a client that is used; it sends `noreply` on its own.
#[test]
fn a_client_of_python_sees_one_cache() {
    let has = |python: &&str| {
        Command::new(python).args(["-c", "import pymemcache"]).output().is_ok_and(|output| output.status.success())
    };
    // Debian's packages are of Debian's python.
    let Some(python) = ["python3", "/usr/bin/python3"].into_iter().find(has) else {
        eprintln!("skipped: python3 has no pymemcache");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let (_first, a) = pool(directory.path(), "a", &[]);
    let (_second, b) = pool(directory.path(), "b", &[]);
    wait_until_open(&a, 2);
    wait_until_open(&b, 2);
    let script = "
import sys
from pymemcache.client.base import Client
a, b = (Client(tuple([at.split(':')[0], int(at.split(':')[1])])) for at in sys.argv[1:3])
hits = 0
for nth in range(300):
    key, value = 'key-%d' % nth, b'value-%d' % nth
    a.set(key, value, noreply=False)
    got = b.get(key)
    assert got in (None, value), (key, got)
    hits += got is not None
    assert b.delete(key, noreply=False)
    assert a.get(key) is None
a.set('quiet', b'1')
a.get('step')
many = {'m%d' % nth: b'x' * nth for nth in range(50)}
assert not b.set_many(many, noreply=False)
got = a.get_many(many)
assert all(many[key] == value for key, value in got.items())
value, cas = a.gets('quiet')
assert b.cas('quiet', b'2', cas) is True and a.cas('quiet', b'3', cas) is False
assert a.incr('quiet', 5) == 7
print(hits, len(got))
";
    let output = Command::new(python).args(["-c", script, &a, &b]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(output.stdout).unwrap();
    let hits: Vec<u32> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert!(hits[0] > 200 && hits[1] > 30, "{said}");
}

/// Of 1,000 keys, half of whose objects lie at the pool that is killed, those that are left.
fn left_of_a_killed_pool(more: &[&str]) -> usize {
    let directory = tempfile::tempdir().unwrap();
    let (_first, a) = pool(directory.path(), "a", more);
    let (second, b) = pool(directory.path(), "b", more);
    wait_until_open(&a, 2);
    wait_until_open(&b, 2);
    let (mut one, mut other) = (connect(&a), connect(&b));
    for nth in 0..1000 {
        let key = format!("key-{nth}");
        one.set(&key, 0, 0, b"old").unwrap();
        let client = if nth % 2 == 0 { &mut one } else { &mut other };
        client.set(&key, 0, 0, b"new").unwrap();
    }
    signal(&second, Signal::KILL);
    wait_until_open(&a, 1);
    let mut left = 0;
    for nth in 0..1000 {
        match value(&mut one, &format!("key-{nth}")).as_deref() {
            None => {}
            Some("new") => left += 1,
            Some(read) => panic!("key-{nth}: {read}"),
        }
    }
    println!("{left} of 1000 keys are left {more:?}");
    left
}

#[test]
fn a_pool_that_is_killed_costs_what_lay_in_its_memory_and_nothing_old_is_read() {
    let left = left_of_a_killed_pool(&[]);
    assert!((440..=500).contains(&left), "{left} of 1000 keys are left");
}

/// Half of the keys were at home there, and half of the others' objects lay there.
#[test]
fn without_a_mirror_it_costs_what_it_was_home_of_too() {
    let left = left_of_a_killed_pool(&["--pool-mirror", "false"]);
    assert!((150..=350).contains(&left), "{left} of 1000 keys are left");
}
