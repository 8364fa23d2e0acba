//! What clients and servers send, and what the bracket answers, for the fuzz targets: both protocols, both directions.
//!
//! ```text
//! input:  step*      step: code : 1, and behind a code of bytes  length : 1 | bytes
//! code, its lowest three bits:  0, 1 the client's bytes   2, 3 the server's   4 the bracket is begun or not
//!                               5 its end is confirmed or not   6 the client closes   7 the server closes
//! The first code also says where there is TLS: 0x40 for clients, 0x80 with the server; 0x20: the server is near.
//! ```

use crate::mysql::Mysql;
use crate::postgres::Postgres;
use crate::{Action, Column, Command, Conversation, Encryption, Judge, Limits, Rejection, Row, State, Verdict};

/// What one input led to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// Brackets that were asked for.
    pub begun: usize,
    /// Brackets that were ended.
    pub ended: usize,
    /// Bytes that the client was sent.
    pub to_client: usize,
    /// Bytes that the server was sent.
    pub to_server: usize,
    /// Ends at which TLS began.
    pub encrypted: usize,
    /// Whether the relay closed the connection.
    pub is_closed: bool,
}

/// Short, so that inputs reach them.
const LIMITS: Limits =
    Limits { command_bytes: 512, answer_bytes: 128, held_bytes: 256, pipelined: 8, buffer_bytes: 1024 };

/// A conversation of MySQL.
///
/// # Panics
/// If a held command passes before its bracket is begun, or its answer before the end of that is confirmed.
pub fn mysql_conversation(input: &[u8]) -> Reached {
    drive(Mysql::new(Words::default(), LIMITS).encrypting(encryption(input)), input)
}

/// A conversation of PostgreSQL.
///
/// # Panics
/// Likewise.
pub fn postgres_conversation(input: &[u8]) -> Reached {
    drive(Postgres::new(Words::default(), LIMITS).encrypting(encryption(input)), input)
}

fn encryption(input: &[u8]) -> Encryption {
    let first = input.first().copied().unwrap_or_default();
    Encryption { clients: first & 0x40 != 0, server: first & 0x80 != 0, server_is_near: first & 0x20 != 0 }
}

/// Holds what has one of these words, and looks at each value of a row.
#[derive(Default)]
struct Words {
    columns: Vec<Column>,
}

impl Judge for Words {
    type Write = ();

    fn judge(&mut self, command: &Command<'_>, _: Option<&State>) -> Verdict<()> {
        let has = |word: &[u8]| command.bytes.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        if has(b"insert") || has(b"commit") { Verdict::Hold(()) } else { Verdict::Tell }
    }

    fn columns(&mut self, _: u64, columns: Option<&[Column]>) {
        self.columns = columns.map(<[Column]>::to_vec).unwrap_or_default();
    }

    fn row(&mut self, _: u64, row: &Row<'_>) {
        let values = row.values(&self.columns);
        assert!(values.len() <= self.columns.len(), "more values than columns");
        assert!(values.iter().flatten().all(|value| value.len() <= row.bytes.len()), "a value longer than its row");
    }
}

/// What the bracket owes an answer for.
#[derive(PartialEq)]
enum Owes {
    Nothing,
    Begun,
    Answer,
    Ended,
}

fn drive(mut machine: impl Conversation<Write = ()>, input: &[u8]) -> Reached {
    let (mut reached, mut owes, mut rest) = (Reached::default(), Owes::Nothing, input);
    while let Some((&code, behind)) = rest.split_first() {
        rest = behind;
        let bytes = match (code & 7, rest.split_first()) {
            (0..=3, Some((&length, behind))) => {
                let (bytes, behind) = behind.split_at(behind.len().min(length.into()));
                rest = behind;
                bytes
            }
            _ => &[],
        };
        let (was_begun, was_ended) = (owes != Owes::Begun, owes != Owes::Ended);
        let mut is_answered = false;
        match code & 7 {
            0 | 1 if machine.reads_client() => machine.client(bytes),
            2 | 3 => machine.server(bytes),
            4 if owes == Owes::Begun => {
                is_answered = true;
                let result =
                    [Ok(()), Err(Rejection::Retry), Ok(()), Err(Rejection::ReadOnly)][usize::from(code >> 3) % 4];
                owes = if result.is_ok() { Owes::Answer } else { Owes::Nothing };
                machine.begun(result);
            }
            5 if owes == Owes::Ended => {
                is_answered = true;
                owes = Owes::Nothing;
                machine.ended(code & 8 == 0);
            }
            6 => machine.client_closed(),
            7 => machine.server_closed(),
            _ => {}
        }
        let sent = [std::mem::take(machine.to_client()).len(), std::mem::take(machine.to_server()).len()];
        assert!(was_begun || is_answered || sent[1] == 0, "passed before its bracket was begun");
        assert!(was_ended || is_answered || sent[0] == 0, "answered before the end was confirmed");
        (reached.to_client, reached.to_server) = (reached.to_client + sent[0], reached.to_server + sent[1]);
        while let Some(action) = machine.next_action() {
            match action {
                Action::Begin(()) => {
                    assert!(owes == Owes::Nothing && !reached.is_closed, "two brackets at once");
                    (owes, reached.begun) = (Owes::Begun, reached.begun + 1);
                }
                Action::End(_) => {
                    assert!(owes == Owes::Answer, "an end of no bracket");
                    (owes, reached.ended) = (Owes::Ended, reached.ended + 1);
                }
                Action::Encrypt { end, .. } => {
                    let more = [machine.to_client().len(), machine.to_server().len()];
                    assert_eq!(more, [0, 0], "bytes behind the request for TLS");
                    reached.encrypted += 1;
                    machine.encrypted(end);
                }
                Action::Close(_) => reached.is_closed = true,
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_terms::testing::corpus;

    #[test]
    fn the_corpus_holds() {
        for (name, conversation) in [
            ("mysql_conversation", mysql_conversation as fn(&[u8]) -> Reached),
            ("postgres_conversation", postgres_conversation),
        ] {
            let all: Vec<Reached> = corpus(name).iter().map(|input| conversation(input)).collect();
            let count = |is_it: fn(&&Reached) -> bool| all.iter().filter(is_it).count();
            let met = [
                count(|one| one.begun > 0 && one.ended == 0),
                count(|one| one.ended > 0),
                count(|one| one.begun == 0 && one.to_client > 60 && one.to_server > 40),
                count(|one| one.is_closed),
                count(|one| one.begun > 1),
            ];
            assert!(met.iter().all(|count| *count > 0), "{name}: {met:?}");
            println!("{name}: {} inputs, {met:?}", all.len());
        }
    }

    #[test]
    fn every_beginning_and_every_changed_byte_of_the_corpus_holds() {
        for (name, conversation) in [
            ("mysql_conversation", mysql_conversation as fn(&[u8]) -> Reached),
            ("postgres_conversation", postgres_conversation),
        ] {
            for input in corpus(name) {
                for at in 0..input.len() {
                    conversation(&input[..at]);
                    for byte in [0, 0xFF, input[at] ^ 1, input[at] ^ 0x80, input[at].wrapping_add(7)] {
                        let mut changed = input.clone();
                        changed[at] = byte;
                        conversation(&changed);
                    }
                }
            }
        }
    }
}
