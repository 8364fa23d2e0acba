//! Files of the runtime directory are removed while a helper runs, as by what cleans /tmp up: they are put back, and who comes later joins. Who finds no keeper says so.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use verbena_client::{Helper as Connection, Socket};
use verbena_cluster::ClusterConfig;
use verbena_metrics::Registry;
use verbena_node::{Event, Helper};
use verbena_protocol::wire::{State, Status};
use verbena_terms::{BootClock, Clock, Lapse};

use crate::common::{self, PATIENCE, within};

fn start(directory: &Path) -> Helper {
    let mut settings = common::settings(directory);
    settings.cluster.lease = Lapse::millis(1000);
    common::start(&settings, vec![], Arc::new(Registry::new())).0
}

fn status(socket: &Path) -> verbena_client::Result<Status> {
    let name = socket.file_stem().unwrap().to_str().unwrap();
    let socket = Socket::new(socket.parent(), Some(name)).unwrap();
    Ok(Connection::connect(&socket, PATIENCE)?.report()?.status)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = within();
    while !is_so() {
        assert!(BootClock.now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_member(helper: &Helper, members: u32) -> bool {
    status(helper.socket()).is_ok_and(|status| status.state == State::Member && status.members == members)
}

const FILES: [&str; 4] = ["local.card", "local.sock.lock", "local.sock", "local.http.sock"];

/// Each by itself, all at once, and with the directory.
#[test]
fn what_is_removed_comes_back_and_others_join() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("run");
    let first = start(directory.path());
    wait_until("the first is in", || is_member(&first, 1));
    let is_back = || FILES.iter().all(|file| run.join(file).exists());
    for file in FILES {
        std::fs::remove_file(run.join(file)).unwrap();
        wait_until(file, is_back);
        wait_until("it answers", || is_member(&first, 1));
    }
    std::fs::write(run.join("local.card"), "").unwrap();
    wait_until("the card is whole", || std::fs::metadata(run.join("local.card")).is_ok_and(|card| card.len() > 0));
    // What systemd-tmpfiles does: files go, sockets stay. The second comes at once, before anything is put back.
    for file in ["local.card", "local.sock.lock", "local.seats.lock"] {
        std::fs::remove_file(run.join(file)).unwrap();
    }
    let second = start(directory.path());
    assert_eq!(second.name(), "local-2");
    wait_until("both are in", || is_member(&first, 2) && is_member(&second, 2));
    std::fs::remove_dir_all(&run).unwrap();
    wait_until("the directory is back", is_back);
    let third = start(directory.path());
    assert_eq!(third.name(), "local-3");
    wait_until("all are in", || is_member(&first, 3) && is_member(&third, 3));
    assert!(std::os::unix::net::UnixStream::connect(first.http().0).is_ok());
    for helper in [third, second, first] {
        helper.stop().unwrap();
    }
}

#[test]
fn a_node_that_finds_no_keeper_says_so_after_three_seconds() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = common::settings(directory.path());
    settings.cluster =
        ClusterConfig { name: Some("b".into()), members: common::members(&["a", "b"]), ..settings.cluster };
    let (helper, told) = common::start(&settings, vec![], Arc::new(Registry::new()));
    let began = BootClock.now();
    let trouble = common::wait_for(&told, |event| matches!(event, Event::Trouble { .. }));
    let waited = BootClock.now().since(began);
    assert!(waited > Duration::from_millis(2500), "{waited:?}");
    let Event::Trouble { what, reason } = trouble else { unreachable!("it was just looked at") };
    assert!(what.contains("no lease") && reason.contains("the keeper, a") && reason.contains("a.card"), "{reason}");
    assert_eq!(status(helper.socket()).unwrap().waits, Some(reason));
    // It comes: nothing is waited for any more.
    let mut settings = common::settings(directory.path());
    settings.node.state = Some(directory.path().join("state-a"));
    settings.cluster =
        ClusterConfig { name: Some("a".into()), members: common::members(&["a", "b"]), ..settings.cluster };
    let (keeper, _told) = common::start(&settings, vec![], Arc::new(Registry::new()));
    wait_until("it is in", || is_member(&helper, 2));
    wait_until("nothing is said", || status(helper.socket()).unwrap().waits.is_none());
    helper.stop().unwrap();
    keeper.stop().unwrap();
}
