//! A helper in this process, told of writes as a program does it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbena_client::{Error, Outcome, Place, Scope, Updates};
use verbena_metrics::Registry;
use verbena_node::{Application, Helper, Settings};
use verbena_protocol::api::Word;
use verbena_terms::Lapse;

use crate::common::{self, PATIENCE, members};

fn settings(directory: &Path) -> Settings {
    let mut settings = common::settings(directory);
    settings.node.api = Some("127.0.0.1:0".parse().unwrap());
    settings
}

fn start(settings: &Settings) -> (Helper, Updates) {
    let helper = Helper::start(settings, vec![], Arc::new(Registry::new()), Box::new(|_| {})).unwrap();
    let place = Place::from(settings.socket().unwrap());
    assert_eq!(place, Place::Unix(helper.http().0.to_owned()));
    (helper, Updates::at(place).with_patience(PATIENCE))
}

/// Begins an update of everything, as soon as the node is a member.
async fn begin(updates: &Updates) -> verbena_client::Update {
    let until = Instant::now() + PATIENCE;
    loop {
        match updates.begin(&Scope::EVERYTHING).await {
            Ok(update) => return update,
            Err(Error::Unavailable(_)) if Instant::now() < until => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The everything word when no update is open: homes hear of an end a moment after the program.
async fn free(updates: &Updates) -> Word {
    let until = Instant::now() + PATIENCE;
    loop {
        let everything = updates.words("shop", "/").await.unwrap().everything;
        if !everything.busy {
            return everything;
        }
        assert!(Instant::now() < until, "it stays open: {everything:?}");
    }
}

#[tokio::test]
async fn an_update_is_open_until_it_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (helper, updates) = start(&settings(directory.path()));
    let by_port = Updates::at(Place::Loopback(helper.http().1.unwrap()));
    let everything = async || updates.words("shop", "/").await.unwrap().everything;

    let update = begin(&updates).await;
    let open = everything().await;
    assert!(open.busy);
    update.end(Outcome::Done).await.unwrap();
    let done = free(&updates).await;
    assert!(done.generation > open.generation, "{open:?} {done:?}");

    let update = by_port.begin(&Scope::EVERYTHING).await.unwrap();
    assert!(everything().await.busy);
    update.end(Outcome::NotSent).await.unwrap();
    let before = free(&updates).await.generation;
    by_port.purge(&Scope::EVERYTHING).await.unwrap();
    assert!(free(&updates).await.generation > before);

    let clock = updates.words("shop", "/").await.unwrap().clock;
    updates.begin(&Scope::of(["product:7"])).await.unwrap().end(Outcome::Done).await.unwrap();
    let words = updates.words("shop", "/").await.unwrap();
    assert!(words.clock > clock && !words.everything.busy, "names do not touch everything: {words:?}");

    drop(updates.begin(&Scope::EVERYTHING).await.unwrap());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(everything().await.busy, "its outcome is unknown");
    tokio::task::spawn_blocking(|| helper.stop().unwrap()).await.unwrap();
    assert!(matches!(updates.begin(&Scope::EVERYTHING).await, Err(Error::Nobody { .. })));
}

/// A program that says at once that it sends no more (RFC 9112 section 9.6), as `nc -N` does.
#[tokio::test]
async fn a_program_that_sends_no_more_is_answered() {
    const BEGIN: &str = "POST /v1/updates HTTP/1.1\r\nhost: helper\r\ncontent-length: 19\r\n\r\n{\"everything\":true}";
    let directory = tempfile::tempdir().unwrap();
    let (helper, updates) = start(&settings(directory.path()));
    begin(&updates).await.end(Outcome::NotSent).await.unwrap();
    let (socket, port) = (helper.http().0.to_owned(), helper.http().1.unwrap());
    let answers = tokio::task::spawn_blocking(move || {
        let mut answers = vec![String::new(), String::new()];
        for _ in 0..10 {
            let mut unix = UnixStream::connect(&socket).unwrap();
            unix.write_all(BEGIN.as_bytes()).unwrap();
            unix.shutdown(Shutdown::Write).unwrap();
            unix.read_to_string(&mut answers[0]).unwrap();
            let mut tcp = TcpStream::connect(port).unwrap();
            tcp.write_all(BEGIN.as_bytes()).unwrap();
            tcp.shutdown(Shutdown::Write).unwrap();
            tcp.read_to_string(&mut answers[1]).unwrap();
        }
        answers
    });
    for answers in answers.await.unwrap() {
        assert_eq!(answers.matches("HTTP/1.1 201 Created").count(), 10, "{answers}");
    }
    tokio::task::spawn_blocking(|| helper.stop().unwrap()).await.unwrap();
}

#[tokio::test]
async fn an_update_of_an_earlier_helper_ends_no_update_of_a_later_one() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let (helper, updates) = start(&settings);
    let earlier = begin(&updates).await;
    tokio::task::spawn_blocking(|| helper.stop().unwrap()).await.unwrap();

    let (helper, updates) = start(&settings);
    // Both are the first of their helper.
    let later = begin(&updates).await;
    assert!(matches!(earlier.end(Outcome::Done).await, Err(Error::NotOpen(_))));
    assert!(updates.words("shop", "/").await.unwrap().everything.busy);
    later.end(Outcome::Done).await.unwrap();
    tokio::task::spawn_blocking(|| helper.stop().unwrap()).await.unwrap();
}

#[tokio::test]
async fn without_a_lease_no_update_begins() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(directory.path());
    settings.cluster.name = Some("b".into());
    settings.cluster.members = members(&["a", "b"]);
    settings.pages.begin_deadline = Lapse::millis(200);
    let (helper, updates) = start(&settings);
    let told = updates.begin(&Scope::of(["product:7"])).await.unwrap_err();
    assert!(matches!(told, Error::Unavailable(_)), "{told}");
    let told = updates.words("shop", "/").await.unwrap_err();
    assert!(matches!(told, Error::Unavailable(_)), "{told}");
    tokio::task::spawn_blocking(|| helper.stop().unwrap()).await.unwrap();
}

/// What a program announces to the plain helper reaches the cluster of another application, and it does so from the moment in which that comes up.
#[tokio::test]
async fn an_update_that_says_no_application_is_for_all() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.node.runtime = Some(directory.path().join("run"));
    settings.node.state = Some(directory.path().join("state"));
    settings.cluster.lease = Lapse::millis(500);
    let starts = |identity| {
        let mut application = Application::find(&settings, identity).unwrap();
        let (helper, updates) = start(application.settings());
        application.started();
        (application, helper, updates)
    };
    let ((_a, _first, to_all), (_b, second, to_b)) = (starts(1 << 60), starts(2 << 60));
    assert_eq!(second.name(), "app-20000000");
    let everything = async || to_b.words("shop", "/").await.unwrap().everything;

    begin(&to_b).await.end(Outcome::Done).await.unwrap();
    let before = free(&to_b).await;
    let update = begin(&to_all).await;
    assert!(everything().await.busy, "it is open at the other application");
    update.end(Outcome::Done).await.unwrap();
    assert!(free(&to_b).await.generation > before.generation);

    let before = free(&to_b).await;
    to_all.purge(&Scope::EVERYTHING).await.unwrap();
    assert!(free(&to_b).await.generation > before.generation);

    // What is told to one is not told to the other.
    let before = free(&to_all).await;
    begin(&to_b).await.end(Outcome::Done).await.unwrap();
    assert_eq!(free(&to_all).await, before);

    // An application that comes up waits for what is open.
    let update = begin(&to_all).await;
    let (coming, other) = (settings.clone(), std::time::Duration::from_millis(300));
    let third = std::thread::spawn(move || Application::find(&coming, 3 << 60).unwrap());
    tokio::time::sleep(other).await;
    assert!(!third.is_finished());
    update.end(Outcome::Done).await.unwrap();
    assert_eq!(third.join().unwrap().settings().name(), "app-30000000");
}
