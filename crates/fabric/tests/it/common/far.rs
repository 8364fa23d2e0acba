//! Nodes in another machine, which own what the nodes here reach: what a check asks of an owner is asked there, over one connection for each node. What such a connection says
//! are lines; the first one that was made is the lifeline of all that runs there.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use verbena_fabric::conformance::Processes;
use verbena_fabric::{
    Address, Capabilities, Class, Error, Fabric, Inbox, InboxSender, Message, Messages, Peer, Pool, Port, Region,
    RegionKey, Result, Rights, Secret, SharedRemote, Views,
};
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

/// How long the other machine may take to be there, and its first caller to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is done in the other machine beside nodes.
pub trait There: Send + Sync {
    /// Opens a node; port 0 of the address is one that is free.
    fn open(&self, incarnation: Incarnation, listen: SocketAddr) -> Arc<dyn Fabric>;
    /// Runs a command of the test's own; what it says.
    fn act(&self, words: &[&str]) -> String;
}

/// Serves those who call at `at` until the first of them has gone. How many nodes it has opened.
pub fn serve(at: SocketAddr, there: impl There + 'static) -> u64 {
    let listener = TcpListener::bind(at).unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = Arc::new(Server {
        there,
        here: at,
        opened: AtomicU64::new(0),
        nodes: Mutex::default(),
        processes: Mutex::default(),
    });
    let is_over = Arc::new(AtomicBool::new(false));
    let (started, mut is_first) = (Instant::now(), true);
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((caller, _)) => {
                let (server, ends) = (server.clone(), std::mem::take(&mut is_first).then(|| is_over.clone()));
                thread::spawn(move || {
                    // A caller that has gone is all that can go wrong.
                    let _ = Seat::new(server).answer(caller);
                    ends.inspect(|is_over| is_over.store(true, Ordering::Relaxed));
                });
            }
            Err(_) if is_first && started.elapsed() > PATIENCE => panic!("nobody has called within {PATIENCE:?}"),
            Err(_) => thread::sleep(Duration::from_millis(5)),
        }
    }
    server.opened.load(Ordering::Relaxed)
}

struct Server<T> {
    there: T,
    here: SocketAddr,
    opened: AtomicU64,
    nodes: Mutex<HashMap<Incarnation, Arc<dyn Fabric>>>,
    processes: Mutex<Processes>,
}

/// One connection, and the regions that were made by it, and whom its node has connected to.
struct Seat<T> {
    server: Arc<Server<T>>,
    regions: Vec<Option<Box<dyn Region>>>,
    peers: Vec<Arc<dyn Peer>>,
}

impl<T: There> Seat<T> {
    fn new(server: Arc<Server<T>>) -> Self {
        Seat { server, regions: Vec::new(), peers: Vec::new() }
    }

    fn node(&self, who: &str) -> Arc<dyn Fabric> {
        self.server.nodes.lock()[&Incarnation::from_word(number(who))].clone()
    }

    fn answer(&mut self, caller: TcpStream) -> io::Result<()> {
        caller.set_nonblocking(false)?;
        caller.set_nodelay(true)?;
        let mut answers = caller.try_clone()?;
        for line in BufReader::new(caller).lines() {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            let answer = match &words[..] {
                ["listen", who, port] => {
                    let inbox = self.node(who).listen(Port(number(port)), Views::Any).unwrap();
                    return hand_on(&inbox, &mut answers);
                }
                words => match self.obey(words) {
                    Ok(said) => format!("ok {said}\n"),
                    Err(error) => format!("no {}\n", to_line(&error)),
                },
            };
            answers.write_all(answer.as_bytes())?;
        }
        Ok(())
    }

    fn obey(&mut self, words: &[&str]) -> Result<String> {
        let region = |at: &str| self.regions[number::<usize>(at)].as_ref().unwrap();
        Ok(match words {
            ["open", who, port] => {
                let listen = SocketAddr::new(self.server.here.ip(), number(port));
                let who = Incarnation::from_word(number(who));
                let node = self.server.there.open(who, listen);
                self.server.opened.fetch_add(1, Ordering::Relaxed);
                let said = format!("{} {:?}", node.address(), node.capabilities());
                self.server.nodes.lock().insert(who, node);
                said
            }
            ["close", who] => {
                let node = self.server.nodes.lock().remove(&Incarnation::from_word(number(who)));
                drop(node);
                String::new()
            }
            ["view", who, view] => {
                self.node(who).set_view(ViewNumber(number(view)));
                String::new()
            }
            ["register", who, bytes, view] => {
                let region = self.node(who).register(number(bytes), ViewNumber(number(view)))?;
                let said = format!("{} {}", self.regions.len(), keys_of(&*region));
                self.regions.push(Some(region));
                said
            }
            ["forget", at] => {
                self.regions[number::<usize>(at)] = None;
                String::new()
            }
            ["load", at, word] => region(at).load(number(word))?.to_string(),
            ["store", at, word, value] => {
                region(at).store(number(word), number(value))?;
                String::new()
            }
            ["add", at, word, addend] => region(at).fetch_add(number(word), number(addend))?.to_string(),
            ["swap", at, word, expected, desired] => {
                region(at).compare_swap(number(word), number(expected), number(desired))?.to_string()
            }
            ["read", at, from, bytes] => {
                let mut into = vec![0; number(bytes)];
                region(at).read(number(from), &mut into)?;
                to_hex(&into)
            }
            ["write", at, to, bytes] => {
                region(at).write(number(to), &of_hex(bytes))?;
                String::new()
            }
            ["remake", at, view] => {
                region(at).remake(ViewNumber(number(view)))?;
                keys_of(&**region(at))
            }
            ["everyone", at, view] => {
                region(at).everyone_is_in(ViewNumber(number(view)));
                String::new()
            }
            ["connect", who, peer, address] => {
                let peer = Incarnation::from_word(number(peer));
                self.peers.push(self.node(who).connect(peer, &Address((*address).into()))?);
                (self.peers.len() - 1).to_string()
            }
            ["send", at, class, view, port, message, body @ ..] => {
                let body = body.first().map_or(vec![], |body| of_hex(body));
                let class = Class::ALL[number::<usize>(class)];
                let (view, port) = (ViewNumber(number(view)), Port(number(port)));
                self.peers[number::<usize>(at)].send(class, view, port, number(message), &body)?;
                String::new()
            }
            ["messages", who] => {
                let Messages { sent, arrived, unconnected, .. } = self.node(who).messages();
                format!("{sent} {arrived} {unconnected}")
            }
            ["target", name, who, bytes] => {
                let who = Incarnation::from_word(number(who));
                self.server.processes.lock().start(name, who, number(bytes)).to_string()
            }
            [what @ ("pause" | "resume" | "kill"), who] => {
                let (who, mut processes) = (Incarnation::from_word(number(who)), self.server.processes.lock());
                match *what {
                    "pause" => processes.pause(who),
                    "resume" => processes.resume(who),
                    _ => processes.kill(who),
                }
                String::new()
            }
            words => self.server.there.act(words),
        })
    }
}

/// Both keys of a region.
fn keys_of(region: &dyn Region) -> String {
    let key = region.key(Rights::Read);
    let [change, read] = [region.key(Rights::Change).secret, key.secret].map(|secret| to_hex(&secret.0));
    format!("{} {} {} {} {change} {read}", key.owner.to_word(), key.region, key.view.0, key.bytes)
}

fn keys_in(line: &str) -> [RegionKey; 2] {
    let words: Vec<&str> = line.split(' ').collect();
    let [owner, region, view, bytes, change, read] = words[..] else { panic!("no keys: {line}") };
    let key = |rights, secret: &str| RegionKey {
        owner: Incarnation::from_word(number(owner)),
        region: number(region),
        view: ViewNumber(number(view)),
        bytes: number(bytes),
        rights,
        secret: Secret(of_hex(secret).try_into().unwrap()),
    };
    [key(Rights::Change, change), key(Rights::Read, read)]
}

/// Sends each message of a port on, until the caller has gone.
fn hand_on(inbox: &Inbox, to: &mut TcpStream) -> io::Result<()> {
    to.write_all(b"ok\n")?;
    loop {
        let line = match inbox.take(Duration::from_millis(100)) {
            Some(Message { from, view, number, class, port, body }) => {
                let head = format!("{} {} {number} {} {}", from.to_word(), view.0, class as usize, port.0);
                format!("{head} {}\n", to_hex(&body))
            }
            // Finds out whether anybody is there.
            None => "\n".into(),
        };
        to.write_all(line.as_bytes())?;
    }
}

/// Takes what is handed on, until nobody waits for it or nobody is there.
fn take_over(from: BufReader<TcpStream>, board: &InboxSender, is_over: &AtomicBool) {
    for line in from.lines().map_while(io::Result::ok).take_while(|_| !is_over.load(Ordering::Relaxed)) {
        let words: Vec<&str> = line.split(' ').collect();
        let [from, view, message, class, port, body] = words[..] else { continue };
        board.deliver(Message {
            from: Incarnation::from_word(number(from)),
            view: ViewNumber(number(view)),
            number: number(message),
            class: Class::ALL[number::<usize>(class)],
            port: Port(number(port)),
            body: of_hex(body),
        });
    }
}

/// By which the other machine is asked.
pub struct Wire(Mutex<BufReader<TcpStream>>);

impl Wire {
    /// Waits until the other machine is there.
    pub fn to(there: SocketAddr) -> Self {
        let started = Instant::now();
        loop {
            match TcpStream::connect_timeout(&there, Duration::from_secs(1)) {
                Ok(stream) => {
                    stream.set_nodelay(true).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return Wire(Mutex::new(BufReader::new(stream)));
                }
                Err(error) => assert!(started.elapsed() < PATIENCE, "no other machine at {there}: {error}"),
            }
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Asks for one thing, and waits until it is done.
    pub fn ask(&self, line: &str) -> Result<String> {
        let mut stream = self.0.lock();
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).expect("the other machine is there");
        let mut answer = String::new();
        stream.read_line(&mut answer).expect("the other machine answers");
        match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
            ("ok", said) => Ok(said.to_owned()),
            ("no", error) => Err(of_line(error)),
            _ => panic!("the other machine says {answer:?} to {line}"),
        }
    }
}

/// A node in the other machine.
pub struct Far {
    there: SocketAddr,
    wire: Arc<Wire>,
    identity: Incarnation,
    address: Address,
    capabilities: Capabilities,
    pool: Pool,
    is_over: Arc<AtomicBool>,
}

impl Far {
    /// Opens one; it is to be like a node here of these capabilities.
    pub fn open(there: SocketAddr, identity: Incarnation, port: u16, capabilities: Capabilities) -> Far {
        let wire = Arc::new(Wire::to(there));
        let said = wire.ask(&format!("open {} {port}", identity.to_word())).unwrap();
        let (address, can) = said.split_once(' ').unwrap();
        assert_eq!(can, format!("{capabilities:?}"));
        let address = Address(address.into());
        Far { there, wire, identity, address, capabilities, pool: Pool::new(1 << 20), is_over: Arc::default() }
    }

    fn ask(&self, what: &str, rest: &str) -> Result<String> {
        self.wire.ask(&format!("{what} {}{rest}", self.identity.to_word()))
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.ask("close", "").unwrap();
    }
}

impl Fabric for Far {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn identity(&self) -> Incarnation {
        self.identity
    }

    fn address(&self) -> Address {
        self.address.clone()
    }

    fn clock(&self) -> &dyn Clock {
        &BootClock
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    fn register(&self, bytes: u64, view: ViewNumber) -> Result<Box<dyn Region>> {
        let said = self.ask("register", &format!(" {bytes} {}", view.0))?;
        let (at, keys) = said.split_once(' ').unwrap();
        Ok(Box::new(FarRegion { wire: self.wire.clone(), at: number(at), keys: Mutex::new(keys_in(keys)) }))
    }

    fn connect(&self, peer: Incarnation, address: &Address) -> Result<Arc<dyn Peer>> {
        let at = self.ask("connect", &format!(" {} {address}", peer.to_word()))?;
        Ok(Arc::new(FarPeer { wire: self.wire.clone(), at: number(&at), peer }))
    }

    /// Opens the port there, for messages of all views; what was taken stays open until the node ends.
    fn listen(&self, port: Port, _: Views) -> Result<Inbox> {
        let wire = Wire::to(self.there);
        wire.ask(&format!("listen {} {}", self.identity.to_word(), port.0))?;
        let board = InboxSender::new(1 << 10);
        let inbox = board.open(port, Views::Any).unwrap();
        let is_over = self.is_over.clone();
        thread::spawn(move || take_over(wire.0.into_inner(), &board, &is_over));
        Ok(inbox)
    }

    fn set_view(&self, view: ViewNumber) {
        self.ask("view", &format!(" {}", view.0)).unwrap();
    }

    fn messages(&self) -> Messages {
        let said = self.ask("messages", "").unwrap();
        let counts: Vec<u64> = said.split(' ').map(number).collect();
        let [sent, arrived, unconnected] = counts[..] else { panic!("three counts: {said}") };
        Messages { sent, arrived, unconnected, ..Messages::default() }
    }
}

/// Whom a node in the other machine has connected to, to send messages.
struct FarPeer {
    wire: Arc<Wire>,
    at: usize,
    peer: Incarnation,
}

impl Peer for FarPeer {
    fn incarnation(&self) -> Incarnation {
        self.peer
    }

    fn open(&self, _: &RegionKey, _: Time) -> Result<SharedRemote> {
        unreachable!("who is far opens nothing")
    }

    fn send(&self, class: Class, view: ViewNumber, port: Port, number: u64, body: &[u8]) -> Result<()> {
        let line = format!("send {} {} {} {} {number} {}", self.at, class as usize, view.0, port.0, to_hex(body));
        self.wire.ask(line.trim_end()).map(drop)
    }
}

struct FarRegion {
    wire: Arc<Wire>,
    at: usize,
    /// To change it, and to read it.
    keys: Mutex<[RegionKey; 2]>,
}

impl FarRegion {
    fn ask(&self, what: &str, numbers: &[u64]) -> Result<String> {
        let numbers: String = numbers.iter().map(|number| format!(" {number}")).collect();
        self.wire.ask(&format!("{what} {}{numbers}", self.at))
    }
}

impl Drop for FarRegion {
    fn drop(&mut self) {
        self.ask("forget", &[]).unwrap();
    }
}

impl Region for FarRegion {
    fn key(&self, rights: Rights) -> RegionKey {
        let [change, read] = &*self.keys.lock();
        if rights == Rights::Change { change.clone() } else { read.clone() }
    }

    fn load(&self, at: u64) -> Result<u64> {
        self.ask("load", &[at]).map(|said| number(&said))
    }

    fn store(&self, at: u64, value: u64) -> Result<()> {
        self.ask("store", &[at, value]).map(drop)
    }

    fn fetch_add(&self, at: u64, addend: u64) -> Result<u64> {
        self.ask("add", &[at, addend]).map(|said| number(&said))
    }

    fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> Result<u64> {
        self.ask("swap", &[at, expected, desired]).map(|said| number(&said))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        let said = self.ask("read", &[at, into.len() as u64])?;
        into.copy_from_slice(&of_hex(&said));
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        self.wire.ask(&format!("write {} {at} {}", self.at, to_hex(from))).map(drop)
    }

    fn remake(&self, view: ViewNumber) -> Result<()> {
        let said = self.ask("remake", &[view.0.into()])?;
        *self.keys.lock() = keys_in(&said);
        Ok(())
    }

    fn everyone_is_in(&self, view: ViewNumber) {
        self.ask("everyone", &[view.0.into()]).unwrap();
    }
}

/// An error of a region, as far as checks ask which it is.
fn to_line(error: &Error) -> String {
    match error {
        Error::PostInstead => "post".into(),
        Error::Misaligned { at } => format!("askew {at}"),
        Error::OutOfBounds { at, length, region_bytes } => format!("outside {at} {length} {region_bytes}"),
        other => format!("other {}", other.to_string().replace('\n', " ")),
    }
}

fn of_line(line: &str) -> Error {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["post"] => Error::PostInstead,
        ["askew", at] => Error::Misaligned { at: number(at) },
        ["outside", at, length, bytes] => {
            Error::OutOfBounds { at: number(at), length: number(length), region_bytes: number(bytes) }
        }
        _ => Error::System { what: "do something in the other machine", reason: line.into() },
    }
}

fn number<T: FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("{word:?} is no number of its kind"))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn of_hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
    text.as_bytes().as_chunks().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect()
}
