//! A process that answers datagrams: what reading a word of another node is without one-sided operations, and with nothing of ours between.
//!
//! A request is the number of a word, 8 bytes, least significant first; the answer is the word.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::network::{CALLER_AT, Network, TARGET_AT};
use super::samples::{Samples, Stretch};
use crate::child::{Answer, Target, hear, say};
use crate::error::BenchError;

/// What such a process is asked for by.
pub(crate) const ROLE: &str = "responder";

/// What it is called in figures.
pub(super) const NAME: &str = "UDP responder";

/// What it is.
pub(super) const IS: &str = "a process that answers datagrams of 8 bytes, over a virtual link; not a fabric";

const WORDS: u64 = 512;

/// No answer may take longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The word of this number.
fn word(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Answers until its starter is done.
pub(crate) fn serve() -> Result<(), String> {
    let socket = UdpSocket::bind((TARGET_AT, 0)).map_err(|error| format!("{TARGET_AT}: {error}"))?;
    say(&Answer::Done(socket.local_addr().map_err(|error| error.to_string())?))?;
    // Ends with the process.
    std::thread::spawn(move || respond(&socket));
    match hear::<()>()? {
        None => Ok(()),
        Some(()) => Err("it takes no orders".to_owned()),
    }
}

fn respond(socket: &UdpSocket) -> io::Result<()> {
    let words: Vec<u64> = (0..WORDS).map(word).collect();
    let mut request = [0; 8];
    loop {
        let (_, from) = socket.recv_from(&mut request)?;
        if let Some(word) = words.get(u64::from_le_bytes(request) as usize) {
            socket.send_to(&word.to_le_bytes(), from)?;
        }
    }
}

/// The side that asks.
pub(super) struct Asker {
    socket: UdpSocket,
    target: Target,
    number: u64,
    /// Where both are.
    _network: Network,
}

impl Asker {
    /// Starts a responder on the other side of a link, with `before` before its arguments.
    pub(super) fn start(before: &[&str]) -> Result<Self, BenchError> {
        let network = Network::new()?;
        let mut target = network.target.enter(|| Target::start(&[before, &[ROLE]].concat()))??;
        let address: SocketAddr = target.answer("begin")?;
        let socket = network.caller.enter(|| socket_to(address))?;
        let socket = socket.map_err(|error| wrong(&format!("{address}: {error}")))?;
        Ok(Asker { socket, target, number: 0, _network: network })
    }

    /// Asks for words for about `length`, each after the answer to the one before.
    pub(super) fn stretch(&mut self, length: Duration, shortest: Duration) -> Result<Stretch, BenchError> {
        let before = self.target.cpu_ns()?;
        let samples = Samples::take(length, shortest, |times| (0..times).try_for_each(|_| self.once()));
        let peer_cpu_ns = self.target.cpu_ns()?.saturating_sub(before);
        Ok(samples?.summarise(1.0, peer_cpu_ns))
    }

    fn once(&mut self) -> Result<(), BenchError> {
        self.number = (self.number + 1) % WORDS;
        let mut answer = [0; 8];
        let asked = self.socket.send(&self.number.to_le_bytes());
        let got = asked.and_then(|_| self.socket.recv(&mut answer)).map_err(|error| wrong(&error.to_string()))?;
        match (got, u64::from_le_bytes(answer)) {
            (8, it) if it == word(self.number) => Ok(()),
            (bytes, it) => Err(wrong(&format!("{it} in {bytes} bytes for word {}", self.number))),
        }
    }
}

fn socket_to(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((CALLER_AT, 0))?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn wrong(what: &str) -> BenchError {
    BenchError::Wrong { fabric: NAME.to_owned(), doing: "a read of 8 bytes".to_owned(), what: what.to_owned() }
}
