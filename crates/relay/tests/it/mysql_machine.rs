//! Conversations of MySQL, line by line.

use verbena_relay::{Action, Conversation, Error, Limits, Outcome, Rejection};

use crate::dialogue::*;

/// In transaction, autocommit, more results, cursor.
const OPEN: u16 = 3;
const CLOSED: u16 = 2;
const MORE: u16 = 8;
const CURSOR: u16 = 0x40;

#[test]
fn what_the_relay_does_not_know_is_cleared_in_the_greeting_and_in_the_response() {
    let mut dialogue = Dialogue::new(Limits::default());
    dialogue.server(&greeting(0xFFFF_FFFE, 0xFF));
    // COMPRESS, SSL, metadata left out, zstd, attributes and the rest are gone; several factors stay.
    assert_eq!(dialogue.hears(), greeting(0x11FF_F7DE, 0x1D));
    dialogue.client(&response(0xFFFF_F7FE, 0xFF));
    assert_eq!(dialogue.gets(), response(0x11FF_F7DE, 0x1D));
}

#[test]
fn where_there_is_no_server_the_client_is_told_in_the_place_of_the_greeting() {
    let mut dialogue = Dialogue::new(Limits::default());
    dialogue.machine.unreachable("no database");
    let [low, high] = 1429_u16.to_le_bytes();
    assert_eq!(dialogue.hears(), packet(0, &[&[0xFF, low, high][..], b"no database"].concat()));
    assert_eq!(dialogue.action(), Some(Action::Close(None)));
}

#[test]
fn a_client_that_encrypts_without_an_offer_is_closed() {
    let mut dialogue = Dialogue::new(Limits::default());
    dialogue.server(&greeting(USUAL, 0));
    dialogue.client(&response(USUAL | 0x800, 0));
    assert_eq!(dialogue.gets(), b"");
    assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Client(_))))));
}

#[test]
fn no_command_passes_as_part_of_a_login() {
    let mut dialogue = Dialogue::new(Limits::default());
    dialogue.server(&greeting(USUAL, 0));
    dialogue.hears();
    let write = query("insert into t values (1)");
    dialogue.client(&[response(USUAL, 0), write.clone()].concat());
    assert_eq!(dialogue.gets(), response(USUAL, 0));
    // The proof was in the server's cache: the client is asked nothing.
    dialogue.answers(&[0, 1, 2, 3].map(|_| packet(2, &[1, 3]))[0].clone());
    assert_eq!(dialogue.gets(), b"");
    dialogue.server(&ok(3, CLOSED));
    assert_eq!(dialogue.action(), Some(Action::Begin("insert into t values (1)".into())));
    assert_eq!(dialogue.gets(), b"");
}

#[test]
fn a_login_asks_and_is_answered() {
    let mut dialogue = Dialogue::new(Limits::default());
    dialogue.server(&greeting(USUAL, 0));
    dialogue.client(&response(USUAL, 0));
    dialogue.gets();
    dialogue.hears();
    dialogue.answers(&packet(2, b"\xFEmysql_native_password\0scramble"));
    dialogue.passes(&packet(3, b"proof"));
    dialogue.answers(&ok(4, CLOSED));
    dialogue.passes(&query("select 1"));
}

#[test]
fn a_read_passes_and_its_rows_are_shown_before_they_pass() {
    let mut dialogue = Dialogue::usual();
    dialogue.passes(&query("select a, b from t"));
    dialogue.answers(&packet(1, &[2]));
    dialogue.answers(&column(2, "t", "a", 3));
    dialogue.answers(&column(3, "t", "b", 0xFD));
    dialogue.answers(&eof(4, CLOSED));
    dialogue.answers(&packet(5, b"\x017\x02hi"));
    dialogue.answers(&packet(6, b"\xFB\x00"));
    dialogue.answers(&eof(7, CLOSED));
    assert_eq!(dialogue.log.lines()[1..], ["0 columns a,b", "0 row 7,hi", "0 row NULL,", "0 answered Closed"]);
}

#[test]
fn a_held_write_is_begun_forwarded_answered_ended_and_heard() {
    let mut dialogue = Dialogue::usual();
    let write = query("insert into t values (1)");
    dialogue.holds(&write, "insert into t values (1)");
    dialogue.client(&query("select 1"));
    assert_eq!(dialogue.gets(), b"");
    dialogue.machine.begun(Ok(()));
    assert_eq!(dialogue.gets(), write, "the command and nothing after it");
    dialogue.server(&ok(1, CLOSED));
    assert_eq!(dialogue.hears(), b"", "heard before the end was confirmed");
    dialogue.ends(Outcome::Answered);
    assert_eq!(dialogue.gets(), b"");
    dialogue.machine.ended(true);
    assert_eq!(dialogue.hears(), ok(1, CLOSED));
    assert_eq!(dialogue.gets(), query("select 1"));
}

#[test]
fn an_end_that_is_not_confirmed_closes_without_an_answer() {
    let mut dialogue = Dialogue::usual();
    dialogue.holds(&query("delete from t"), "delete from t");
    dialogue.machine.begun(Ok(()));
    dialogue.server(&ok(1, CLOSED));
    dialogue.ends(Outcome::Answered);
    dialogue.machine.ended(false);
    assert_eq!(dialogue.action(), Some(Action::Close(Some(Error::Unconfirmed))));
    assert_eq!(dialogue.hears(), b"");
}

#[test]
fn inside_a_transaction_the_commit_alone_is_held() {
    let mut dialogue = Dialogue::usual();
    dialogue.passes(&query("begin"));
    dialogue.answers(&ok(1, OPEN));
    dialogue.passes(&query("insert into t values (1)"));
    dialogue.answers(&ok(1, OPEN));
    dialogue.holds(&query("commit"), "commit");
}

#[test]
fn a_rejected_commit_is_rolled_back_and_answered_with_1205() {
    for (rejection, code) in [(Rejection::Retry, 1205_u16), (Rejection::ReadOnly, 1290)] {
        let mut dialogue = Dialogue::usual();
        dialogue.passes(&query("begin"));
        dialogue.answers(&ok(1, OPEN));
        dialogue.holds(&query("commit"), "commit");
        dialogue.machine.begun(Err(rejection));
        assert_eq!(dialogue.gets(), query("ROLLBACK"));
        assert_eq!(dialogue.hears(), b"", "heard before the server had rolled back");
        dialogue.server(&ok(1, CLOSED));
        let heard = dialogue.hears();
        assert_eq!(heard[3..7], [&[1, 0xFF][..], &code.to_le_bytes()].concat());
        dialogue.passes(&query("select 1"));
    }
}

#[test]
fn a_rejected_write_by_itself_needs_no_rollback() {
    let mut dialogue = Dialogue::usual();
    dialogue.holds(&query("delete from t"), "delete from t");
    dialogue.machine.begun(Err(Rejection::Retry));
    assert_eq!(dialogue.gets(), b"");
    assert_eq!(dialogue.hears()[4..7], [0xFF, 0xB5, 0x04]);
}

#[test]
fn a_server_that_does_not_roll_back_loses_the_connection() {
    let mut dialogue = Dialogue::usual();
    dialogue.passes(&query("xa start 'x'"));
    dialogue.answers(&ok(1, OPEN));
    dialogue.holds(&query("xa commit 'x' one phase"), "xa commit 'x' one phase");
    dialogue.machine.begun(Err(Rejection::Retry));
    dialogue.gets();
    dialogue.server(&error(1, 1399));
    assert_eq!(dialogue.hears()[4..7], [0xFF, 0xB5, 0x04]);
    assert_eq!(dialogue.action(), Some(Action::Close(Some(Error::Rollback))));
}

#[test]
fn after_an_error_it_is_not_known_whether_a_transaction_is_open() {
    let mut dialogue = Dialogue::usual();
    dialogue.passes(&query("begin"));
    dialogue.answers(&ok(1, OPEN));
    dialogue.passes(&query("update t set a = 1"));
    dialogue.answers(&error(1, 1213));
    // The deadlock has rolled the transaction back: this one would take effect at once.
    dialogue.holds(&query("update t set a = 2"), "update t set a = 2");
}

#[test]
fn a_pipeline_is_cut_at_the_held_command() {
    let mut dialogue = Dialogue::usual();
    let (first, held, last) = (query("select 1"), query("delete from t"), query("select 2"));
    dialogue.client(&[first.clone(), held.clone(), last.clone()].concat());
    assert_eq!(dialogue.gets(), first);
    assert_eq!(dialogue.action(), None, "judged before the server said whether a transaction is open");
    dialogue.server(&ok(1, CLOSED));
    assert_eq!(dialogue.hears(), ok(1, CLOSED));
    assert_eq!(dialogue.action(), Some(Action::Begin("delete from t".into())));
    dialogue.machine.begun(Ok(()));
    assert_eq!(dialogue.gets(), held);
    dialogue.server(&ok(1, CLOSED));
    dialogue.ends(Outcome::Answered);
    dialogue.machine.ended(true);
    assert_eq!(dialogue.gets(), last);
}

#[test]
fn several_results_are_one_answer() {
    let mut dialogue = Dialogue::usual();
    dialogue.holds(&query("select 1; delete from t"), "select 1; delete from t");
    dialogue.machine.begun(Ok(()));
    let answer = [
        packet(1, &[1]),
        column(2, "", "1", 3),
        eof(3, CLOSED),
        packet(4, b"\x011"),
        eof(5, CLOSED | MORE),
        ok(6, CLOSED),
    ];
    for packet in &answer[..5] {
        dialogue.server(packet);
        assert_eq!(dialogue.action(), None);
    }
    assert_eq!(dialogue.hears(), b"");
    dialogue.server(&answer[5]);
    dialogue.ends(Outcome::Answered);
    dialogue.machine.ended(true);
    assert_eq!(dialogue.hears(), answer.concat());
}

#[test]
fn a_file_of_the_client_goes_while_its_command_is_held() {
    let mut dialogue = Dialogue::usual();
    dialogue.holds(&query("load data local infile 'f' into table t"), "load data local infile 'f' into table t");
    dialogue.machine.begun(Ok(()));
    dialogue.gets();
    dialogue.answers(&packet(1, b"\xFBf"));
    dialogue.passes(&packet(2, b"1\n2\n"));
    // A report of progress ends nothing.
    dialogue.answers(&packet(3, b"\xFF\xFF\xFF\x01\x01\x01\0\0\0"));
    dialogue.passes(&packet(4, b""));
    dialogue.server(&ok(5, CLOSED));
    dialogue.ends(Outcome::Answered);
}

#[test]
fn rows_end_with_ok_where_both_sides_say_so() {
    let mut dialogue = Dialogue::with(Limits::default(), USUAL | DEPRECATE_EOF, 0);
    dialogue.passes(&query("select a from t"));
    dialogue.answers(&packet(1, &[1]));
    dialogue.answers(&column(2, "t", "a", 3));
    dialogue.answers(&packet(3, b"\x017"));
    dialogue.answers(&packet(4, &[0xFE, 0, 0, 2, 0, 0, 0]));
    assert_eq!(dialogue.log.lines().last().unwrap(), "0 answered Closed");
}

#[test]
fn prepared_statements_with_cursor_and_columns_left_out() {
    let cached = 1 << 4;
    let mut dialogue = Dialogue::with(Limits::default(), USUAL, cached);
    dialogue.passes(&packet(0, b"\x16select a from t where a > ?"));
    dialogue.answers(&packet(1, &[0, 9, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]));
    dialogue.answers(&column(2, "", "?", 0xFD));
    dialogue.answers(&eof(3, CLOSED));
    dialogue.answers(&column(4, "t", "a", 3));
    dialogue.answers(&eof(5, CLOSED));
    // Long data and closing have no answer.
    dialogue.passes(&packet(0, b"\x18\x09\0\0\0\0\0data"));
    dialogue.passes(&packet(0, b"\x17\x09\0\0\0\x01\x01\0\0\0"));
    dialogue.answers(&packet(1, &[1, 1]));
    dialogue.answers(&column(2, "t", "a", 3));
    dialogue.answers(&eof(3, CLOSED | CURSOR));
    dialogue.passes(&packet(0, b"\x1C\x09\0\0\0\x02\0\0\0"));
    dialogue.answers(&packet(1, b"\0\0\x07\0\0\0"));
    dialogue.answers(&eof(2, CLOSED));
    dialogue.passes(&packet(0, b"\x17\x09\0\0\0\0\x01\0\0\0"));
    dialogue.answers(&packet(1, &[1, 0]));
    dialogue.answers(&eof(2, CLOSED));
    dialogue.answers(&packet(3, b"\0\0\x08\0\0\0"));
    dialogue.answers(&eof(4, CLOSED));
    dialogue.passes(&packet(0, b"\x19\x09\0\0\0"));
    dialogue.passes(&packet(0, b"\x0E"));
    let lines = dialogue.log.lines();
    assert_eq!(lines[1], "0 prepared with 1 columns");
    assert_eq!(lines[3..6], ["2 columns a", "2 answered Closed", "3 row \u{7}\0\0\0"]);
    assert_eq!(lines[7..10], ["4 columns a", "4 row \u{8}\0\0\0", "4 answered Closed"]);
}

#[test]
fn a_prepared_statement_may_run_before_it_is_known_to_be_one() {
    let mut dialogue = Dialogue::with(Limits::default(), USUAL, 4);
    dialogue.passes(&packet(0, b"\x16select 1"));
    dialogue.passes(&packet(0, b"\x17\xFF\xFF\xFF\xFF\0\x01\0\0\0"));
    dialogue.answers(&error(1, 1064));
    dialogue.answers(&error(1, 1243));
    // The other way round a write waits for the answer to its preparation.
    let execute = packet(0, b"\x17\xFF\xFF\xFF\xFF\0\x01\0\0\0");
    dialogue.passes(&packet(0, b"\x16delete from t"));
    dialogue.client(&execute);
    assert_eq!(dialogue.gets(), b"");
    dialogue.server(&packet(1, &[0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    assert_eq!(dialogue.action(), Some(Action::Begin("delete from t".into())));
    dialogue.machine.begun(Ok(()));
    assert_eq!(dialogue.gets(), execute);
}

#[test]
fn a_change_of_user_is_a_login_within_the_session() {
    let mut dialogue = Dialogue::usual();
    dialogue.client(&[packet(0, b"\x11you\0"), query("select 1")].concat());
    assert_eq!(dialogue.gets(), packet(0, b"\x11you\0"));
    // The server asks, so the next packet belongs to the login, whatever it looks like.
    dialogue.server(&packet(1, b"\xFEmysql_native_password\0scramble"));
    dialogue.gets();
    dialogue.server(&ok(3, CLOSED));
    dialogue.passes(&query("select 2"));
}

#[test]
fn what_has_no_known_end_is_refused_in_its_turn() {
    let mut dialogue = Dialogue::usual();
    dialogue.client(&[query("select 1"), packet(0, &[0x12, 4, 0, 0, 0]), query("select 2")].concat());
    assert_eq!(dialogue.gets(), query("select 1"));
    dialogue.server(&ok(1, CLOSED));
    assert_eq!(dialogue.hears()[ok(1, CLOSED).len()..][4..7], [0xFF, 0x17, 0x04]);
    assert_eq!(dialogue.gets(), query("select 2"));
}

#[test]
fn a_long_command_is_judged_by_its_beginning_and_held_as_a_whole() {
    let limits = Limits { command_bytes: 20, ..Limits::default() };
    for accepted in [true, false] {
        let mut dialogue = Dialogue::with(limits, USUAL, 0);
        let write = query(&format!("insert into t values ({})", "7".repeat(300)));
        dialogue.client(&write[..100]);
        assert_eq!(dialogue.action(), Some(Action::Begin("insert into t value".into())));
        dialogue.client(&write[100..200]);
        assert_eq!(dialogue.gets(), b"");
        dialogue.machine.begun(if accepted { Ok(()) } else { Err(Rejection::Retry) });
        dialogue.client(&write[200..]);
        if accepted {
            assert_eq!(dialogue.gets(), write);
            dialogue.server(&ok(1, CLOSED));
            dialogue.ends(Outcome::Answered);
        } else {
            assert_eq!(dialogue.gets(), b"");
            assert_eq!(dialogue.hears()[4..7], [0xFF, 0xB5, 0x04]);
            dialogue.passes(&query("select 1"));
        }
    }
}

#[test]
fn a_long_row_passes_in_pieces_and_a_long_held_answer_but_for_its_end() {
    let limits = Limits { answer_bytes: 50, held_bytes: 100, ..Limits::default() };
    let mut dialogue = Dialogue::with(limits, USUAL, 0);
    dialogue.holds(&query("insert into t returning b"), "insert into t returning b");
    dialogue.machine.begun(Ok(()));
    let row = packet(4, &[&[0xFC, 0xE8, 3][..], &[7; 1000]].concat());
    let answer = [packet(1, &[1]), column(2, "t", "b", 0xFD), eof(3, CLOSED), row, eof(5, CLOSED)].concat();
    let (most, last) = answer.split_at(answer.len() - 9);
    dialogue.server(most);
    assert_eq!(dialogue.hears(), most);
    dialogue.server(last);
    assert_eq!(dialogue.hears(), b"");
    dialogue.ends(Outcome::Answered);
    dialogue.machine.ended(true);
    assert_eq!(dialogue.hears(), last);
}

#[test]
fn a_client_that_goes_leaves_no_bracket_open() {
    // Before the bracket is begun: it is ended without the command.
    let mut dialogue = Dialogue::usual();
    dialogue.holds(&query("delete from t"), "delete from t");
    dialogue.machine.client_closed();
    assert_eq!(dialogue.action(), Some(Action::Close(None)));
    dialogue.machine.begun(Ok(()));
    dialogue.ends(Outcome::Unsent);
    assert_eq!(dialogue.gets(), b"");
    // Before it is asked for, while earlier commands are unanswered: it is not asked for.
    let mut dialogue = Dialogue::usual();
    dialogue.passes(&query("select 1"));
    dialogue.client(&query("delete from t"));
    dialogue.machine.client_closed();
    assert_eq!(dialogue.action(), Some(Action::Close(None)));
    dialogue.server(&ok(1, CLOSED));
    assert_eq!((dialogue.action(), dialogue.gets()), (None, vec![]));
    // After: the server's answer ends it.
    let mut dialogue = Dialogue::usual();
    dialogue.holds(&query("delete from t"), "delete from t");
    dialogue.machine.begun(Ok(()));
    dialogue.machine.client_closed();
    assert_eq!(dialogue.action(), None);
    dialogue.server(&ok(1, CLOSED));
    dialogue.ends(Outcome::Answered);
    dialogue.machine.ended(true);
    assert_eq!(dialogue.action(), Some(Action::Close(None)));
}

#[test]
fn a_server_that_goes_leaves_the_outcome_unknown() {
    let mut dialogue = Dialogue::usual();
    dialogue.holds(&query("delete from t"), "delete from t");
    dialogue.machine.begun(Ok(()));
    dialogue.machine.server_closed();
    dialogue.ends(Outcome::Unknown);
    assert_eq!(dialogue.action(), Some(Action::Close(None)));
    dialogue.machine.ended(true);
    assert_eq!((dialogue.hears(), dialogue.action()), (vec![], None));
}

#[test]
fn malformed_bytes_close_their_connection() {
    let cases: [&[u8]; 4] = [&packet(0, b""), &packet(1, b"\x03select 1"), &packet(9, b"\x0E"), &packet(0, b"")];
    for bytes in cases {
        let mut dialogue = Dialogue::usual();
        dialogue.client(&[bytes, &query("select 1")].concat());
        assert_eq!(dialogue.gets(), b"", "forwarded after the close");
        assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Client(_))))), "{bytes:?}");
    }
    let cases: [&[u8]; 5] =
        [&packet(1, b""), &packet(1, &[0, 1]), &packet(1, &[0xFE; 9]), &packet(1, &[0xFC, 0]), &packet(1, b"\x01x")];
    for bytes in cases {
        let mut dialogue = Dialogue::usual();
        dialogue.passes(&query("select 1"));
        dialogue.server(bytes);
        assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Server(_))))), "{bytes:?}");
    }
}
