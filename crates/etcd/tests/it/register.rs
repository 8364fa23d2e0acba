//! What the register promises, of three members of etcd.

use std::sync::Barrier;
use std::sync::mpsc::channel;

use crate::asking::{self, BEATS, PATIENT, asker, holder, look, now, record, store, stored, take};
use crate::relay::Relay;
use verbena_cluster::{Answer, Beat, HOLDER_FORMAT, KEEPER_FORMAT, Question, RANKS_KEPT, Revision};
use verbena_etcd::{Error, Etcd};
use verbena_terms::{Incarnation, Rank, ViewNumber};
use verbena_testkit::etcds::{Etcds, SOON};

const ASKERS: u32 = 8;

fn name(etcd: &Etcd, rank: u32) -> Option<String> {
    let (tell, told) = channel();
    etcd.name(Rank(rank), move |name| tell.send(name).unwrap());
    told.recv_timeout(SOON).unwrap().unwrap()
}

#[test]
fn ranks_that_are_asked_for_at_once_are_distinct_and_in_order() {
    let Some(etcds) = Etcds::start() else { return };
    const EACH: u32 = 4;
    let enrol = |asked: u32| {
        let etcd = asker(etcds.endpoints());
        (0..EACH).map(|_| asking::enrol(&etcd, &format!("app{asked}"))).collect::<Vec<Incarnation>>()
    };
    let lives: Vec<Vec<Incarnation>> = std::thread::scope(|scope| {
        let askers: Vec<_> = (0..ASKERS).map(|asked| scope.spawn(move || enrol(asked))).collect();
        askers.into_iter().map(|asker| asker.join().unwrap()).collect()
    });
    let era = lives[0][0].start;
    assert!(era != 0 && lives.iter().flatten().all(|life| life.start == era), "one era for all: {lives:?}");
    let ranks: Vec<Vec<u32>> = lives.iter().map(|own| own.iter().map(|life| life.rank.0).collect()).collect();
    assert!(ranks.iter().all(|own| own.is_sorted()), "later is higher: {ranks:?}");
    let mut all: Vec<u32> = ranks.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=ASKERS * EACH).collect::<Vec<_>>(), "each once, and none left out");

    let etcd = asker(etcds.endpoints());
    for (asked, own) in ranks.iter().enumerate() {
        assert!(own.iter().all(|rank| name(&etcd, *rank) == Some(format!("app{asked}"))));
    }
    assert_eq!(name(&etcd, ASKERS * EACH + 1), None);

    let last = RANKS_KEPT + 4;
    etcds.put("/verbena/rank", last.to_string().as_bytes());
    assert_eq!(asking::enrol(&etcd, "late"), Incarnation::new(last + 1, era));
    assert_eq!((name(&etcd, 5), name(&etcd, 6).is_some()), (None, true), "the last {RANKS_KEPT} are kept");

    etcds.put("/verbena/rank", b"many");
    let refused = etcd.ask_now(Question::Enrol { name: "late".into() }, PATIENT.question).unwrap_err().to_string();
    assert!(refused.contains("/verbena/rank") && refused.contains("\"many\" is not a rank"), "{refused}");
}

#[test]
fn who_enrolled_before_the_keys_were_lost_changes_nothing_after_it() {
    let Some(etcds) = Etcds::start() else { return };
    let (before, after) = (asker(etcds.endpoints()), asker(etcds.endpoints()));
    let first = asking::enrol(&before, "app1");
    let (term, _, never) = take(&before, 1);
    let at = stored(&before, term, never, 1);
    let forgets = |question: Question| {
        let refused = before.ask_now(question, PATIENT.question).unwrap_err();
        assert!(matches!(&refused, Error::AnotherEra { prefix } if prefix == "/verbena"), "{refused}");
    };
    let before_holds = || now(&before, Question::Beat { term, says: BEATS });
    assert_eq!(before_holds(), Answer::Beaten);

    etcds.controlled(0, &["del", "--prefix", "/verbena/"]);
    assert_eq!(before_holds(), Answer::Overtaken);
    forgets(Question::Look);
    forgets(Question::Enrol { name: "app1".into() });
    forgets(Question::Take { term: Revision(0), beat: Revision(0), holder: holder(1), says: BEATS });
    assert_eq!(look(&after), None, "nothing was changed");

    let next = asking::enrol(&after, "app1");
    assert!(next.rank == first.rank && next.start != first.start, "{next} after {first}");
    take(&after, 1);
    assert_eq!(before_holds(), Answer::Overtaken);
    assert_eq!(now(&before, store(term, at, 2)), Answer::Overtaken);
    forgets(Question::Look);

    // The keys as they were, of another era: revisions alone would not tell.
    etcds.put("/verbena/era", next.start.wrapping_add(1).max(1).to_string().as_bytes());
    let sight = look(&asker(etcds.endpoints())).unwrap();
    assert_eq!(now(&after, Question::Beat { term: sight.term, says: BEATS }), Answer::Overtaken);
}

#[test]
fn of_many_that_take_what_they_saw_one_gets_it_and_what_the_one_before_stored() {
    let Some(etcds) = Etcds::start() else { return };
    let first = asker(etcds.endpoints());
    assert_eq!(look(&first), None);
    let (term, nothing, never) = take(&first, 99);
    assert_eq!((nothing, never), (None, Revision(0)));
    let at = stored(&first, term, never, 1);
    assert_eq!(now(&first, store(term, never, 1)), Answer::Stored(at), "the same once more is there already");
    assert_eq!(now(&first, store(term, never, 2)), Answer::Overtaken, "it is not as said");
    let at = stored(&first, term, at, 2);

    let seen = look(&first).unwrap();
    let together = Barrier::new(ASKERS as usize);
    let take_seen = |rank: u32| {
        let etcd = asker(etcds.endpoints());
        look(&etcd);
        together.wait();
        now(&etcd, Question::Take { term: seen.term, beat: seen.beat, holder: holder(rank), says: BEATS })
    };
    let take_seen = &take_seen;
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let takers: Vec<_> = (1..=ASKERS).map(|rank| scope.spawn(move || take_seen(rank))).collect();
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    let got: Vec<usize> = (0..ASKERS as usize).filter(|nth| answers[*nth] != Answer::Overtaken).collect();
    assert_eq!(got.len(), 1, "{answers:?}");
    let sight = look(&first).unwrap();
    assert_eq!(sight.holder, holder(got[0] as u32 + 1));
    let expected = Answer::Taken { term: sight.term, record: Some(Box::new(record(2))), changed: at };
    assert_eq!(answers[got[0]], expected);
    assert_eq!((sight.beat, sight.said), (sight.term, BEATS));
}

#[test]
fn what_a_former_holder_sends_changes_nothing() {
    let Some(etcds) = Etcds::start() else { return };
    let (former, next) = (asker(etcds.endpoints()), asker(etcds.endpoints()));
    let (term, _, never) = take(&former, 1);
    let at = stored(&former, term, never, 1);
    let before = look(&next).unwrap();
    let says = Beat { resigned: false, unheard: true };
    assert_eq!(now(&former, Question::Beat { term, says }), Answer::Beaten);
    let after = look(&next).unwrap();
    assert!(after.term == before.term && after.beat > before.beat && after.said == says, "a beat is seen");
    let stale = Question::Take { term: before.term, beat: before.beat, holder: holder(2), says: BEATS };
    assert_eq!(now(&next, stale), Answer::Overtaken, "it has beaten since");

    let (later, record_found, found_at) = take(&next, 2);
    assert_eq!((record_found, found_at), (Some(Box::new(record(1))), at));
    let held = look(&next);
    assert_eq!(now(&former, Question::Beat { term, says: BEATS }), Answer::Overtaken);
    assert_eq!(now(&former, store(term, at, 2)), Answer::Overtaken);
    assert_eq!(now(&former, store(term, at, 1)), Answer::Overtaken, "though this record is there");
    assert_eq!(look(&next), held);
    assert!(stored(&next, later, at, 2) > at, "the record was not touched");
}

#[test]
fn a_beat_that_is_executed_after_the_office_was_given_up_does_not_take_that_back() {
    let Some(etcds) = Etcds::start() else { return };
    let (former, next) = (asker(etcds.endpoints()), asker(etcds.endpoints()));
    let (term, _, never) = take(&former, 1);
    let says = Beat { resigned: true, unheard: true };
    assert_eq!(now(&former, Question::Beat { term, says }), Answer::Beaten);
    let given_up = look(&next).unwrap();
    assert!(given_up.said == says && given_up.holder == holder(1) && given_up.term > term, "{given_up:?}");
    for late in [Question::Beat { term, says: BEATS }, Question::Beat { term, says }, store(term, never, 1)] {
        assert_eq!(now(&former, late), Answer::Overtaken);
    }
    assert_eq!(look(&next), Some(given_up));
    take(&next, 2);
}

#[test]
fn what_was_held_back_while_the_office_changed_changes_nothing() {
    let Some(etcds) = Etcds::start() else { return };
    let questions: [fn(Revision, Revision) -> Question; 2] = [
        |term, _| Question::Beat { term, says: Beat { resigned: true, unheard: true } },
        |term, at| store(term, at, 40),
    ];
    let next = asker(etcds.endpoints());
    for (nth, question) in questions.into_iter().enumerate() {
        let relay = Relay::to(etcds.port(0));
        let former = asker(vec![relay.endpoint()]);
        let (term, _, at) = take(&former, 1);
        let at = stored(&former, term, at, 2 * nth as u32 + 1);

        relay.hold();
        let (tell, told) = channel();
        former.ask(question(term, at), move |answer| tell.send(answer).unwrap());
        etcds.wait("the question on its way", || relay.held() > 0);
        let (later, ..) = take(&next, 2);
        let (held, at) = (look(&next), stored(&next, later, at, 2 * nth as u32 + 2));
        relay.release();
        assert_eq!(told.recv_timeout(SOON).unwrap(), Ok(Answer::Overtaken));
        assert_eq!(look(&next), held);
        let same = store(later, Revision(0), 2 * nth as u32 + 2);
        assert_eq!(now(&next, same), Answer::Stored(at), "the record is the later one's");
    }
    let views = next.views(ViewNumber(1), 100, PATIENT.question).unwrap();
    assert!(views.iter().map(|record| record.view.as_ref().unwrap().number().0).eq(1..=4));
}

#[test]
fn the_views_that_were_made_are_listed_and_old_ones_dropped() {
    let Some(etcds) = Etcds::start() else { return };
    let etcd = asker(etcds.endpoints());
    let numbers = |from: u32, limit: usize| -> Vec<u32> {
        let views = etcd.views(ViewNumber(from), limit, PATIENT.question).unwrap();
        views.iter().map(|record| record.view.as_ref().unwrap().number().0).collect()
    };
    assert_eq!(numbers(1, 10), [0; 0]);
    let (term, _, mut at) = take(&etcd, 1);
    for view in 1..=40 {
        at = stored(&etcd, term, at, view);
    }
    assert_eq!(numbers(1, 1000), (1..=40).collect::<Vec<_>>());
    assert_eq!(numbers(3, 17), (3..=19).collect::<Vec<_>>());
    assert_eq!(numbers(41, 5), [0; 0]);
    assert_eq!(numbers(1, 0), [0; 0]);
    stored(&etcd, term, at, 1039);
    assert_eq!(numbers(1, 2), [40, 1039], "the last thousand are kept");
}

#[test]
fn what_another_version_wrote_is_refused_and_stays() {
    let Some(etcds) = Etcds::start() else { return };
    let etcd = asker(etcds.endpoints());
    take(&etcd, 1);
    let seen = look(&etcd).unwrap();
    let newer = |mut bytes: Vec<u8>| {
        bytes[4] += 1;
        bytes
    };
    let versions = |refused: Error, key: &str, version: u16| {
        let refused = refused.to_string();
        let both = [format!("version {}", version + 1), format!("version {version}"), key.into()];
        assert!(both.iter().all(|part| refused.contains(part)), "{refused}");
    };

    etcds.put("/verbena/record", &newer(record(7).encode()));
    let takes = Question::Take { term: seen.term, beat: seen.beat, holder: holder(2), says: BEATS };
    versions(etcd.ask_now(takes, PATIENT.question).unwrap_err(), "/verbena/record", KEEPER_FORMAT.version);
    assert_eq!(look(&etcd), Some(seen.clone()), "nobody has taken it");
    assert_eq!(now(&etcd, store(seen.term, Revision(0), 8)), Answer::Overtaken);

    etcds.put("/verbena/office", &newer(holder(3).encode()));
    versions(etcd.ask_now(Question::Look, PATIENT.question).unwrap_err(), "/verbena/office", HOLDER_FORMAT.version);
    assert_eq!(now(&etcd, Question::Beat { term: seen.term, says: BEATS }), Answer::Overtaken);

    etcds.put("/verbena/views/0000000007", &newer(record(7).encode()));
    let views = etcd.views(ViewNumber(1), 10, PATIENT.question);
    versions(views.unwrap_err(), "/verbena/views/0000000007", KEEPER_FORMAT.version);
}
