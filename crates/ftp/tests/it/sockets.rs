//! The server on sockets: limits, strangers, aborts, full disks, links, ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use verbena_ftp::{Rights, set_password};

use crate::bench::{Client, LIMIT, Running, options};

/// Waits until `is_so`.
#[track_caller]
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what} has not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_file_goes_there_and_back_in_each_type() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    let bytes: Vec<u8> = (0..700_001u32).map(|at| (at * 7 % 251) as u8).collect();
    assert!(client.store("STOR a", &bytes).starts_with("226"));
    assert_eq!(client.fetch("RETR a").0, bytes);
    client.expect("REST 700000", "350");
    assert_eq!(client.fetch("RETR a").0, bytes[700_000..]);
    client.expect("RANG 5 9", "350");
    assert_eq!(client.fetch("RETR a").0, bytes[5..10]);
    client.expect("REST 5", "350");
    assert!(client.store("STOR a", b"xyz").starts_with("226"));
    assert!(client.store("APPE a", b"!").starts_with("226"));
    assert_eq!(client.fetch("RETR a").0, [&bytes[..5], b"xyz!"].concat());
    client.expect("REST 100", "350");
    let _data = TcpStream::connect(client.passive()).unwrap();
    client.expect("RETR a", "554");
    client.expect("REST 100", "350");
    let _data = TcpStream::connect(client.passive()).unwrap();
    client.expect("STOR a", "554");
    assert_eq!(client.fetch("RETR a").0, [&bytes[..5], b"xyz!"].concat());
    client.expect("TYPE A", "200");
    client.expect("SIZE a", "550");
    assert!(client.store("STOR text", b"one\r\ntwo\r\n").starts_with("226"));
    assert_eq!(std::fs::read(root.path().join("text")).unwrap(), b"one\ntwo\n");
    assert_eq!(client.fetch("RETR text").0, b"one\r\ntwo\r\n");
    assert!(client.store("STOU", b"new").starts_with("226"));
    assert!(client.store("STOR empty", b"").starts_with("226"));
    assert_eq!(client.fetch("RETR empty").0, b"");
}

#[test]
fn facts_hashes_and_times() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    client.store("STOR a b", b"abc");
    assert!(client.expect("MFMT 20240229123456 a b", "213").contains("Modify=20240229123456; /a b"));
    assert_eq!(client.expect("MDTM a b", "213"), "213 20240229123456\r\n");
    assert_eq!(client.expect("SIZE a b", "213"), "213 3\r\n");
    let digits = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(client.expect("HASH a b", "213"), format!("213 SHA-256 0-2 {digits} a b\r\n"));
    assert!(client.expect("XSHA256 \"a b\"", "250").contains(&digits.to_uppercase()));
    client.expect("OPTS MLST size;modify;", "200");
    let listing = client.fetch("MLSD").0;
    assert_eq!(listing, b"size=3;modify=20240229123456; a b\r\n");
    assert!(client.expect("MLST a b", "250").contains(" size=3;modify=20240229123456; /a b\r\n"));
    client.expect("SITE CHMOD 600 a b", "200");
    assert!(client.expect("STAT", "211").contains("Type I"));
    assert!(client.expect("STAT a b", "212").contains("-rw------- "));
    client.expect("MKD d", "257");
    client.expect("CWD d", "250");
    client.expect("RNFR /a b", "350");
    client.expect("RNTO c", "250");
    assert_eq!(client.fetch("NLST /d").0, b"/d/c\r\n");
    assert_eq!(client.fetch("NLST ?").0, b"c\r\n");
    client.expect("RMD /d", "550");
    client.expect("DELE c", "250");
    client.expect("CDUP", "250");
    client.expect("RMD d", "250");
    assert_eq!(client.fetch("LIST").0, b"");
}

#[test]
fn no_link_leads_out() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("inside")).unwrap();
    std::fs::write(directory.path().join("secret"), "secret").unwrap();
    std::fs::write(root.join("inside/a"), "mine").unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink("..", root.join("up")).unwrap();
    symlink(directory.path().join("secret"), root.join("absolute")).unwrap();
    symlink("inside/a", root.join("in")).unwrap();
    symlink("../new", root.join("dangling")).unwrap();
    let server = Running::start(options(&root));
    let mut client = Client::anonymous(server.address);
    for line in [
        "CWD up",
        "SIZE out",
        "MLST out",
        "HASH out",
        "HASH absolute",
        "SITE CHMOD 777 out",
        "MDTM up/secret",
        "DELE up/secret",
        "MKD up/x",
        "RMD up/root",
        "MFMT 19700101000001 up/secret",
        "RNFR up/secret",
        "STAT up",
    ] {
        client.expect(line, "550");
    }
    for line in [
        "RETR out",
        "RETR absolute",
        "RETR up/secret",
        "STOR out",
        "STOR dangling",
        "APPE out",
        "LIST up",
        "NLST up",
        "MLSD up",
        "STOR up/x",
    ] {
        let _data = TcpStream::connect(client.passive()).unwrap();
        client.expect(line, "550");
    }
    assert_eq!(client.fetch("RETR in").0, b"mine");
    // The link itself is the user's.
    client.expect("DELE out", "250");
    assert_eq!(std::fs::read(directory.path().join("secret")).unwrap(), b"secret");
    assert!(!directory.path().join("new").exists() && !directory.path().join("x").exists());
}

#[test]
fn a_pipe_is_no_file_and_holds_up_nobody() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    for line in ["RETR pipe", "STOR pipe"] {
        let _data = TcpStream::connect(client.passive()).unwrap();
        client.expect(line, "550");
    }
    client.expect("HASH pipe", "550");
}

#[test]
fn an_abort_ends_a_transfer_that_stands() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("big"), vec![1; 64 << 20]).unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    let mut data = client.open("RETR big");
    data.read_exact(&mut [0; 1000]).unwrap();
    client.expect("NOOP", "200");
    assert!(client.expect("STAT", "211").contains("bytes moved"));
    client.expect("ABOR", "426");
    assert!(client.reply().starts_with("226"));
    drop(data);
    // An upload that is aborted is said to be incomplete, and one that waits for its data connection as well.
    let mut data = client.open("STOR half");
    data.write_all(b"half").unwrap();
    client.send(b"\xff\xf4\xff");
    client.send(b"\xf2ABOR\r\n");
    assert!(client.reply().starts_with("426"));
    assert!(client.reply().starts_with("226"));
    client.passive();
    client.expect("RETR big", "150");
    client.expect("ABOR", "426");
    assert!(client.reply().starts_with("226"));
    client.expect("PWD", "257");
}

#[test]
fn a_file_has_one_writer_at_a_time() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(options(root.path()));
    let (mut one, mut other) = (Client::anonymous(server.address), Client::anonymous(server.address));
    let mut data = one.open("STOR a");
    data.write_all(b"first").unwrap();
    let _second = TcpStream::connect(other.passive()).unwrap();
    other.expect("STOR a", "450");
    drop(data);
    assert!(one.reply().starts_with("226"));
    assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"first");
    assert!(other.store("STOR a", b"2").starts_with("226"));
}

/// An upload that still waits for its data connection ends with its client: otherwise no other one could write the file for as long as the server waits.
#[test]
fn an_upload_that_waits_ends_with_its_client() {
    let root = tempfile::tempdir().unwrap();
    let mut patient = options(root.path());
    patient.connect_timeout = Duration::from_secs(3600);
    let server = Running::start(patient);
    let (mut gone, mut other) = (Client::anonymous(server.address), Client::anonymous(server.address));
    gone.passive();
    gone.expect("STOR a", "150");
    let second = TcpStream::connect(other.passive()).unwrap();
    other.expect("STOR a", "450");
    drop((gone, second));
    let until = Instant::now() + LIMIT;
    loop {
        let mut data = TcpStream::connect(other.passive()).unwrap();
        other.send(b"STOR a\r\n");
        if other.reply().starts_with("150") {
            data.write_all(b"2").unwrap();
            drop(data);
            assert!(other.reply().starts_with("226"));
            break;
        }
        assert!(Instant::now() < until, "the file is still being written by a client that has gone");
    }
    assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"2");
}

#[test]
fn atomic_uploads_show_nothing_before_they_are_whole() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a"), "old").unwrap();
    let mut whole = options(root.path());
    whole.atomic_stores = true;
    let server = Running::start(whole);
    let mut client = Client::anonymous(server.address);
    let mut data = client.open("STOR a");
    data.write_all(b"new").unwrap();
    wait("the part", || std::fs::read_dir(root.path()).unwrap().count() == 2);
    let mut other = Client::anonymous(server.address);
    assert_eq!(other.fetch("RETR a").0, b"old");
    assert_eq!(other.fetch("NLST").0, b"a\r\n", "no listing shows a part");
    let mut part =
        std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let part = part.find(|name| name != "a").unwrap();
    other.expect(&format!("SIZE {part}"), "550");
    other.expect(&format!("DELE {part}"), "550");
    drop(data);
    assert!(client.reply().starts_with("226"));
    assert_eq!(other.fetch("RETR a").0, b"new");
    other.expect("REST 1", "350");
    assert_eq!(other.fetch("RETR a").0, b"ew", "downloads go on where they were");
    // Fewer bytes than were announced, a client that has gone, a restart.
    client.expect("ALLO 10", "200");
    assert!(client.store("STOR a", b"short").starts_with("426"));
    client.expect("REST 1", "350");
    let _data = TcpStream::connect(client.passive()).unwrap();
    client.expect("STOR a", "554");
    let mut data = client.open("STOR a");
    data.write_all(b"gone").unwrap();
    wait("the part", || std::fs::read_dir(root.path()).unwrap().count() == 2);
    drop(client);
    drop(data);
    wait("the end of the part", || std::fs::read_dir(root.path()).unwrap().count() == 1);
    assert_eq!(other.fetch("RETR a").0, b"new");
}

#[test]
fn strangers_at_a_passive_port_are_closed() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a"), "mine").unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    for _ in 0..20 {
        let address = client.passive();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.2:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        socket.connect(&address.into()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let mut stranger = TcpStream::from(socket);
        client.expect("RETR a", "150");
        let mut stolen = Vec::new();
        let _ = stranger.read_to_end(&mut stolen);
        assert_eq!(stolen, b"");
        let mut data = TcpStream::connect(address).unwrap();
        let mut bytes = String::new();
        data.read_to_string(&mut bytes).unwrap();
        assert_eq!(bytes, "mine");
        assert!(client.reply().starts_with("226"));
    }
}

#[test]
fn a_new_passive_port_closes_the_older_one() {
    let root = tempfile::tempdir().unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    let first = client.passive();
    let second = client.passive();
    assert_ne!(first, second);
    assert!(TcpStream::connect(first).is_err());
    assert!(TcpStream::connect(second).is_ok());
}

#[test]
fn ports_of_a_range_rest_before_they_are_used_again() {
    let root = tempfile::tempdir().unwrap();
    let mut narrow = options(root.path());
    let first = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().min(60_000);
    narrow.passive_ports = Some(first..=first + 9);
    let server = Running::start(narrow);
    let mut client = Client::anonymous(server.address);
    let mut seen: Vec<u16> = (0..8).map(|_| client.passive().port()).collect();
    assert!(seen.iter().all(|port| (first..first + 10).contains(port)), "{seen:?}");
    seen.sort_unstable();
    seen.dedup();
    // Another program may hold one or two of them.
    assert!(seen.len() >= 7, "{seen:?}");
}

#[test]
fn active_clients_are_served_and_others_are_not_attacked() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a"), "mine").unwrap();
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    client.expect(&format!("EPRT |1|127.0.0.1|{port}|"), "200");
    client.expect("RETR a", "150");
    let mut bytes = String::new();
    listener.accept().unwrap().0.read_to_string(&mut bytes).unwrap();
    assert_eq!(bytes, "mine");
    assert!(client.reply().starts_with("226"));
    drop(listener);
    client.expect(&format!("PORT 127,0,0,1,{},{}", port >> 8, port & 255), "200");
    client.expect("RETR a", "150");
    assert!(client.reply().starts_with("425"));
    client.expect("PORT 127,0,0,2,200,1", "504");
    client.expect("PORT 127,0,0,1,0,25", "504");
}

#[test]
fn silent_peers_are_given_up() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("big"), vec![1; 64 << 20]).unwrap();
    let mut short = options(root.path());
    short.connect_timeout = Duration::from_millis(300);
    short.stall_timeout = Duration::from_millis(500);
    short.idle_timeout = Duration::from_secs(3);
    short.login_timeout = Duration::from_millis(1500);
    let server = Running::start(short);
    let mut client = Client::anonymous(server.address);
    client.passive();
    client.expect("RETR big", "150");
    assert!(client.reply().starts_with("425"));
    let data = client.open("RETR big");
    assert!(client.reply().starts_with("426"));
    drop(data);
    let data = client.open("STOR a");
    assert!(client.reply().starts_with("426"));
    drop(data);
    assert!(client.reply().starts_with("421"));
    assert!(client.closes());
    let mut strange = Client::connect(server.address);
    assert!(strange.reply().starts_with("421"));
    assert!(strange.closes());
}

#[test]
fn connections_are_counted() {
    let root = tempfile::tempdir().unwrap();
    let mut few = options(root.path());
    few.most_sessions_per_address = 2;
    let server = Running::start(few);
    let one = Client::connect(server.address);
    let _two = Client::connect(server.address);
    let mut three = TcpStream::connect(server.address).unwrap();
    let mut text = String::new();
    three.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("421 "), "{text}");
    drop(one);
    wait("a free place", || {
        let mut again = TcpStream::connect(server.address).unwrap();
        let mut greeting = [0; 3];
        again.read_exact(&mut greeting).is_ok() && greeting == *b"220"
    });
}

#[test]
fn a_stop_lets_a_transfer_end() {
    let root = tempfile::tempdir().unwrap();
    let mut server = Running::start(options(root.path()));
    let (mut idle, mut busy) = (Client::anonymous(server.address), Client::anonymous(server.address));
    let mut data = busy.open("STOR a");
    server.stop();
    assert!(idle.reply().starts_with("421"));
    assert!(idle.closes());
    data.write_all(b"the end").unwrap();
    drop(data);
    assert!(busy.reply().starts_with("226"));
    assert!(busy.reply().starts_with("421"));
    server.join();
    assert_eq!(std::fs::read(root.path().join("a")).unwrap(), b"the end");
}

#[test]
fn users_have_homes_rights_and_a_log() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    std::fs::create_dir_all(root.join("alice")).unwrap();
    std::fs::write(root.join("not hers"), "x").unwrap();
    let users = directory.path().join("users.toml");
    set_password(&users, "alice", b"right").unwrap();
    let text = std::fs::read_to_string(&users).unwrap() + "home = \"alice\"\nrights = [\"read\", \"write\"]\n";
    std::fs::write(&users, text).unwrap();
    set_password(&users, "bob", b"right").unwrap();
    std::fs::write(&users, std::fs::read_to_string(&users).unwrap() + "home = \"missing\"\n").unwrap();
    let log = directory.path().join("xferlog");
    let mut named = options(&root);
    (named.users, named.anonymous, named.transfer_log) = (Some(users), None, Some(log.clone()));
    let server = Running::start(named);
    let mut client = Client::connect(server.address);
    for (user, password, code) in [("anonymous", "x", "530"), ("bob", "right", "530"), ("alice", "right", "230")] {
        client.expect(&format!("USER {user}"), "331");
        client.expect(&format!("PASS {password}"), code);
    }
    client.expect("TYPE I", "200");
    assert_eq!(client.fetch("NLST /").0, b"");
    assert!(client.store("STOR a b", b"hers").starts_with("226"));
    client.expect("DELE a b", "550");
    client.expect("SIZE ../not hers", "550");
    assert_eq!(client.fetch("RETR a b").0, b"hers");
    assert_eq!(std::fs::read(root.join("alice/a b")).unwrap(), b"hers");
    let text = std::fs::read_to_string(log).unwrap();
    let ends: Vec<&str> = text.lines().map(|line| line.split_once("127.0.0.1 ").unwrap().1).collect();
    assert_eq!(ends, ["4 /a_b b _ i r alice ftp 0 * c", "4 /a_b b _ o r alice ftp 0 * c"]);
}

#[test]
fn what_an_anonymous_reader_may_not_do() {
    let root = tempfile::tempdir().unwrap();
    let mut readers = options(root.path());
    readers.anonymous = Some(Rights::READ);
    let server = Running::start(readers);
    let mut client = Client::anonymous(server.address);
    let _data = TcpStream::connect(client.passive()).unwrap();
    client.expect("STOR a", "550");
    client.expect("MKD a", "550");
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn a_full_disk_is_452() {
    let root = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(root.path())
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        eprintln!("skipped: a small file system cannot be mounted");
        return;
    }
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    let mut data = client.open("STOR a");
    // The server closes when the disk is full.
    let _ = data.write_all(&vec![1; 8 << 20]);
    drop(data);
    let reply = client.reply();
    client.expect("DELE a", "250");
    assert!(client.store("STOR a", b"fits").starts_with("226"));
    drop((client, server));
    std::process::Command::new("umount").arg("-l").arg(root.path()).status().unwrap();
    assert!(reply.starts_with("452"), "{reply}");
}

#[test]
fn a_listing_of_many_is_whole() {
    let root = tempfile::tempdir().unwrap();
    let count = if std::env::var_os("VERBENA_LONG").is_some() { 300_000 } else { 20_000 };
    for at in 0..count {
        std::fs::write(root.path().join(format!("{at:06}")), "").unwrap();
    }
    let server = Running::start(options(root.path()));
    let mut client = Client::anonymous(server.address);
    let (bytes, reply) = client.fetch("MLSD");
    assert!(reply.starts_with("226"));
    let mut names: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    names.sort_by_key(|line| line.rsplit(|byte| *byte == b' ').next().unwrap().to_vec());
    assert_eq!(names.len(), count);
    assert!(names[count - 1].ends_with(format!(" {:06}\r", count - 1).as_bytes()));
    assert!(client.expect("STAT /", "212").contains("... more"));
}
