//! Bad input to the machine, cut at every byte.

use proptest::prelude::*;
use verbena_ftp::{Action, FileError, LoginError, Machine, Outcome, Rights, TransferError};

use crate::dialogue::{Script, at, codes, settings};

/// Lines that a client may send to do harm.
const LINES: [&[u8]; 25] = [
    b"CWD ../../../../etc",
    b"RETR /../../etc/passwd",
    b"RETR a\0b",
    b"STOR a\rDELE b",
    b"\xff\xf4\xff\xf2ABOR",
    b"\xff\xfb\x01NOOP",
    b"PORT 1,2,3,4,5,6",
    b"PORT 192,0,2,9,8,0",
    b"PORT 192,0,2,9,0,22",
    b"PORT 999,0,2,9,0,22",
    b"EPRT |1|192.0.2.9|22|",
    b"EPRT |2|::ffff:127.0.0.1|2000|",
    b"EPRT |||||||",
    b"REST 18446744073709551615",
    b"REST -1",
    b"RANG 9223372036854775807 9223372036854775807",
    b"HASH a",
    b"SITE CHMOD 4777 a",
    b"SITE",
    b"OPTS MLST type;;;;;",
    b"MFMT 99999999999999 a",
    b"MDTM 20240101000000",
    b"TYPE A T",
    b"LIST -R -a -la /..",
    b"",
];

fn text() -> Vec<u8> {
    LINES.iter().flat_map(|line| [line, b"\r\n".as_slice()].concat()).collect()
}

/// What a machine does with pieces of input, each piece of work answered at once.
fn play(pieces: &[&[u8]]) -> Vec<Action> {
    let mut script = Script::ready(Rights::ALL);
    let mut all = Vec::new();
    for piece in pieces {
        script.machine.input(piece, at(0));
        answer(&mut script.machine, &mut all);
    }
    all
}

fn answer(machine: &mut Machine, all: &mut Vec<Action>) {
    loop {
        let actions = machine.actions();
        if actions.is_empty() {
            return;
        }
        for action in &actions {
            match action {
                Action::File(_) => machine.outcome(Outcome::File(Err(FileError::NotFound)), at(0)),
                Action::Listen => machine.outcome(Outcome::Listening(None), at(0)),
                Action::Transfer(_) => {
                    machine.outcome(Outcome::Ended(Err(TransferError::NoConnection)), at(0));
                }
                Action::Login { .. } => machine.outcome(Outcome::Login(Err(LoginError::Wrong)), at(0)),
                _ => {}
            }
        }
        all.extend(actions);
    }
}

/// Actions with replies joined, however they were cut.
fn flat(actions: &[Action]) -> (Vec<u8>, Vec<Action>) {
    let (mut sent, mut rest) = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            Action::Send(bytes) => sent.extend_from_slice(bytes),
            other => rest.push(other.clone()),
        }
    }
    (sent, rest)
}

#[test]
fn input_means_the_same_however_it_is_cut() {
    let text = text();
    let whole = flat(&play(&[&text]));
    assert!(whole.1.contains(&Action::Close), "ten wrong commands are among them");
    for cut in 0..text.len() {
        assert_eq!(flat(&play(&[&text[..cut], &text[cut..]])), whole, "cut at {cut}");
    }
    let bytes: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(flat(&play(&bytes)), whole);
}

#[test]
fn no_line_leads_out_or_to_another_host() {
    for line in LINES {
        let mut with_end = line.to_vec();
        with_end.extend_from_slice(b"\r\nSTOR x\r\n");
        for action in play(&[&with_end]) {
            if let Action::File(work) = &action {
                let text = format!("{work:?}");
                assert!(!text.contains("[46, 46]"), "{text}");
            }
            if let Action::Transfer(transfer) = &action {
                let to = transfer.connect.unwrap();
                assert!(to.ip() == settings().peer && to.port() >= 1024, "{action:?}");
            }
        }
    }
}

#[test]
fn what_is_no_ftp_closes() {
    for verb in ["GET / HTTP/1.1", "POST /x HTTP/1.1", "HEAD /", "OPTIONS *", "CONNECT a:1"] {
        let mut script = Script::new(settings());
        let mut text = format!("{verb}\r\nHost: a\r\nUSER a\r\n");
        text.push_str("PASS b\r\n");
        script.machine.input(text.as_bytes(), at(0));
        assert_eq!(script.replies(), ["500", "close"], "{verb}");
    }
    let mut script = Script::new(settings());
    script.machine.input(&b"XXXX\r\n".repeat(12), at(0));
    let mut expected = vec!["500"; 9];
    expected.extend(["421", "close"]);
    assert_eq!(script.replies(), expected);
}

#[test]
fn long_lines_are_refused_and_endless_ones_close() {
    let mut script = Script::new(settings());
    let long = [&b"USER "[..], &vec![b'a'; 5000], b"\r\nNOOP\r\n"].concat();
    script.machine.input(&long, at(0));
    assert_eq!(script.replies(), ["500", "200"]);
    script.machine.input(&vec![b'a'; (64 << 10) + 1], at(0));
    assert_eq!(script.replies(), ["500", "close"]);
    script.machine.input(b"\r\nNOOP\r\n", at(0));
    assert_eq!(script.replies(), [""; 0]);
}

#[test]
fn what_is_kept_is_bounded() {
    let mut script = Script::ready(Rights::ALL);
    script.say("CWD a");
    let mut taken = 0;
    while script.machine.wants_input() {
        script.machine.input(b"NOOP\r\n", at(0));
        taken += 1;
        assert!(taken <= 64);
    }
    script.machine.outcome(Outcome::File(Err(FileError::NotFound)), at(0));
    assert_eq!(codes(&script.machine.actions()).len(), 65);
    assert!(script.machine.wants_input());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_leave_the_machine_standing(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let (sent, _) = flat(&play(&pieces));
        for line in sent.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            prop_assert_eq!(line.last(), Some(&b'\r'));
        }
    }
}
