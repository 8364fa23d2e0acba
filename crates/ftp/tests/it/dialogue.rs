//! The machine by scripts: lines of the client, replies and actions of the machine.

use std::time::Duration;

use verbena_ftp::{
    Action, ChannelKind, FileAnswer, FileError, FileWork, Login, LoginError, Machine, Outcome, Rights, Settings, Tls,
    TransferError, What,
};
use verbena_terms::Time;

pub fn settings() -> Settings {
    Settings {
        peer: "192.0.2.9".parse().unwrap(),
        local: "192.0.2.1".parse().unwrap(),
        login_timeout: Duration::from_secs(60),
        idle_timeout: Duration::from_secs(300),
        hosts: vec!["Files.Example".into()],
        tls: Tls::Off,
    }
}

pub fn at(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

/// A machine and what it has sent.
pub struct Script {
    pub machine: Machine,
}

impl Script {
    pub fn new(settings: Settings) -> Script {
        let mut script = Script { machine: Machine::new(settings, at(0)) };
        assert_eq!(script.replies(), ["220"]);
        script
    }

    pub fn ready(rights: Rights) -> Script {
        let mut script = Script::new(settings());
        script.say("USER a");
        script.say("PASS b");
        let login = Login { rights, fxp: vec!["198.51.100.5".parse().unwrap()], ..Login::default() };
        script.machine.outcome(Outcome::Login(Ok(login)), at(0));
        script.machine.actions();
        script
    }

    /// The codes of replies since the last look; actions are dropped.
    pub fn replies(&mut self) -> Vec<String> {
        codes(&self.machine.actions())
    }

    pub fn say(&mut self, line: &str) -> Vec<Action> {
        self.machine.input(format!("{line}\r\n").as_bytes(), at(0));
        self.machine.actions()
    }

    pub fn codes(&mut self, line: &str) -> Vec<String> {
        codes(&self.say(line))
    }

    pub fn listen(&mut self) {
        assert_eq!(self.say("EPSV"), [Action::Listen]);
        self.machine.outcome(Outcome::Listening(Some("192.0.2.1:5000".parse().unwrap())), at(0));
        assert_eq!(self.replies(), ["229"]);
    }
}

/// The code of each last line of a reply, and `close`.
pub fn codes(actions: &[Action]) -> Vec<String> {
    let mut found = Vec::new();
    for action in actions {
        match action {
            Action::Send(bytes) => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                found.extend(text.lines().filter(|line| line.get(3..4) == Some(" ")).map(|line| line[..3].to_owned()));
            }
            Action::Close => found.push("close".into()),
            _ => {}
        }
    }
    found
}

#[test]
fn nothing_but_the_first_words_goes_without_a_login() {
    let mut script = Script::new(settings());
    for (line, code) in [
        ("PWD", "530"),
        ("RETR a", "530"),
        ("PASV", "530"),
        ("PORT 192,0,2,9,8,0", "530"),
        ("SITE CHMOD 777 a", "530"),
        ("PASS x", "503"),
        ("AUTH TLS", "502"),
        ("FEAT", "211"),
        ("HOST files.example", "220"),
        ("HOST other.example", "504"),
        ("SYST", "215"),
        ("USER a", "331"),
        ("HOST files.example", "503"),
    ] {
        assert_eq!(script.codes(line), [code], "{line}");
    }
    assert_eq!(script.say("PASS b"), [Action::Login { user: b"a".to_vec(), password: b"b".to_vec() }]);
    script.machine.outcome(Outcome::Login(Err(LoginError::Wrong)), at(0));
    assert_eq!(script.replies(), ["530"]);
}

#[test]
fn three_wrong_passwords_close() {
    let mut script = Script::new(settings());
    let mut seen = Vec::new();
    for _ in 0..3 {
        script.say("USER a");
        script.say("PASS b");
        script.machine.outcome(Outcome::Login(Err(LoginError::Wrong)), at(0));
        seen.extend(script.replies());
    }
    assert_eq!(seen, ["530", "530", "421", "close"]);
}

#[test]
fn a_reader_changes_nothing() {
    let mut script = Script::ready(Rights::READ);
    script.listen();
    for line in [
        "STOR a",
        "APPE a",
        "STOU",
        "DELE a",
        "MKD a",
        "RMD a",
        "RNFR a",
        "MFMT 19700101000001 a",
        "SITE CHMOD 777 a",
        "SITE UTIME 19700101000001 a",
    ] {
        assert_eq!(script.codes(line), ["550"], "{line}");
    }
    let mut writer = Script::ready(Rights { read: false, write: true, delete: false });
    writer.listen();
    for line in ["RETR a", "HASH a", "XSHA256 a"] {
        assert_eq!(writer.codes(line), ["550"], "{line}");
    }
}

#[test]
fn data_goes_to_the_peer_alone() {
    let mut script = Script::ready(Rights::ALL);
    for (line, code) in [
        ("PORT 192,0,2,9,4,0", "200"),
        ("PORT 192,0,2,9,3,255", "504"),
        ("PORT 192,0,2,10,4,0", "504"),
        ("PORT 127,0,0,1,4,0", "504"),
        ("EPRT |1|192.0.2.9|1024|", "200"),
        ("EPRT |1|192.0.2.8|1024|", "504"),
        ("EPRT |2|::ffff:192.0.2.9|1024|", "200"),
        ("EPRT |2|::1|1024|", "504"),
        ("EPRT |3|x|1024|", "522"),
        // The user's `fxp` lists it.
        ("PORT 198,51,100,5,4,0", "200"),
        ("EPSV 2", "522"),
        ("EPSV ALL", "200"),
        ("PORT 192,0,2,9,4,0", "503"),
        ("PASV", "503"),
    ] {
        assert_eq!(script.codes(line), [code], "{line}");
    }
}

#[test]
fn each_transfer_has_one_end_and_commands_keep_their_order() {
    let mut script = Script::ready(Rights::ALL);
    script.listen();
    let actions = script.say("RETR a\r\nNOOP\r\nSTAT\r\nPWD\r\nNOOP");
    assert!(matches!(&actions[0], Action::Transfer(transfer) if matches!(transfer.what, What::Retrieve { .. })));
    // NOOP and STAT do not wait; what stands behind PWD does.
    assert_eq!(actions[2], Action::Progress);
    assert_eq!(codes(&actions), ["200"]);
    script.machine.outcome(Outcome::Progress(7), at(0));
    assert_eq!(script.replies(), ["211"]);
    script.machine.outcome(Outcome::Opened { size: Some(9), name: None }, at(0));
    assert_eq!(script.replies(), ["150"]);
    script.machine.outcome(Outcome::Ended(Ok(())), at(0));
    assert_eq!(script.replies(), ["226", "257", "200"]);
}

#[test]
fn an_abort_has_two_answers_when_something_ran() {
    let mut script = Script::ready(Rights::ALL);
    assert_eq!(script.codes("ABOR"), ["226"]);
    script.listen();
    script.say("STOR a");
    script.machine.outcome(Outcome::Opened { size: None, name: None }, at(0));
    script.machine.actions();
    script.machine.input(b"\xff\xf4\xff\xf2ABOR\r\nPWD\r\n", at(0));
    assert_eq!(script.machine.actions(), [Action::Abort]);
    script.machine.outcome(Outcome::Ended(Err(TransferError::Broken)), at(0));
    assert_eq!(script.replies(), ["426", "226", "257"]);
    // Too late: the transfer had ended.
    script.listen();
    script.say("STOR a");
    script.machine.outcome(Outcome::Opened { size: None, name: None }, at(0));
    script.say("ABOR");
    script.machine.outcome(Outcome::Ended(Ok(())), at(0));
    assert_eq!(script.replies(), ["226", "226"]);
}

#[test]
fn failures_have_their_codes() {
    for (error, code) in [
        (TransferError::NoConnection, "425"),
        (TransferError::Stalled, "426"),
        (TransferError::File(FileError::Full), "452"),
        (TransferError::File(FileError::NotFound), "550"),
        (TransferError::File(FileError::BadName), "553"),
    ] {
        let mut script = Script::ready(Rights::ALL);
        script.listen();
        script.say("STOR a");
        script.machine.outcome(Outcome::Ended(Err(error)), at(0));
        assert_eq!(script.replies(), [code]);
        assert_eq!(script.codes("STOR a"), ["425"], "a data connection is for one transfer");
    }
}

#[test]
fn silence_ends_a_connection_but_never_a_transfer() {
    let mut script = Script::new(settings());
    assert_eq!(script.machine.next_deadline(), Some(at(60)));
    script.machine.tick(at(59));
    assert_eq!(script.replies(), [""; 0]);
    script.machine.tick(at(60));
    assert_eq!(script.replies(), ["421", "close"]);

    let mut script = Script::ready(Rights::ALL);
    script.machine.input(b"NOOP\r\n", at(100));
    assert_eq!(script.replies(), ["200"]);
    assert_eq!(script.machine.next_deadline(), Some(at(400)));
    script.listen();
    script.say("RETR a");
    assert_eq!(script.machine.next_deadline(), None);
}

#[test]
fn draining_lets_a_transfer_end() {
    let mut script = Script::ready(Rights::ALL);
    script.listen();
    script.say("RETR a");
    script.machine.drain();
    assert_eq!(script.replies(), [""; 0]);
    script.machine.outcome(Outcome::Ended(Ok(())), at(0));
    assert_eq!(script.replies(), ["226", "421", "close"]);
    let mut idle = Script::ready(Rights::ALL);
    idle.machine.drain();
    assert_eq!(idle.replies(), ["421", "close"]);
}

#[test]
fn renaming_takes_two_commands_in_a_row() {
    let mut script = Script::ready(Rights::ALL);
    script.say("RNFR a");
    script.machine.outcome(Outcome::File(Ok(FileAnswer::Done)), at(0));
    script.machine.actions();
    let actions = script.say("RNTO ../b");
    let Action::File(FileWork::Rename(from, to)) = &actions[0] else { panic!("{actions:?}") };
    assert_eq!((from.display(), to.display()), (b"/a".to_vec(), b"/b".to_vec()));
    script.machine.outcome(Outcome::File(Ok(FileAnswer::Done)), at(0));
    assert_eq!(script.replies(), ["250"]);
    assert_eq!(script.codes("RNTO c"), ["503"]);
    script.say("RNFR a");
    script.machine.outcome(Outcome::File(Ok(FileAnswer::Done)), at(0));
    script.machine.actions();
    script.say("NOOP");
    assert_eq!(script.codes("RNTO c"), ["503"]);
}

#[test]
fn bytes_behind_auth_in_clear_close() {
    let mut with_tls = settings();
    with_tls.tls = Tls::Required;
    let mut script = Script::new(with_tls.clone());
    assert_eq!(script.codes("USER a"), ["530"]);
    script.machine.input(b"AUTH TLS\r\nUSER a\r\n", at(0));
    assert_eq!(script.replies(), ["421", "close"]);
    let mut script = Script::new(with_tls.clone());
    script.machine.input(b"AUTH TLS\r\nU", at(0));
    assert_eq!(script.replies(), ["421", "close"]);
    let mut script = Script::new(with_tls);
    let actions = script.say("AUTH TLS");
    assert_eq!((codes(&actions), actions.last()), (vec!["234".into()], Some(&Action::StartTls)));
    script.machine.secured(at(0));
    assert_eq!(script.codes("USER a"), ["331"]);
}

/// What a client at an address gets of all channels, by whether its data is private and its rate limited.
#[test]
fn channels_are_those_that_may_be_used() {
    use ChannelKind::{Descriptor, Quic, Tcp, Udp};
    let all = "TPRT descriptor,tcp+quic+udp 1-16";
    for (peer, is_private, rate, found) in [
        ("192.0.2.9", false, None, vec![vec![Tcp, Quic, Udp]]),
        ("192.0.2.9", true, None, vec![vec![Quic, Udp]]),
        ("192.0.2.1", false, None, vec![vec![Descriptor], vec![Tcp, Quic, Udp]]),
        ("192.0.2.1", true, None, vec![vec![Descriptor], vec![Tcp, Quic, Udp]]),
        ("127.0.0.1", true, None, vec![vec![Descriptor], vec![Tcp, Quic, Udp]]),
        // What is copied passes no rate.
        ("192.0.2.1", false, Some(1000), vec![vec![Tcp, Quic, Udp]]),
    ] {
        let mut script = Script::new(Settings { peer: peer.parse().unwrap(), tls: Tls::Allowed, ..settings() });
        if is_private {
            assert!(script.say("AUTH TLS").contains(&Action::StartTls));
            script.machine.secured(at(0));
            assert_eq!([script.codes("PBSZ 0"), script.codes("PROT P")].concat(), ["200", "200"]);
        }
        script.say("USER a");
        script.say("PASS b");
        script.machine.outcome(Outcome::Login(Ok(Login { rate, ..Login::default() })), at(0));
        script.machine.actions();
        assert_eq!(
            script.say(all),
            [Action::ListenSession { channels: found, first: 1, most: 16, from: None }],
            "{peer}"
        );
        script.machine.outcome(Outcome::Session(Vec::new()), at(0));
        assert_eq!(script.replies(), ["425"]);
        // Descriptors have no other channel beside them.
        let [Action::ListenSession { channels, .. }] = &script.say("TPRT quic+descriptor 1")[..] else {
            panic!("no session");
        };
        assert_eq!(channels, &[vec![Quic]]);
    }
}

/// Where a user has the server connect for a session (rule T17): to the client and to listed hosts, to ports from 1024, and in clear on one machine or without `PROT P`.
#[test]
fn a_server_connects_to_listed_hosts() {
    let token = "00112233445566778899aabbccddeeff";
    let quic = format!("(quic |||2222| {token} {token}{token})");
    let tcp = |port: u16| format!("(tcp |||{port}| {token})");
    let descriptor = format!("(descriptor |||0| {token})");
    for (is_private, host, endpoints, code) in [
        (false, "192.0.2.9", tcp(2222), "200"),
        (false, "192.0.2.7", tcp(2222) + &quic, "200"),
        (false, "192.0.2.8", tcp(2222), "504"),
        (false, "192.0.2.7", tcp(1023), "504"),
        (false, "192.0.2.7", quic.clone() + &tcp(80), "504"),
        (true, "192.0.2.7", tcp(2222), "504"),
        (true, "192.0.2.7", quic.clone(), "200"),
        // Descriptors are of one machine.
        (false, "192.0.2.7", descriptor.clone(), "504"),
        (false, "192.0.2.1", descriptor, "200"),
        (true, "192.0.2.1", tcp(2222), "200"),
    ] {
        let mut script = Script::new(Settings { peer: "192.0.2.9".parse().unwrap(), tls: Tls::Allowed, ..settings() });
        if is_private {
            script.say("AUTH TLS");
            script.machine.secured(at(0));
            assert_eq!([script.codes("PBSZ 0"), script.codes("PROT P")].concat(), ["200", "200"]);
        }
        assert_eq!(script.codes(&format!("TCON {host} 1 {}", tcp(2222))), ["530"]);
        script.say("USER a");
        script.say("PASS b");
        let fxp = ["192.0.2.7", "192.0.2.1"].map(|host| host.parse().unwrap()).to_vec();
        script.machine.outcome(Outcome::Login(Ok(Login { fxp, ..Login::default() })), at(0));
        script.machine.actions();
        let found = script.say(&format!("TCON {host} 1-16 {endpoints}"));
        let connects = found.iter().any(|action| matches!(action, Action::ConnectSession { first: 1, most: 16, .. }));
        let said =
            found.iter().any(|action| matches!(action, Action::Send(bytes) if bytes.starts_with(code.as_bytes())));
        assert!(said && connects == (code == "200"), "{host} {endpoints}: {found:?}");
    }
}
