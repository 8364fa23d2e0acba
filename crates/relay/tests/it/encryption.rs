//! TLS at either end, as the machines ask for it: what goes in clear, what behind it does not, and the numbers of a login's packets.

use verbena_relay::mysql::Mysql;
use verbena_relay::postgres::Postgres;
use verbena_relay::{Action, Conversation, Encryption, End, Error, Limits};

use crate::dialogue::*;
use crate::words::{Log, Words};

const TLS: u32 = 0x800;
const CLOSED: u16 = 2;

fn mysql(clients: bool, server: bool) -> Dialogue {
    let log = Log::default();
    let machine = Mysql::new(Words::new(log.clone(), true), Limits::default());
    Dialogue { machine: machine.encrypting(Encryption { clients, server, server_is_near: false }), log }
}

/// The same packet under another number.
fn numbered(sequence: u8, raw: &[u8]) -> Vec<u8> {
    let mut raw = raw.to_vec();
    raw[3] = sequence;
    raw
}

fn encrypts(end: End, begun: &[u8]) -> Option<Action<String>> {
    Some(Action::Encrypt { end, begun: begun.to_vec() })
}

#[test]
fn each_end_of_mysql_counts_its_own_request_for_tls() {
    for (client, server) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut dialogue = mysql(client, server);
        dialogue.server(&greeting(USUAL | TLS, 0));
        assert_eq!(dialogue.hears(), greeting(USUAL | if client { TLS } else { 0 }, 0));
        let (mut at_client, mut at_server) = (1, 1);
        let mut login = response(USUAL, 0);
        if client {
            login = numbered(2, &response(USUAL | TLS, 0));
            at_client = 2;
            // The hello of TLS came with the request.
            dialogue.client(&[&packet(1, &response(USUAL | TLS, 0)[4..36]), &b"hello"[..]].concat());
            assert_eq!(dialogue.action(), encrypts(End::Client, b"hello"));
            assert_eq!((dialogue.gets(), dialogue.hears()), (vec![], vec![]));
            dialogue.machine.encrypted(End::Client);
        }
        dialogue.client(&login);
        let bits = USUAL | if server { TLS } else { 0 };
        if server {
            at_server = 2;
            assert_eq!(dialogue.gets(), packet(1, &response(bits, 0)[4..36]), "the request alone goes in clear");
            assert_eq!(dialogue.action(), encrypts(End::Server, b""));
            dialogue.machine.encrypted(End::Server);
        }
        assert_eq!(dialogue.gets(), numbered(at_server, &response(bits, 0)));
        // The server asks once more.
        dialogue.server(&packet(at_server + 1, b"\xFEplugin\0salt"));
        assert_eq!(dialogue.hears(), packet(at_client + 1, b"\xFEplugin\0salt"));
        dialogue.client(&packet(at_client + 2, b"proof"));
        assert_eq!(dialogue.gets(), packet(at_server + 2, b"proof"));
        dialogue.server(&ok(at_server + 3, CLOSED));
        assert_eq!(dialogue.hears(), ok(at_client + 3, CLOSED));
        // Commands begin at nought at both ends.
        dialogue.passes(&query("select 1"));
        dialogue.answers(&ok(1, CLOSED));
    }
}

#[test]
fn a_refused_login_has_the_number_that_the_client_waits_for() {
    let mut dialogue = mysql(false, true);
    dialogue.server(&greeting(USUAL | TLS, 0));
    dialogue.client(&response(USUAL, 0));
    dialogue.action();
    dialogue.machine.encrypted(End::Server);
    dialogue.hears();
    dialogue.server(&error(3, 1045));
    assert_eq!(dialogue.hears(), error(2, 1045));
}

#[test]
fn without_tls_at_the_server_nothing_of_a_login_is_sent() {
    let mut dialogue = mysql(false, true);
    dialogue.server(&greeting(USUAL, 0));
    let heard = dialogue.hears();
    assert!(heard.windows(6).any(|part| part == b"no TLS"), "{heard:?}");
    assert_eq!(dialogue.action(), Some(Action::Close(None)));
    dialogue.client(&response(USUAL, 0));
    assert_eq!(dialogue.gets(), b"");

    // It is offered, and fails: the client hears why.
    let mut dialogue = mysql(false, true);
    dialogue.server(&greeting(USUAL | TLS, 0));
    dialogue.hears();
    dialogue.client(&response(USUAL, 0));
    dialogue.gets();
    dialogue.machine.unreachable("no proof");
    let [low, high] = 1429_u16.to_le_bytes();
    assert_eq!(dialogue.hears(), packet(2, &[&[0xFF, low, high][..], b"#HY000no proof"].concat()));
    assert_eq!(dialogue.gets(), b"");
}

const ASKS: &[u8] = b"\0\0\0\x08\x04\xD2\x16\x2F";
const STARTUP: &[u8] = b"\0\0\0\x13\0\x03\0\0user\0me\0\0\0\0";

fn postgres(clients: bool, server: bool) -> Dialogue<Postgres<Words>> {
    let log = Log::default();
    let machine = Postgres::new(Words::of_postgres(log.clone(), true), Limits::default());
    Dialogue { machine: machine.encrypting(Encryption { clients, server, server_is_near: false }), log }
}

#[test]
fn postgresql_is_asked_for_tls_before_anything_of_the_client_is_sent() {
    for first in [STARTUP.to_vec(), [&[0, 0, 0, 16][..], &80_877_102_u32.to_be_bytes(), &[1; 8]].concat()] {
        let mut dialogue = postgres(false, true);
        dialogue.client(&first);
        assert_eq!(dialogue.gets(), ASKS);
        dialogue.server(b"S");
        assert_eq!(dialogue.action(), encrypts(End::Server, b""));
        assert_eq!(dialogue.gets(), b"");
        dialogue.machine.encrypted(End::Server);
        assert_eq!(dialogue.gets(), first);
        assert_eq!(dialogue.hears(), b"");
    }
    let mut dialogue = postgres(false, true);
    dialogue.client(STARTUP);
    dialogue.gets();
    dialogue.server(b"N");
    let heard = dialogue.hears();
    assert!(heard.windows(6).any(|part| part == b"no TLS"), "{heard:?}");
    assert_eq!((dialogue.action(), dialogue.gets()), (Some(Action::Close(None)), vec![]));
    // What somebody put behind the answer, in clear.
    let mut dialogue = postgres(false, true);
    dialogue.client(STARTUP);
    dialogue.server(&[b"S", &message(b'R', &[0; 4])[..]].concat());
    assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Server(_))))));
    assert_eq!(dialogue.hears(), b"");
}

#[test]
fn a_client_of_postgresql_that_asks_gets_tls_and_what_is_behind_its_request_is_of_it() {
    let mut dialogue = postgres(true, false);
    dialogue.client(&[ASKS, STARTUP].concat());
    assert_eq!(dialogue.hears(), b"S");
    // A startup message in clear behind the request is no hello of TLS, and never reaches the server.
    assert_eq!(dialogue.action(), encrypts(End::Client, STARTUP));
    assert_eq!(dialogue.gets(), b"");
    dialogue.machine.encrypted(End::Client);
    dialogue.passes(STARTUP);
    // One that asks for none is served too.
    let mut dialogue = postgres(true, false);
    dialogue.passes(STARTUP);
}

#[test]
fn a_client_without_tls_is_offered_no_login_that_is_bound_to_it() {
    let offer = message(b'R', b"\0\0\0\x0ASCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    for (client, heard) in [(false, message(b'R', b"\0\0\0\x0ASCRAM-SHA-256\0\0")), (true, offer.clone())] {
        let mut dialogue = postgres(true, true);
        if client {
            dialogue.client(ASKS);
            dialogue.action();
            dialogue.machine.encrypted(End::Client);
        }
        dialogue.client(STARTUP);
        dialogue.server(b"S");
        dialogue.action();
        dialogue.machine.encrypted(End::Server);
        dialogue.hears();
        dialogue.server(&offer);
        assert_eq!(dialogue.hears(), heard);
    }
}

/// By TLS with the client, and in clear with the server.
#[test]
fn a_password_that_is_sent_by_tls_is_not_sent_on_in_clear() {
    for asks in
        [&b"\x01\x04"[..], b"\xFEmysql_clear_password\0", b"\xFEsha256_password\0salt\0", b"\xFEdialog\0\x04Password: "]
    {
        for server in [false, true] {
            let mut dialogue = mysql(true, server);
            dialogue.server(&greeting(USUAL | TLS, 0));
            dialogue.client(&packet(1, &response(USUAL | TLS, 0)[4..36]));
            dialogue.action();
            dialogue.machine.encrypted(End::Client);
            dialogue.client(&numbered(2, &response(USUAL | TLS, 0)));
            if server {
                dialogue.action();
                dialogue.machine.encrypted(End::Server);
            }
            dialogue.gets();
            dialogue.hears();
            dialogue.server(&packet(if server { 3 } else { 2 }, asks));
            let heard = dialogue.hears();
            let is_refused = heard.windows(19).any(|part| part == b"verbena: this login");
            assert_eq!(is_refused, !server, "{heard:?}");
            assert_eq!(dialogue.action(), (!server).then_some(Action::Close(None)), "{asks:?}");
        }
    }
    let bare = [&response(USUAL | TLS, 0)[4..36], b"me\0secret\0mysql_clear_password\0"].concat();
    let mut dialogue = mysql(true, false);
    dialogue.server(&greeting(USUAL, 0));
    dialogue.client(&packet(1, &response(USUAL | TLS, 0)[4..36]));
    dialogue.action();
    dialogue.machine.encrypted(End::Client);
    dialogue.client(&packet(2, &bare));
    assert_eq!((dialogue.gets(), dialogue.action()), (vec![], Some(Action::Close(None))));

    let mut dialogue = postgres(true, false);
    dialogue.client(ASKS);
    dialogue.action();
    dialogue.machine.encrypted(End::Client);
    dialogue.client(STARTUP);
    dialogue.hears();
    dialogue.server(&message(b'R', b"\0\0\0\x03"));
    assert!(dialogue.hears().starts_with(b"E"));
    assert_eq!(dialogue.action(), Some(Action::Close(None)));
}

#[test]
fn part_of_a_packet_that_came_in_clear_does_not_stand_before_what_is_encrypted() {
    let mut dialogue = mysql(false, true);
    dialogue.server(&[&greeting(USUAL | TLS, 0)[..], &[7, 0, 0, 3, 0, 0, 0]].concat());
    dialogue.client(&response(USUAL, 0));
    dialogue.action();
    dialogue.machine.encrypted(End::Server);
    assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Server(_))))));

    let mut dialogue = postgres(false, true);
    dialogue.server(b"N\0\0");
    dialogue.client(STARTUP);
    dialogue.server(b"S");
    dialogue.action();
    dialogue.machine.encrypted(End::Server);
    assert!(matches!(dialogue.action(), Some(Action::Close(Some(Error::Server(_))))));
}
