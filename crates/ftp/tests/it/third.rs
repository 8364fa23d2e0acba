//! Sessions between two servers (rule T17), and files that go from server to server in other ways.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use verbena_ftp::{
    BetweenOptions, ChannelKind, CopyError, Location, PlainOptions, PlainSides, PlainSummary, Summary, copy_between,
    copy_file_between, copy_plain, set_password,
};

use crate::bench::{Client, LIMIT, Running, options};

/// A directory with two servers in it: `one` at 127.0.0.2 and `two` at 127.0.0.3, where alice may do everything. A client is at 127.0.0.1.
struct Two {
    _directory: tempfile::TempDir,
    roots: [PathBuf; 2],
    servers: [Running; 2],
}

/// `more` are the lines of alice at both servers.
fn two(more: [&str; 2]) -> Two {
    let directory = tempfile::tempdir().unwrap();
    let roots = ["one", "two"].map(|name| directory.path().join(name));
    let mut at = 0;
    let servers = roots.clone().map(|root| {
        std::fs::create_dir(&root).unwrap();
        let users = root.with_extension("toml");
        set_password(&users, "alice", b"secret").unwrap();
        let text = std::fs::read_to_string(&users).unwrap();
        let text: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
        let rights = "rights = [\"read\", \"write\", \"delete\"]";
        std::fs::write(&users, format!("{text}{rights}\n{}\n", more[at])).unwrap();
        let mut options = options(&root);
        options.listen = format!("127.0.0.{}:0", at + 2).parse().unwrap();
        options.users = Some(users);
        at += 1;
        Running::start(options)
    });
    Two { _directory: directory, roots, servers }
}

const FIRST: &str = "fxp = [\"127.0.0.2\"]";
const SECOND: &str = "fxp = [\"127.0.0.3\"]";

fn location(server: SocketAddr, path: &str) -> Location {
    let (host, port, path) = (server.ip().to_string(), server.port(), path.into());
    Location { host, port, user: "alice".into(), password: "secret".into(), path, tls: None }
}

impl Two {
    fn options(&self, from: &str, to: &str, channels: &[ChannelKind]) -> BetweenOptions {
        BetweenOptions {
            from: location(self.servers[0].address, from),
            to: location(self.servers[1].address, to),
            streams: None,
            channels: channels.to_vec(),
            timeout: LIMIT,
        }
    }

    fn session(&self, from: &str, to: &str, channels: &[ChannelKind]) -> Result<Summary, CopyError> {
        copy_between(&self.options(from, to, channels), &mut |_| true)
    }

    fn plain_options(&self) -> PlainOptions {
        let [one, two] = [0, 1].map(|at| location(self.servers[at].address, "tree"));
        PlainOptions {
            sides: PlainSides::Between(one, two),
            connections: 2,
            limit: None,
            timeout: LIMIT,
            is_update: false,
            exclude: Vec::new(),
            deletes: false,
            is_dry: false,
        }
    }

    fn plainly(&self, change: impl FnOnce(&mut PlainOptions)) -> PlainSummary {
        let mut options = self.plain_options();
        change(&mut options);
        copy_plain(&options).unwrap()
    }

    fn alice(&self, at: usize) -> Client {
        let mut client = Client::connect(self.servers[at].address);
        client.expect("USER alice", "331");
        client.expect("PASS secret", "230");
        client.expect("TYPE I", "200");
        client
    }
}

fn content(size: u32) -> Vec<u8> {
    (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect()
}

fn fill(root: &Path) {
    std::fs::create_dir_all(root.join("tree/deep")).unwrap();
    std::fs::write(root.join("tree/big"), content(5_000_001)).unwrap();
    std::fs::write(root.join("tree/deep/ a b"), "odd").unwrap();
    std::fs::write(root.join("tree/deep/empty"), "").unwrap();
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    let output = Command::new("diff").arg("-r").args([one, other]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Either server may be the one that connects, over each channel; the list of one of them is enough.
#[test]
fn a_tree_goes_from_server_to_server() {
    for (more, way) in [([SECOND, ""], "127.0.0.2"), (["", FIRST], "127.0.0.3")] {
        let two = two(more);
        fill(&two.roots[0]);
        for (channel, name) in
            [(Some(ChannelKind::Tcp), "tcp"), (Some(ChannelKind::Quic), "quic"), (None, "descriptor")]
        {
            let channels: Vec<ChannelKind> = channel.into_iter().collect();
            let to = format!("in/{name}");
            let summary = two.session("tree", &to, &channels).unwrap();
            assert_eq!((summary.files, summary.failures), (5, vec![]), "{name}");
            assert_eq!(summary.channel.map(ChannelKind::name), Some(name));
            assert!(summary.bytes >= 5_000_004, "{}", summary.bytes);
            let token = summary.notes.iter().find(|note| note.starts_with("token: ")).unwrap();
            assert!(token.starts_with(&format!("token: {way}:")), "{token}");
            same(&two.roots[0].join("tree"), &two.roots[1].join(&to));
            // Typed again, nothing but small files goes.
            assert!(two.session("tree", &to, &channels).unwrap().bytes < 100_000);
        }
        // A file goes into a directory, and under another name.
        for (to, found) in [("in/", "in/big"), ("other", "other")] {
            assert_eq!(two.session("tree/big", to, &[]).unwrap().files, 1);
            assert_eq!(std::fs::read(two.roots[1].join(found)).unwrap(), content(5_000_001));
        }
        // What is in the way is named, and nothing else fails.
        std::fs::create_dir_all(two.roots[1].join("way/big/x")).unwrap();
        let summary = two.session("tree", "way", &[]).unwrap();
        assert_eq!(summary.failures.iter().map(|(path, _)| path.as_slice()).collect::<Vec<_>>(), [b"big"]);
        assert!(summary.failures[0].1.to_string().contains("directory"), "{:?}", summary.failures);
        let missing = two.session("none", "in", &[]);
        assert!(matches!(&missing, Err(CopyError::Refused { code: 550, .. })), "{missing:?}");
    }
}

/// The bounce attack: no server connects to a host that its administrator has not listed for the user, whatever a client says, nor to a low port.
#[test]
fn no_server_connects_where_it_may_not() {
    let two = two(["", ""]);
    fill(&two.roots[0]);
    let refused = two.session("tree", "in", &[]);
    assert!(matches!(&refused, Err(CopyError::NoThird(why)) if why.contains("fxp")), "{refused:?}");
    assert!(!two.roots[1].join("in").exists());
    let victim = TcpListener::bind("127.0.0.9:0").unwrap();
    victim.set_nonblocking(true).unwrap();
    let port = victim.local_addr().unwrap().port();
    let token = "00112233445566778899aabbccddeeff";
    let mut client = two.alice(0);
    client.expect(&format!("TCON 127.0.0.9 1 (tcp |||{port}| {token})"), "504");
    client.expect("RETR tree", "425");
    client.expect(&format!("TCON 127.0.0.1 1 (tcp |||22| {token})"), "504");
    for wrong in ["127.0.0.1 1", "127.0.0.1 17 (tcp |||2222| 00)", "host 1 (tcp |||2222| 00)", ""] {
        client.expect(&format!("TCON {wrong}"), "501");
    }
    client.expect("TPRT tcp 1 host", "501");
    assert!(victim.accept().is_err(), "a server connected to a host that is not listed");
    // To its own address a client may send data by PORT too; a port that nothing listens at tells no more than one that does not speak.
    let own = TcpListener::bind("127.0.0.1:0").unwrap();
    let answers = [own.local_addr().unwrap().port(), port].map(|port| {
        client.expect(&format!("TCON 127.0.0.1 1 (tcp |||{port}| {token})"), "200");
        if port == own.local_addr().unwrap().port() {
            let accepting = own.try_clone().unwrap();
            std::thread::spawn(move || drop(accepting.accept()));
        }
        client.expect("RETR tree", "150");
        client.reply()
    });
    assert!(answers[1].starts_with("425 "), "{answers:?}");
    assert!(!answers[0].starts_with("226"), "{answers:?}");
}

/// A server that waits for another one takes streams from its address alone, and with the token.
#[test]
fn streams_come_from_the_server_that_was_named() {
    let two = two(["", ""]);
    let mut client = two.alice(1);
    let reply = client.expect("TPRT tcp 1 127.0.0.2", "229");
    let inside = reply.split_once("(tcp |||").unwrap().1.trim_end().trim_end_matches(')').to_owned();
    let (port, digits) = inside.split_once("| ").unwrap();
    let token: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    let address = SocketAddr::new(two.servers[1].address.ip(), port.parse().unwrap());
    client.expect("STOR in", "150");
    let said = |token: [u8; 16], stream: TcpStream| {
        let mut stream = stream;
        verbena_transfer::say_hello(&mut stream, token, 0, 1, 1 << 20).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.read(&mut [0; 16]).unwrap_or(0)
    };
    // The client itself is not who was named.
    assert_eq!(said(token.clone().try_into().unwrap(), TcpStream::connect(address).unwrap()), 0);
    let from_named = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.2:0".parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.connect(&address.into()).unwrap();
        TcpStream::from(socket)
    };
    assert_eq!(said([9; 16], from_named()), 0);
    assert!(said(token.try_into().unwrap(), from_named()) > 0, "no credit came");
}

/// A session that the client breaks off goes on with the next one.
#[test]
fn a_session_between_servers_goes_on() {
    let two = two([&format!("{SECOND}\nrate = \"20MiB\""), ""]);
    std::fs::create_dir(two.roots[0].join("tree")).unwrap();
    std::fs::write(two.roots[0].join("tree/big"), content(40 << 20)).unwrap();
    let options = two.options("tree", "in", &[]);
    let broken = copy_between(&options, &mut |progress| progress.bytes < 8 << 20);
    assert!(matches!(broken, Err(CopyError::Stopped)), "{broken:?}");
    assert!(!two.roots[1].join("in/big").exists());
    let summary = copy_between(&options, &mut |_| true).unwrap();
    assert!(summary.bytes <= 36 << 20, "{} bytes", summary.bytes);
    same(&two.roots[0].join("tree"), &two.roots[1].join("in"));
    assert_eq!(std::fs::read_dir(two.roots[1].join("in")).unwrap().count(), 1, "a part is left");
}

/// By plain FTP: directly where both servers list each other, else through the client. What stands is not sent again; the options hold.
#[test]
fn trees_go_between_servers_without_sessions() {
    for (more, way, why) in [
        ([SECOND, FIRST], "fxp:", ""),
        (["", FIRST], "client:", "127.0.0.2:"),
        // The source connects, and the target closes what it does not know. Where the source had sent all by then, the target waits on.
        ([SECOND, ""], "client:", "127.0.0."),
    ] {
        let two = two(more);
        fill(&two.roots[0]);
        std::fs::write(two.roots[0].join("tree/skip.tmp"), "x").unwrap();
        let exclude = |options: &mut PlainOptions| options.exclude = vec![b"*.tmp".to_vec()];
        let dry = two.plainly(|options| {
            exclude(options);
            options.is_dry = true;
        });
        assert_eq!((dry.changes.len(), two.roots[1].join("tree").exists()), (4, false));
        let first = two.plainly(exclude);
        assert_eq!((first.entries, first.bytes, first.failures), (4, 5_000_004, vec![]), "{more:?}");
        assert!(
            first.ways.len() == 1 && first.ways[0].starts_with(way) && first.ways[0].contains(why),
            "{:?}",
            first.ways
        );
        std::fs::remove_file(two.roots[0].join("tree/skip.tmp")).unwrap();
        same(&two.roots[0].join("tree"), &two.roots[1].join("tree"));
        let second = two.plainly(|_| {});
        assert!(second.changes.is_empty() && second.bytes == 0 && second.ways.is_empty(), "{second:?}");
        // What stands of a file is proven by both servers' hashes, and not sent again.
        std::fs::write(two.roots[1].join("tree/big"), &content(5_000_001)[..2_000_000]).unwrap();
        assert_eq!(two.plainly(|_| {}).bytes, 3_000_001);
        std::fs::write(two.roots[1].join("tree/big"), "another beginning").unwrap();
        std::fs::write(two.roots[1].join("tree/old"), "x").unwrap();
        assert_eq!(two.plainly(|options| options.deletes = true).bytes, 5_000_001);
        same(&two.roots[0].join("tree"), &two.roots[1].join("tree"));
        let (from, to) = (location(two.servers[0].address, "tree/big"), location(two.servers[1].address, ""));
        let (moved, ways) = copy_file_between((&from, &to), b"alone", None, LIMIT).unwrap();
        assert!(moved.size == 5_000_001 && ways[0].starts_with(way), "{moved:?} {ways:?}");
        assert_eq!(std::fs::read(two.roots[1].join("alone")).unwrap(), content(5_000_001));
    }
}

/// A relay of control connections to a server, which `PORT` and `EPRT` do not pass. Ends with the test's process.
fn without_port(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((server.ip(), 0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let to = TcpStream::connect(server).unwrap();
            let (mut from, mut back) = (to.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut from, &mut back));
            std::thread::spawn(move || {
                for line in BufReader::new(client).lines().map_while(Result::ok) {
                    if !(line.starts_with("PORT") || line.starts_with("EPRT")) {
                        (&to).write_all(format!("{line}\r\n").as_bytes()).unwrap();
                    }
                }
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

/// A server that never answers `PORT` costs a wait, and no file: all go through the client then.
#[test]
fn a_server_that_does_not_answer_port_fails_nothing() {
    let two = two([SECOND, FIRST]);
    fill(&two.roots[0]);
    let silent = without_port(two.servers[0].address);
    let one = location(silent, "tree");
    let data_of = |options: &mut PlainOptions| {
        options.sides = PlainSides::Between(one, location(two.servers[1].address, "tree"));
    };
    let summary = two.plainly(data_of);
    assert_eq!((summary.entries, summary.bytes, summary.failures), (4, 5_000_004, vec![]));
    assert!(summary.ways.len() == 1 && summary.ways[0].starts_with("client:"), "{:?}", summary.ways);
    assert!(summary.ways[0].contains(&format!("{silent} does not answer PORT")), "{:?}", summary.ways);
    same(&two.roots[0].join("tree"), &two.roots[1].join("tree"));
}

/// On one server nothing is copied onto itself, and nothing removed that is about to be copied.
#[test]
fn source_and_target_of_one_server_are_apart() {
    let two = two([FIRST, ""]);
    fill(&two.roots[0]);
    std::fs::create_dir(two.roots[0].join("tree/new")).unwrap();
    std::fs::write(two.roots[0].join("tree/new/x"), "x").unwrap();
    let at = |path: &str| location(two.servers[0].address, path);
    let is_within = |error: Option<CopyError>, what: &str| {
        assert!(matches!(&error, Some(CopyError::Within(why)) if why.contains(what)), "{error:?}, not {what}");
    };
    for (from, to, what) in [("tree", "./tree/", "are one"), ("tree", "tree/new", "the target is in the source")] {
        let options = BetweenOptions { from: at(from), to: at(to), ..two.options("", "", &[]) };
        is_within(copy_between(&options, &mut |_| true).err(), what);
    }
    let (from, to) = (at("tree/big"), at(""));
    is_within(copy_file_between((&from, &to), b"tree/big", None, LIMIT).err(), "are one");
    let plainly = |from: &str, to: &str, deletes| {
        let mut options = two.plain_options();
        (options.sides, options.deletes) = (PlainSides::Between(at(from), at(to)), deletes);
        copy_plain(&options)
    };
    is_within(plainly("tree", "tree", false).err(), "are one");
    is_within(plainly("tree/new", "tree", true).err(), "--delete would remove it");
    assert_eq!(std::fs::read(two.roots[0].join("tree/big")).unwrap(), content(5_000_001));
    assert_eq!(std::fs::read(two.roots[0].join("tree/new/x")).unwrap(), b"x");
    // Without `--delete` the content of a directory may go to the one above it.
    assert_eq!(plainly("tree/new", "tree", false).unwrap().failures, vec![]);
    assert_eq!(std::fs::read(two.roots[0].join("tree/x")).unwrap(), b"x");
}
