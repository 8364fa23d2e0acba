//! MODE E: blocks over several data connections, by hand and by globus-url-copy.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use verbena_ftp::{Action, Outcome, Rights};

use crate::bench::{Client, LIMIT, Running, has, options, succeed};
use crate::dialogue::{Script, at};

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn header(descriptor: u8, count: u64, offset: u64) -> Vec<u8> {
    [&[descriptor][..], &count.to_be_bytes(), &offset.to_be_bytes()].concat()
}

fn block(offset: u64, bytes: &[u8]) -> Vec<u8> {
    [header(0, bytes.len() as u64, offset), bytes.to_vec()].concat()
}

/// A server, and a client that has said MODE E.
fn extended(root: &Path) -> (Running, Client) {
    let server = Running::start(options(root));
    let mut client = Client::anonymous(server.address);
    client.expect("MODE E", "200");
    (server, client)
}

/// So many connections for an upload, behind the 150.
fn connected(client: &mut Client, line: &str, connections: usize) -> Vec<TcpStream> {
    let address = client.passive();
    client.expect(line, "150");
    (0..connections).map(|_| TcpStream::connect(address).unwrap()).collect()
}

/// The codes up to the final one.
fn finish(client: &mut Client) -> Vec<String> {
    let mut codes = Vec::new();
    loop {
        let reply = client.reply();
        codes.push(reply[..3].to_owned());
        if !reply.starts_with('1') {
            return codes;
        }
    }
}

/// The blocks of one connection up to its EOD: bytes by offset, and what EOF says.
fn blocks(stream: &mut TcpStream, file: &mut Vec<u8>) -> Option<u64> {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut connections = None;
    loop {
        let mut header = [0; 17];
        stream.read_exact(&mut header).unwrap();
        let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        let (descriptor, count, offset) = (header[0], number(1) as usize, number(9));
        if descriptor & EOF != 0 {
            connections = Some(offset);
        } else if count > 0 {
            let end = offset as usize + count;
            if file.len() < end {
                file.resize(end, 0);
            }
            stream.read_exact(&mut file[end - count..end]).unwrap();
        }
        if descriptor & EOD != 0 {
            return connections;
        }
    }
}

/// Blocks in any order, some twice, over connections that end in any order; and the same connections once more.
#[test]
fn an_upload_is_what_was_sent() {
    let root = tempfile::tempdir().unwrap();
    let (_server, mut client) = extended(root.path());
    let bytes = content(700_001);
    let mut streams = connected(&mut client, "STOR a", 3);
    streams[0].write_all(&block(500_000, &bytes[500_000..])).unwrap();
    streams[0].write_all(&header(EOF | EOD, 0, 3)).unwrap();
    streams[2].write_all(&block(0, &bytes[..300_000])).unwrap();
    streams[1].write_all(&block(250_000, &bytes[250_000..500_001])).unwrap();
    streams[1].write_all(&header(EOD, 0, 0)).unwrap();
    streams[2].write_all(&block(10, &bytes[10..20])).unwrap();
    streams[2].write_all(&header(EOD, 0, 0)).unwrap();
    assert_eq!(finish(&mut client), ["112", "111", "226"]);
    assert!(std::fs::read(root.path().join("a")).unwrap() == bytes);

    client.expect("STOR b", "125");
    streams[1].write_all(&block(0, b"abc")).unwrap();
    streams[1].write_all(&header(EOF | EOD, 0, 3)).unwrap();
    streams[0].write_all(&header(EOD, 0, 0)).unwrap();
    streams[2].write_all(&header(EOD, 0, 0)).unwrap();
    assert_eq!(finish(&mut client), ["112", "111", "226"]);
    assert_eq!(std::fs::read(root.path().join("b")).unwrap(), b"abc");
    // Another direction, and another mode, need connections of their own.
    client.expect("RETR b", "425");
    client.expect("MODE S", "200");
    client.expect("STOR c", "425");
    assert_eq!(client.fetch("RETR b").0, b"abc");
}

/// What is no whole file leaves the one that stands, and no part.
#[test]
fn an_upload_is_whole_or_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (_server, mut client) = extended(root.path());
    std::fs::write(root.path().join("a"), "before").unwrap();
    let gap = [block(0, b"ab"), block(3, b"d"), header(EOF | EOD, 0, 1)].concat();
    let broken = [block(0, b"ab"), header(0, 100, 2)].concat();
    let behind = header(0, 2, i64::MAX as u64 - 1);
    let unknown = [block(0, b"ab"), header(0x20, 0, 0)].concat();
    let too_many = header(EOF, 0, 33);
    let empty = header(0, 0, 0).repeat(17);
    for (what, sent) in [
        ("gap", gap),
        ("broken", broken),
        ("behind", behind),
        ("unknown", unknown),
        ("many", too_many),
        ("empty", empty),
    ] {
        let mut streams = connected(&mut client, "STOR a", 1);
        streams[0].write_all(&sent).unwrap();
        drop(streams);
        assert_eq!(finish(&mut client), ["426"], "{what}");
    }
    client.expect("ALLO 5", "200");
    let mut streams = connected(&mut client, "STOR a", 1);
    streams[0].write_all(&[block(0, b"ab"), header(EOF | EOD, 0, 1)].concat()).unwrap();
    assert_eq!(finish(&mut client), ["426"], "fewer than ALLO said");
    assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"before");
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "a part is left");
    client.expect("REST 0-3", "350");
    let _address = client.passive();
    client.expect("STOR a", "554");
    let _address = client.passive();
    client.expect("APPE a", "504");
}

/// A connection by which nothing comes, and one that closes at once, take no part.
#[test]
fn a_silent_connection_holds_up_no_upload() {
    let root = tempfile::tempdir().unwrap();
    let (_server, mut client) = extended(root.path());
    let mut streams = connected(&mut client, "STOR a", 3);
    drop(streams.remove(0));
    streams[1].write_all(&[block(0, b"ab"), header(EOF | EOD, 0, 1)].concat()).unwrap();
    assert_eq!(finish(&mut client), ["112", "111", "226"]);
    assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"ab");
}

#[test]
fn a_download_leaves_out_what_the_client_has() {
    let root = tempfile::tempdir().unwrap();
    let (_server, mut client) = extended(root.path());
    let bytes = content(900_001);
    std::fs::write(root.path().join("a"), &bytes).unwrap();
    client.expect("OPTS RETR Parallelism=3,1,8;", "200");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let [high, low] = listener.local_addr().unwrap().port().to_be_bytes();
    client.expect(&format!("PORT 127,0,0,1,{high},{low}"), "200");
    client.expect("REST 0-300000,400000-900000", "350");
    client.expect("RETR a", "150");
    let mut streams: Vec<TcpStream> = (0..3).map(|_| listener.accept().unwrap().0).collect();
    let mut file = Vec::new();
    let ends: Vec<u64> = streams.iter_mut().filter_map(|stream| blocks(stream, &mut file)).collect();
    assert_eq!((ends, finish(&mut client)), (vec![3], vec!["226".to_owned()]));
    assert!(file[..300_000].iter().all(|byte| *byte == 0) && file[300_000..400_000] == bytes[300_000..400_000]);
    assert!(file[400_000..900_000].iter().all(|byte| *byte == 0) && file[900_000..] == bytes[900_000..]);
    // A file that is not there leaves the connections for the next one, from its first byte.
    client.expect("RETR none", "550");
    client.expect("RETR a", "125");
    let mut file = Vec::new();
    let ends: Vec<u64> = streams.iter_mut().filter_map(|stream| blocks(stream, &mut file)).collect();
    assert_eq!((ends, finish(&mut client)), (vec![3], vec!["226".to_owned()]));
    assert!(file == bytes);
    client.expect("OPTS RETR Parallelism=64,64,64;", "504");
    client.expect("OPTS RETR Parallelism=0,0,0;", "504");
    client.expect("OPTS RETR Parallelism=x;", "501");
}

#[test]
fn digests_of_gridftp() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a b"), "xabcx").unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    assert_eq!(client.expect("CKSM MD5 1 3 a b", "213"), "213 900150983cd24fb0d6963f7d28e17f72\r\n");
    assert_eq!(
        client.expect("CKSM SHA256 0 -1 a b", "213"),
        "213 a4bbab820a74a5b725c3f309c62c4fbe7e7c2ff92610b091e558b583ff41d2a9\r\n"
    );
    client.expect("CKSM MD5 6 -1 a b", "554");
    assert_eq!(client.fetch("ERET P 1 3 a b").0, b"abc");
    client.expect("SITE CLIENTINFO scheme=ftp;", "250");
    client.expect("SBUF 1048576", "200");
}

/// The machine: who connects, and what one stripe answers.
#[test]
fn the_sender_connects() {
    let mut script = Script::ready(Rights::ALL);
    assert_eq!([script.codes("TYPE I"), script.codes("MODE E")].concat(), ["200", "200"]);
    assert_eq!(script.say("SPAS"), [Action::Listen]);
    let address: SocketAddr = "192.0.2.1:5000".parse().unwrap();
    script.machine.outcome(Outcome::Listening(Some(address)), at(0));
    let [Action::Send(reply)] = &script.machine.actions()[..] else { panic!("no reply") };
    assert_eq!(reply, b"229-Entering Striped Passive Mode\r\n 192,0,2,1,19,136\r\n229 End\r\n");
    assert_eq!(script.codes("RETR a"), ["425"]);
    assert_eq!(script.codes("STOR a"), ["425"], "the port was for the command that was refused");
    assert_eq!(script.codes("SPOR 192,0,2,9,19,136"), ["200"]);
    assert_eq!(script.codes("STOR a"), ["425"]);
    assert_eq!(script.codes("SPOR 198,51,100,99,19,136"), ["504"], "a stranger's address");
    script.listen();
    assert_eq!(script.codes("MLSD"), ["504"]);
    script.listen();
    script.say("TYPE A");
    assert_eq!(script.codes("STOR a"), ["504"]);
}

#[test]
fn globus_url_copy() {
    if !has("globus-url-copy") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (root, local) = (directory.path().join("root"), directory.path().join("local"));
    std::fs::create_dir_all(local.join("tree/deep")).unwrap();
    std::fs::create_dir(&root).unwrap();
    let server = Running::start(options(&root));
    let url = |path: &str| format!("ftp://{}/{path}", server.address);
    let file = |path: &str| format!("file://{}", local.join(path).display());
    for (name, length) in [("empty", 0), ("one", 1), ("large", 5 << 20)] {
        let bytes = content(length);
        std::fs::write(local.join(name), &bytes).unwrap();
        std::fs::write(local.join("tree/deep").join(name), &bytes).unwrap();
        for streams in [&[][..], &["-p", "1"], &["-p", "4"]] {
            let (there, back) = (format!("{name}{}", streams.len()), format!("{name}.back"));
            succeed("globus-url-copy", &[streams, &[&file(name), &url(&there)]].concat(), &local);
            assert!(std::fs::read(root.join(&there)).unwrap() == bytes, "{name} by {streams:?}");
            succeed("globus-url-copy", &[streams, &[&url(&there), &file(&back)]].concat(), &local);
            assert!(std::fs::read(local.join(&back)).unwrap() == bytes, "{name} by {streams:?}, back");
            std::fs::remove_file(local.join(&back)).unwrap();
            std::fs::remove_file(root.join(&there)).unwrap();
        }
    }
    // A tree goes by the same connections, and with commands sent ahead.
    for pipelining in [&[][..], &["-pp"]] {
        let all = [pipelining, &["-p", "4", "-cd", "-r"]].concat();
        succeed("globus-url-copy", &[&all[..], &[&file("tree/"), &url("up/")]].concat(), &local);
        succeed("globus-url-copy", &[&all[..], &[&url("up/"), &file("down/")]].concat(), &local);
        for name in ["empty", "one", "large"] {
            let bytes = std::fs::read(local.join(name)).unwrap();
            assert!(std::fs::read(root.join("up/deep").join(name)).unwrap() == bytes, "{name} there");
            assert!(std::fs::read(local.join("down/deep").join(name)).unwrap() == bytes, "{name} back");
        }
        std::fs::remove_dir_all(root.join("up")).unwrap();
        std::fs::remove_dir_all(local.join("down")).unwrap();
    }
}
