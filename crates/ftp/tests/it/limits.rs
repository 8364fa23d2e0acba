//! What users may use, who is banned, and what the administrator sees and does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use verbena_ftp::{
    ChannelKind, CopyOptions, Direction, Location, PlainOptions, PlainSides, RateLimit, ServeOptions, SessionFacts,
    copy, copy_plain, set_password,
};

use crate::bench::{Client, LIMIT, Running, options};

/// A server where alice may do everything, within `limits`.
fn server(directory: &Path, limits: &str, change: impl FnOnce(&mut ServeOptions)) -> Running {
    let root = directory.join("root");
    std::fs::create_dir_all(&root).unwrap();
    write_users(directory, limits);
    let mut options = options(&root);
    options.users = Some(directory.join("users.toml"));
    change(&mut options);
    Running::start(options)
}

fn write_users(directory: &Path, limits: &str) {
    let file = directory.join("users.toml");
    set_password(&file, "alice", b"secret").unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, format!("{text}rights = [\"read\", \"write\", \"delete\"]\n{limits}\n")).unwrap();
}

fn alice(server: &Running) -> Client {
    let mut client = Client::connect(server.address);
    client.expect("USER alice", "331");
    client.expect("PASS secret", "230");
    client.expect("TYPE I", "200");
    client
}

fn tree(server: &Running, local: &Path) -> CopyOptions {
    CopyOptions {
        remote: Location {
            host: server.address.ip().to_string(),
            port: server.address.port(),
            user: "alice".into(),
            password: "secret".into(),
            path: b"tree".to_vec(),
            tls: None,
        },
        local: local.to_owned(),
        direction: Direction::Put,
        streams: Some(2),
        channels: vec![ChannelKind::Tcp],
        is_durable: false,
        limit: None,
        timeout: LIMIT,
    }
}

#[test]
fn a_quota_holds_for_uploads_and_trees_and_what_goes_gives_room() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "quota = \"1MiB\"", |_| {});
    let mut client = alice(&server);
    let bytes = vec![7; 600_000];
    assert!(client.store("STOR a", &bytes).starts_with("226"));
    assert!(client.store("STOR b", &bytes).starts_with("452"));
    assert!(client.store("STOR b", &bytes[..400_000]).starts_with("226"), "what was there of it gives room");
    assert!(client.store("APPE b", &bytes[..100_000]).starts_with("452"));
    client.expect("DELE b", "250");
    // A file that is replaced gives its room, also by a rename.
    assert!(client.store("STOR a", &vec![7; 1_000_000]).starts_with("226"));
    assert!(client.store("STOR c", &bytes[..48_000]).starts_with("226"));
    assert!(client.store("STOR d", &bytes[..1_000]).starts_with("452"));
    client.expect("DELE d", "250");
    client.expect("RNFR c", "350");
    client.expect("RNTO a", "250");
    assert!(client.store("STOR e", &bytes).starts_with("226"));
    // A tree: one file fits, and the other does not.
    let local = directory.path().join("local");
    std::fs::create_dir(&local).unwrap();
    std::fs::write(local.join("fits"), &bytes[..300_000]).unwrap();
    assert_eq!(copy(&tree(&server, &local), &mut |_| true).unwrap().failures, vec![]);
    std::fs::write(local.join("more"), &bytes[..300_000]).unwrap();
    let failures = copy(&tree(&server, &local), &mut |_| true).unwrap().failures;
    assert!(
        failures.len() == 1 && failures[0].0 == b"more" && failures[0].1.to_string().contains("quota"),
        "{failures:?}"
    );
    assert!(!directory.path().join("root/tree/more").exists());
    client.expect("DELE e", "250");
    assert_eq!(copy(&tree(&server, &local), &mut |_| true).unwrap().failures, vec![]);
}

/// The client's own rate, each way, over two connections, by sessions of both channels and by plain FTP.
#[test]
fn a_copy_is_no_faster_than_it_is_to_be() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "", |_| {});
    let local = directory.path().join("local");
    std::fs::create_dir(&local).unwrap();
    for name in ["a", "b"] {
        std::fs::write(local.join(name), vec![7; 512 << 10]).unwrap();
    }
    // A megabyte at one and a half a second, of which a quarter of a second may come ahead.
    let (limit, least) = (|| Some(RateLimit::new(3 << 19)), Duration::from_millis(400));
    let timed = |what: &str, copies: &dyn Fn() -> u64| {
        let began = Instant::now();
        assert_eq!(copies(), 1 << 20, "{what}");
        assert!(began.elapsed() >= least, "{what} took {:?}", began.elapsed());
    };
    for (nth, channel) in [ChannelKind::Tcp, ChannelKind::Quic, ChannelKind::Udp].into_iter().enumerate() {
        let place = |name: &str| directory.path().join(format!("root/{name}{nth}"));
        std::fs::create_dir_all(place("up")).unwrap();
        let up = || {
            let mut options = CopyOptions { limit: limit(), channels: vec![channel], ..tree(&server, &local) };
            options.remote.path = format!("up{nth}").into_bytes();
            copy(&options, &mut |_| true).unwrap().bytes
        };
        timed(&format!("put by {channel}"), &up);
        let back = directory.path().join(format!("back{nth}"));
        std::fs::create_dir(&back).unwrap();
        let down = || {
            let mut options = CopyOptions { limit: limit(), channels: vec![channel], ..tree(&server, &back) };
            (options.remote.path, options.direction) = (format!("up{nth}").into_bytes(), Direction::Get);
            copy(&options, &mut |_| true).unwrap().bytes
        };
        timed(&format!("get by {channel}"), &down);
    }
    for direction in [Direction::Put, Direction::Get] {
        let here = directory.path().join(format!("plain{direction:?}"));
        std::fs::create_dir(&here).unwrap();
        let plain = || {
            let CopyOptions { mut remote, timeout, .. } = tree(&server, &local);
            remote.path = if direction == Direction::Put { b"plain".to_vec() } else { b"up0".to_vec() };
            std::fs::create_dir_all(directory.path().join("root/plain")).unwrap();
            let options = PlainOptions {
                sides: match direction {
                    Direction::Put => PlainSides::Put(local.clone(), remote),
                    Direction::Get => PlainSides::Get(remote, here.clone()),
                },
                connections: 2,
                limit: limit(),
                timeout,
                is_update: false,
                exclude: vec![],
                deletes: false,
                is_dry: false,
            };
            let summary = copy_plain(&options).unwrap();
            assert_eq!(summary.failures, vec![]);
            summary.bytes
        };
        timed(&format!("plain FTP, {direction:?}"), &plain);
    }
}

#[test]
fn a_rate_holds_for_all_connections_of_a_user() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "rate = \"1MiB\"", |_| {});
    let bytes = vec![7; 1 << 20];
    // Three quarters of a second at the least, for a quarter may come ahead.
    let least = Duration::from_millis(700);
    let mut client = alice(&server);
    let begun = Instant::now();
    assert!(client.store("STOR a", &bytes).starts_with("226"));
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    let begun = Instant::now();
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| alice(&server).fetch("RETR a").0);
        assert!(client.fetch("RETR a").0 == bytes);
        other.join().unwrap()
    });
    assert!(other == bytes && begun.elapsed() >= least + Duration::from_secs(1), "{:?}", begun.elapsed());
    let local = directory.path().join("local");
    std::fs::create_dir(&local).unwrap();
    std::fs::write(local.join("a"), &bytes).unwrap();
    let begun = Instant::now();
    assert_eq!(copy(&tree(&server, &local), &mut |_| true).unwrap().failures, vec![]);
    assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    assert!(std::fs::read(directory.path().join("root/tree/a")).unwrap() == bytes);
}

#[test]
fn a_user_has_so_many_connections() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "connections = 1", |_| {});
    let first = alice(&server);
    let mut second = Client::connect(server.address);
    second.expect("USER alice", "331");
    assert!(second.expect("PASS secret", "530").contains("too many connections"));
    drop(first);
    let begun = Instant::now();
    loop {
        second.expect("USER alice", "331");
        second.send(b"PASS secret\r\n");
        if second.reply().starts_with("230") {
            break;
        }
        assert!(begun.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first line that a connection gets.
fn greeting(server: &Running) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut line = [0; 4];
    stream.read_exact(&mut line).unwrap();
    String::from_utf8_lossy(&line).into_owned()
}

fn asked(mut stream: impl Read + Write, request: &str) -> (String, String) {
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

#[test]
fn an_address_that_fails_is_banned_for_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "", |options| {
        (options.ban_after, options.ban_lasts) = (4, Duration::from_secs(4));
        options.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    let mut client = Client::connect(server.address);
    for _ in 0..2 {
        client.expect("USER alice", "331");
        client.expect("PASS guess", "530");
    }
    // A success forgets.
    client.expect("USER alice", "331");
    client.expect("PASS secret", "230");
    let mut stays = alice(&server);
    for _ in 0..2 {
        let mut client = Client::connect(server.address);
        for _ in 0..2 {
            client.expect("USER nobody", "331");
            client.expect("PASS guess", "530");
        }
    }
    assert_eq!(greeting(&server), "421 ");
    // A connection that stands tries nothing more, and whoever is in stays.
    stays.expect("NOOP", "200");
    stays.expect("USER alice", "331");
    stays.expect("PASS secret", "530");
    let metrics = || asked(TcpStream::connect(server.metrics.unwrap()).unwrap(), "GET /metrics").1;
    let found = metrics();
    for line in [
        "verbena_ftp_refused_total{reason=\"banned\"} 1",
        "verbena_ftp_logins_total{outcome=\"done\"} 2",
        "verbena_ftp_banned_addresses 1",
    ] {
        assert!(found.contains(line), "{line} is not in {found}");
    }
    let begun = Instant::now();
    while greeting(&server) != "220 " {
        assert!(begun.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_administrator_sees_sessions_and_ends_one() {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("control.sock");
    let server = server(directory.path(), "", |options| {
        options.control = Some(control.clone());
        options.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    std::fs::File::create(directory.path().join("root/large")).unwrap().set_len(8 << 30).unwrap();
    let mut client = alice(&server);
    let _idle = Client::connect(server.address);
    let mut data = client.open("RETR large");
    data.read_exact(&mut [0; 1000]).unwrap();
    let sessions = || -> Vec<SessionFacts> {
        serde_json::from_str(&asked(UnixStream::connect(&control).unwrap(), "GET /sessions").1).unwrap()
    };
    let begun = Instant::now();
    let busy = loop {
        let found = sessions();
        assert_eq!(found.len(), 2, "{found:?}");
        if let Some(busy) = found.into_iter().find(|one| one.bytes > 0) {
            break busy;
        }
        assert!(begun.elapsed() < LIMIT);
    };
    assert_eq!((busy.user.as_deref(), busy.doing.as_deref()), (Some("alice"), Some("RETR /large")));
    // A port shows numbers, and neither sessions nor ends.
    let port = || TcpStream::connect(server.metrics.unwrap()).unwrap();
    assert_eq!(asked(port(), "GET /sessions").0, "404");
    assert_eq!(asked(port(), &format!("DELETE /sessions/{}", busy.id)).0, "404");
    assert!(asked(port(), "GET /metrics").1.contains("verbena_ftp_sessions 2"));
    let end = |id: u64| asked(UnixStream::connect(&control).unwrap(), &format!("DELETE /sessions/{id}")).0;
    assert_eq!((end(busy.id), end(u64::MAX)), ("200".into(), "404".into()));
    assert!(client.reply().starts_with("421") && client.closes());
    let begun = Instant::now();
    while sessions().len() != 1 {
        assert!(begun.elapsed() < LIMIT);
    }
    drop(data);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&control).unwrap().permissions().mode() & 0o777, 0o600);
    server.join();
    assert!(!control.exists());
}

#[test]
fn users_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let server = server(directory.path(), "", |_| {});
    let mut stays = alice(&server);
    set_password(&directory.path().join("users.toml"), "bob", b"new").unwrap();
    let bob = |code: &str| {
        let mut client = Client::connect(server.address);
        client.expect("USER bob", "331");
        client.expect("PASS new", code);
    };
    bob("530");
    assert_eq!(server.handle.reload().unwrap(), 2);
    bob("230");
    std::fs::write(directory.path().join("users.toml"), "[users.x]\n").unwrap();
    assert!(server.handle.reload().is_err());
    bob("230");
    std::fs::write(directory.path().join("users.toml"), "").unwrap();
    assert_eq!(server.handle.reload().unwrap(), 0);
    bob("530");
    // What a login gave stays until the session ends.
    assert!(stays.store("STOR a", b"x").starts_with("226"));
}
