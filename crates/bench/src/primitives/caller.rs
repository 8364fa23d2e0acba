//! The calling side of `fabric.primitives`: one operation, again and again, timed and checked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_fabric::{
    Batch, Buffer, Capabilities, Class, Done, Error, Fabric, Inbox, Operation, Peer, Pending, SharedRemote, Views,
};
use verbena_terms::Time;

use super::fabrics::{self, Place};
use super::network::Network;
use super::samples::{Samples, Stretch};
use super::steering::Receivers;
use super::target::{ADDED_AT, CALLER, Order, PORT, READ_AT, Ready, SWAPPED_AT, TARGET, VIEW, Waiting, pattern};
use super::{Completion, Kind, ROLE, Variant};
use crate::child::Target;
use crate::error::BenchError;

/// No operation may take longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A fabric with a target process on it.
pub(super) struct Caller {
    place: Place,
    fabric: Arc<dyn Fabric>,
    inbox: Inbox,
    peer: Arc<dyn Peer>,
    remote: SharedRemote,
    target: Target,
    largest: usize,
    number: u64,
    /// Where both are, if not where this process is.
    network: Option<Network>,
    /// The kernel's threads for what the target receives, where it has threads for that.
    receivers: Option<Receivers>,
}

impl Caller {
    /// Opens the fabric here and in a process of its own, which has `before` before its arguments; where the two are to be in networks of
    /// their own, there.
    pub(super) fn start(place: Place, before: &[&str]) -> Result<Self, BenchError> {
        if !place.is_linked {
            return Caller::meet(place, || Target::start(&[before, &[ROLE, place.name()]].concat()));
        }
        let network = Network::new()?;
        let target = || network.target.enter(|| Target::start(&[before, &[ROLE, place.name()]].concat()))?;
        let caller = network.caller.enter(|| Caller::meet(place, target))??;
        Ok(Caller { network: Some(network), ..caller })
    }

    fn meet(place: Place, target: impl FnOnce() -> Result<Target, BenchError>) -> Result<Self, BenchError> {
        let failed = |doing: &str, error: Error| BenchError::Fabric {
            fabric: place.name().to_owned(),
            doing: doing.to_owned(),
            error,
        };
        let fabric = fabrics::open(place, CALLER).map_err(|error| failed("opening", error))?;
        fabric.set_view(VIEW);
        let inbox = fabric.listen(PORT, Views::Any).map_err(|error| failed("listening", error))?;
        let mut target = target()?;
        let Ready { address, key } = target.answer("begin")?;
        let () = target.ask(&Order::Meet { caller: fabric.address() }, "meet its caller")?;
        let peer = fabric.connect(TARGET, &address).map_err(|error| failed("connecting", error))?;
        let deadline = fabric.clock().now() + PATIENCE;
        let remote = peer.open(&key, deadline).map_err(|error| failed("opening a region", error))?;
        let largest = fabric.pool().largest();
        Ok(Caller { place, fabric, inbox, peer, remote, target, largest, number: 0, network: None, receivers: None })
    }

    /// Has `core` do what the target receives, from now on, by threads of the kernel. Their time is the target's.
    pub(super) fn receive_on(&mut self, core: usize) -> Result<(), String> {
        let network = self.network.as_ref().ok_or("caller and target are in one network")?;
        self.receivers = Some(network.receive_on(core)?);
        Ok(())
    }

    /// What it is called.
    pub(super) fn name(&self) -> &'static str {
        self.place.name()
    }

    /// What of it is measured.
    pub(super) fn kinds(&self) -> &'static [Kind] {
        if self.place.is_by_sockets { &[Kind::SendReceive] } else { &Kind::ALL }
    }

    pub(super) fn capabilities(&self) -> &Capabilities {
        self.fabric.capabilities()
    }

    /// The most bytes that `kind` can move at once.
    pub(super) fn largest(&self, kind: Kind) -> usize {
        let capabilities = self.fabric.capabilities();
        let most = match kind {
            Kind::SendReceive => capabilities.largest_message,
            Kind::Read => capabilities.largest_read,
            Kind::Write => capabilities.largest_write,
            Kind::CompareSwap | Kind::FetchAdd => 8,
        };
        (most as usize).min(self.largest)
    }

    /// An operation that is waited for asleep, where there is anything to wait for.
    pub(super) fn sleeping(&self, kind: Kind, bytes: usize) -> Variant {
        let is_done = self.capabilities().synchronous;
        let completion = if is_done { Completion::Immediate } else { Completion::Notification };
        Variant { fabric: 0, kind, completion, bytes }
    }

    /// Does `variant` for about `length` and says how long each took and what it cost both. A sample spans at least `shortest`.
    pub(super) fn stretch(
        &mut self,
        variant: &Variant,
        length: Duration,
        shortest: Duration,
    ) -> Result<Stretch, BenchError> {
        let answer = match (variant.kind, variant.completion) {
            (Kind::SendReceive, Completion::Polling) => Some(Waiting::Polling),
            (Kind::SendReceive, _) => Some(Waiting::Asleep),
            _ => None,
        };
        let mut work = Work::new(self, variant).map_err(|error| self.failed(variant, error))?;
        if let Some(answer) = answer {
            let () = self.target.ask(&Order::Begin { answer }, "begin a stretch")?;
        }
        let before = self.peer_cpu_ns()?;
        let samples = Samples::take(length, shortest, |times| self.repeat(&mut work, variant, times));
        let peer_cpu_ns = self.peer_cpu_ns()?.saturating_sub(before);
        if answer.is_some() {
            let () = self.target.ask(&Order::End, "end a stretch")?;
        }
        let samples = samples?;

        self.check(work, variant)?;
        // A message counts one way, as in the papers' tables; it was timed there and back.
        let ways = if variant.kind == Kind::SendReceive { 2.0 } else { 1.0 };
        Ok(samples.summarise(ways, peer_cpu_ns))
    }

    fn peer_cpu_ns(&self) -> Result<u64, BenchError> {
        Ok(self.target.cpu_ns()? + self.receivers.as_ref().map_or(0, Receivers::cpu_ns))
    }

    fn repeat(&mut self, work: &mut Work, variant: &Variant, times: u32) -> Result<(), BenchError> {
        let deadline = self.fabric.clock().now() + PATIENCE;
        for _ in 0..times {
            self.once(work, variant, deadline)?;
        }
        Ok(())
    }

    #[inline]
    fn once(&mut self, work: &mut Work, variant: &Variant, deadline: Time) -> Result<(), BenchError> {
        match work {
            Work::Message(body) => {
                self.number += 1;
                let sent = self.peer.send(variant.class(), VIEW, PORT, self.number, body);
                sent.map_err(|error| self.failed(variant, error))?;
                self.receive(variant, body)
            }
            Work::Read(buffer) | Work::Write(buffer) => {
                let buffer_lent = buffer.take().expect("invariant: the last operation gave its buffer back");
                let operation = match variant.kind {
                    Kind::Read => Operation::Read { at: READ_AT, into: buffer_lent },
                    _ => Operation::Write { at: self.write_at(), from: buffer_lent },
                };
                match self.post(operation, variant, deadline)? {
                    Done::Buffer(back) => *buffer = Some(back),
                    Done::Word(_) => return Err(self.wrong(variant, "a word where a buffer was expected")),
                }
                Ok(())
            }
            Work::Swap(word) => {
                let operation = Operation::CompareSwap { at: SWAPPED_AT, expected: *word, desired: *word + 1 };
                self.count(operation, word, variant, deadline)
            }
            Work::Add(word) => {
                let operation = Operation::FetchAdd { at: ADDED_AT, addend: 1 };
                self.count(operation, word, variant, deadline)
            }
        }
    }

    /// An atomic that takes the word from `word` to `word` + 1.
    fn count(&self, operation: Operation, word: &mut u64, variant: &Variant, deadline: Time) -> Result<(), BenchError> {
        let before = self.post(operation, variant, deadline)?.word();
        if before != Some(*word) {
            return Err(self.wrong(variant, &format!("the word was {before:?} and should have been {word}")));
        }
        *word += 1;
        Ok(())
    }

    fn post(&self, operation: Operation, variant: &Variant, deadline: Time) -> Result<Done, BenchError> {
        let mut pending: Pending<_> = self.remote.post(Batch::one(operation), variant.class(), deadline);
        let result = match variant.completion {
            Completion::Polling => loop {
                match pending.poll_now() {
                    Some(result) => break result,
                    None => std::hint::spin_loop(),
                }
            },
            Completion::Immediate | Completion::Notification => pending.wait(),
        };
        let mut completed = result.map_err(|error| self.failed(variant, error))?;
        completed.pop().ok_or_else(|| self.wrong(variant, "nothing came back"))
    }

    fn receive(&self, variant: &Variant, sent: &[u8]) -> Result<(), BenchError> {
        let message = if variant.completion == Completion::Polling {
            let started = Instant::now();
            loop {
                match self.inbox.try_take() {
                    Some(message) => break Some(message),
                    None if started.elapsed() > PATIENCE => break None,
                    None => std::hint::spin_loop(),
                }
            }
        } else {
            self.inbox.take(PATIENCE)
        };
        match message {
            None => Err(self.wrong(variant, &format!("no answer within {PATIENCE:?}"))),
            Some(message) if message.number != self.number || message.body.len() != sent.len() => {
                Err(self.wrong(variant, &format!("message {} came for {}", message.number, self.number)))
            }
            Some(_) => Ok(()),
        }
    }

    /// Looks whether the bytes that were read or written are what they should be.
    fn check(&self, work: Work, variant: &Variant) -> Result<(), BenchError> {
        let buffer = match work {
            Work::Read(buffer) => buffer,
            Work::Write(buffer) => {
                let deadline = self.fabric.clock().now() + PATIENCE;
                let into = buffer.expect("invariant: the last operation gave its buffer back");
                let read = self.post(Operation::Read { at: self.write_at(), into }, variant, deadline)?;
                if let Done::Buffer(buffer) = read { Some(buffer) } else { None }
            }
            Work::Message(_) | Work::Swap(_) | Work::Add(_) => return Ok(()),
        };
        let buffer = buffer.ok_or_else(|| self.wrong(variant, "no buffer came back"))?;
        match buffer.bytes().iter().enumerate().position(|(at, byte)| *byte != pattern(at)) {
            Some(at) => Err(self.wrong(variant, &format!("byte {at} of {} is another", buffer.len()))),
            None => Ok(()),
        }
    }

    fn write_at(&self) -> u64 {
        READ_AT + self.largest as u64
    }

    fn failed(&self, variant: &Variant, error: Error) -> BenchError {
        BenchError::Fabric { fabric: self.name().to_owned(), doing: variant.describe(), error }
    }

    fn wrong(&self, variant: &Variant, what: &str) -> BenchError {
        BenchError::Wrong { fabric: self.name().to_owned(), doing: variant.describe(), what: what.to_owned() }
    }
}

/// What an operation carries from one time to the next.
enum Work {
    Message(Vec<u8>),
    Read(Option<Buffer>),
    Write(Option<Buffer>),
    Swap(u64),
    Add(u64),
}

impl Work {
    fn new(caller: &Caller, variant: &Variant) -> Result<Self, Error> {
        let word = |at| {
            let deadline = caller.fabric.clock().now() + PATIENCE;
            let mut read = caller.remote.post(Batch::read_words(&[at]), Class::Control, deadline).wait()?;
            Ok(read.pop().and_then(|done| done.word()).unwrap_or(0))
        };
        Ok(match variant.kind {
            Kind::SendReceive => Work::Message((0..variant.bytes).map(pattern).collect()),
            Kind::Read => Work::Read(Some(caller.fabric.pool().take(variant.bytes)?)),
            Kind::Write => {
                let bytes: Vec<u8> = (0..variant.bytes).map(pattern).collect();
                Work::Write(Some(caller.fabric.pool().copy_of(&bytes)?))
            }
            Kind::CompareSwap => Work::Swap(word(SWAPPED_AT)?),
            Kind::FetchAdd => Work::Add(word(ADDED_AT)?),
        })
    }
}
