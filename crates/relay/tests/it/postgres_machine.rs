//! Conversations of PostgreSQL, line by line.

use verbena_relay::{Action, Conversation, Error, Limits, Outcome, Rejection};

use crate::dialogue::*;

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

fn done(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0").as_bytes())
}

fn ready(state: &str) -> Vec<u8> {
    message(b'Z', state.as_bytes())
}

fn error() -> Vec<u8> {
    message(b'E', b"SERROR\0VERROR\0C22012\0Mno\0\0")
}

fn flush() -> Vec<u8> {
    message(b'H', b"")
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn usual() -> Dialogue<verbena_relay::postgres::Postgres<crate::words::Words>> {
    Dialogue::postgres(Limits::default())
}

#[test]
fn encryption_is_declined_and_the_login_passes() {
    let mut dialogue = Dialogue::started(Limits::default());
    dialogue.answers(&message(b'R', b"\0\0\0\x0ASCRAM-SHA-256\0\0"));
    dialogue.client(&[message(b'p', b"proof"), query("insert into t values (1)")].concat());
    assert_eq!(dialogue.gets(), message(b'p', b"proof"), "a command passed as part of the login");
    dialogue.answers(&message(b'R', b"\0\0\0\0"));
    dialogue.server(&ready("I"));
    assert_eq!(dialogue.action(), Some(Action::Begin("insert into t values (1)".into())));
    for code in [80_877_103_u32, 80_877_104] {
        let log = crate::words::Log::default();
        let mut machine =
            verbena_relay::postgres::Postgres::new(crate::words::Words::of_postgres(log, true), Limits::default());
        machine.client(&[&[0, 0, 0, 8][..], &code.to_be_bytes()].concat());
        assert_eq!(machine.to_client(), b"N");
        assert_eq!(machine.to_server(), b"");
    }
}

#[test]
fn where_there_is_no_server_the_client_is_told_when_it_has_introduced_itself() {
    let log = crate::words::Log::default();
    let mut machine =
        verbena_relay::postgres::Postgres::new(crate::words::Words::of_postgres(log, true), Limits::default());
    machine.unreachable("no database");
    assert_eq!((machine.to_client().len(), machine.next_action()), (0, None));
    machine.client(&[&[0, 0, 0, 8][..], &80_877_103_u32.to_be_bytes()].concat());
    assert_eq!((std::mem::take(machine.to_client()), machine.next_action()), (b"N".to_vec(), None));
    machine.client(b"\0\0\0\x13\0\x03\0\0user\0me\0\0\0\0");
    assert_eq!(*machine.to_client(), message(b'E', b"SFATAL\0VFATAL\0C08006\0Mno database\0\0"));
    assert_eq!((machine.to_server().len(), machine.next_action()), (0, Some(Action::Close(None))));
}

#[test]
fn a_cancel_request_passes() {
    let log = crate::words::Log::default();
    let words = crate::words::Words::of_postgres(log, true);
    let mut machine = verbena_relay::postgres::Postgres::new(words, Limits::default());
    let cancel = [&[0, 0, 0, 16][..], &80_877_102_u32.to_be_bytes(), &[0, 0, 0, 1, 0, 0, 0, 2]].concat();
    machine.client(&cancel);
    assert_eq!(*machine.to_server(), cancel);
    machine.client_closed();
    assert_eq!(machine.next_action(), Some(Action::Close(None)));
}

#[test]
fn a_read_passes_and_its_rows_are_shown_before_they_pass() {
    let mut dialogue = usual();
    dialogue.passes(&query("select a from t"));
    dialogue.answers(&message(b'T', b"\0\x01a\0\0\0\x40\0\0\x01\0\0\0\x17\0\x04\xFF\xFF\xFF\xFF\0\0"));
    dialogue.answers(&message(b'D', b"\0\x01\0\0\0\x017"));
    dialogue.answers(&done("SELECT 1"));
    dialogue.answers(&ready("I"));
    assert_eq!(dialogue.log.lines()[1..], ["0 columns a", "0 row 7", "0 answered Closed"]);
}

#[test]
fn a_held_query_is_begun_forwarded_answered_ended_and_heard() {
    let mut dialogue = usual();
    dialogue.holds(&query("insert into t values (1)"), "insert into t values (1)");
    dialogue.machine.begun(Ok(()));
    assert_eq!(dialogue.gets(), query("insert into t values (1)"));
    dialogue.server(&done("INSERT 0 1"));
    assert_eq!(dialogue.action(), None, "ended before ReadyForQuery");
    dialogue.server(&ready("I"));
    assert_eq!(dialogue.hears(), b"");
    dialogue.ends(Outcome::Answered);
    dialogue.machine.ended(true);
    assert_eq!(dialogue.hears(), [done("INSERT 0 1"), ready("I")].concat());
}

#[test]
fn inside_a_block_the_commit_alone_is_held() {
    let mut dialogue = usual();
    dialogue.passes(&query("begin"));
    dialogue.answers(&[done("BEGIN"), ready("T")].concat());
    dialogue.passes(&query("insert into t values (1)"));
    dialogue.answers(&[done("INSERT 0 1"), ready("T")].concat());
    dialogue.holds(&query("commit"), "commit");
}

#[test]
fn a_rejected_commit_is_rolled_back_and_answered_with_40001() {
    for (rejection, code) in [(Rejection::Retry, "C40001\0"), (Rejection::ReadOnly, "C25006\0")] {
        let mut dialogue = usual();
        dialogue.passes(&query("begin"));
        dialogue.answers(&[done("BEGIN"), ready("T")].concat());
        dialogue.holds(&query("commit"), "commit");
        dialogue.machine.begun(Err(rejection));
        assert_eq!(dialogue.gets(), query("ROLLBACK"));
        dialogue.server(&done("ROLLBACK"));
        assert_eq!(dialogue.hears(), b"", "heard before the server had rolled back");
        dialogue.server(&ready("I"));
        let heard = dialogue.hears();
        assert!(String::from_utf8_lossy(&heard).contains(code), "{heard:?}");
        assert!(heard.ends_with(&ready("I")));
        dialogue.passes(&query("select 1"));
    }
}

#[test]
fn the_sync_of_a_pipeline_that_wrote_is_held() {
    let mut dialogue = usual();
    let pipeline = extended("insert into t values (1)");
    dialogue.client(&[pipeline.clone(), sync(), extended("select 1"), sync()].concat());
    // The server would keep its answers back.
    assert_eq!(dialogue.gets(), [pipeline, flush()].concat());
    let answer = [message(b'1', b""), message(b'2', b""), done("INSERT 0 1")].concat();
    dialogue.server(&answer);
    assert_eq!(dialogue.hears(), answer);
    assert_eq!(dialogue.action(), Some(Action::Begin("sync after insert into t values (1)".into())));
    dialogue.machine.begun(Ok(()));
    assert_eq!(dialogue.gets(), sync());
    dialogue.server(&ready("I"));
    dialogue.ends(Outcome::Answered);
    assert_eq!(dialogue.gets(), b"");
    dialogue.machine.ended(true);
    assert_eq!(dialogue.hears(), ready("I"));
    assert_eq!(dialogue.gets(), [extended("select 1"), sync()].concat());
}

#[test]
fn a_commit_within_a_pipeline_is_held_by_itself() {
    let mut dialogue = usual();
    let (before, commit) = (extended("begin"), extended("commit"));
    let commit_prepared = &commit[..commit.len() - 10];
    dialogue.client(&[before.clone(), commit.clone(), extended("select 1"), sync()].concat());
    assert_eq!(dialogue.gets(), [&before[..], commit_prepared, &flush()].concat());
    let answers = [message(b'1', b""), message(b'2', b""), done("BEGIN"), message(b'1', b""), message(b'2', b"")];
    dialogue.server(&answers.concat());
    assert_eq!(dialogue.action(), Some(Action::Begin("commit".into())));
    dialogue.machine.begun(Ok(()));
    assert_eq!(dialogue.gets(), [message(b'E', &[0; 5]), flush()].concat());
    dialogue.server(&done("COMMIT"));
    dialogue.ends(Outcome::Answered);
    dialogue.machine.ended(true);
    assert_eq!(dialogue.gets(), [extended("select 1"), sync()].concat());
}

#[test]
fn a_rejected_pipeline_is_rolled_back_and_skipped_to_its_sync() {
    let mut dialogue = usual();
    dialogue.client(&[extended("begin"), extended("commit")].concat());
    dialogue.gets();
    let answers = [message(b'1', b""), message(b'2', b""), done("BEGIN"), message(b'1', b""), message(b'2', b"")];
    dialogue.server(&answers.concat());
    dialogue.action();
    dialogue.hears();
    dialogue.machine.begun(Err(Rejection::Retry));
    assert_eq!(dialogue.gets(), query("ROLLBACK"));
    dialogue.server(&[done("ROLLBACK"), ready("I")].concat());
    assert!(!dialogue.hears().ends_with(&ready("I")), "only a Sync is answered so");
    dialogue.client(&extended("insert into t values (2)"));
    assert_eq!(dialogue.gets(), b"");
    dialogue.passes(&sync());
    dialogue.answers(&ready("I"));
    dialogue.passes(&query("select 1"));
}

#[test]
fn after_an_error_everything_is_ignored_up_to_the_sync() {
    let mut dialogue = usual();
    dialogue.passes(&extended("select 1 / 0"));
    dialogue.passes(&flush());
    dialogue.answers(&[message(b'1', b""), message(b'2', b""), error()].concat());
    // The server does not see the commit, so there is nothing to hold.
    dialogue.passes(&extended("commit"));
    dialogue.passes(&sync());
    dialogue.answers(&ready("I"));
    dialogue.holds(&query("commit"), "commit");
}

#[test]
fn what_waits_when_a_pipeline_fails_is_ignored_with_it() {
    let mut dialogue = usual();
    let (failing, commit) = (extended("select 1 / 0"), extended("commit"));
    dialogue.client(&[failing.clone(), commit.clone(), sync()].concat());
    let before = &commit[..commit.len() - 10];
    assert_eq!(dialogue.gets(), [&failing[..], before, &flush()].concat());
    dialogue.server(&error());
    // The server answers nothing before the Sync: a bracket for the commit would never end.
    assert_eq!(dialogue.action(), None);
    assert_eq!(dialogue.gets(), [message(b'E', &[0; 5]), sync()].concat());
    dialogue.hears();
    dialogue.answers(&ready("I"));
}

#[test]
fn a_sync_that_came_before_the_data_of_a_copy_has_no_answer() {
    let mut dialogue = usual();
    dialogue.client(&[extended("copy t from stdin"), sync()].concat());
    assert_eq!(dialogue.gets(), [extended("copy t from stdin"), flush()].concat());
    dialogue.answers(&[message(b'1', b""), message(b'2', b""), message(b'G', &[0; 3])].concat());
    // It waited for the bracket; the server will not read it as a Sync.
    assert_eq!(dialogue.gets(), sync());
    dialogue.passes(&message(b'd', b"1\n"));
    dialogue.passes(&message(b'c', b""));
    dialogue.client(&sync());
    assert_eq!(dialogue.gets(), flush());
    dialogue.answers_then_begins(&done("COPY 1"), "sync after copy t from stdin");
    dialogue.machine.begun(Ok(()));
    assert_eq!(dialogue.gets(), sync());
    dialogue.server(&ready("I"));
    dialogue.ends(Outcome::Answered);
}

#[test]
fn the_same_where_nothing_waits() {
    let mut dialogue = usual();
    // The judge takes this for a read.
    dialogue.passes(&[extended("with c copy t from stdin"), sync()].concat());
    dialogue.answers(&[message(b'1', b""), message(b'2', b""), message(b'G', &[0; 3])].concat());
    dialogue.passes(&[message(b'd', b"1\n"), message(b'c', b""), sync()].concat());
    dialogue.answers(&[done("COPY 1"), ready("I")].concat());
    assert!(dialogue.machine.is_idle(), "an answer is waited for that will not come");
}

#[test]
fn a_copy_of_one_query_is_held_while_its_data_goes() {
    let mut dialogue = usual();
    dialogue.holds(&query("copy t from stdin"), "copy t from stdin");
    dialogue.machine.begun(Ok(()));
    dialogue.gets();
    dialogue.answers(&message(b'G', &[0; 3]));
    dialogue.passes(&message(b'd', b"1\n"));
    dialogue.client(&message(b'c', b""));
    dialogue.gets();
    dialogue.server(&[done("COPY 1"), ready("I")].concat());
    dialogue.ends(Outcome::Answered);
}

#[test]
fn a_fatal_error_says_nothing_of_the_commit() {
    let mut dialogue = usual();
    dialogue.client(&[extended("begin"), extended("commit")].concat());
    let answers = [message(b'1', b""), message(b'2', b""), done("BEGIN"), message(b'1', b""), message(b'2', b"")];
    dialogue.server(&answers.concat());
    dialogue.action();
    dialogue.machine.begun(Ok(()));
    dialogue.server(&message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mby order\0\0"));
    assert_eq!(dialogue.action(), None);
    dialogue.machine.server_closed();
    dialogue.ends(Outcome::Unknown);
}

#[test]
fn malformed_bytes_close_their_connection() {
    let cases: [&[u8]; 3] = [b"Q\0\0\0\x01", &message(b'!', b""), b"S\x7F\xFF\xFF\xFF"];
    for bytes in cases {
        let mut dialogue = usual();
        dialogue.client(&[bytes, &query("select 1")].concat());
        assert_eq!(dialogue.gets(), b"", "forwarded after the close");
        assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Client(_))))), "{bytes:?}");
    }
    for bytes in [message(b'1', b""), message(b'T', b"\0\x09"), message(b'Z', b"?"), b"Z\0\0\0\0".to_vec()] {
        let mut dialogue = usual();
        dialogue.passes(&query("select 1"));
        dialogue.server(&bytes);
        assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Server(_))))), "{bytes:?}");
    }
}
