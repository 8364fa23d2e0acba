//! Real conversations again: cut at every byte, with bytes changed, and bytes that no program sends.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use verbena_relay::{Action, Conversation, End, Limits, Outcome, Rejection, mysql::Mysql, postgres::Postgres};

use crate::dialogue::{Dialogue, message, packet};
use crate::kit::{Logged, Relay};
use crate::words::{Log, Words};
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::postgresql::Postgresql;
use verbena_testkit::programs::output;

/// What a conversation is given.
#[derive(Debug, Clone)]
enum Input {
    Client(Vec<u8>),
    Server(Vec<u8>),
    Begun(Result<(), Rejection>),
    Ended(bool),
    ClientClosed,
    ServerClosed,
}

/// What came out, and what the judge saw.
#[derive(Debug, PartialEq, Eq, Default)]
struct Output {
    to_client: Vec<u8>,
    to_server: Vec<u8>,
    actions: Vec<String>,
    judged: Vec<String>,
}

/// Keeps what its conversation is given.
struct Recorder<C> {
    machine: C,
    inputs: Arc<Mutex<Vec<Input>>>,
}

impl<C> Recorder<C> {
    fn keep(&self, input: Input) {
        self.inputs.lock().unwrap().push(input);
    }
}

impl<C: Conversation<Write = String>> Conversation for Recorder<C> {
    type Write = String;

    fn client(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.keep(Input::Client(bytes.to_vec()));
        }
        self.machine.client(bytes);
    }

    fn server(&mut self, bytes: &[u8]) {
        self.keep(Input::Server(bytes.to_vec()));
        self.machine.server(bytes);
    }

    fn client_closed(&mut self) {
        self.keep(Input::ClientClosed);
        self.machine.client_closed();
    }

    fn server_closed(&mut self) {
        self.keep(Input::ServerClosed);
        self.machine.server_closed();
    }

    fn unreachable(&mut self, problem: &str) {
        self.machine.unreachable(problem);
    }

    fn encrypted(&mut self, end: End) {
        self.machine.encrypted(end);
    }

    fn begun(&mut self, result: Result<(), Rejection>) {
        self.keep(Input::Begun(result));
        self.machine.begun(result);
    }

    fn ended(&mut self, is_confirmed: bool) {
        self.keep(Input::Ended(is_confirmed));
        self.machine.ended(is_confirmed);
    }

    fn next_action(&mut self) -> Option<Action<String>> {
        self.machine.next_action()
    }

    fn to_client(&mut self) -> &mut Vec<u8> {
        self.machine.to_client()
    }

    fn to_server(&mut self) -> &mut Vec<u8> {
        self.machine.to_server()
    }

    fn reads_client(&self) -> bool {
        self.machine.reads_client()
    }

    fn is_idle(&self) -> bool {
        self.machine.is_idle()
    }
}

/// A driver that checks what a machine may ask for: a bracket at a time, begun before it is ended, and no word to the
/// client between an end and its confirmation.
struct Driver<C> {
    machine: C,
    bracket: Bracket,
    is_closed: bool,
    output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    None,
    Beginning,
    Open,
    Ending,
}

impl<C: Conversation<Write = String>> Driver<C> {
    fn new(machine: C) -> Self {
        Self { machine, bracket: Bracket::None, is_closed: false, output: Output::default() }
    }

    fn give(&mut self, input: &Input) {
        let was_closed = self.is_closed;
        let sent = self.output.to_server.len();
        match input {
            Input::Client(bytes) => self.machine.client(bytes),
            Input::Server(bytes) => self.machine.server(bytes),
            Input::Begun(result) if self.bracket == Bracket::Beginning => {
                self.bracket = if result.is_ok() { Bracket::Open } else { Bracket::None };
                self.machine.begun(*result);
            }
            Input::Ended(is_confirmed) if self.bracket == Bracket::Ending => {
                self.bracket = Bracket::None;
                self.machine.ended(*is_confirmed);
            }
            // An answer to what was not asked, in a conversation whose bytes were changed.
            Input::Begun(_) | Input::Ended(_) => {}
            Input::ClientClosed => self.machine.client_closed(),
            Input::ServerClosed => self.machine.server_closed(),
        }
        self.drain();
        self.machine.client(&[]);
        self.drain();
        assert!(!was_closed || self.output.to_server.len() == sent, "forwarded after the close");
    }

    fn drain(&mut self) {
        let is_ending = self.bracket == Bracket::Ending;
        while let Some(action) = self.machine.next_action() {
            self.output.actions.push(format!("{action:?}"));
            match action {
                Action::Begin(_) => {
                    assert_eq!(self.bracket, Bracket::None);
                    assert!(!self.is_closed, "begun after the close");
                    self.bracket = Bracket::Beginning;
                }
                Action::End(outcome) => {
                    assert_eq!(self.bracket, Bracket::Open);
                    assert!(outcome == Outcome::Answered || self.is_closed || outcome == Outcome::Unknown);
                    self.bracket = Bracket::Ending;
                }
                Action::Encrypt { .. } => panic!("nothing here is encrypted"),
                Action::Close(_) => {
                    assert!(!self.is_closed, "closed twice");
                    self.is_closed = true;
                }
            }
        }
        let (to_client, to_server) = (self.machine.to_client().len(), self.machine.to_server().len());
        assert!(!is_ending || to_client == 0, "the client hears before the end is confirmed");
        assert!(self.bracket != Bracket::Beginning || to_server <= 1 << 16 || self.is_closed);
        self.output.to_client.append(self.machine.to_client());
        self.output.to_server.append(self.machine.to_server());
    }
}

/// Makes a machine, for a recording or a replay.
trait Make: Send + 'static {
    type Machine: Conversation<Write = String> + 'static;
    fn make(log: Log) -> Self::Machine;
}

struct OfMysql;
struct OfPostgres;

/// So small that long rows and answers come in these conversations.
fn limits() -> Limits {
    Limits { answer_bytes: 5000, held_bytes: 3000, ..Limits::default() }
}

impl Make for OfMysql {
    type Machine = Mysql<Words>;
    fn make(log: Log) -> Self::Machine {
        Mysql::new(Words::new(log, true), limits())
    }
}

impl Make for OfPostgres {
    type Machine = Postgres<Words>;
    fn make(log: Log) -> Self::Machine {
        Postgres::new(Words::of_postgres(log, true), limits())
    }
}

/// Records what `talk` says to a server through a relay.
fn record<M: Make>(server: &Path, name: &str, talk: impl FnOnce(&Path)) -> Vec<Input> {
    let directory = tempfile::tempdir().unwrap();
    let socket: PathBuf = directory.path().join(name);
    let inputs = Arc::new(Mutex::new(Vec::new()));
    let kept = inputs.clone();
    let conversation = move || Recorder { machine: M::make(Log::default()), inputs: kept.clone() };
    let bracket = Logged { log: Log::default(), refuses: None };
    let mut relay = Relay::start(&socket, server, bracket, conversation);
    talk(&socket);
    relay.stop();
    let inputs = inputs.lock().unwrap();
    inputs.clone()
}

fn replay<M: Make>(inputs: impl IntoIterator<Item = Input>) -> Output {
    let log = Log::default();
    let mut driver = Driver::new(M::make(log.clone()));
    inputs.into_iter().for_each(|input| driver.give(&input));
    Output { judged: log.lines(), ..driver.output }
}

/// Cuts all bytes where their count has this rest.
fn cut(inputs: &[Input], every: usize, rest: usize) -> Vec<Input> {
    let mut count = 0;
    let mut pieces = |bytes: &[u8], make: fn(Vec<u8>) -> Input| {
        let is_cut = |count: usize| count % every == rest % every;
        let mut pieces = vec![Vec::new()];
        for byte in bytes {
            if is_cut(count) && !pieces[pieces.len() - 1].is_empty() {
                pieces.push(Vec::new());
            }
            pieces.last_mut().unwrap().push(*byte);
            count += 1;
        }
        pieces.into_iter().map(make).collect::<Vec<_>>()
    };
    let mut cut = Vec::new();
    for input in inputs {
        match input {
            Input::Client(bytes) => cut.extend(pieces(bytes, Input::Client)),
            Input::Server(bytes) => cut.extend(pieces(bytes, Input::Server)),
            other => cut.push(other.clone()),
        }
    }
    cut
}

/// The number of cases, more of them in long campaigns.
fn cases(usual: u32) -> ProptestConfig {
    let factor = if std::env::var_os("VERBENA_LONG").is_some() { 500 } else { 1 };
    ProptestConfig {
        cases: usual * factor,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

fn is_the_same_however_it_is_cut<M: Make>(inputs: &[Input]) {
    let whole = replay::<M>(inputs.iter().cloned());
    assert!(whole.actions.iter().filter(|action| action.starts_with("End")).count() > 4, "{:?}", whole.actions);
    assert!(whole.judged.len() > 50);
    let same = |every: usize, rest: usize| {
        let pieces = replay::<M>(cut(inputs, every, rest));
        assert_eq!(whole.actions, pieces.actions, "cut at {rest} of {every}");
        assert_eq!(whole.judged, pieces.judged, "cut at {rest} of {every}");
        assert!(whole == pieces, "other bytes, cut at {rest} of {every}");
    };
    same(1, 0);
    // Each byte is once where a piece of 23 begins.
    (0..23).for_each(|rest| same(23, rest));
}

/// Changes some bytes: no machine panics, and none asks for what it may not.
fn survives_changes<M: Make>(inputs: &[Input]) {
    let changes = vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6);
    proptest!(cases(50), |(changes in changes, step in 1_usize..5000)| {
        let mut inputs = inputs.to_vec();
        for (input, place, byte) in changes {
            let index = input.index(inputs.len());
            if let Input::Client(bytes) | Input::Server(bytes) = &mut inputs[index] {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
        }
        replay::<M>(cut(&inputs, step, 0));
    });
}

#[test]
fn a_conversation_of_mariadb_is_the_same_however_it_is_cut() {
    let Some(server) = Mariadb::get() else { return };
    // DEPRECATE_EOF for one of them, and what MariaDB has of its own.
    for (bits, mariadb) in [(0, 0), (1 << 24, 0x1D)] {
        let inputs = record::<OfMysql>(&server.socket(), "relay", |at| {
            crate::mysql_raw::conversation(at, crate::mysql_raw::USUAL | bits, mariadb, "replayed");
        });
        output(server.client().args(["-e", "drop database replayed"]));
        is_the_same_however_it_is_cut::<OfMysql>(&inputs);
        survives_changes::<OfMysql>(&inputs);
    }
}

#[test]
fn a_conversation_of_postgresql_is_the_same_however_it_is_cut() {
    let Some(server) = Postgresql::get() else { return };
    output(&mut server.psql("create table public.replayed (a int primary key, b text)"));
    let inputs = record::<OfPostgres>(&server.socket(), "relay", |at| {
        crate::postgres_raw::conversation(at, "replayed");
    });
    is_the_same_however_it_is_cut::<OfPostgres>(&inputs);
    survives_changes::<OfPostgres>(&inputs);
}

/// Bytes of any kind, and packets whose heads are right.
fn bytes(first: &'static [u8], is_mysql: bool) -> impl Strategy<Value = Vec<u8>> {
    let framed =
        (prop::sample::select(first), vec(any::<u8>(), 0..12), 0_u8..3).prop_map(move |(first, rest, sequence)| {
            if is_mysql { packet(sequence, &[&[first][..], &rest].concat()) } else { message(first, &rest) }
        });
    let some = vec(prop_oneof![4 => framed, 1 => vec(any::<u8>(), 0..40)], 1..5);
    some.prop_map(|all| all.concat())
}

fn inputs(client: &'static [u8], server: &'static [u8], is_mysql: bool) -> impl Strategy<Value = Vec<Input>> {
    let rejection = prop_oneof![Just(Rejection::Retry), Just(Rejection::ReadOnly)];
    let one = prop_oneof![
        8 => bytes(client, is_mysql).prop_map(Input::Client),
        8 => bytes(server, is_mysql).prop_map(Input::Server),
        3 => prop_oneof![3 => Just(Ok(())), 1 => rejection.prop_map(Err)].prop_map(Input::Begun),
        3 => any::<bool>().prop_map(Input::Ended),
        1 => Just(Input::ClientClosed),
        1 => Just(Input::ServerClosed),
    ];
    vec(one, 1..40)
}

/// Commands and answers of MySQL; texts that a judge holds are rare among random ones, so `d` (drop) is a command here.
const OF_CLIENT: &[u8] = &[3, 3, 0x16, 0x17, 0x18, 0x19, 0x1C, 0x11, 4, 1, 9, 0xFA, 0x12];
const OF_SERVER: &[u8] = &[0, 0, 1, 2, 3, 0xFB, 0xFE, 0xFE, 0xFF];

#[test]
fn no_bytes_make_the_machine_of_mysql_panic() {
    let held = packet(0, b"\x03drop table t");
    proptest!(cases(400), |(inputs in inputs(OF_CLIENT, OF_SERVER, true), holds in any::<bool>())| {
        let log = Log::default();
        Driver::new(OfMysql::make(log)).run(&inputs);
        let mut driver = Driver::new(Dialogue::usual().machine);
        if holds {
            driver.give(&Input::Client(held.clone()));
        }
        driver.run(&inputs);
    });
}

#[test]
fn no_bytes_make_the_machine_of_postgresql_panic() {
    let held = message(b'Q', b"drop table t\0");
    proptest!(cases(400), |(inputs in inputs(b"QPBDECSHFdcfXp", b"ZZET123CDnstGHWIVNSA", false), holds in any::<bool>())| {
        Driver::new(OfPostgres::make(Log::default())).run(&inputs);
        let mut driver = Driver::new(Dialogue::postgres(limits()).machine);
        if holds {
            driver.give(&Input::Client(held.clone()));
        }
        driver.run(&inputs);
    });
}

impl<C: Conversation<Write = String>> Driver<C> {
    fn run(&mut self, inputs: &[Input]) {
        inputs.iter().for_each(|input| self.give(input));
    }
}
