//! `AUTH TLS` with real clients, with clients that cut their connections off, and with strangers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use verbena_ftp::{DataTls, ServeOptions, Server, TlsOptions};

use crate::bench::{Client, LIMIT, Running, has, options, succeed};

/// A certificate for localhost that is its own authority, and its key.
pub fn certificate(directory: &Path) -> (PathBuf, PathBuf) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

/// Options of a server with a certificate in `directory`, which serves `directory`/root.
pub fn encrypted(directory: &Path, change: impl FnOnce(&mut TlsOptions)) -> ServeOptions {
    let (certificate, key) = certificate(directory);
    let root = directory.join("root");
    std::fs::create_dir_all(&root).unwrap();
    let mut tls = TlsOptions::new(certificate, key);
    change(&mut tls);
    let mut options = options(&root);
    options.tls = Some(tls);
    options
}

fn content(length: usize) -> Vec<u8> {
    (0..length as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

#[test]
fn curl_by_both_versions() {
    if !has("curl") {
        return;
    }
    for data in [DataTls::Any, DataTls::Resumed] {
        let directory = tempfile::tempdir().unwrap();
        let local = directory.path();
        let mut options = encrypted(local, |tls| (tls.data, tls.is_required) = (data, true));
        options.connect_timeout = LIMIT;
        let server = Running::start(options);
        let url = |name: &str| format!("ftp://localhost:{}/{name}", server.address.port());
        let bytes = content(3_000_001);
        std::fs::write(local.join("a"), &bytes).unwrap();
        for version in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
            let curl = |arguments: &[&str]| {
                let fixed = ["-sS", "-4", "--ssl-reqd", "--cacert", "cert.pem"];
                succeed("curl", &[&fixed[..], version, arguments].concat(), local)
            };
            // Several transfers on one connection: tickets that are used once must not run dry.
            for name in ["x", "y", "z"] {
                curl(&["-T", "a", &url(name)]);
            }
            let got = curl(&[&url("{x,y,z}")]);
            assert_eq!(got, bytes.repeat(3), "{data:?} {version:?}");
            let listing = String::from_utf8(curl(&["-l", &url("")])).unwrap();
            assert!(["x", "y", "z"].iter().all(|name| listing.lines().any(|line| line == *name)), "{listing}");
        }
        // In clear: no login.
        let output = crate::bench::run("curl", &["-sS", "-4", &url("x")], local);
        assert!(!output.status.success());
    }
}

#[test]
fn lftp_mirrors() {
    if !has("lftp") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let local = directory.path();
    let server = Running::start(encrypted(local, |tls| tls.is_required = true));
    std::fs::create_dir_all(local.join("tree/deep")).unwrap();
    let bytes = content(1_000_003);
    for number in 0..12 {
        std::fs::write(local.join(format!("tree/deep/{number}")), &bytes[number..]).unwrap();
    }
    let script = format!(
        "set ssl:ca-file cert.pem; set ftp:ssl-force yes; set ftp:ssl-allow-anonymous yes; set ftp:ssl-protect-data yes; \
         set net:max-retries 2; set cmd:fail-exit yes; set dns:order inet; open ftp://localhost:{}/; \
         mirror -R -P2 tree up; mirror -P3 up down; set ftp:passive-mode off; get up/deep/0 -o active; bye",
        server.address.port()
    );
    succeed("lftp", &["--norc", "-c", &script], local);
    for number in 0..12 {
        assert_eq!(std::fs::read(local.join(format!("down/deep/{number}"))).unwrap(), &bytes[number..]);
    }
    // curl 7.88 begins no TLS on active connections; lftp does.
    assert_eq!(std::fs::read(local.join("active")).unwrap(), bytes);
}

/// ftplib does not resume TLS, and waits for the answer to its close_notify.
#[test]
fn python() {
    if !has("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(encrypted(directory.path(), |_| {}));
    let script = r#"
import ftplib, io, ssl, sys
for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
    context = ssl.create_default_context(cafile="cert.pem")
    context.minimum_version = context.maximum_version = version
    f = ftplib.FTP_TLS(context=context)
    f.connect("localhost", int(sys.argv[1]), timeout=60)
    f.login()
    f.prot_p()
    for size in (0, 1, 100_000, 3_000_001):
        data = bytes(i * 7 % 251 for i in range(size))
        f.storbinary("STOR a", io.BytesIO(data))
        got = []
        f.retrbinary("RETR a", got.append)
        assert b"".join(got) == data
    assert "a" in f.nlst()
    # An upload that is cut off without close_notify is no file that arrived.
    with f.transfercmd("STOR cut") as connection:
        connection.sendall(b"half")
        import socket
        raw = socket.socket(fileno=connection.detach())
        raw.shutdown(socket.SHUT_WR)
        try:
            f.voidresp()
            assert False, "the end was taken for an end"
        except ftplib.error_temp as error:
            assert str(error).startswith("426"), error
    f.prot_c()
    f.storbinary("STOR a", io.BytesIO(b"in clear"))
    f.quit()
"#;
    std::fs::write(directory.path().join("script.py"), script).unwrap();
    succeed("python3", &["script.py", &server.address.port().to_string()], directory.path());
}

/// A client that speaks TLS, and keeps its sessions or does not.
struct Private {
    control: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    config: Arc<ClientConfig>,
}

fn config(directory: &Path) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_file(directory.join("cert.pem")).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

fn handshake(config: &Arc<ClientConfig>, stream: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let connection = ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap();
    StreamOwned::new(connection, stream)
}

impl Private {
    fn connect(server: &Running, config: Arc<ClientConfig>) -> Private {
        let mut clear = BufReader::new(TcpStream::connect(server.address).unwrap());
        let mut line = String::new();
        clear.read_line(&mut line).unwrap();
        clear.get_mut().write_all(b"AUTH TLS\r\n").unwrap();
        line.clear();
        clear.read_line(&mut line).unwrap();
        assert!(line.starts_with("234"), "{line}");
        let control = BufReader::new(handshake(&config, clear.into_inner()));
        let mut client = Private { control, config };
        client.expect("USER ftp", "331");
        client.expect("PASS x@", "230");
        client.expect("TYPE I", "200");
        client.expect("PBSZ 0", "200");
        client.expect("PROT P", "200");
        client
    }

    #[track_caller]
    fn reply(&mut self, code: &str) -> String {
        let mut line = String::new();
        self.control.read_line(&mut line).unwrap();
        assert!(line.starts_with(code), "{line:?} is not {code}");
        line
    }

    #[track_caller]
    fn expect(&mut self, line: &str, code: &str) -> String {
        self.control.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.reply(code)
    }

    fn passive(&mut self) -> TcpStream {
        let reply = self.expect("EPSV", "229");
        TcpStream::connect(("127.0.0.1", reply.split('|').nth(3).unwrap().parse().unwrap())).unwrap()
    }
}

/// Rule T4: clients that close without reading what the server sent. Tickets would make the kernel reset the connection.
#[test]
fn uploads_of_clients_that_never_read_are_whole() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(encrypted(directory.path(), |_| {}));
    let mut client = Private::connect(&server, config(directory.path()));
    let bytes = content(300_007);
    let rounds = if std::env::var_os("VERBENA_LONG").is_some() { 10_000 } else { 60 };
    for round in 0..rounds {
        let socket = client.passive();
        client.control.get_mut().write_all(b"STOR a\r\n").unwrap();
        let mut data = handshake(&client.config, socket);
        data.write_all(&bytes).unwrap();
        data.conn.send_close_notify();
        data.flush().unwrap();
        // Closes at once: what the server has sent meanwhile is not read.
        drop(data);
        client.reply("150");
        client.reply("226");
        assert_eq!(std::fs::metadata(directory.path().join("root/a")).unwrap().len(), 300_007, "round {round}");
    }
}

/// Rule T2: a thief at the client's own address, with a whole handshake and with a ticket of its own, gets nothing, and a
/// silent stranger holds up nobody.
#[test]
fn data_is_of_its_control_session() {
    let directory = tempfile::tempdir().unwrap();
    let mut options = encrypted(directory.path(), |tls| tls.data = DataTls::Resumed);
    options.connect_timeout = LIMIT;
    let server = Running::start(options);
    let bytes = content(100_000);
    std::fs::write(directory.path().join("root/a"), &bytes).unwrap();
    let own = config(directory.path());
    let mut client = Private::connect(&server, own);
    let thief = Private::connect(&server, config(directory.path()));
    for config in [config(directory.path()), thief.config.clone()] {
        let socket = client.passive();
        let address = socket.peer_addr().unwrap();
        let _silent = socket;
        let stolen = TcpStream::connect(address).unwrap();
        client.control.get_mut().write_all(b"RETR a\r\n").unwrap();
        client.reply("150");
        let mut stolen = handshake(&config, stolen);
        let mut found = Vec::new();
        let _ = stolen.read_to_end(&mut found);
        assert_eq!(found, b"", "a thief got data");
        let mut data = handshake(&client.config, TcpStream::connect(address).unwrap());
        let mut found = Vec::new();
        data.read_to_end(&mut found).unwrap();
        assert_eq!(found.len(), bytes.len());
        client.reply("226");
    }
}

/// Rule T15: what follows `AUTH` in clear is not carried out, in the same segment or in the next one.
#[test]
fn clear_bytes_behind_auth_close() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(encrypted(directory.path(), |_| {}));
    for late in [false, true] {
        let mut client = Client::connect(server.address);
        if late {
            client.expect("AUTH TLS", "234");
            client.send(b"USER ftp\r\nPASS x\r\n");
        } else {
            client.send(b"AUTH TLS\r\nUSER ftp\r\n");
            assert!(client.reply().starts_with("421"));
        }
        assert!(client.closes(), "late {late}");
    }
    // Without TLS there is no PROT P.
    let mut client = Client::anonymous(server.address);
    client.expect("PROT P", "503");
    client.expect("PBSZ 0", "503");
    client.expect("AUTH KERBEROS", "504");
}

#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let good = encrypted(path, |_| {});
    let other = path.join("other");
    std::fs::create_dir(&other).unwrap();
    let (_, other_key) = certificate(&other);
    std::fs::write(path.join("empty.pem"), "").unwrap();
    std::fs::write(path.join("broken.pem"), "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n").unwrap();
    let cases: [(TlsOptions, &str, &str); 5] = [
        (TlsOptions::new(path.join("none.pem"), path.join("key.pem")), "none.pem: No such file", "give a PEM file"),
        (TlsOptions::new(path.join("empty.pem"), path.join("key.pem")), "empty.pem: it holds no certificate", "give"),
        (TlsOptions::new(path.join("broken.pem"), path.join("key.pem")), "broken.pem: no PEM file", "certificate"),
        (TlsOptions::new(path.join("cert.pem"), path.join("cert.pem")), "cert.pem: it holds no", "private key"),
        (TlsOptions::new(path.join("cert.pem"), other_key), "other/key.pem: the key is not that", "put the server's"),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    for (tls, what, remedy) in cases {
        let error = Server::bind(ServeOptions { tls: Some(tls), ..good.clone() }).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(remedy), "{error}");
    }
}
