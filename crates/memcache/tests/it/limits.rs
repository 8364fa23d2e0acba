//! Bad input: the protocol's own error, nothing else changed, and the stream in step again.

use verbena_memcache::Limits;

use crate::server::Server;

fn answer(limits: Limits, bytes: &[u8]) -> String {
    String::from_utf8(Server::new(limits, 1_700_000_000).feed(bytes)).unwrap()
}

fn answers(bytes: &[u8]) -> String {
    answer(Limits::default(), bytes)
}

const BAD: &str = "CLIENT_ERROR bad command line format\r\n";

#[test]
fn a_refused_value_is_swallowed_and_not_executed() {
    let long = "y".repeat(251);
    let value = "delete victim\r\n";
    for line in [
        format!("set {long} 0 0 {}", value.len()),
        format!("set k 0 x {}", value.len()),
        format!("set k 4294967296 0 {}", value.len()),
        format!("set a\x01b 0 0 {}", value.len()),
        format!("set a\x7fb 0 0 {}", value.len()),
        format!("cas k 0 0 {} x", value.len()),
        format!("ms {long} {}", value.len()),
    ] {
        let stream = format!("set victim 0 0 1\r\nx\r\n{line}\r\n{value}\r\nget victim\r\n");
        let expected = format!("STORED\r\n{BAD}VALUE victim 0 1\r\nx\r\nEND\r\n");
        assert_eq!(answers(stream.as_bytes()), expected, "{line:?}");
    }
}

#[test]
fn a_value_beyond_the_limit_is_swallowed_and_its_old_one_is_gone() {
    let limits = Limits { value_bytes: 10, ..Limits::default() };
    let stream = b"set k 0 0 2\r\nab\r\nset k 0 0 11\r\n0123456789X\r\nget k\r\nset k 0 0 10\r\n0123456789\r\nadd k 0 0 11\r\n0123456789X\r\nget k\r\n";
    let expected = "STORED\r\nSERVER_ERROR object too large for cache\r\nEND\r\nSTORED\r\n\
                    SERVER_ERROR object too large for cache\r\nVALUE k 0 10\r\n0123456789\r\nEND\r\n";
    assert_eq!(answer(limits, stream), expected);
    let stream = b"ms k 11 q\r\n0123456789X\r\nmn\r\n";
    assert_eq!(answer(limits, stream), "SERVER_ERROR object too large for cache\r\nMN\r\n");
}

#[test]
fn a_length_that_is_none_is_refused() {
    for length in ["-1", "x", "2147483647", "99999999999999999999", "1.5"] {
        let stream = format!("set k 0 0 {length} noreply\r\nset k 0 0 {length}\r\nmn\r\n");
        assert_eq!(answers(stream.as_bytes()), format!("{BAD}MN\r\n"), "{length:?}");
    }
}

#[test]
fn a_line_without_end_closes_the_connection() {
    for start in ["x", "set ", "  "] {
        let mut server = Server::new(Limits::default(), 0);
        let stream = start.to_owned() + &"y".repeat(2050);
        let answer: Vec<u8> = stream.as_bytes().chunks(7).flat_map(|piece| server.feed(piece)).collect();
        assert_eq!(answer, b"CLIENT_ERROR line too long\r\n");
        assert!(server.is_closed);
    }
    // Whole, it is as long.
    let stream = "y".repeat(2049) + "\r\n";
    assert_eq!(answers(stream.as_bytes()), "CLIENT_ERROR line too long\r\n");
}

#[test]
fn a_hundred_thousand_keys_in_one_line_are_read() {
    let mut stream = b"set k77777 0 0 1\r\nx\r\nget".to_vec();
    for key in 0..100_000 {
        stream.extend_from_slice(format!(" k{key}").as_bytes());
    }
    stream.extend_from_slice(b"\r\n");
    let mut server = Server::new(Limits::default(), 0);
    let answer: Vec<u8> = stream.chunks(16 << 10).flat_map(|piece| server.feed(piece)).collect();
    assert_eq!(answer, b"STORED\r\nVALUE k77777 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn the_binary_protocol_is_refused_by_an_answer() {
    let mut request = vec![0x80, 0x0a, 0, 0];
    request.resize(24, 0);
    request[12..16].copy_from_slice(b"mark");
    let mut server = Server::new(Limits::default(), 0);
    let answer: Vec<u8> = request.chunks(1).flat_map(|byte| server.feed(byte)).collect();
    assert!(server.is_closed);
    assert_eq!(&answer[..2], [0x81, 0x0a]);
    assert_eq!(&answer[6..8], [0x00, 0x81]);
    let length = u32::from_be_bytes(answer[8..12].try_into().unwrap()) as usize;
    assert_eq!(&answer[12..16], b"mark");
    assert_eq!(answer.len(), 24 + length);
    // Behind a text command such a byte begins nothing.
    let mut server = Server::new(Limits::default(), 0);
    assert_eq!(server.feed(b"mn\r\n\x80\r\n"), b"MN\r\nERROR\r\n");
}

#[test]
fn what_today_s_protocol_adds_is_offered() {
    let stream = b"ms k 2 E77 s c\r\nab\r\nms k 3 MA s\r\ncde\r\nms new 1 MA N0 c E5\r\nx\r\nmg k s v\r\nmd new x F3\r\nmg new f s v c\r\nma c N0 J4 E9 c v\r\n";
    let expected = "HD s2 c77\r\nHD s5\r\nHD c5\r\nVA 5 s5\r\nabcde\r\nHD\r\nVA 0 f3 s0 c5\r\n\r\nVA 1 c9\r\n4\r\n";
    assert_eq!(answers(stream), expected);
}
