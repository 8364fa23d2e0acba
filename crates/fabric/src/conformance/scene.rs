//! What most checks begin with, and how they wait.

use std::sync::Arc;
use std::time::Duration;

use verbena_terms::{Incarnation, Time, ViewNumber};

use super::harness::Harness;
use crate::{
    Batch, Buffer, Class, Completed, Done, Error, Fabric, Inbox, Message, Operation, OperationId, Peer, Pending,
    Region, RegionKey, Result, Rights, Settled, SharedRemote,
};

/// How long something that must happen may take, on the fabric's clock.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// By how much an operation may outlive its deadline.
pub const SLACK: Duration = Duration::from_secs(1);

/// The deadline, from now, of operations that are meant to miss it.
pub const SHORT: Duration = Duration::from_millis(100);

/// The view in which nodes begin.
pub const VIEW: ViewNumber = ViewNumber(3);

/// Steps after which a wait is given up, whatever the clock says.
const MOST_STEPS: u64 = 20_000_000;

/// Two nodes and a region of one that the other has open with all rights.
pub struct Scene {
    pub owner: Arc<dyn Fabric>,
    pub region: Box<dyn Region>,
    pub caller: Arc<dyn Fabric>,
    pub remote: SharedRemote,
}

impl Scene {
    pub fn new(harness: &mut dyn Harness, bytes: u64) -> Scene {
        let owner = harness.owner();
        owner.set_view(VIEW);
        let region = owner.register(bytes, VIEW).expect("a node registers memory");
        let caller = node(harness);
        let remote = open(&*caller, &*owner, &region.key(Rights::Change)).expect("a key opens its region");
        Scene { owner, region, caller, remote }
    }

    /// Posts with a deadline that is meant to be kept, and waits.
    pub fn run(&self, harness: &mut dyn Harness, batch: Batch) -> Result<Completed> {
        run(harness, &*self.caller, &self.remote, batch)
    }

    pub fn one(&self, harness: &mut dyn Harness, operation: Operation) -> Result<Done> {
        self.run(harness, Batch::one(operation)).map(|mut done| done.remove(0))
    }

    pub fn word(&self, harness: &mut dyn Harness, operation: Operation) -> u64 {
        word(self.one(harness, operation).expect("a word operation that is allowed succeeds"))
    }

    /// Posts with a short deadline and gives how it ended, however it did.
    pub fn briefly(&self, harness: &mut dyn Harness, operation: Operation) -> Result<Completed> {
        let deadline = self.caller.clock().now() + SHORT;
        let pending = self.remote.post(Batch::one(operation), Class::Control, deadline);
        finish(harness, &*self.caller, pending, deadline)
    }

    /// Settles an operation, asking again as long as the answer is that it is not known.
    pub fn settle(&self, harness: &mut dyn Harness, operation: OperationId) -> Settled {
        let give_up = self.caller.clock().now() + PATIENCE;
        loop {
            let now = self.caller.clock().now();
            let deadline = now + PATIENCE / 5;
            let pending = self.remote.settle(operation, Class::Control, deadline);
            match finish(harness, &*self.caller, pending, deadline) {
                Ok(settled) => return settled,
                Err(error @ (Error::Unknown { .. } | Error::Unreachable { .. } | Error::Full { .. })) => {
                    assert!(now < give_up, "settling {operation} on a sound link: {error}");
                    harness.advance();
                }
                Err(error) => panic!("settling {operation}: {error}"),
            }
        }
    }

    pub fn caller_to_owner(&self) -> (Incarnation, Incarnation) {
        (self.caller.identity(), self.owner.identity())
    }

    pub fn buffer(&self, bytes: &[u8]) -> Buffer {
        self.caller.pool().copy_of(bytes).expect("the pool has room for a check's buffer")
    }
}

pub fn node(harness: &mut dyn Harness) -> Arc<dyn Fabric> {
    let node = harness.node();
    node.set_view(VIEW);
    node
}

pub fn peer(from: &dyn Fabric, to: &dyn Fabric) -> Arc<dyn Peer> {
    from.connect(to.identity(), &to.address()).expect("a node connects to another's address")
}

pub fn open(from: &dyn Fabric, owner: &dyn Fabric, key: &RegionKey) -> Result<SharedRemote> {
    peer(from, owner).open(key, soon(from))
}

/// A deadline that is meant to be kept.
pub fn soon(fabric: &dyn Fabric) -> Time {
    fabric.clock().now() + PATIENCE
}

pub fn run(harness: &mut dyn Harness, caller: &dyn Fabric, remote: &SharedRemote, batch: Batch) -> Result<Completed> {
    let deadline = soon(caller);
    let pending = remote.post(batch, Class::Control, deadline);
    finish(harness, caller, pending, deadline)
}

/// Waits for a result; it must be there when the deadline and the slack have passed.
pub fn finish<T>(harness: &mut dyn Harness, at: &dyn Fabric, mut pending: Pending<T>, deadline: Time) -> Result<T> {
    for _ in 0..MOST_STEPS {
        if let Some(result) = pending.poll_now() {
            return result;
        }
        let now = at.clock().now();
        assert!(now <= deadline + SLACK, "an operation outlived its deadline by {:?}", now.since(deadline));
        harness.advance();
    }
    panic!("the clock did not reach a deadline within {MOST_STEPS} steps");
}

/// Lets time pass until something is so. Whether it came to be, within [`PATIENCE`].
pub fn eventually(harness: &mut dyn Harness, at: &dyn Fabric, mut so: impl FnMut(&mut dyn Harness) -> bool) -> bool {
    let give_up = soon(at);
    for _ in 0..MOST_STEPS {
        if so(harness) {
            return true;
        }
        if at.clock().now() > give_up {
            return false;
        }
        harness.advance();
    }
    false
}

/// Lets time pass.
pub fn pass(harness: &mut dyn Harness, at: &dyn Fabric, time: Duration) {
    let until = at.clock().now() + time;
    for _ in 0..MOST_STEPS {
        if at.clock().now() >= until {
            return;
        }
        harness.advance();
    }
    panic!("the clock did not move within {MOST_STEPS} steps");
}

/// The next message of a port, which must come.
pub fn receive(harness: &mut dyn Harness, at: &dyn Fabric, inbox: &Inbox) -> Message {
    let mut message = None;
    eventually(harness, at, |_| {
        message = inbox.try_take();
        message.is_some()
    });
    message.expect("a message on a sound link arrives")
}

pub fn word(done: Done) -> u64 {
    done.word().expect("a word operation gives a word")
}

pub fn bytes(done: Done) -> Vec<u8> {
    match done {
        Done::Buffer(buffer) => buffer.bytes().to_vec(),
        Done::Word(word) => panic!("an operation on bytes gave the word {word}"),
    }
}

/// The one identifier of an operation that ended as unknown.
pub fn unknown(result: Result<Completed>) -> OperationId {
    match result {
        Err(Error::Unknown { first: Some(first), last: Some(last), .. }) => {
            assert_eq!(first, last, "one operation has one identifier");
            first
        }
        other => panic!("an operation whose answer cannot come ends as unknown, with its identifier: {other:?}"),
    }
}
