//! Acknowledgements on their way: one-sided writes that have not ended, and those of which it must be settled whether they were
//! executed (rule F2).
//!
//! A write that is lost is no harm, for the updater asks again. But it is an operation of the fabric's bounded window until it is settled:
//! left alone, such writes would in the end fill the window and let no other write through. So each is settled, and settling is repeated
//! until the target answers or is no member any more.

use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Error, Operation, OperationId, Pending, Settled, SharedRemote};
use verbena_terms::{Incarnation, Time};

/// How long a one-sided write of an acknowledgement may take.
const WRITE_DEADLINE: Duration = Duration::from_millis(100);
/// How long a target may take to say what became of one.
const SETTLE_DEADLINE: Duration = Duration::from_secs(1);
/// How often those under way are looked at: only the window waits for their end.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The writes of one incarnation. As many as the fabric's windows hold, for each member.
#[derive(Default)]
pub(super) struct Writes {
    under_way: Vec<Write>,
    looked: Time,
}

struct Write {
    to: Incarnation,
    remote: SharedRemote,
    stage: Stage,
}

enum Stage {
    Writing(Pending<Completed>),
    Settling(OperationId, Pending<Settled>),
}

enum Looked {
    Unchanged,
    Settle(OperationId),
    Ended,
}

impl Writes {
    /// Writes `value` at byte `at` of what `remote` opens.
    pub(super) fn post(&mut self, to: Incarnation, remote: SharedRemote, at: u64, value: u64, now: Time) {
        let batch = Batch::one(Operation::WriteWord { at, value });
        let written = remote.post(batch, Class::Control, now + WRITE_DEADLINE);
        self.follow(Write { to, remote, stage: Stage::Writing(written) }, now);
    }

    /// Looks what has ended.
    pub(super) fn look(&mut self, now: Time) {
        if self.under_way.is_empty() || now.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        for write in std::mem::take(&mut self.under_way) {
            self.follow(write, now);
        }
    }

    /// Forgets writes to members that no longer matter.
    pub(super) fn retain(&mut self, matters: impl Fn(Incarnation) -> bool) {
        self.under_way.retain(|write| matters(write.to));
    }

    /// Keeps `write` unless it has ended.
    fn follow(&mut self, mut write: Write, now: Time) {
        match write.look() {
            Looked::Ended => return,
            Looked::Unchanged => {}
            Looked::Settle(operation) => {
                let settled = write.remote.settle(operation, Class::Control, now + SETTLE_DEADLINE);
                write.stage = Stage::Settling(operation, settled);
            }
        }
        self.under_way.push(write);
    }
}

impl Write {
    fn look(&mut self) -> Looked {
        let (error, operation) = match &mut self.stage {
            Stage::Writing(written) => match written.poll_now() {
                None => return Looked::Unchanged,
                Some(Ok(_)) => return Looked::Ended,
                Some(Err(error)) => (error, None),
            },
            Stage::Settling(operation, settled) => match settled.poll_now() {
                None => return Looked::Unchanged,
                Some(Ok(_)) => return Looked::Ended,
                Some(Err(error)) => (error, Some(*operation)),
            },
        };
        tracing::debug!(to = %self.to, %error, "an acknowledgement was not written");
        match (error, operation) {
            // Nothing is known of it any more, or nothing here asks any more.
            (Error::Forgotten { .. } | Error::Closed, Some(_)) => Looked::Ended,
            // Also where it could not be asked at all: the window stays open for it until the target has
            // answered.
            (_, Some(operation)) | (Error::Unknown { first: Some(operation), .. }, None) => Looked::Settle(operation),
            _ => Looked::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use verbena_fabric::sim::{Faults, Outage, World};
    use verbena_fabric::tcp::{TcpConfig, TcpFabric};
    use verbena_fabric::{Address, Fabric, Rights, window::WINDOW};
    use verbena_terms::{BootClock, Clock, Rank, ViewNumber};
    use verbena_testkit::relay::{Mode, Relays};

    /// As many writes are lost as the fabric remembers; and what is settled while the target is cut off is not heard of.
    #[test]
    fn a_target_that_was_cut_off_for_long_is_written_again() {
        let world = World::new(1, Faults::none());
        let (home, updater) = (world.node(Incarnation::new(1, 1)), world.node(Incarnation::new(2, 1)));
        let region = updater.register(64, ViewNumber(1)).unwrap();
        let peer = home.connect(updater.identity(), &updater.address()).unwrap();
        let remote = peer.open(&region.key(Rights::Change), Time::FAR).unwrap();
        let mut writes = Writes::default();
        let mut write = |values: std::ops::Range<u64>, every: Duration| {
            for value in values {
                writes.post(updater.identity(), remote.clone(), 0, value, home.clock().now());
                world.run_until(world.now() + every);
                writes.look(home.clock().now());
            }
        };
        write(1..10, Duration::from_millis(1));
        assert_eq!(region.load(0), Ok(9));
        world.partition_one_way(Rank(1), Rank(2), Outage::Loses);
        write(10..10 + WINDOW as u64, Duration::from_millis(10));
        assert_eq!(region.load(0), Ok(9));
        world.heal_all();
        write(2000..2400, Duration::from_millis(10));
        assert_eq!(region.load(0), Ok(2399));
    }

    /// What was under way is not settled while no connection can be made; it is afterwards, and the window is not full for ever.
    #[test]
    fn a_target_that_could_not_be_asked_is_asked_again() {
        let node = |rank| {
            let handshake = Duration::from_millis(200);
            let config = TcpConfig { listen: "127.0.0.1:0".parse().unwrap(), handshake, ..TcpConfig::default() };
            TcpFabric::open(Incarnation::new(rank, 1), config).unwrap()
        };
        let (home, updater) = (node(1), node(2));
        let relays = Relays::default();
        let line = relays.to(updater.address().0.replace("tcp://", "").parse().unwrap());
        let address = Address(format!("tcp://{}", line.address));
        let region = updater.register(64, ViewNumber(1)).unwrap();
        let peer = home.connect(updater.identity(), &address).unwrap();
        let remote = peer.open(&region.key(Rights::Change), BootClock.now() + Duration::from_secs(5)).unwrap();
        let mut writes = Writes::default();
        let mut write = |value: u64, within: Duration| {
            let end = Instant::now() + within;
            while region.load(0) != Ok(value) && Instant::now() < end {
                writes.post(updater.identity(), remote.clone(), 0, value, BootClock.now());
                let again = (Instant::now() + Duration::from_millis(20)).min(end);
                while region.load(0) != Ok(value) && Instant::now() < again {
                    writes.look(BootClock.now());
                    std::thread::yield_now();
                }
            }
            region.load(0)
        };
        assert_eq!(write(1, Duration::from_secs(5)), Ok(1));
        line.up(Mode::Lose);
        line.down(Mode::Lose);
        assert_eq!(write(2, Duration::from_secs(2)), Ok(1));
        line.up(Mode::Pass);
        line.down(Mode::Pass);
        for value in 3..3 + 2 * WINDOW as u64 {
            assert_eq!(write(value, Duration::from_secs(5)), Ok(value));
        }
    }
}
