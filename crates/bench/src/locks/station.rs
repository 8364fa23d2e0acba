//! A node's locks as they are at work in any node, on a fabric of their own: a scheme, and a way to wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use verbena_cluster::{Lease, LeaseWord, View};
use verbena_fabric::{Address, Batch, Class, Error, Fabric, Operation, Region, RegionKey, Rights, SharedRemote};
use verbena_lock::service::{Attention, LockService, Metrics};
use verbena_lock::{
    Answer, Asker, GATE_WORD_AT, LOCK_WORD_AT, LocksOptions, Mode, Name, Request, RequestId, Rules, Scheme,
    TOKEN_WORD_AT,
};
use verbena_service::hosted::Hosted;
use verbena_terms::{BootClock, Clock, Incarnation, Time, ViewNumber};

use super::counted::{Counted, Counters, Counts};
use crate::primitives::fabrics::{self, Place};
use crate::report::FabricFound;

/// The only view there is.
pub(super) const VIEW: ViewNumber = ViewNumber(1);
/// Locks that a home has words for: more than a trace has keys.
const SLOTS: u32 = 1 << 16;
/// No lock, and no batch, may take longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a station's locks work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) scheme: Scheme,
    pub(super) attention: Attention,
}

impl Way {
    pub(super) const SCHEMES: [Scheme; 3] = [Scheme::Srsl, Scheme::Dqnl, Scheme::Ncosed];
    pub(super) const ATTENTIONS: [Attention; 2] = [Attention::Everything, Attention::Woken];

    /// Every scheme in the way that nodes have it.
    pub(super) fn usual() -> [Way; 3] {
        Way::SCHEMES.map(|scheme| Way { scheme, attention: Attention::default() })
    }

    pub(super) fn all() -> Vec<Way> {
        let of = |attention| Way::SCHEMES.map(|scheme| Way { scheme, attention });
        Way::ATTENTIONS.into_iter().flat_map(of).collect()
    }

    pub(super) fn scheme_name(self) -> &'static str {
        match self.scheme {
            Scheme::Srsl => "SRSL",
            Scheme::Dqnl => "DQNL",
            Scheme::Ncosed => "N-CoSED",
        }
    }

    pub(super) fn attention_name(self) -> &'static str {
        match self.attention {
            Attention::Everything => "polling",
            Attention::Woken => "notification",
        }
    }

    /// By its place in [`all`](Self::all).
    pub(super) fn numbered(number: usize) -> Option<Way> {
        Way::all().get(number).copied()
    }

    pub(super) fn number(self) -> usize {
        Way::all().iter().position(|way| *way == self).expect("invariant: every way is among all")
    }
}

/// The identity of a station, and what others need to reach it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Met {
    pub(super) address: Address,
    pub(super) key: RegionKey,
    pub(super) found: FabricFound,
}

/// A lock that was granted.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) id: RequestId,
    /// When the service said so, on its thread.
    pub(super) granted: Time,
}

pub(super) struct Station {
    /// Not counted.
    fabric: Arc<dyn Fabric>,
    counters: Arc<Counters>,
    service: LockService,
    lease: Arc<LeaseWord>,
    /// The words of a lock that no service knows of.
    words: Box<dyn Region>,
    raw: Option<SharedRemote>,
    answers: (Sender<Answered>, Receiver<Answered>),
    done: (Sender<bool>, Receiver<bool>),
    asked: u64,
}

/// To a request, by its number here (the service's is not known before it may have been answered), and when it was said.
type Answered = (u64, Answer, Time);

/// A request that was made.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    number: u64,
    id: RequestId,
}

impl Station {
    pub(super) fn open(place: Place, who: Incarnation, way: Way) -> Result<Station, String> {
        let text = |error: Error| error.to_string();
        let fabric = fabrics::open(place, who).map_err(text)?;
        fabric.set_view(VIEW);
        let words = fabric.register(4096, VIEW).map_err(text)?;
        let counters = Arc::new(Counters::default());
        let counted = Arc::new(Counted { fabric: fabric.clone(), counters: counters.clone() });
        let options = LocksOptions { scheme: way.scheme, slots: SLOTS, rules: Rules::ALL };
        let service = LockService::start_with(way.attention, options, Metrics::default(), |_| {}).map_err(text)?;
        let lease = Arc::new(LeaseWord::new());
        service.life_begins(counted, &lease).map_err(text)?;
        let (answers, done) = (channel(), channel());
        Ok(Station { fabric, counters, service, lease, words, raw: None, answers, done, asked: 0 })
    }

    pub(super) fn met(&self) -> Met {
        let found = FabricFound::measured(self.fabric.capabilities(), "it works on this machine".to_owned());
        Met { address: self.fabric.address(), key: self.words.key(Rights::Change), found }
    }

    /// The view begins, with a lease without an end. `words` are a home's, for batches without a service.
    pub(super) fn meet(&mut self, view: View, words: &RegionKey) -> Result<(), String> {
        let text = |error: Error| error.to_string();
        let home = view.member(words.owner).ok_or("a home that is no member")?;
        let peer = self.fabric.connect(home.incarnation, &Address(home.address.clone())).map_err(text)?;
        let deadline = self.fabric.clock().now() + PATIENCE;
        self.raw = Some(peer.open(words, deadline).map_err(text)?);
        let (prepared, is_prepared) = channel();
        let told = move |_| {
            // The waiting thread may have given up.
            let _ = prepared.send(());
        };
        self.service.view_learnt(Arc::new(view), told);
        is_prepared.recv_timeout(PATIENCE).map_err(|_| "the service did not learn of the view")?;
        self.lease.store(Lease { until: Time::FAR, acknowledged: VIEW, in_effect: VIEW });
        Ok(())
    }

    pub(super) fn count(&self, on: bool) {
        self.counters.turn(on);
    }

    pub(super) fn counts(&self) -> Counts {
        self.counters.counts()
    }

    /// Asks for a lock, and does not wait.
    pub(super) fn ask(&mut self, name: &Name, mode: Mode) -> Result<Asked, String> {
        self.asked += 1;
        let (number, answers) = (self.asked, self.answers.0.clone());
        let told = move |answer, _| {
            // The station may be gone.
            let _ = answers.send((number, answer, BootClock.now()));
        };
        let request = Request { mode, is_try: false };
        let id = self
            .service
            .acquire(Asker { number, pid: std::process::id() }, name.clone(), request, Box::new(told))
            .map_err(|refused| refused.to_string())?;
        Ok(Asked { number, id })
    }

    /// Waits until it is granted. Of several that were asked for, in the order of the grants, whichever that is.
    pub(super) fn granted(&mut self, asked: Asked) -> Result<Held, String> {
        match self.answers.1.recv_timeout(PATIENCE) {
            Ok((number, Answer::Granted(..), granted)) if number == asked.number => Ok(Held { id: asked.id, granted }),
            Ok((number, answer, _)) => Err(format!("{answer:?} to request {number} instead of {}", asked.number)),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        }
    }

    pub(super) fn acquire(&mut self, name: &Name, mode: Mode) -> Result<Held, String> {
        let asked = self.ask(name, mode)?;
        self.granted(asked)
    }

    /// Returns when the service has released it.
    pub(super) fn release(&mut self, held: Held) -> Result<(), String> {
        let done = self.done.0.clone();
        let told = move |released: Result<(), _>| {
            // The station may be gone.
            let _ = done.send(released.is_ok());
        };
        self.service.release(held.id, Box::new(told));
        match self.done.1.recv_timeout(PATIENCE) {
            Ok(true) => Ok(()),
            other => Err(format!("a release ended with {other:?}")),
        }
    }

    /// The batches by which a free lock is taken and released, without a service. Gives how long the first took.
    pub(super) fn raw(&self, is_polled: bool, token: u64) -> Result<Duration, String> {
        let me = u64::from(self.fabric.identity().rank.0) << 32;
        let remote = self.raw.as_ref().ok_or("no words are open")?;
        let mut enter = Batch::one(Operation::CompareSwap { at: LOCK_WORD_AT, expected: 0, desired: me });
        enter.push(Operation::ReadWord { at: TOKEN_WORD_AT }).push(Operation::ReadWord { at: GATE_WORD_AT });
        let mut leave = Batch::one(Operation::WriteWord { at: TOKEN_WORD_AT, value: token });
        leave.push(Operation::CompareSwap { at: LOCK_WORD_AT, expected: me, desired: 0 });
        let took = |batch, expected: u64, at: usize| {
            let began = Instant::now();
            let mut pending = remote.post(batch, Class::Control, self.fabric.clock().now() + PATIENCE);
            let done = match is_polled {
                // It ends by its deadline, if not by an answer.
                true => loop {
                    match pending.poll_now() {
                        Some(done) => break done,
                        // As the service does: on a core of its own a fabric may have a thread to run.
                        None => std::thread::yield_now(),
                    }
                },
                false => pending.wait(),
            };
            let took = began.elapsed();
            let found = done.map_err(|error| error.to_string())?.get(at).and_then(|done| done.word());
            if found == Some(expected) { Ok(took) } else { Err(format!("{found:?} where {expected} had to be")) }
        };
        let entered = took(enter, 0, 0)?;
        took(leave, me, 1)?;
        Ok(entered)
    }
}
