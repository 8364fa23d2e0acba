use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::connection::Connection;
use crate::layout::{HELPER_CORE, HELPER_CROWD};

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn clients_are_told_where_the_helper_is_and_whether_they_are_a_crowd() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::bind(directory.path(), "node.sock", Options::default()).unwrap();
    server.hints = Hints::new(2);
    let (path, until, are_asking) = (server.path(), BootClock.now() + PATIENCE, AtomicBool::new(true));
    let poll = |server: &mut Server| {
        let answer = &mut |event: Event<'_>| {
            if let Event::Request(request) = event {
                let _ = request.answer(b"");
            }
        };
        server.poll(Duration::from_millis(1), answer).unwrap();
        assert!(BootClock.now() < until, "after {PATIENCE:?}");
    };
    let is_crowded = |server: &Server| server.common.beacon.word(HELPER_CROWD) == 1;
    std::thread::scope(|scope| {
        let ask = || {
            let mut connection = Connection::connect(&path, until).unwrap();
            while are_asking.load(Ordering::Relaxed) {
                connection.call(b"", until).unwrap();
            }
        };
        let clients = [scope.spawn(ask), scope.spawn(ask)];
        while !is_crowded(&server) {
            poll(&mut server);
        }
        are_asking.store(false, Ordering::Relaxed);
        while clients.iter().any(|client| !client.is_finished()) {
            poll(&mut server);
        }
    });
    while is_crowded(&server) {
        poll(&mut server);
    }
    assert_ne!(server.common.beacon.word(HELPER_CORE), 0);
}
