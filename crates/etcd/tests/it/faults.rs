//! What asking costs while members of etcd are paused, and that nothing old is told.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::asking::{BEATS, PATIENT, asker, config, holder, look, now, record, store, stored, take};
use verbena_cluster::{Answer, Question, Revision};
use verbena_etcd::{Deadlines, Error, Etcd};
use verbena_testkit::etcds::{Etcds, SOON};

/// As with leases of two seconds.
const PROMPT: Deadlines = Deadlines { attempt: Duration::from_millis(250), question: Duration::from_millis(500) };

/// Asks until there is an answer, and says how often there was none.
fn until_answered(etcd: &Etcd, question: impl Fn() -> Question) -> (Answer, u32) {
    let begun = Instant::now();
    for failures in 0.. {
        assert!(begun.elapsed() < SOON, "no answer in {SOON:?}, after {failures} questions");
        let (tell, told) = channel();
        etcd.ask(question(), move |answer| tell.send(answer).unwrap());
        match told.recv_timeout(SOON).expect("every question ends") {
            Ok(answer) => return (answer, failures),
            Err(Error::Unanswered { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    unreachable!()
}

/// The endpoints, beginning with one.
fn from(etcds: &Etcds, first: usize) -> Vec<String> {
    let mut endpoints = etcds.endpoints();
    endpoints.rotate_left(first);
    endpoints
}

#[test]
fn a_paused_member_costs_no_more_than_the_attempts_at_it() {
    let Some(etcds) = Etcds::start() else { return };
    let leader = etcds.leader();
    let follower = (leader + 1) % 3;
    // Time for several attempts, so that a question to a member that is paused is answered by another.
    let roomy = Deadlines { attempt: Duration::from_secs(2), ..PATIENT };
    for (member, leads) in [(follower, false), (leader, true)] {
        let etcd = Etcd::start(&config(from(&etcds, member)), if leads { PROMPT } else { roomy }).unwrap();
        until_answered(&etcd, || Question::Look);
        let (term, ..) = take(&asker(etcds.endpoints()), 1);
        etcds.pause(member);
        let enrol = Question::Enrol { name: "app1".into() };
        let beat = || Question::Beat { term, says: BEATS };
        let (answer, failures) = until_answered(&etcd, beat);
        assert_eq!(answer, Answer::Beaten);
        // Without a leader nobody has an answer until there is another.
        assert!(leads || failures == 0, "{failures} questions without an answer while a follower was paused");
        assert!(matches!(until_answered(&etcd, || enrol.clone()).0, Answer::Enrolled(_)));
        etcds.resume(member);
        etcds.leader();
    }
}

#[test]
fn a_former_leader_that_was_stuck_tells_nothing_old() {
    let Some(etcds) = Etcds::start() else { return };
    for round in 0..3 {
        let stuck = etcds.leader();
        let alone = Etcd::start(&config(vec![etcds.endpoint(stuck)]), PATIENT).unwrap();
        let others: Vec<String> = (1..3).map(|beside| etcds.endpoint((stuck + beside) % 3)).collect();
        let (term, _, at) = take(&asker(etcds.endpoints()), 1);
        let at = stored(&alone, term, at, 2 * round + 1);
        let old = look(&alone).unwrap();

        etcds.pause(stuck);
        etcds.leader_but(Some(stuck));
        let next = Etcd::start(&config(others), PROMPT).unwrap();
        // These wait in the sockets of the one that is stuck.
        let questions = [Question::Look, Question::Beat { term, says: BEATS }, store(term, at, 900)];
        let waiting = questions.map(|question| {
            let (tell, told) = channel();
            alone.ask(question, move |answer| tell.send(answer).unwrap());
            told
        });
        let takes = || Question::Take { term: old.term, beat: old.beat, holder: holder(2), says: BEATS };
        let later = match until_answered(&next, takes) {
            (Answer::Taken { term, .. }, _) => term,
            // The first was done and nobody heard of it.
            (Answer::Overtaken, 1..) => match until_answered(&next, || Question::Look).0 {
                Answer::Seen(Some(sight)) => sight.term,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert!(matches!(until_answered(&next, || store(later, at, 2 * round + 2)).0, Answer::Stored(_)));
        etcds.resume(stuck);

        let [looked, beaten, changed] = waiting.map(|told| told.recv_timeout(SOON).unwrap());
        match looked.unwrap() {
            Answer::Seen(Some(sight)) => assert_eq!((sight.term, sight.holder), (later, holder(2))),
            other => panic!("{other:?}"),
        }
        assert_eq!((beaten.unwrap(), changed.unwrap()), (Answer::Overtaken, Answer::Overtaken));
        let seen = look(&alone).unwrap();
        assert_eq!((seen.term, seen.holder), (later, holder(2)));
        let (_, left, _) = take(&alone, 3);
        assert_eq!(left, Some(Box::new(record(2 * round + 2))));
    }
}

#[test]
fn without_a_quorum_every_question_ends_and_with_one_the_next_is_answered() {
    let Some(mut etcds) = Etcds::start() else { return };
    let leader = etcds.leader();
    let etcd = Etcd::start(&config(etcds.endpoints()), PROMPT).unwrap();
    let patient = asker(etcds.endpoints());
    let (term, ..) = take(&patient, 1);
    let one = (leader + 1) % 3;
    // One is gone, so its port refuses; one is stuck, so its port takes what comes; and one is there, without a leader.
    etcds.kill(leader);
    etcds.pause(one);
    let questions = || {
        [
            Question::Look,
            Question::Beat { term, says: BEATS },
            store(term, Revision(0), 1),
            Question::Enrol { name: "app1".into() },
            Question::Take { term, beat: term, holder: holder(2), says: BEATS },
        ]
    };
    for _ in 0..4 {
        let (tell, told) = channel();
        for question in questions() {
            let tell = tell.clone();
            etcd.ask(question, move |answer| tell.send(answer).unwrap());
        }
        for _ in questions() {
            let answer = told.recv_timeout(SOON).expect("every question ends");
            let error = answer.unwrap_err().to_string();
            assert!(error.starts_with("etcd does not answer: http://127.0.0.1:"), "{error}");
        }
    }
    etcds.resume(one);
    etcds.leader_but(Some(leader));
    // Its clients are as the time without a quorum left them.
    let found = etcd.ask_now(Question::Look, PATIENT.question);
    assert!(matches!(found, Ok(Answer::Seen(Some(_)))), "{found:?}");
    // What was asked without it may have been done when it was back: then somebody else has the office.
    let holder_now = look(&patient).unwrap();
    let beats = Question::Beat { term: holder_now.term, says: BEATS };
    assert_eq!(now(&patient, beats), Answer::Beaten);
    etcds.begin(leader);
    etcds.wait("the third member", || etcds.control(leader, &["endpoint", "health"]).status.success());
}

#[test]
fn it_ends_while_nobody_answers() {
    let Some(etcds) = Etcds::start() else { return };
    let etcd = asker(etcds.endpoints());
    take(&etcd, 1);
    (0..3).for_each(|nth| etcds.pause(nth));
    let (tell, told) = channel();
    for _ in 0..3 {
        let tell = tell.clone();
        etcd.ask(Question::Look, move |answer| tell.send(answer).unwrap());
    }
    drop(tell);
    let dropping = std::thread::spawn(move || drop(etcd));
    etcds.wait("the end of the thread", || dropping.is_finished());
    assert!(told.recv().is_err(), "what was under way is not answered");
}

#[test]
fn too_many_questions_are_refused_at_once() {
    let etcd = Etcd::start(&config(vec!["http://127.0.0.1:1".into()]), PATIENT).unwrap();
    let (tell, told) = channel();
    for _ in 0..200 {
        let tell = tell.clone();
        etcd.ask(Question::Look, move |answer| tell.send(answer.unwrap_err().to_string()).unwrap());
    }
    let refused = told.recv_timeout(SOON).unwrap();
    assert_eq!(refused, "etcd does not answer: 64 questions are under way already");
}
