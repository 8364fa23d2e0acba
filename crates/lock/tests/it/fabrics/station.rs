//! A node in this process: the service over a real fabric, told of a view by whoever plays the keeper.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use verbena_cluster::{Lease, LeaseWord, Member, Role, Roles, View};
use verbena_fabric::Fabric;
use verbena_lock::service::{Attention, LockService, Metrics};
use verbena_lock::{Answer, Asker, LocksOptions, Mode, Name, Request, RequestId, Rules, Scheme};
use verbena_service::hosted::Hosted;
use verbena_terms::{Time, ViewNumber};

/// How long anything may take: machines are busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// The only view that there is.
const VIEW: ViewNumber = ViewNumber(1);

pub struct Station {
    service: LockService,
    lease: Arc<LeaseWord>,
    pub fabric: Arc<dyn Fabric>,
}

impl Station {
    pub fn start(fabric: Arc<dyn Fabric>, scheme: Scheme) -> Station {
        let options = LocksOptions { scheme, slots: 64, rules: Rules::ALL };
        let service = LockService::start_with(Attention::default(), options, Metrics::default(), |_| {}).unwrap();
        let lease = Arc::new(LeaseWord::new());
        fabric.set_view(VIEW);
        service.life_begins(fabric.clone(), &lease).unwrap();
        Station { service, lease, fabric }
    }

    /// As which others know it. The node of rank 1 is the home of all locks.
    pub fn member(&self) -> Member {
        let incarnation = self.fabric.identity();
        let rank = incarnation.rank.0;
        let roles = if rank == 1 { Roles::ALL } else { Roles::of(Role::Reader) };
        Member { incarnation, name: format!("n{rank}"), address: self.fabric.address().0, roles }
    }

    /// These are members, with leases without an end.
    pub fn view(&self, members: &[Member]) {
        let view = View::new(VIEW, members.to_vec(), vec![]).unwrap();
        let (tell, told) = channel();
        self.service.view_learnt(Arc::new(view), move |_| tell.send(()).unwrap_or_default());
        told.recv_timeout(PATIENCE).unwrap();
        self.lease.store(Lease { until: Time::FAR, acknowledged: VIEW, in_effect: VIEW });
    }

    /// Gives its token too.
    pub fn acquire(&self, name: &str, mode: Mode) -> (RequestId, u64) {
        let (tell, told) = channel();
        let (name, request) = (Name::new(name.as_bytes()).unwrap(), Request { mode, is_try: false });
        let asker = Asker { number: 1, pid: std::process::id() };
        let answered = move |answer, _| tell.send(answer).unwrap_or_default();
        let id = self.service.acquire(asker, name, request, Box::new(answered)).unwrap();
        match told.recv_timeout(PATIENCE).expect("a request is answered") {
            Answer::Granted(_, token) => (id, token.to_bits()),
            answer => panic!("{answer:?}"),
        }
    }

    pub fn release(&self, held: RequestId) {
        let (tell, told) = channel();
        self.service.release(held, Box::new(move |released| tell.send(released.is_ok()).unwrap_or_default()));
        assert!(told.recv_timeout(PATIENCE).unwrap());
    }
}
