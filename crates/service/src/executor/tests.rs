use std::sync::mpsc;
use std::thread::{self, ThreadId};

use verbena_fabric::{Class, Completer, Inbox, InboxSender, Pending, Port, Views};
use verbena_terms::{Incarnation, ViewNumber};

use super::*;

const ROUNDS: u64 = 200;
const PORT: Port = Port(1);
const SOON: Duration = Duration::from_secs(20);

/// Says which thread has seen what.
struct Witness {
    batches: Vec<Pending<u64>>,
    inbox: Inbox,
    says: mpsc::Sender<(u64, ThreadId)>,
    is_slow: Arc<AtomicBool>,
}

enum Work {
    Post(Pending<u64>),
    /// Says that it runs, and goes on running until it is sent something.
    Stay(mpsc::Sender<()>, mpsc::Receiver<()>),
    /// Is slow, and is seen under this number.
    Long(u64),
    /// Takes a while and submits itself again, this often.
    Toil(Arc<AtomicUsize>, Weak<Executor<Witness>>),
}

impl Driver for Witness {
    fn check_lease(&mut self) {}

    fn message(&mut self, message: &Message) {
        self.says.send((message.number, thread::current().id())).unwrap();
    }

    fn advance(&mut self) {
        self.batches.retain_mut(|post| match post.poll_now() {
            None => true,
            Some(answer) => {
                self.says.send((answer.unwrap(), thread::current().id())).unwrap();
                false
            }
        });
    }

    fn has_batches(&self) -> bool {
        !self.batches.is_empty()
    }

    fn poll_completed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let there = self.batches.iter_mut().filter_map(|post| post.is_there(context).then_some(())).count();
        if there > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn take_message(&mut self) -> Option<Message> {
        self.inbox.try_take()
    }

    fn poll_message(&mut self, context: &mut Context<'_>) -> Poll<Message> {
        self.inbox.poll_next(context)
    }

    fn open_tasks(&mut self) -> Vec<OpenTask> {
        vec![]
    }

    fn opened(&mut self, _: OpenResult) {}

    fn may_be_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    fn next_deadline(&self) -> Time {
        BootClock.now() + Duration::from_secs(3600)
    }
}

impl Service for Witness {
    type Command = Work;
    type Driver = Witness;

    fn driver(&mut self) -> &mut Witness {
        self
    }

    fn command(&mut self, work: Work) {
        match work {
            Work::Post(post) => self.batches.push(post),
            Work::Stay(says, until) => {
                says.send(()).unwrap();
                until.recv_timeout(SOON).unwrap();
            }
            Work::Long(number) => self.says.send((number, thread::current().id())).unwrap(),
            Work::Toil(times, executor) => {
                thread::sleep(Duration::from_micros(20));
                let left = times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if let (Ok(_), Some(running)) = (left, executor.upgrade()) {
                    running.submit(Work::Toil(times, executor));
                }
            }
        }
    }

    fn is_slow(work: &Work) -> bool {
        matches!(work, Work::Long(_))
    }

    fn deliver_answers(&mut self) {}

    fn idle(&mut self) {}
}

struct Scene {
    executor: Arc<Executor<Witness>>,
    inboxes: InboxSender,
    said: mpsc::Receiver<(u64, ThreadId)>,
    is_slow: Arc<AtomicBool>,
}

fn scene() -> Scene {
    let inboxes = InboxSender::new(4096);
    let (says, said) = mpsc::channel();
    let inbox = inboxes.open(PORT, Views::Any).unwrap();
    let is_slow = Arc::new(AtomicBool::new(false));
    let witness = Witness { batches: vec![], inbox, says, is_slow: is_slow.clone() };
    let executor = Arc::new(Executor::start("witness", witness).unwrap());
    Scene { executor, inboxes, said, is_slow }
}

impl Scene {
    fn post(&self) -> Completer<u64> {
        let (completer, pending) = Pending::new(Error::Closed);
        self.executor.submit(Work::Post(pending));
        completer
    }

    fn deliver(&self, number: u64) {
        let (from, view) = (Incarnation::new(1, 1), ViewNumber(1));
        self.inboxes.deliver(Message { from, view, number, class: Class::Control, port: PORT, body: vec![] });
    }

    /// Acts while another thread runs the service. That thread runs what is queued meanwhile before it returns.
    fn while_another_thread_runs(&self, act: impl FnOnce()) {
        let ((says, said), (go, stays)) = (mpsc::channel(), mpsc::channel());
        let executor = self.executor.clone();
        thread::scope(|scope| {
            scope.spawn(move || executor.submit(Work::Stay(says, stays)));
            said.recv_timeout(SOON).unwrap();
            act();
            go.send(()).unwrap();
        });
    }

    /// Whether this is the thread that saw it. If not, the thread that did gives the service back before this returns.
    fn is_seen_by(&self, thread: ThreadId, number: u64) -> bool {
        let is_it = self.seen(number) == thread;
        if !is_it {
            self.executor.with(|_| ());
            thread::sleep(Duration::from_millis(1));
        }
        is_it
    }

    /// The thread that saw this, which must be the next thing seen.
    fn seen(&self, number: u64) -> ThreadId {
        let (seen, by) = self.said.recv_timeout(SOON).expect("a thread sees it");
        assert_eq!(seen, number, "in this order, and once");
        by
    }
}

fn assert_run_by_the_thread_that_brings_it(bring: impl Fn(&Scene, u64)) {
    let scene = scene();
    let me = thread::current().id();
    let by_me = (0..ROUNDS).filter(|&round| {
        bring(&scene, round);
        scene.is_seen_by(me, round)
    });
    let by_me = by_me.count() as u64;
    // Now and then the service's own thread, which has just been started, runs it.
    assert!(by_me >= ROUNDS * 9 / 10, "{by_me} of {ROUNDS} were run by the thread that brought them");
}

#[test]
fn a_completion_is_looked_at_by_the_thread_that_brings_it() {
    assert_run_by_the_thread_that_brings_it(|scene, round| scene.post().complete(Ok(round)));
}

#[test]
fn a_message_is_handled_by_the_thread_that_brings_it() {
    assert_run_by_the_thread_that_brings_it(Scene::deliver);
}

/// Nor by a fabric's thread that comes while the service's own thread is on its way.
#[test]
fn slow_work_is_not_run_by_a_fabrics_thread() {
    let scene = scene();
    let me = thread::current().id();
    for round in (0..ROUNDS).step_by(2) {
        scene.executor.submit_to_thread(Work::Long(round));
        scene.deliver(round + 1);
        let seen = [(); 2].map(|()| scene.said.recv_timeout(SOON).expect("a thread sees it"));
        assert!(seen.iter().all(|(number, by)| *number != round || *by != me), "{round}");
    }
    scene.is_slow.store(true, Ordering::Relaxed);
    for round in 0..ROUNDS {
        scene.deliver(round);
        assert!(scene.seen(round) != me, "{round}");
    }
}

#[test]
fn a_fabrics_thread_does_not_wait_for_the_service() {
    let scene = scene();
    for round in (0..ROUNDS).step_by(2) {
        let completer = scene.post();
        scene.while_another_thread_runs(|| {
            completer.complete(Ok(round));
            scene.deliver(round + 1);
        });
        let seen = [(); 2].map(|()| scene.said.recv_timeout(SOON).expect("a thread sees it").0);
        assert!(seen == [round, round + 1] || seen == [round + 1, round], "{seen:?} of {round}");
    }
}

/// A thread that submits a command does not run for ever what comes after it, and the service's own thread, which takes over, looks at messages all the same.
#[test]
fn no_caller_is_kept_running_the_service() {
    const TIMES: usize = 40_000;
    let scene = scene();
    let times = Arc::new(AtomicUsize::new(TIMES));
    let began = BootClock.now();
    scene.executor.submit(Work::Toil(times.clone(), Arc::downgrade(&scene.executor)));
    let took = BootClock.now().since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
    for round in 0..20 {
        scene.deliver(round);
        scene.seen(round);
    }
    assert!(times.swap(0, Ordering::Relaxed) > TIMES / 4, "all that was seen while it went on");
}

/// More than one turn handles, and more than the thread that brings them looks at.
#[test]
fn a_thread_that_could_not_be_prepared_serves_nothing() {
    let start = |prepare: fn() -> std::io::Result<()>| {
        let inboxes = InboxSender::new(16);
        let (says, said) = mpsc::channel();
        let inbox = inboxes.open(PORT, Views::Any).unwrap();
        let witness = Witness { batches: vec![], inbox, says, is_slow: Arc::default() };
        (Executor::start_with("witness", witness, prepare), said)
    };
    let (prepared, _said) = start(|| match thread::current().name() {
        Some("witness") => Ok(()),
        other => panic!("on the service's own thread, not {other:?}"),
    });
    assert!(prepared.is_ok());
    let (refused, said) = start(|| Err(std::io::Error::other("no such core")));
    assert_eq!(refused.err().unwrap().to_string(), "no such core");
    assert_eq!(said.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected), "the service is dropped");
}

#[test]
fn messages_that_come_while_a_thread_runs_are_handled_in_order() {
    let scene = scene();
    let many = (BATCH + 4 * TURNS) as u64;
    scene.while_another_thread_runs(|| (0..many).for_each(|number| scene.deliver(number)));
    for number in 0..many {
        scene.seen(number);
    }
}

/// An executor that has ended is not woken by a late completion, and is not kept alive by it.
#[test]
fn a_completion_for_an_executor_that_is_gone_is_dropped() {
    let Scene { executor, inboxes: _inboxes, said, .. } = scene();
    let (completer, pending) = Pending::new(Error::Closed);
    executor.submit(Work::Post(pending));
    drop(executor);
    // The service's own thread holds the sender until it has ended.
    assert_eq!(said.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected));
    completer.complete(Ok(1));
}
