//! TPRT: trees by sessions, killed and resumed; strangers at its port.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use verbena_ftp::{ChannelKind, CopyError, CopyOptions, Direction, Location, Rights, copy};

use crate::bench::{Client, LIMIT, Running, options};

fn copying(server: SocketAddr, path: &str, local: &Path, direction: Direction) -> CopyOptions {
    CopyOptions {
        remote: Location {
            host: server.ip().to_string(),
            port: server.port(),
            user: "anonymous".into(),
            password: "x@".into(),
            path: path.into(),
            tls: None,
        },
        local: local.to_owned(),
        direction,
        streams: Some(2),
        channels: vec![ChannelKind::Tcp],
        is_durable: false,
        limit: None,
        timeout: LIMIT,
    }
}

fn fill(root: &Path, size: usize) {
    std::fs::create_dir_all(root.join("deep")).unwrap();
    let bytes: Vec<u8> = (0..size as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    std::fs::write(root.join("big"), bytes).unwrap();
    std::fs::write(root.join("deep/ a\nb"), "odd").unwrap();
    std::fs::write(root.join("deep/empty"), "").unwrap();
}

#[track_caller]
fn same(one: &Path, other: &Path) {
    let output = Command::new("diff").arg("-r").args([one, other]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_tree_goes_there_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let [root, here, back] = ["root", "here", "back"].map(|name| directory.path().join(name));
    [&root, &here, &back].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    fill(&here, 5_000_001);
    let server = Running::start(options(&root));
    let put = copy(&copying(server.address, "in/tree", &here, Direction::Put), &mut |_| true).unwrap();
    assert_eq!((put.files, put.failures), (5, vec![]));
    same(&here, &root.join("in/tree"));
    let mut seen = 0;
    let count = &mut |progress: &verbena_ftp::Progress| {
        seen = progress.files;
        true
    };
    let get = copy(&copying(server.address, "in/tree", &back, Direction::Get), count).unwrap();
    assert_eq!((get.files, get.failures, seen), (5, vec![], 5));
    same(&here, &back);
    // Typed again, nothing but small files goes.
    let again = copy(&copying(server.address, "in/tree", &here, Direction::Put), &mut |_| true).unwrap();
    assert!(again.bytes < 100_000, "{}", again.bytes);
    // A tree that is not there, and a user who may not.
    let missing = copy(&copying(server.address, "nothing", &back, Direction::Get), &mut |_| true);
    assert!(matches!(&missing, Err(CopyError::Refused { reply, .. }) if reply.starts_with("550")), "{missing:?}");
    let forged = copy(&copying(server.address, "a\r\nDELE big", &back, Direction::Get), &mut |_| true);
    assert!(matches!(forged, Err(CopyError::Name(_))), "{forged:?}");
    let mut readers = options(&root);
    readers.anonymous = Some(Rights::READ);
    let readers = Running::start(readers);
    let denied = copy(&copying(readers.address, "x", &here, Direction::Put), &mut |_| true);
    assert!(matches!(&denied, Err(CopyError::Refused { reply, .. }) if reply.starts_with("550")), "{denied:?}");
}

#[test]
fn a_tree_goes_over_the_channel_that_the_client_likes_best() {
    let directory = tempfile::tempdir().unwrap();
    let [root, here, back] = ["root", "here", "back"].map(|name| directory.path().join(name));
    [&root, &here, &back].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    fill(&here, 5_000_001);
    let server = Running::start(options(&root));
    for (channels, found) in [
        (vec![ChannelKind::Quic], "quic"),
        (vec![ChannelKind::Quic, ChannelKind::Tcp], "quic"),
        (vec![ChannelKind::Tcp, ChannelKind::Quic], "tcp"),
        (vec![ChannelKind::Udp], "udp"),
        (vec![ChannelKind::Udp, ChannelKind::Quic], "udp"),
        (vec![ChannelKind::Descriptor, ChannelKind::Tcp], "descriptor"),
        (vec![], "tcp"),
    ] {
        for streams in [None, Some(3)] {
            // Without a channel, and without a number of streams, files are handed over on one machine.
            let found = if channels.is_empty() && streams.is_none() { "descriptor" } else { found };
            let streams = streams.filter(|_| found != "descriptor");
            let mut put = copying(server.address, "in/tree", &here, Direction::Put);
            (put.channels, put.streams) = (channels.clone(), streams);
            let sent = copy(&put, &mut |_| true).unwrap();
            assert_eq!((sent.files, sent.failures), (5, vec![]));
            assert!(sent.notes[0].starts_with(found), "{:?}", sent.notes);
            assert_eq!(sent.channel.map(ChannelKind::name), Some(found));
            let why = if found == "descriptor" { "of one user" } else { "quic or udp where packets are lost" };
            assert_eq!(sent.notes[0].contains(why), channels.is_empty(), "{:?}", sent.notes);
            assert!(streams.is_none_or(|streams| sent.streams == streams), "{}", sent.streams);
            let mut get = CopyOptions { direction: Direction::Get, local: back.clone(), ..put };
            get.remote.path = "in/tree".into();
            let received = copy(&get, &mut |_| true).unwrap();
            assert_eq!((received.files, received.failures), (5, vec![]));
            assert_eq!(received.channel.map(ChannelKind::name), Some(found));
            same(&here, &root.join("in/tree"));
            same(&here, &back);
            std::fs::remove_dir_all(root.join("in")).unwrap();
            std::fs::remove_file(back.join("big")).unwrap();
        }
    }
}

#[test]
fn files_are_not_handed_over_to_another_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: this needs root");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [root, here] = ["root", "here"].map(|name| directory.path().join(name));
    [&root, &here].iter().for_each(|path| std::fs::create_dir(path).unwrap());
    fill(&here, 100_000);
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).unwrap();
    let server = Running::start(options(&root));
    let mut put = copying(server.address, "in", &here, Direction::Put);
    (put.channels, put.streams) = (vec![], None);
    let copied = std::thread::spawn(move || {
        // Of this thread alone, and of those that it starts.
        let user = rustix::process::Uid::from_raw(1000);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        let named = CopyOptions { channels: vec![ChannelKind::Descriptor], ..put.clone() };
        (copy(&put, &mut |_| true).unwrap(), copy(&named, &mut |_| true).unwrap_err().to_string())
    });
    let (sent, refused) = copied.join().unwrap();
    same(&here, &root.join("in"));
    assert_eq!(sent.channel, Some(ChannelKind::Tcp));
    let why = "the other side is a process of user 0, and this one of 1000";
    assert!(
        sent.notes[0].starts_with("descriptor cannot be used: ") && sent.notes[0].ends_with(why),
        "{:?}",
        sent.notes
    );
    assert!(refused.contains(why), "{refused}");
}

/// The client of the test below, in a process of its own.
#[test]
fn child() {
    let Ok(text) = std::env::var("VERBENA_FTP_CHILD") else { return };
    let mut words = text.split('|');
    let (address, direction, local) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let direction = if direction == "put" { Direction::Put } else { Direction::Get };
    let mut copying = copying(address.parse().unwrap(), "tree", Path::new(local), direction);
    copying.channels = vec![words.next().unwrap().parse().unwrap()];
    copy(&copying, &mut |_| true).unwrap();
}

#[test]
fn a_client_that_is_killed_goes_on_where_it_was() {
    let is_long = std::env::var_os("VERBENA_LONG").is_some();
    let rounds = if is_long { 20 } else { 1 };
    for round in 0..rounds {
        // Each channel and each way in `make test`, each channel both ways in the long runs.
        let every = ChannelKind::ALL.into_iter().flat_map(|channel| [(channel, "put"), (channel, "get")]);
        let each = every.enumerate().filter(|(nth, _)| is_long || matches!(nth % 4, 0 | 3)).map(|(_, one)| one);
        for (channel, direction) in each {
            let directory = tempfile::tempdir().unwrap();
            let (root, local) = (directory.path().join("root"), directory.path().join("local"));
            std::fs::create_dir_all(root.join("tree")).unwrap();
            std::fs::create_dir(&local).unwrap();
            let server = Running::start(options(&root));
            let (source, target) = match direction {
                "put" => (local.clone(), root.join("tree")),
                _ => (root.join("tree"), local.clone()),
            };
            fill(&source, 40_000_001);
            let mut kills = 0;
            loop {
                let mut child = Command::new(std::env::current_exe().unwrap())
                    .args(["--exact", "sessions::child"])
                    .env("VERBENA_FTP_CHILD", format!("{}|{direction}|{}|{channel}", server.address, local.display()))
                    .stdout(Stdio::null())
                    .spawn()
                    .unwrap();
                // A part that has begun to grow, or the end.
                let begun = Instant::now();
                let grows = |bytes: u64| {
                    let parts = std::fs::read_dir(&target).unwrap().flatten();
                    let mut parts = parts.filter(|entry| entry.path().extension().is_some_and(|end| end == "part"));
                    parts.any(|part| part.metadata().is_ok_and(|data| data.len() >= bytes))
                };
                let aim = (1 << 20) * (kills as u64 * 9 + 1 + round);
                while kills < 3 && !grows(aim) && child.try_wait().unwrap().is_none() {
                    assert!(begun.elapsed() < LIMIT);
                    std::thread::sleep(Duration::from_millis(1));
                }
                if kills < 3 && child.try_wait().unwrap().is_none() {
                    child.kill().unwrap();
                    child.wait().unwrap();
                    kills += 1;
                } else {
                    assert!(child.wait().unwrap().success());
                    break;
                }
            }
            same(&local, &root.join("tree"));
            eprintln!("{direction} by {channel}: {kills} kills");
            let left = std::fs::read_dir(&target).unwrap().count();
            assert_eq!(left, 2, "{direction} by {channel} after {kills} kills: parts are left");
        }
    }
}

/// Two clients put to one target: what stands is all of one of them.
#[test]
fn two_clients_on_one_target_leave_one_version_over_every_channel() {
    let (is_long, all) = (std::env::var_os("VERBENA_LONG").is_some(), ChannelKind::ALL);
    let pairs =
        (0..if is_long { 20 } else { 1 }).flat_map(|_| all.into_iter().flat_map(|one| all.map(|two| (one, two))));
    // Each beside itself, and beside tcp.
    for (one, other) in pairs.filter(|(one, two)| is_long || one == two || *two == ChannelKind::Tcp) {
        let directory = tempfile::tempdir().unwrap();
        let [root, first, second] = ["root", "first", "second"].map(|name| directory.path().join(name));
        [&root, &first, &second].iter().for_each(|path| std::fs::create_dir(path).unwrap());
        fill(&first, 6_000_001);
        fill(&second, 6_000_001);
        let bytes: Vec<u8> = std::fs::read(first.join("big")).unwrap().iter().map(|byte| !byte).collect();
        std::fs::write(second.join("big"), &bytes).unwrap();
        let server = Running::start(options(&root));
        let put = |channel, local: &Path| CopyOptions {
            channels: vec![channel],
            ..copying(server.address, "in", local, Direction::Put)
        };
        let rival = put(other, &second);
        let rival = std::thread::spawn(move || copy(&rival, &mut |_| true));
        let ours = copy(&put(one, &first), &mut |_| true);
        let theirs = rival.join().unwrap();
        let stands = std::fs::read(root.join("in/big")).ok();
        let is_whole = |local: &Path| stands.as_ref() == std::fs::read(local.join("big")).ok().as_ref();
        assert!(is_whole(&first) || is_whole(&second) || stands.is_none(), "{one} and {other}: a mixture stands");
        assert!(
            stands.is_some() || (has_failed(&ours) && has_failed(&theirs)),
            "{one} and {other}: {ours:?} {theirs:?}"
        );
        // The line once more, alone.
        assert_eq!(copy(&put(one, &first), &mut |_| true).unwrap().failures, vec![], "{one} and {other}");
        same(&first, &root.join("in"));
        let left = std::fs::read_dir(root.join("in")).unwrap().count();
        assert_eq!(left, 2, "{one} and {other}: parts are left");
    }
}

fn has_failed(copied: &Result<verbena_ftp::Summary, CopyError>) -> bool {
    copied.as_ref().is_ok_and(|summary| !summary.failures.is_empty()) || copied.is_err()
}

#[test]
fn strangers_at_the_port_of_a_session_hold_up_nobody() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(directory.path().join("tree")).unwrap();
    std::fs::write(directory.path().join("tree/a"), "secret").unwrap();
    let server = Running::start(options(directory.path()));
    let mut client = Client::anonymous(server.address);
    assert!(client.expect("FEAT", "211").contains(" TPRT descriptor,tcp,quic,udp\r\n"));
    client.expect("TPRT verbs,xdp 1", "504");
    client.expect("TPRT tcp 17", "501");
    client.expect("TPRT tcp 4-2", "501");
    client.expect("TPRT tcp 0-2", "501");
    // Channels that are joined are of one session; those that are not known, and what comes twice, is left out.
    let reply = client.expect("TPRT shm+quic+tcp+quic 1", "229");
    assert!(reply.contains("(quic |||") && reply.matches("|||").count() == 2, "{reply}");
    client.expect("TPRT shm+verbs 1", "504");
    let reply = client.expect("TPRT shm,tcp 1", "229");
    let inside = reply.split_once("(tcp |||").unwrap().1.trim_end().trim_end_matches(')').to_owned();
    let (port, token) = inside.split_once("| ").unwrap();
    let token: Vec<u8> = (0..16).map(|at| u8::from_str_radix(&token[2 * at..2 * at + 2], 16).unwrap()).collect();
    let address = SocketAddr::new(server.address.ip(), port.parse().unwrap());
    client.expect("RETR tree", "150");
    let silent = TcpStream::connect(address).unwrap();
    let mut garbage = TcpStream::connect(address).unwrap();
    garbage.write_all(&[0; 200]).unwrap();
    let mut thief = TcpStream::connect(address).unwrap();
    verbena_transfer::say_hello(&mut thief, [9; 16], 0, 1, 1 << 20).unwrap();
    thief.set_read_timeout(Some(LIMIT)).unwrap();
    let mut stolen = Vec::new();
    let _ = thief.read_to_end(&mut stolen);
    assert_eq!(stolen, b"");
    let mut ours = TcpStream::connect(address).unwrap();
    verbena_transfer::say_hello(&mut ours, token.try_into().unwrap(), 0, 1, 1 << 20).unwrap();
    let (frame, _) = verbena_transfer::read_frame(&mut ours).unwrap();
    assert!(matches!(frame, verbena_transfer::Frame::Offer { file: 1, .. }), "{frame:?}");
    drop((silent, ours));
    assert!(client.reply().starts_with("426"));
    // A session's port is for a session, and a passive one for a file.
    client.expect("TPRT tcp 1", "229");
    client.expect("MLSD", "425");
    client.passive();
    client.expect("RETR tree", "550");
}
