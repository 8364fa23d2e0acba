use std::sync::mpsc;
use std::thread::{self, ThreadId};

use verbena_terms::{Incarnation, ViewNumber};

use super::*;
use crate::completion::{Completer, Pending};
use crate::message::{Class, InboxSender, Port, Views};

const ROUNDS: u64 = 200;
const PORT: Port = Port(1);
const SOON: Duration = Duration::from_secs(20);

/// Says which thread has seen what.
struct Witness {
    posts: Vec<Pending<u64>>,
    inbox: Inbox,
    says: mpsc::Sender<(u64, ThreadId)>,
    takes_long: Arc<AtomicBool>,
}

enum Told {
    Post(Pending<u64>),
    /// Says that it is there, and stays at the desk until there is something.
    Stay(mpsc::Sender<()>, mpsc::Receiver<()>),
    /// Takes long, and is seen as this.
    Long(u64),
    /// Takes a while and leaves itself again, so many times.
    Toil(Arc<AtomicUsize>, Weak<Desk<Witness>>),
}

impl Driver for Witness {
    fn look_at_lease(&mut self) {}

    fn arrived(&mut self, message: &Message) {
        self.says.send((message.number, thread::current().id())).unwrap();
    }

    fn go_on(&mut self) {
        self.posts.retain_mut(|post| match post.poll_now() {
            None => true,
            Some(answer) => {
                self.says.send((answer.unwrap(), thread::current().id())).unwrap();
                false
            }
        });
    }

    fn has_posts(&self) -> bool {
        !self.posts.is_empty()
    }

    fn poll_answered(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let there = self.posts.iter_mut().filter_map(|post| post.is_there(context).then_some(())).count();
        if there > 0 { Poll::Ready(()) } else { Poll::Pending }
    }

    fn inbox(&mut self) -> Option<&mut Inbox> {
        Some(&mut self.inbox)
    }

    fn openings(&mut self) -> Vec<Opening> {
        vec![]
    }

    fn opened(&mut self, _: Opened) {}

    fn takes_long(&self) -> bool {
        self.takes_long.load(Ordering::Relaxed)
    }

    fn next_deadline(&self) -> Time {
        BootClock.now() + Duration::from_secs(3600)
    }
}

impl Service for Witness {
    type Command = Told;
    type Driver = Witness;

    fn driver(&mut self) -> &mut Witness {
        self
    }

    fn command(&mut self, told: Told) {
        match told {
            Told::Post(post) => self.posts.push(post),
            Told::Stay(says, until) => {
                says.send(()).unwrap();
                until.recv_timeout(SOON).unwrap();
            }
            Told::Long(number) => self.says.send((number, thread::current().id())).unwrap(),
            Told::Toil(times, desk) => {
                thread::sleep(Duration::from_micros(20));
                let left = times.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                if let (Ok(_), Some(there)) = (left, desk.upgrade()) {
                    there.leave(Told::Toil(times, desk));
                }
            }
        }
    }

    fn is_long(told: &Told) -> bool {
        matches!(told, Told::Long(_))
    }

    fn tell_all(&mut self) {}

    fn rests(&mut self) {}
}

struct Scene {
    desk: Arc<Desk<Witness>>,
    inboxes: InboxSender,
    said: mpsc::Receiver<(u64, ThreadId)>,
    takes_long: Arc<AtomicBool>,
}

fn scene() -> Scene {
    let inboxes = InboxSender::new(4096);
    let (says, said) = mpsc::channel();
    let inbox = inboxes.open(PORT, Views::Any).unwrap();
    let takes_long = Arc::new(AtomicBool::new(false));
    let witness = Witness { posts: vec![], inbox, says, takes_long: takes_long.clone() };
    let desk = Arc::new(Desk::start("witness", witness).unwrap());
    Scene { desk, inboxes, said, takes_long }
}

impl Scene {
    fn post(&self) -> Completer<u64> {
        let (completer, pending) = Pending::new(Error::Closed);
        self.desk.leave(Told::Post(pending));
        completer
    }

    fn deliver(&self, number: u64) {
        let (from, view) = (Incarnation::new(1, 1), ViewNumber(1));
        self.inboxes.deliver(Message { from, view, number, class: Class::Control, port: PORT, body: vec![] });
    }

    /// While another thread is at the desk. What it is told there it does before it goes away.
    fn while_somebody_stays(&self, act: impl FnOnce()) {
        let ((says, said), (go, stays)) = (mpsc::channel(), mpsc::channel());
        let desk = self.desk.clone();
        thread::scope(|scope| {
            scope.spawn(move || desk.leave(Told::Stay(says, stays)));
            said.recv_timeout(SOON).unwrap();
            act();
            go.send(()).unwrap();
        });
    }

    /// Whether this is the thread that saw it. If not, the one that did goes away from the desk before this returns.
    fn is_seen_by(&self, thread: ThreadId, number: u64) -> bool {
        let is_it = self.seen(number) == thread;
        if !is_it {
            self.desk.change(|_| ());
            thread::sleep(Duration::from_millis(1));
        }
        is_it
    }

    /// Who saw this, which is the next thing that anybody saw.
    fn seen(&self, number: u64) -> ThreadId {
        let (seen, by) = self.said.recv_timeout(SOON).expect("somebody sees it");
        assert_eq!(seen, number, "in this order, and once");
        by
    }
}

fn assert_looked_at_by_who_brings_it(bring: impl Fn(&Scene, u64)) {
    let scene = scene();
    let me = thread::current().id();
    let by_me = (0..ROUNDS).filter(|&round| {
        bring(&scene, round);
        scene.is_seen_by(me, round)
    });
    let by_me = by_me.count() as u64;
    // Now and then the service's thread is at the desk, when it has just been started, and does it.
    assert!(by_me >= ROUNDS * 9 / 10, "{by_me} of {ROUNDS} were looked at by whoever brought them");
}

#[test]
fn an_answer_is_looked_at_by_whoever_brings_it() {
    assert_looked_at_by_who_brings_it(|scene, round| scene.post().complete(Ok(round)));
}

#[test]
fn a_message_is_handled_by_whoever_brings_it() {
    assert_looked_at_by_who_brings_it(Scene::deliver);
}

/// Also the thread's, which comes for that.
#[test]
fn what_takes_long_is_not_done_by_whoever_brings_something() {
    let scene = scene();
    let me = thread::current().id();
    for round in (0..ROUNDS).step_by(2) {
        scene.desk.leave_to_thread(Told::Long(round));
        scene.deliver(round + 1);
        let seen = [(); 2].map(|()| scene.said.recv_timeout(SOON).expect("somebody sees it"));
        assert!(seen.iter().all(|(number, by)| *number != round || *by != me), "{round}");
    }
    scene.takes_long.store(true, Ordering::Relaxed);
    for round in 0..ROUNDS {
        scene.deliver(round);
        assert!(scene.seen(round) != me, "{round}");
    }
}

#[test]
fn who_brings_something_does_not_wait_for_the_desk() {
    let scene = scene();
    for round in (0..ROUNDS).step_by(2) {
        let completer = scene.post();
        scene.while_somebody_stays(|| {
            completer.complete(Ok(round));
            scene.deliver(round + 1);
        });
        let seen = [(); 2].map(|()| scene.said.recv_timeout(SOON).expect("somebody sees it").0);
        assert!(seen == [round, round + 1] || seen == [round + 1, round], "{seen:?} of {round}");
    }
}

/// Who leaves something does not do for ever what comes after it, and the thread that does it in the end looks at messages all the same.
#[test]
fn nobody_is_kept_at_the_desk() {
    const TIMES: usize = 40_000;
    let scene = scene();
    let times = Arc::new(AtomicUsize::new(TIMES));
    let began = BootClock.now();
    scene.desk.leave(Told::Toil(times.clone(), Arc::downgrade(&scene.desk)));
    let took = BootClock.now().since(began);
    assert!(took < Duration::from_secs(1), "{took:?}");
    for round in 0..20 {
        scene.deliver(round);
        scene.seen(round);
    }
    assert!(times.swap(0, Ordering::Relaxed) > TIMES / 4, "all that was seen while it went on");
}

/// More than one turn handles, and more than are looked at by whoever brings them.
#[test]
fn what_comes_while_somebody_is_at_the_desk_is_handled_in_its_order() {
    let scene = scene();
    let many = (AT_ONCE + 4 * TURNS) as u64;
    scene.while_somebody_stays(|| (0..many).for_each(|number| scene.deliver(number)));
    for number in 0..many {
        scene.seen(number);
    }
}

/// A desk that has ended is not woken by what still comes for it, and does not stay because of it.
#[test]
fn what_comes_for_a_desk_that_is_gone_is_nobodys() {
    let Scene { desk, inboxes: _inboxes, said, .. } = scene();
    let (completer, pending) = Pending::new(Error::Closed);
    desk.leave(Told::Post(pending));
    drop(desk);
    // The thread holds it until it has ended; then nobody can say anything any more.
    assert_eq!(said.recv_timeout(SOON), Err(mpsc::RecvTimeoutError::Disconnected));
    completer.complete(Ok(1));
}
