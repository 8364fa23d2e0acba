//! Helpers that nobody configured, in one process: they are one cluster, and go on when the first of them ends (rule P11). Several
//! processes are tested with the command.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use verbena_client::{Helper as Connection, Report, Socket};
use verbena_metrics::Registry;
use verbena_node::{Event, Helper};
use verbena_protocol::wire::State;
use verbena_terms::{BootClock, Clock, Incarnation, Lapse};

use crate::common::{self, PATIENCE, within};

const LEASE_MS: u64 = 1000;

struct Node {
    helper: Helper,
    told: Receiver<Event>,
}

fn start(directory: &Path) -> Node {
    let mut settings = common::settings(directory);
    settings.cluster.lease = Lapse::millis(LEASE_MS);
    let (helper, told) = common::start(&settings, vec![], Arc::new(Registry::new()));
    Node { helper, told }
}

impl Node {
    fn wait_for(&self, is_it: impl Fn(&Event) -> bool) -> Event {
        common::wait_for(&self.told, is_it)
    }

    /// Waits until it acts in a view in effect that has these members.
    fn wait_until_in(&self, members: &[(u32, u32)]) {
        let expected: Vec<_> = members.iter().map(|(rank, start)| Incarnation::new(*rank, *start)).collect();
        let until = within();
        let mut last = vec![];
        while BootClock.now() < until {
            let Report { status, members } = report(self.helper.socket());
            last = members.iter().map(|member| member.incarnation).collect();
            if last == expected && status.state == State::Member && status.in_effect == status.view {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{last:?} where {expected:?} were expected");
    }
}

fn report(socket: &Path) -> Report {
    let name = socket.file_stem().unwrap().to_str().unwrap();
    let socket = Socket::new(socket.parent(), Some(name)).unwrap();
    Connection::connect(&socket, PATIENCE).unwrap().report().unwrap()
}

fn succeeded(event: &Event) -> bool {
    matches!(event, Event::Succeeded { .. })
}

#[test]
fn plain_helpers_are_one_cluster_and_whoever_is_left_keeps_it() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path());
    first.wait_until_in(&[(1, 1)]);
    let second = start(directory.path());
    assert_eq!((first.helper.name(), second.helper.name()), ("local", "local-2"));
    second.wait_until_in(&[(1, 1), (2, 1)]);
    first.wait_until_in(&[(1, 1), (2, 1)]);
    let socket = first.helper.socket().to_owned();

    first.helper.stop().unwrap();
    assert_eq!(second.wait_for(succeeded), Event::Succeeded { incarnation: Incarnation::new(1, 2) });
    second.wait_until_in(&[(1, 2), (2, 1)]);
    let Report { status, members } = report(&socket);
    assert_eq!(
        (status.name.as_str(), status.incarnation),
        ("local", Incarnation::new(1, 2)),
        "its socket is served again"
    );
    let roles: Vec<_> = members.iter().map(|member| member.roles.to_string()).collect();
    assert_eq!(roles, ["updater", "home,reader,updater"], "the process is a home once");

    let third = start(directory.path());
    assert_eq!(third.helper.name(), "local-3", "the first seat is taken");
    third.wait_until_in(&[(1, 2), (2, 1), (3, 1)]);
    second.helper.stop().unwrap();
    third.wait_for(succeeded);
    third.wait_until_in(&[(1, 3), (3, 1)]);
    third.helper.stop().unwrap();

    let again = start(directory.path());
    assert_eq!(again.helper.name(), "local");
    again.wait_until_in(&[(1, 4)]);
    again.helper.stop().unwrap();
}

/// Whoever joins may learn only then that its start number was used: it is another life then, which nobody was told of.
#[test]
fn a_start_number_that_was_used_is_another_life_before_any_view() {
    let directory = tempfile::tempdir().unwrap();
    let first = start(directory.path());
    let second = start(directory.path());
    second.wait_until_in(&[(1, 1), (2, 1)]);
    second.helper.stop().unwrap();
    std::fs::remove_file(directory.path().join("state/2/start")).unwrap();
    let second = start(directory.path());
    let lives = [1, 2].map(|start| Incarnation::new(2, start));
    let begins = |life| move |event: &Event| matches!(event, Event::Life { incarnation, .. } if *incarnation == life);
    second.wait_for(begins(lives[0]));
    second.wait_for(|event| *event == Event::Expelled { next: Some(lives[1]) });
    second.wait_for(begins(lives[1]));
    second.wait_until_in(&[(1, 1), (2, 2)]);
    assert!(second.helper.lease().in_effect_at(BootClock.now()).is_some());
    assert_eq!(second.helper.content().identity(), lives[1], "the service of pages has followed");
    second.helper.stop().unwrap();
    first.helper.stop().unwrap();
}
