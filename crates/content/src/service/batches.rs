//! A home's acknowledgement on its way: a one-sided write of the word at the updater.
//!
//! A write that is lost is no harm, for the updater asks again. It is not posted again by itself: a newer value may stand in the word by then. But it is an operation
//! of the fabric's bounded window until it is settled (rule F2): left alone, such writes would in the end fill the window and let no other write through.

use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Fabric, Operation};
use verbena_service::batches::{End, Request};
use verbena_terms::Incarnation;

/// A write of an acknowledgement word.
pub(super) struct AcknowledgementWrite {
    to: Incarnation,
    at: u64,
    value: u64,
    is_posted: bool,
}

impl AcknowledgementWrite {
    /// Writes `value` at byte `at` of the words of `to`.
    pub(super) fn new(to: Incarnation, at: u64, value: u64) -> Self {
        AcknowledgementWrite { to, at, value, is_posted: false }
    }
}

impl Request for AcknowledgementWrite {
    type Id = ();
    type Outcome = ();
    const TIMEOUT: Duration = Duration::from_millis(100);
    const SUBJECT: &'static str = "an acknowledgement word";

    fn id(&self) {}

    fn target(&self) -> Incarnation {
        self.to
    }

    /// The updater waits for the word, and this home for nothing.
    fn is_awaited(&self) -> bool {
        false
    }

    fn batch(&mut self, _: &dyn Fabric) -> Option<(Batch, Class)> {
        self.is_posted = true;
        Some((Batch::one(Operation::WriteWord { at: self.at, value: self.value }), Class::Control))
    }

    fn completed(&mut self, _: Completed) {}

    fn executed(&mut self, _: u64) {}

    /// Whatever became of it, it is not posted again.
    fn is_complete(&self) -> bool {
        self.is_posted
    }

    fn outcome(&mut self, _: End) -> Option<()> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use verbena_fabric::sim::{Faults, Outage, World};
    use verbena_fabric::tcp::{TcpConfig, TcpFabric};
    use verbena_fabric::{Address, Rights, SharedRemote, window::WINDOW};
    use verbena_service::batches::Batches;
    use verbena_terms::{BootClock, Clock, Rank, Time, ViewNumber};
    use verbena_testkit::relay::{Mode, Relays};

    struct Writes {
        batches: Batches<AcknowledgementWrite>,
        remote: SharedRemote,
    }

    impl Writes {
        fn post(&mut self, value: u64, fabric: &dyn Fabric) {
            let write = AcknowledgementWrite::new(self.remote.key().owner, 0, value);
            self.batches.submit(write, fabric.clock().now());
            self.look(fabric);
        }

        fn look(&mut self, fabric: &dyn Fabric) {
            self.batches.poll(fabric.clock().now(), fabric, |_| Some(self.remote.clone()));
        }
    }

    /// As many writes are lost as the fabric remembers; and what is settled while the target is cut off is not heard of.
    #[test]
    fn a_target_that_was_cut_off_for_long_is_written_again() {
        let world = World::new(1, Faults::none());
        let (home, updater) = (world.node(Incarnation::new(1, 1)), world.node(Incarnation::new(2, 1)));
        let region = updater.register(64, ViewNumber(1)).unwrap();
        let peer = home.connect(updater.identity(), &updater.address()).unwrap();
        let remote = peer.open(&region.key(Rights::Change), Time::FAR).unwrap();
        let mut writes = Writes { batches: Batches::default(), remote };
        let mut write = |values: std::ops::Range<u64>, every: Duration| {
            for value in values {
                writes.post(value, &*home);
                world.run_until(world.now() + every);
                writes.look(&*home);
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
        let mut writes = Writes { batches: Batches::default(), remote };
        let mut write = |value: u64, within: Duration| {
            let end = Instant::now() + within;
            while region.load(0) != Ok(value) && Instant::now() < end {
                writes.post(value, &home);
                let again = (Instant::now() + Duration::from_millis(20)).min(end);
                while region.load(0) != Ok(value) && Instant::now() < again {
                    writes.look(&home);
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
