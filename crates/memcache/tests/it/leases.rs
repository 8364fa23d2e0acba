//! One client makes an item anew, others are told so.

use verbena_memcache::Limits;

use crate::server::Server;

#[test]
fn a_stub_has_one_winner_and_a_delete_ends_it() {
    let mut server = Server::new(Limits::default(), 1_000);
    let mut ask = |text: &str| String::from_utf8(server.feed(text.as_bytes())).unwrap();
    assert_eq!(ask("mg k N30 v c\r\n"), "VA 0 c1001 W\r\n\r\n");
    assert_eq!(ask("mg k N30 v\r\n"), "VA 0 Z\r\n\r\n");
    assert_eq!(ask("md k\r\n"), "HD\r\n");
    assert_eq!(ask("ms k 1 C1001\r\nx\r\n"), "NF\r\n");
    assert_eq!(ask("mg k N30 v\r\n"), "VA 0 W\r\n\r\n");
    assert_eq!(ask("ms k 1 C1001\r\nx\r\n"), "EX\r\n");
}

#[test]
fn a_stale_item_is_read_until_its_winner_stores() {
    let mut server = Server::new(Limits::default(), 1_000);
    let mut ask = |text: &str| String::from_utf8(server.feed(text.as_bytes())).unwrap();
    assert_eq!(
        ask("ms k 3 c\r\nold\r\nmd k I T30\r\nmg k v t\r\nmg k v\r\n"),
        "HD c1001\r\nHD\r\nVA 3 t30 X W\r\nold\r\nVA 3 Z X\r\nold\r\n"
    );
    // A value made from what was there before the invalidation stays stale.
    assert_eq!(ask("ms k 3 C1001 I\r\nmid\r\nmg k v\r\n"), "HD\r\nVA 3 Z X\r\nmid\r\n");
    assert_eq!(ask("ms k 3\r\nnew\r\nmg k v\r\n"), "HD\r\nVA 3\r\nnew\r\n");
}

#[test]
fn an_item_that_expires_soon_has_one_winner() {
    let mut server = Server::new(Limits::default(), 1_000);
    assert_eq!(server.feed(b"ms k 1 T60\r\nx\r\nmg k R30\r\n"), b"HD\r\nHD\r\n");
    server.now = 1_030;
    assert_eq!(server.feed(b"mg k R30\r\n"), b"HD\r\n");
    server.now = 1_031;
    assert_eq!(server.feed(b"mg k R30 t\r\nmg k R30\r\n"), b"HD t29 W\r\nHD Z\r\n");
    server.now = 1_060;
    assert_eq!(server.feed(b"mg k R30 t\r\n"), b"EN\r\n");
}

#[test]
fn a_delayed_flush_takes_what_was_stored_before_it() {
    let mut server = Server::new(Limits::default(), 1_000);
    assert_eq!(
        server.feed(b"set a 0 0 1\r\nx\r\nflush_all 10\r\nget a\r\n"),
        b"STORED\r\nOK\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    );
    server.now = 1_010;
    assert_eq!(server.feed(b"get a\r\nset a 0 0 1\r\ny\r\nget a\r\n"), b"END\r\nSTORED\r\nVALUE a 0 1\r\ny\r\nEND\r\n");
}
