//! A node in this process: the service over a real fabric, told of views by whoever plays the keeper.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, Member, Role, Roles, View};
use verbena_fabric::Fabric;
use verbena_memory::service::{MemoryService, Metrics};
use verbena_memory::{Answer, Coherence, MemoryOptions, Placement, Rules, SegmentName, Target, Wanted, Wish};
use verbena_service::hosted::Hosted;
use verbena_terms::{Incarnation, Rank, Time, ViewNumber};

use crate::processes::ground;

/// How long anything may take: machines are busy.
pub const PATIENCE: Duration = Duration::from_secs(20);
pub const USER: u32 = 1000;

pub struct Station {
    service: MemoryService,
    lease: Arc<LeaseWord>,
    pub fabric: Arc<dyn Fabric>,
    pub address: String,
    view: AtomicU32,
}

impl Station {
    pub fn open(provider: &str, rank: u32) -> Station {
        let identity = Incarnation::new(rank, 1);
        let fabric = ground::open(provider, identity);
        let address = fabric.address().0;
        let options = MemoryOptions {
            bytes: 128 << 20,
            segments: 64,
            owner_bytes: u64::MAX,
            copies_bytes: 16 << 20,
            rules: Rules::ALL,
        };
        let (service, lease) = (
            MemoryService::start(options, Metrics::default(), Box::new(|_| {})).unwrap(),
            Arc::new(LeaseWord::default()),
        );
        service.life_begins(fabric.clone(), &lease).unwrap();
        Station { service, lease, fabric, address, view: AtomicU32::new(0) }
    }

    /// The next view: these ranks at these addresses, of which so many from the first on are homes. Returns when it has ended what it did in older ones.
    pub fn view(&self, number: u32, homes: usize, members: &[(u32, String)]) {
        let homes: Vec<u32> = members.iter().take(homes).map(|(rank, _)| *rank).collect();
        let member = |(rank, address): &(u32, String)| Member {
            incarnation: Incarnation::new(*rank, 1),
            name: format!("n{rank}"),
            address: address.clone(),
            roles: if homes.contains(rank) { Roles::ALL } else { Roles::of(Role::Reader) },
        };
        let view = View::new(ViewNumber(number), members.iter().map(member).collect(), vec![]).unwrap();
        let (tell, told) = channel();
        self.service.view_learnt(Arc::new(view), move |_| tell.send(()).unwrap_or_default());
        told.recv_timeout(PATIENCE).unwrap();
        self.lease.store(Lease {
            until: Time::FAR,
            acknowledged: ViewNumber(number),
            in_effect: ViewNumber(self.view.swap(number, Ordering::Relaxed)),
        });
    }

    /// Everybody has.
    pub fn in_effect(&self) {
        let view = ViewNumber(self.view.load(Ordering::Relaxed));
        self.lease.store(Lease { until: Time::FAR, acknowledged: view, in_effect: view });
    }

    pub fn ask(&self, wish: Wish) -> Answer {
        let (tell, told) = channel();
        self.service.request(wish, PATIENCE, move |answer| drop(tell.send(answer))).unwrap();
        told.recv_timeout(2 * PATIENCE).expect("a request is answered")
    }

    pub fn get(&self, name: &str) -> Answer {
        self.get_part(name, 0, None)
    }

    pub fn get_part(&self, name: &str, offset: u64, length: Option<u64>) -> Answer {
        let target = Target::Name(SegmentName::new(name).unwrap());
        self.ask(Wish::Get { target, offset, length, user: USER })
    }

    pub fn put(&self, name: &str, offset: u64, bytes: Vec<u8>, named: Option<u64>) -> Answer {
        let target = Target::Name(SegmentName::new(name).unwrap());
        self.ask(Wish::Put { target, offset, bytes: bytes.into(), named, stamp_ns: 1, user: USER })
    }

    pub fn stat(&self, name: &str) -> Answer {
        self.ask(Wish::Stat { target: Target::Name(SegmentName::new(name).unwrap()) })
    }

    /// At the home with this rank, and with so many copies at those that follow it.
    pub fn allocate_at(&self, name: &str, bytes: u64, coherence: Coherence, rank: u32, copies: u8) -> Answer {
        let name = Some(SegmentName::new(name).unwrap());
        let wanted = Wanted { copies, ..Wanted::new(name, bytes, coherence, USER) };
        self.ask(Wish::Allocate { wanted, placement: Placement::Node(Rank(rank)) })
    }

    pub fn allocate(&self, name: &str, bytes: u64, coherence: Coherence) -> Answer {
        let name = Some(SegmentName::new(name).unwrap());
        let wanted = Wanted::new(name, bytes, coherence, USER);
        self.ask(Wish::Allocate { wanted, placement: Placement::MostFree })
    }
}
