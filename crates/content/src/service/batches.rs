//! What this node does in other members' regions by itself: it writes acknowledgement words at updaters, and reads the heads of homes' page tables. The words of
//! pages are read by the threads of requests, through the [routes](super::routes).
//!
//! An acknowledgement that is lost is no harm, for the updater asks again. It is not posted again by itself: a newer value may stand in the word by then. But it is
//! an operation of the fabric's bounded window until it is settled (rule F2): left alone, such writes would in the end fill the window and let no other write through.

use std::time::Duration;

use verbena_fabric::{Batch, Class, Completed, Fabric, Operation, RegionKey};
use verbena_service::batches::{End, Request};
use verbena_service::peers::RegionUse;
use verbena_terms::Incarnation;

use super::READ_DEADLINE;
use crate::table::{PAGE_TABLE_HEADER_WORDS, PageTable};

/// A home's page table.
pub(super) const TABLE: RegionUse = RegionUse(0);
/// An updater's acknowledgement words.
pub(super) const ACKNOWLEDGEMENTS: RegionUse = RegionUse(1);

/// The layout that the head of a page table describes, or why the table cannot be used.
pub(super) type Head = Result<PageTable, String>;

/// A batch in one region of another member. It is posted once.
pub(super) struct PageBatch {
    member: Incarnation,
    is_posted: bool,
    what: What,
}

enum What {
    Acknowledge {
        at: u64,
        value: u64,
    },
    ReadHead {
        /// Size of the region.
        bytes: u64,
        /// Fingerprint of the key of names.
        names: u64,
        read: Option<[u64; PAGE_TABLE_HEADER_WORDS]>,
    },
}

impl PageBatch {
    /// Writes `value` at byte `at` of this updater's acknowledgement words.
    pub(super) fn acknowledge(updater: Incarnation, at: u64, value: u64) -> Self {
        PageBatch { member: updater, is_posted: false, what: What::Acknowledge { at, value } }
    }

    /// Reads the head of the page table of this key.
    pub(super) fn read_head(table: &RegionKey, names: u64) -> Self {
        let what = What::ReadHead { bytes: table.bytes, names, read: None };
        PageBatch { member: table.owner, is_posted: false, what }
    }
}

impl Request for PageBatch {
    /// The home.
    type Id = Incarnation;
    type Outcome = Head;
    const TIMEOUT: Duration = READ_DEADLINE;
    const SUBJECT: &'static str = "a member's region";

    fn id(&self) -> Incarnation {
        self.member
    }

    fn target(&self) -> Incarnation {
        self.member
    }

    fn region(&self) -> RegionUse {
        match self.what {
            What::Acknowledge { .. } => ACKNOWLEDGEMENTS,
            What::ReadHead { .. } => TABLE,
        }
    }

    /// The updater waits for its word, and this home for nothing.
    fn is_awaited(&self) -> bool {
        matches!(self.what, What::ReadHead { .. })
    }

    fn batch(&mut self, _: &dyn Fabric) -> Option<(Batch, Class)> {
        self.is_posted = true;
        let batch = match self.what {
            What::Acknowledge { at, value } => Batch::one(Operation::WriteWord { at, value }),
            What::ReadHead { .. } => {
                let at: Vec<u64> = (0..PAGE_TABLE_HEADER_WORDS as u64).map(|word| 8 * word).collect();
                Batch::read_words(&at)
            }
        };
        Some((batch, Class::Control))
    }

    fn completed(&mut self, done: Completed) {
        if let What::ReadHead { read, .. } = &mut self.what {
            let words = read.insert([0; PAGE_TABLE_HEADER_WORDS]);
            words.iter_mut().zip(&done).for_each(|(word, done)| *word = done.word().unwrap_or(0));
        }
    }

    fn executed(&mut self, _: u64) {}

    /// Whatever became of it, it is not posted again.
    fn is_complete(&self) -> bool {
        self.is_posted
    }

    fn outcome(&mut self, _: End) -> Option<Head> {
        match self.what {
            What::Acknowledge { .. } => None,
            What::ReadHead { read: None, .. } => Some(Err("its head could not be read".into())),
            What::ReadHead { read: Some(header), bytes, names } => {
                let checked = PageTable::check(self.member, header, names).map_err(|error| error.to_string());
                Some(checked.and_then(|layout| match layout.region_bytes() {
                    needed if needed > bytes => {
                        Err(format!("its page table of {} slots does not fit {bytes} bytes", layout.slots()))
                    }
                    _ => Ok(layout),
                }))
            }
        }
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
        batches: Batches<PageBatch>,
        remote: SharedRemote,
    }

    impl Writes {
        fn post(&mut self, value: u64, fabric: &dyn Fabric) {
            let write = PageBatch::acknowledge(self.remote.key().owner, 0, value);
            self.batches.submit(write, fabric.clock().now());
            self.look(fabric);
        }

        fn look(&mut self, fabric: &dyn Fabric) {
            self.batches.poll(fabric.clock().now(), fabric, |_, _| Some(self.remote.clone()));
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
