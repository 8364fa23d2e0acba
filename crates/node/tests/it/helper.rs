//! One helper in this process: lives, status, services. Several processes are tested with the command.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use verbena_client::{Helper as Connection, Report};
use verbena_cluster::Notice;
use verbena_metrics::Registry;
use verbena_node::{Error, Event, Helper, Life, Replies, Service, Settings};
use verbena_protocol::wire::State;
use verbena_terms::{BootClock, Clock, Incarnation, Lapse, ViewNumber};

use crate::common::{PATIENCE, members, settings, start, wait_for};

fn start_alone(settings: &Settings) -> (Helper, Receiver<Event>) {
    start(settings, vec![], Arc::new(Registry::new()))
}

fn in_effect(event: &Event) -> bool {
    matches!(event, Event::ViewInEffect { .. })
}

fn report(settings: &Settings) -> Report {
    Connection::connect(&settings.socket().unwrap(), PATIENCE).unwrap().report().unwrap()
}

#[test]
fn a_node_alone_needs_nothing_and_each_start_is_another_life() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(directory.path());
    // Longer than the test is patient: a lease of an earlier life is not waited for, for that life is known to have ended.
    settings.cluster.lease = Lapse(Duration::from_secs(30));
    let mut views = vec![];
    for start in 1..=3 {
        let (helper, told) = start_alone(&settings);
        wait_for(&told, in_effect);
        let Report { status, members } = report(&settings);
        assert_eq!((status.incarnation, status.state), (Incarnation::new(1, start), State::Member));
        assert_eq!((status.view, status.acknowledged, status.in_effect), (status.view, status.view, status.view));
        assert!(status.lease_left_ms > 0 && status.lease_left_ms <= status.lease_ms, "{status:?}");
        assert_eq!((members.len(), members[0].incarnation, members[0].name.as_str()), (1, status.incarnation, "local"));
        assert_eq!((status.fabric.provider.as_str(), status.clients), ("shm", 1));
        assert!(helper.lease().in_effect_at(BootClock.now()).is_some());
        views.push(status.view);
        helper.stop().unwrap();
        assert!(matches!(
            Connection::connect(&settings.socket().unwrap(), PATIENCE),
            Err(verbena_client::Error::NoHelper { .. })
        ));
    }
    assert!(views.is_sorted_by(|a, b| a < b), "view numbers are durable: {views:?}");
    let left: Vec<std::ffi::OsString> =
        std::fs::read_dir(directory.path().join("run")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let locks = ["local.seats.lock", "local.sock.lock"].map(Into::into);
    assert_eq!(BTreeSet::from_iter(left), BTreeSet::from(locks), "nothing but the files of locks is left");
}

#[test]
fn metrics_come_whole_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let registry = Arc::new(Registry::new());
    for nth in 0..200 {
        let help = format!("Number {nth} of many, so that the text does not fit into one answer.");
        registry.counter(&format!("verbena_node_sample{nth}_total"), &help).unwrap().add(nth);
    }
    let (helper, told) = start(&settings, vec![], registry);
    wait_for(&told, in_effect);
    let text = Connection::connect(&settings.socket().unwrap(), PATIENCE).unwrap().metrics().unwrap();
    assert!(text.len() > 2 * verbena_protocol::wire::PART_BYTES, "one part held it all");
    assert!(text.contains("verbena_node_sample199_total 199") && text.ends_with("# EOF\n"), "{text}");
    assert!(text.contains("verbena_node_members 1"));
    helper.stop().unwrap();
}

#[test]
fn a_name_and_a_state_directory_have_one_helper() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(directory.path());
    settings.cluster.name = Some("a".into());
    settings.cluster.members = members(&["a"]);
    let (helper, _) = start_alone(&settings);
    let refused = |settings: &Settings| {
        Helper::start(settings, vec![], Arc::new(Registry::new()), Box::new(|_| {})).err().expect("two of them")
    };
    assert!(matches!(refused(&settings), Error::StateInUse { .. }));
    let mut elsewhere = settings.clone();
    elsewhere.node.state = Some(directory.path().join("elsewhere"));
    let told = refused(&elsewhere).to_string();
    assert!(told.contains(&format!("process {}", std::process::id())), "{told}");
    helper.stop().unwrap();
}

#[test]
fn another_nodes_state_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(directory.path());
    start_alone(&settings).0.stop().unwrap();
    settings.cluster.name = Some("b".into());
    settings.cluster.members = members(&["a", "b"]);
    let refused = Helper::start(&settings, vec![], Arc::new(Registry::new()), Box::new(|_| {})).err().unwrap();
    assert!(refused.to_string().contains("of rank 1, this node has rank 2"), "{refused}");
}

/// A service that tells what it is told, and says that it is ready when the test does.
struct Probe {
    life: Option<Life>,
    tell: Sender<String>,
    replies: Sender<(Replies, ViewNumber)>,
}

impl Service for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn begin(&mut self, life: &Life) -> Result<(), String> {
        self.tell.send(format!("begin {}", life.incarnation)).unwrap();
        self.life = Some(life.clone());
        Ok(())
    }

    fn notice(&mut self, notice: &Notice, replies: &Replies) {
        match notice {
            Notice::ViewLearnt(view) => self.replies.send((replies.clone(), view.number())).unwrap(),
            Notice::ViewInEffect(view) => {
                let life = self.life.as_ref().unwrap();
                assert_eq!(life.lease.load().in_effect, *view, "told before it was published");
                self.tell.send("in effect".into()).unwrap();
            }
            Notice::Left => self.tell.send("left".into()).unwrap(),
            _ => {}
        }
    }

    fn close(&mut self, replies: &Replies) {
        replies.closed(true);
    }

    fn end(&mut self) {
        self.tell.send("end".into()).unwrap();
    }
}

#[test]
fn a_view_takes_effect_when_the_service_is_ready_and_not_before() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let ((tell, told), (replies, asked)) = (channel(), channel());
    let probe = Probe { life: None, tell, replies };
    let (helper, events) = start(&settings, vec![Box::new(probe)], Arc::new(Registry::new()));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begin 1.1");
    let (ready, view) = asked.recv_timeout(PATIENCE).unwrap();
    // Half a lease: it would have been in effect at once.
    std::thread::sleep(Duration::from_secs(1));
    let status = report(&settings).status;
    assert_eq!((status.view, status.acknowledged, status.in_effect), (view, ViewNumber(0), ViewNumber(0)));
    assert!(
        helper.lease().valid_at(BootClock.now()).is_none(),
        "nothing may be done in a view that was not acknowledged"
    );
    ready.prepared(view);
    wait_for(&events, in_effect);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "in effect");
    let stopping = std::thread::spawn(move || helper.stop());
    // The view without it is another one to be ready for.
    while let Ok((ready, view)) = asked.recv_timeout(PATIENCE) {
        ready.prepared(view);
    }
    stopping.join().unwrap().unwrap();
    assert_eq!(told.iter().collect::<Vec<_>>(), ["in effect", "left", "end"]);
}

#[test]
fn a_service_that_cannot_begin_stops_the_start() {
    struct Broken;
    impl Service for Broken {
        fn name(&self) -> &'static str {
            "broken"
        }
        fn begin(&mut self, _: &Life) -> Result<(), String> {
            Err("no room".into())
        }
        fn notice(&mut self, _: &Notice, _: &Replies) {}
        fn close(&mut self, _: &Replies) {}
        fn end(&mut self) {}
    }
    let directory = tempfile::tempdir().unwrap();
    let refused =
        Helper::start(&settings(directory.path()), vec![Box::new(Broken)], Arc::new(Registry::new()), Box::new(|_| {}));
    assert_eq!(refused.err().unwrap().to_string(), "the service broken cannot begin: no room");
}
