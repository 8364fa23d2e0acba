//! The client of the updates, against a helper that does as the test says: well, or in one of the ways in which a helper fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{Peer, Then, answer, until, willing};
use tokio::sync::Semaphore;
use verbena_client::{Error, Outcome, Place, Scope, Updates};

fn stock() -> Scope {
    Scope::of(["stock"])
}

const BEGIN: &str = r#"POST /v1/updates {"dependencies":["stock"]}"#;
const END: &str = r#"POST /v1/updates/a-1/end {"outcome":"done"}"#;
const UNKNOWN: &str = r#"POST /v1/updates/a-1/end {"outcome":"unknown"}"#;

#[tokio::test]
async fn what_is_said_and_on_one_connection() {
    let peer = Peer::willing();
    let updates = peer.updates();
    updates.begin(&stock()).await.unwrap().end(Outcome::Done).await.unwrap();
    updates.begin(&Scope::EVERYTHING).await.unwrap().end(Outcome::NotSent).await.unwrap();
    updates.purge(&Scope::of(["a", "b"])).await.unwrap();
    let said = [
        BEGIN,
        END,
        r#"POST /v1/updates {"everything":true}"#,
        r#"POST /v1/updates/a-1/end {"outcome":"not-sent"}"#,
        r#"POST /v1/purge {"dependencies":["a","b"]}"#,
    ];
    assert_eq!(peer.log(), said);
    assert_eq!(peer.connections(), 1);
}

#[tokio::test]
async fn words_are_read() {
    let peer = Peer::new(|_| {
        let words = r#"{"home":"1.4","view":3,"generation":8,"busy":true,"everything":{"generation":2,"busy":false},"clock":12,"new":0}"#;
        Then::Say(answer(200, words))
    });
    let words = peer.updates().words("shop:80", "/a%20b").await.unwrap();
    assert_eq!((words.home.as_str(), words.view, words.clock), ("1.4", 3, 12));
    assert_eq!((words.page.generation, words.page.busy, words.everything.generation), (8, true, 2));
    assert_eq!(peer.log(), ["GET /v1/words/a%20b?host=shop:80 "]);
    for (host, path) in [("shop", "a"), ("shop", "/a?b"), ("shop", "/a b"), ("a&b", "/")] {
        assert!(matches!(peer.updates().words(host, path).await, Err(Error::Refused(_))), "{host} {path}");
    }
    assert_eq!(peer.log().len(), 1, "what is no page is not asked for");
}

#[tokio::test]
async fn dropped_its_outcome_is_unknown() {
    let peer = Peer::willing();
    let update = peer.updates().begin(&stock()).await.unwrap();
    drop(update);
    until("the helper is told", || peer.log().len() == 2).await;
    assert_eq!(peer.log(), [BEGIN, UNKNOWN]);
}

#[tokio::test]
async fn cancelled_while_it_ends_its_outcome_is_unknown() {
    let mut ends = 0;
    let peer = Peer::new(move |request| match request {
        END if ends == 0 => {
            ends += 1;
            Then::Nothing
        }
        _ => Then::Say(willing(request)),
    });
    let update = peer.updates().begin(&stock()).await.unwrap();
    let ending = tokio::spawn(update.end(Outcome::Done));
    until("the end is said", || peer.log().len() == 2).await;
    ending.abort();
    until("the helper is told", || peer.log().len() == 3).await;
    assert_eq!(peer.log(), [BEGIN, END, UNKNOWN]);
}

#[tokio::test]
async fn a_helper_that_is_not_there_is_named_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = directory.path().join("dead.http.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    for place in [Place::Unix(directory.path().join("none.http.sock")), Place::Unix(dead), Place::Loopback(closed)] {
        let told = Updates::at(place.clone()).begin(&stock()).await.unwrap_err();
        assert!(matches!(told, Error::Nobody { .. }) && told.to_string().contains(&place.to_string()), "{told}");
    }
}

#[tokio::test]
async fn a_refusal_is_told_as_what_it_is() {
    let peer = Peer::new(|request| {
        Then::Say(match request {
            BEGIN => answer(503, r#"{"error":"no lease"}"#),
            _ if request.contains("everything") => answer(201, r#"{"update":"a-1"}"#),
            _ if request.contains("/end ") => answer(404, r#"{"error":"no such update"}"#),
            _ => answer(400, "?"),
        })
    });
    let updates = peer.updates();
    assert!(matches!(updates.begin(&stock()).await, Err(Error::Unavailable(why)) if why == "no lease"));
    let told = updates.purge(&Scope::of(["x"])).await.unwrap_err();
    assert!(matches!(&told, Error::Refused(why) if why.contains("400")), "{told}");
    let update = updates.begin(&Scope::EVERYTHING).await.unwrap();
    assert!(matches!(update.end(Outcome::Done).await, Err(Error::NotOpen(why)) if why == "no such update"));
    assert_eq!((peer.log().len(), peer.connections()), (4, 1), "an update that is not open is not ended again");
}

#[tokio::test]
async fn what_is_not_confirmed_is_not_acknowledged() {
    let peer = Peer::new(|request| {
        Then::Say(if request.contains("/end ") { answer(200, r#"{"acknowledge":false}"#) } else { willing(request) })
    });
    let updates = peer.updates();
    let end = async |outcome| updates.begin(&stock()).await.unwrap().end(outcome).await;
    assert!(matches!(end(Outcome::Done).await, Err(Error::Unconfirmed)));
    assert!(end(Outcome::Unknown).await.is_ok(), "nobody wanted to acknowledge it");
    assert_eq!(peer.log().len(), 4);
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_begins_nothing() {
    let long = answer(201, &format!(r#"{{"update":"a","more":"{}"}}"#, "x".repeat(100_000)));
    type Is = fn(&Error) -> bool;
    let cases: [(String, Is); 7] = [
        ("not HTTP at all\r\n\r\n".into(), |error| matches!(error, Error::Broken { .. })),
        (answer(201, "{}"), |error| matches!(error, Error::Malformed(_))),
        (answer(201, r#"{"update":"a/../b"}"#), |error| matches!(error, Error::Malformed(_))),
        (answer(201, r#"{"update":""}"#), |error| matches!(error, Error::Malformed(_))),
        (answer(201, "\u{0}"), |error| matches!(error, Error::Malformed(_))),
        (answer(302, ""), |error| matches!(error, Error::Refused(_))),
        (long, |error| matches!(error, Error::Broken { .. })),
    ];
    for (said, is_it) in cases {
        let first: String = said.chars().take(60).collect();
        let peer = Peer::new(move |_| Then::Say(said.clone()));
        let told = peer.updates().begin(&stock()).await.unwrap_err();
        assert!(is_it(&told), "{first:?}: {told}");
        assert_eq!(peer.log(), [BEGIN], "{first:?}: asked again");
    }
}

#[tokio::test]
async fn half_an_answer_is_none_and_the_question_is_not_repeated() {
    for half in ["", "HTTP/1.1 20", "HTTP/1.1 201 X\r\ncontent-length: 16\r\n\r\n{\"update\":"] {
        let peer = Peer::new(move |_| Then::SayAndClose(half.into()));
        let told = peer.updates().begin(&stock()).await.unwrap_err();
        assert!(matches!(told, Error::Broken { .. }), "{half:?}: {told}");
        assert_eq!(peer.log(), [BEGIN], "{half:?}");
    }
}

#[tokio::test]
async fn a_connection_that_broke_in_a_question_is_not_used_again_and_nothing_is_repeated() {
    let peer = Peer::new(|request| match request {
        BEGIN => Then::Say(willing(request)),
        _ => Then::SayAndClose(String::new()),
    });
    let updates = peer.updates();
    let update = updates.begin(&stock()).await.unwrap();
    assert!(matches!(update.end(Outcome::Done).await, Err(Error::Broken { .. })));
    until("what became of it is told as unknown", || peer.log().len() == 3).await;
    assert_eq!(peer.log(), [BEGIN, END, UNKNOWN]);
    updates.begin(&stock()).await.unwrap().end(Outcome::Done).await.unwrap_err();
}

#[tokio::test]
async fn a_connection_that_the_helper_closed_meanwhile_costs_nothing() {
    let peer = Peer::new(|request| Then::SayAndClose(willing(request)));
    let updates = peer.updates();
    for _ in 0..20 {
        updates.begin(&stock()).await.unwrap().end(Outcome::Done).await.unwrap();
    }
    assert_eq!(peer.log().len(), 40, "each question is heard once");
}

#[tokio::test]
async fn a_helper_that_says_nothing_is_waited_for_only_so_long() {
    let peer = Peer::new(|_| Then::Nothing);
    let patience = Duration::from_millis(150);
    let updates = peer.updates().with_patience(patience);
    let began = Instant::now();
    let told = updates.begin(&stock()).await.unwrap_err();
    assert!(matches!(told, Error::Late { .. }) && told.to_string().contains("150ms"), "{told}");
    assert!(began.elapsed() >= patience);
    until("the helper is told by the end of the connection", || peer.connections() == 0).await;
    assert_eq!(peer.log(), [BEGIN]);
}

#[tokio::test]
async fn connections_are_bounded_and_an_end_does_not_wait_for_begins() {
    let gate = Arc::new(Semaphore::new(0));
    let waiting = gate.clone();
    let peer = Peer::new(move |request| match request {
        BEGIN => Then::SayLater(waiting.clone(), willing(request)),
        _ => Then::Say(willing(request)),
    });
    let updates = peer.updates();
    let open = updates.begin(&Scope::EVERYTHING).await.unwrap();
    let begins: Vec<_> = (0..100)
        .map(|_| {
            let updates = updates.clone();
            tokio::spawn(async move { updates.begin(&stock()).await.unwrap().end(Outcome::Done).await })
        })
        .collect();
    let heard = || peer.log().iter().filter(|request| *request == BEGIN).count();
    until("as many begins as there may be", || heard() == 48).await;
    open.end(Outcome::Done).await.unwrap();
    assert_eq!(heard(), 48, "more questions at once than there may be");
    gate.add_permits(100);
    for begin in begins {
        begin.await.unwrap().unwrap();
    }
    assert_eq!(heard(), 100);
    assert!(peer.connections() <= 64, "{} connections are kept", peer.connections());
}
