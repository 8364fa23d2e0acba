//! A node that is alone is its own keeper and serves without waiting for anybody.

use std::collections::VecDeque;

use verbena_cluster::{
    ClusterConfig, EarlierLife, Keeper, KeeperAction, KeeperEvent, KeeperRecord, LeaseWord, Membership, Notice,
    Participant, ParticipantAction, ParticipantEvent, StartRecord,
};
use verbena_terms::{Time, ViewNumber};

/// What is durable.
#[derive(Default)]
struct Disk {
    start: Option<StartRecord>,
    keeper: Option<KeeperRecord>,
}

/// Starts the node at `now`, carries out everything that is wanted, and gives back the view it may act in right then and
/// when its keeper wants to be woken.
fn start(disk: &mut Disk, earlier: EarlierLife, now: Time) -> (Option<ViewNumber>, Time) {
    let membership = Membership::new(&ClusterConfig::default()).expect("the default");
    let word = LeaseWord::new();
    let (mut node, actions) = Participant::start(&membership, "here".into(), disk.start, now).expect("a start");
    let mut keeper = Keeper::start(membership, node.incarnation(), disk.keeper.clone(), earlier, now);
    let mut todo: VecDeque<_> = actions.into();
    let mut steps = 0;
    while let Some(action) = todo.pop_front() {
        steps += 1;
        assert!(steps < 100, "it goes on for ever");
        match action {
            ParticipantAction::Persist(record) => {
                disk.start = Some(record);
                todo.extend(node.handle(now, ParticipantEvent::Persisted));
            }
            ParticipantAction::Publish(lease) => word.store(lease),
            ParticipantAction::Tell(Notice::ViewLearnt(view)) => {
                todo.extend(node.handle(now, ParticipantEvent::Prepared(view.number())));
            }
            ParticipantAction::Tell(_) | ParticipantAction::Enrol => {}
            ParticipantAction::Send(message) => {
                let mut of_keeper: VecDeque<_> = keeper.handle(now, KeeperEvent::Message(message)).into();
                while let Some(action) = of_keeper.pop_front() {
                    match action {
                        KeeperAction::Send(message) => {
                            todo.extend(node.handle(now, ParticipantEvent::Message(message)));
                        }
                        KeeperAction::Persist(record) => {
                            disk.keeper = Some(record);
                            of_keeper.extend(keeper.handle(now, KeeperEvent::Persisted));
                        }
                        KeeperAction::Resign => panic!("there is no other keeper"),
                    }
                }
            }
        }
    }
    (word.in_effect_at(now), keeper.wake_at())
}

#[test]
fn the_first_start_ever_serves_in_no_time() {
    let mut disk = Disk::default();
    let (view, _) = start(&mut disk, EarlierLife::MayRun, Time::from_nanos(5));
    assert_eq!(view, Some(ViewNumber(1)));
}

#[test]
fn a_restart_serves_in_no_time_if_the_earlier_life_has_ended() {
    let mut disk = Disk::default();
    start(&mut disk, EarlierLife::Ended, Time::from_nanos(5));
    let (view, _) = start(&mut disk, EarlierLife::Ended, Time::from_nanos(9));
    assert_eq!(view, Some(ViewNumber(2)));
    assert_eq!(disk.start.map(|record| record.start), Some(2));
}

#[test]
fn a_restart_waits_for_leases_that_may_run() {
    let mut disk = Disk::default();
    start(&mut disk, EarlierLife::MayRun, Time::from_nanos(5));
    let (view, wake) = start(&mut disk, EarlierLife::MayRun, Time::from_nanos(9));
    assert_eq!(view, None);
    assert!(wake > Time::from_nanos(9));
}
