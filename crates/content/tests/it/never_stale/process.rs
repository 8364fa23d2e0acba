//! A run of a node's process: membership, the product's own service of pages, and a proxy, each as a thread that acts when it is woken, in
//! any order.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use verbena_cluster::Answer;
use verbena_content::service::{Options, Stepped};
use verbena_content::{HomeLimits, UpdaterLimits};
use verbena_fabric::Fabric;
use verbena_terms::{Incarnation, Time};

use crate::never_stale::membership::{Disk, Member, first_life, rank};
use crate::never_stale::outside::{Event, Kind, Outside, Request, Run, Thread};
use crate::never_stale::proxy::Proxy;
use crate::never_stale::settings::{DRIFT, LEASE, MAX_TRANSACTION, ms, us};
use crate::never_stale::slow::{Doing, SlowFabric};

/// How long a process waits for the keeper to take leave of it, with what it has open.
pub const LONGEST_LEAVE: Duration = Duration::from_millis(5 * LEASE.as_millis() as u64 / 2);

pub struct Process {
    at: usize,
    pub run: Run,
    outside: Rc<Outside>,
    member: Member,
    service: Stepped,
    proxy: Option<Rc<Proxy>>,
    requests: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    doing: Doing,
    slowness: Duration,
    alarms: [Alarm; 4],
}

/// When a thread is to be woken.
#[derive(Clone, Copy)]
struct Alarm {
    /// By its own timer.
    timer: Time,
    /// It was told that there is something.
    is_told: bool,
}

const SILENT: Alarm = Alarm { timer: Time::FAR, is_told: false };

impl Process {
    pub fn start(at: usize, outside: &Rc<Outside>, disk: &Rc<RefCell<Disk>>) -> Process {
        let settings = &outside.settings;
        let options = Options {
            names: outside.names.clone(),
            home: HomeLimits {
                slots: 4,
                stamps: 8,
                pages: settings.pages_kept,
                dependencies: 256,
                in_flight: settings.in_flight,
                lease: LEASE + DRIFT,
                max_transaction_time: MAX_TRANSACTION,
            },
            updater: UpdaterLimits {
                open: 8,
                begin_deadline: 2 * LEASE,
                repeat_after: ms(3),
                max_transaction_time: MAX_TRANSACTION,
                frame_bytes: 200,
            },
        };
        let service = Stepped::with_records(options, settings.rules, outside.sim.clock(rank(at)), outside.records(at));
        // The machine's clock is there before anybody looks at it.
        let first = first_life(at, outside, &disk.borrow());
        let fabric = outside.sim.node(first);
        let doing = Doing::default();
        let run = outside.number();
        let member = Member::start((at, run, first), outside, disk, service.content().clone(), doing.clone());
        let mut process = Process {
            at,
            run,
            outside: outside.clone(),
            member,
            service,
            proxy: None,
            requests: Vec::new(),
            doing,
            slowness: settings.faults.slowness * [0, 1, 10, 200][outside.below(4) as usize],
            alarms: [SILENT; 4],
        };
        process.begin_life(Some(fabric));
        process
    }

    pub fn me(&self) -> Incarnation {
        self.member.me()
    }

    /// A request has reached the proxy.
    pub fn request(&mut self, request: Request, kind: Kind) {
        let proxy = self.proxy.clone().expect("a proxy from the first life on");
        self.requests.push(Box::pin(proxy.serve(request, kind)));
        self.act(Thread::Requests);
    }

    /// It is told to stop: it leaves in good order, or stops without that when it has waited long enough.
    pub fn leave(&mut self) {
        self.member.leave();
        self.act(Thread::Membership);
        self.outside.later(LONGEST_LEAVE, Event::End { at: self.at, run: self.run });
    }

    /// The register has answered a question, or has not in time.
    pub fn answered(&mut self, number: u64, answer: Option<Answer>) {
        self.member.answered(number, answer);
        self.act(Thread::Membership);
    }

    /// A timer of the fabric went off.
    pub fn timer(&mut self, thread: Thread) {
        let now = self.service.content().now();
        let alarm = &mut self.alarms[thread as usize];
        // Otherwise it was set for sooner since, and that timer has gone off.
        if alarm.timer <= now {
            alarm.timer = Time::FAR;
            self.act(thread);
        }
    }

    /// Something told a thread to look.
    pub fn told(&mut self, thread: Thread) {
        self.alarms[thread as usize].is_told = false;
        self.act(thread);
    }

    /// It goes on after a pause: its threads notice, in any order.
    pub fn goes_on(&mut self) {
        for thread in [Thread::Membership, Thread::Content, Thread::Requests] {
            self.tell(thread);
        }
    }

    /// One thread does what there is to do, and wakes the others.
    pub fn act(&mut self, thread: Thread) {
        match thread {
            Thread::Membership => {
                let next = self.member.turn();
                self.begin_life(None);
                if self.member.has_ended() {
                    return self.outside.later(Duration::ZERO, Event::End { at: self.at, run: self.run });
                }
                self.wake_at(Thread::Membership, next);
            }
            Thread::Content if !self.doing.is_done() => {}
            Thread::Content => {
                let next = self.service.turn();
                // It would look all the time: a look takes a while.
                let soonest = self.service.content().now() + self.outside.between(us(10), us(80));
                self.wake_at(Thread::Content, next.max(soonest));
                self.tell(Thread::Requests);
                self.tell(if self.doing.is_done() { Thread::Membership } else { Thread::Doing });
            }
            Thread::Doing => {
                self.doing.next();
                if self.doing.is_done() {
                    // It may have been woken meanwhile.
                    self.tell(Thread::Content);
                    self.tell(Thread::Membership);
                } else {
                    self.tell(Thread::Doing);
                }
            }
            Thread::Requests => {
                self.doing.complete();
                let mut context = Context::from_waker(Waker::noop());
                self.requests.retain_mut(|request| request.as_mut().poll(&mut context).is_pending());
            }
        }
        if self.service.is_wanted() {
            self.tell(Thread::Content);
        }
    }

    /// Another life, if membership has stored the number of one (rule C1): the fabric goes first, with all its regions.
    fn begin_life(&mut self, first: Option<Arc<dyn Fabric>>) {
        let Some(next) = self.member.begins() else { return };
        let former = self.outside.lives.borrow_mut().insert(self.at, next);
        // Membership waits until the former is over, and until the next has begun.
        self.doing.at_once();
        let fabric = first.unwrap_or_else(|| {
            if let Some(former) = former.filter(|_| self.outside.strikes(self.outside.settings.faults.memory_outlives))
            {
                self.outside.sim.leave_memory(former);
            }
            self.member.hang_up();
            self.service.life_ends();
            self.outside.sim.next_life(next)
        });
        let slow = Arc::new(SlowFabric { inner: fabric.clone(), doing: self.doing.clone() });
        self.service.life_begins(slow, self.member.lease()).expect("regions of a node that lives");
        if !self.slowness.is_zero() {
            self.doing.slowly();
        }
        self.alarms = self.alarms.map(|alarm| Alarm { timer: Time::FAR, ..alarm });
        self.member.has_begun(fabric);
        if self.proxy.is_none() {
            let service = self.service.content().clone();
            self.proxy = Some(Rc::new(Proxy::new(self.at, self.run, self.outside.clone(), service)));
        }
        self.tell(Thread::Membership);
        self.tell(Thread::Content);
    }

    fn wake_at(&mut self, thread: Thread, time: Time) {
        if time < self.alarms[thread as usize].timer {
            self.alarms[thread as usize].timer = time;
            self.outside.sim.wake_node_at(self.me(), time, thread as u64);
        }
    }

    fn tell(&mut self, thread: Thread) {
        let nothing = thread == Thread::Requests && self.requests.is_empty();
        if !nothing && !std::mem::replace(&mut self.alarms[thread as usize].is_told, true) {
            let is_slow = thread == Thread::Doing && !self.outside.calm.get();
            let most = if is_slow { self.slowness } else { us(30) };
            let delay = self.outside.between(Duration::from_nanos(500), most);
            self.outside.later(delay, Event::Thread { at: self.at, run: self.run, thread });
        }
    }
}

impl Drop for Process {
    /// What it has not done it never does.
    fn drop(&mut self) {
        self.doing.forget();
    }
}
