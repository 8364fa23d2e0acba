//! TLS on both sides of the relay: real clients, and servers that take no connection without it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::postgresql::Postgresql;
use verbena_testkit::programs::{has, output, verbena};

use crate::common::traffic::{Ended, started};
use crate::postgresql::{PYTHON, ports};

/// An authority, and what it vouches for.
struct Certificates {
    directory: tempfile::TempDir,
    authority: Issuer<'static, KeyPair>,
}

impl Certificates {
    fn new() -> Certificates {
        let directory = tempfile::tempdir().unwrap();
        // The servers run as users of their own.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let authority = Certificates::authority(&directory.path().join("ca.pem"));
        Certificates { directory, authority }
    }

    fn authority(file: &Path) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // A certificate that has its authority's name is taken for that.
        params.distinguished_name.push(DnType::CommonName, file.display().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        fs::write(file, params.self_signed(&key).unwrap().pem()).unwrap();
        Issuer::new(params, key)
    }

    /// A certificate and a key for this machine, which belongs to this user.
    fn pair(&self, name: &str, user: Option<&str>) -> [String; 2] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        let [certificate_at, key_at] = ["pem", "key"].map(|end| self.directory.path().join(format!("{name}.{end}")));
        fs::write(&certificate_at, certificate.pem()).unwrap();
        fs::write(&key_at, key.serialize_pem()).unwrap();
        fs::set_permissions(&key_at, Permissions::from_mode(0o600)).unwrap();
        if let Some(user) = user
            && output(Command::new("id").arg("-u")).trim() == "0"
        {
            let id = output(Command::new("id").args(["-u", user])).trim().parse().unwrap();
            chown(&key_at, Some(id), None).unwrap();
        }
        [certificate_at, key_at].map(|path| path.display().to_string())
    }

    fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }
}

/// A relay on a node of its own.
struct Relay {
    directory: tempfile::TempDir,
    port: String,
    _process: Ended,
}

impl Relay {
    fn start(to: &str, more: &[&str]) -> Relay {
        let directory = tempfile::tempdir().unwrap();
        let mut relay = verbena(&["database", "--json", "--name", "tls", "--to", to, "--listen", "127.0.0.1:0"]);
        relay.args(["--node-runtime", "run", "--node-state", "state"]).args(more);
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let (process, line) =
            started(relay.current_dir(directory.path()).stderr(log), |line| line.contains(r#""relaying""#));
        let relaying: Value = serde_json::from_str(&line).unwrap();
        let (_, port) = relaying["address"].as_str().unwrap().rsplit_once(':').unwrap();
        Relay { port: port.to_owned(), directory, _process: process }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }
}

/// What is made of a statement under the catalog of a database that is reached with TLS.
fn explained(to: &str, ca: &str, statement: &str) -> String {
    output(&mut verbena(&["database", "explain", "--database-to", to, "--database-tls-ca", ca, statement]))
}

/// What a command says, whether or not it succeeds.
fn said(command: &mut Command) -> (bool, String) {
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn mariadb(port: &str, more: &[&str], statements: &str) -> Command {
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "--protocol=tcp", "-h127.0.0.1", "-ushop", "-psecret", "-N", "-P", port]);
    client.args(more).args(["-e", statements]);
    client
}

/// Whether the server and the client each speak TLS.
const BOTH: &str = "SHOW STATUS LIKE 'Ssl_version'";

#[test]
fn mariadb_is_reached_with_tls_and_its_clients_reach_the_relay_with_it() {
    let certificates = Certificates::new();
    let [certificate, key] = certificates.pair("server", None);
    let [port] = ports();
    let [at, of_certificate, of_key] =
        [format!("--port={port}"), format!("--ssl-cert={certificate}"), format!("--ssl-key={key}")];
    let Some(server) = Mariadb::with(&[&at, "--bind-address=127.0.0.1", &of_certificate, &of_key]) else { return };
    let tables = "CREATE DATABASE shop; CREATE TABLE shop.products (id INT PRIMARY KEY, name LONGTEXT);
        INSERT INTO shop.products VALUES (1, 'tea'), (2, REPEAT('coffee', 500000));
        CREATE USER shop IDENTIFIED BY 'secret' REQUIRE SSL; GRANT ALL ON *.* TO shop;";
    output(server.client().args(["-e", tables]));
    let to = format!("mysql://shop:secret@127.0.0.1:{port}?ssl-mode=VERIFY_IDENTITY");
    let [of_relay, of_relay_key] = certificates.pair("relay", None);
    let ca = certificates.file("ca.pem");
    let secure = [
        "--database-tls-ca",
        &ca,
        "--database-tls-cert",
        &of_relay,
        "--database-tls-key",
        &of_relay_key,
        "--database-complete",
        "true",
    ];
    let relay = Relay::start(&to, &secure);
    let with_tls = [&format!("--ssl-ca={ca}"), "--ssl-verify-server-cert"];

    for more in [&with_tls[..], &["--skip-ssl"]] {
        assert_eq!(output(&mut mariadb(&relay.port, more, BOTH)), "Ssl_version\tTLSv1.3\n", "with the server");
        let status = output(&mut mariadb(&relay.port, more, "status"));
        let is_encrypted = status.contains("Cipher in use is");
        assert_eq!(is_encrypted, more == with_tls, "with the client: {status}");
        let statement = "SELECT * FROM shop.products ORDER BY id";
        let direct = output(&mut mariadb(&port, &with_tls, statement));
        assert!(direct.len() > 3_000_000);
        assert!(output(&mut mariadb(&relay.port, more, statement)) == direct);
        output(&mut mariadb(&relay.port, more, "UPDATE shop.products SET name = 'mate' WHERE id = 1"));
        // A file goes the other way.
        let file = certificates.directory.path().join("rows.tsv");
        fs::write(&file, (0..200_000).map(|row| format!("{}\tline {row}\n", row + 10)).collect::<String>()).unwrap();
        let load = format!(
            "DELETE FROM shop.products WHERE id >= 10; LOAD DATA LOCAL INFILE '{}' INTO TABLE shop.products;
            SELECT count(*) FROM shop.products",
            file.display()
        );
        assert_eq!(output(&mut mariadb(&relay.port, &[more, &["--local-infile=1"]].concat(), &load)), "200002\n");
        let wrong = said(mariadb(&relay.port, more, "SELECT 1").arg("-pwrong"));
        assert!(!wrong.0 && wrong.1.contains("1045"), "{wrong:?}");
    }
    if has(PYTHON, &["-c", "import pymysql"]) {
        let program = format!(
            "import pymysql
for tls in ({{'ca': '{ca}'}}, None):
    connection = pymysql.connect(host='127.0.0.1', port={}, user='shop', password='secret', ssl=tls)
    cursor = connection.cursor()
    cursor.execute('SELECT name FROM shop.products WHERE id = 1')
    print(cursor.fetchall(), connection._secure)",
            relay.port
        );
        let printed = output(Command::new(PYTHON).args(["-c", &program]));
        assert_eq!(printed, "(('mate',),) True\n(('mate',),) False\n");
    }
    // The catalog is read with TLS too, or nothing would be known of the table.
    let explained = explained(&to, &ca, "SELECT name FROM shop.products WHERE id = 1");
    assert!(explained.contains("shop.products: id=1"), "{explained}");

    // Another authority vouches for it.
    let foreign = certificates.directory.path().join("other.pem");
    Certificates::authority(&foreign);
    let foreign = foreign.display().to_string();
    let distrusting = Relay::start(&to, &["--database-tls-ca", &foreign]);
    let (is_through, told) = said(&mut mariadb(&distrusting.port, &["--skip-ssl"], "SELECT 1"));
    assert!(!is_through && told.contains("1429") && told.contains("no TLS with the database"), "{told}");
    assert!(told.contains("UnknownIssuer"), "{told}");
    assert!(distrusting.log().contains("UnknownIssuer"));

    let [bare_port] = ports();
    let bare = Mariadb::with(&[&format!("--port={bare_port}"), "--bind-address=127.0.0.1", "--skip-ssl"]).unwrap();
    let to = format!("mysql://127.0.0.1:{bare_port}?ssl-mode=VERIFY_IDENTITY");
    let unencrypted = Relay::start(&to, &["--database-tls-ca", &ca]);
    let (is_through, told) = said(&mut mariadb(&unencrypted.port, &["--skip-ssl"], "SELECT 1"));
    assert!(!is_through && told.contains("the database offers no TLS"), "{told}");
    drop(bare);
}

fn psql(port: &str, settings: &str, statement: &str) -> Command {
    let mut client = Command::new("psql");
    let to = format!("host=localhost port={port} user=shop dbname=postgres password=secret {settings}");
    client.args(["-X", "-At", &to, "-c", statement]);
    client
}

#[test]
fn postgresql_is_reached_with_tls_and_its_clients_reach_the_relay_with_it() {
    let certificates = Certificates::new();
    let [certificate, key] = certificates.pair("server", Some("postgres"));
    let [port] = ports();
    let settings = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        "ssl=on".into(),
        format!("ssl_cert_file={certificate}"),
        format!("ssl_key_file={key}"),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(server) = Postgresql::with("hostssl all all 127.0.0.1/32 scram-sha-256\n", &settings) else { return };
    let by_hand = |statement: &str| output(&mut server.psql(statement));
    by_hand("CREATE ROLE shop SUPERUSER LOGIN PASSWORD 'secret'");
    by_hand("CREATE TABLE products (id int PRIMARY KEY, name text)");
    by_hand("INSERT INTO products VALUES (1, 'tea'), (2, repeat('coffee', 500000))");
    let to = format!("postgres://shop:secret@localhost:{port}/postgres?sslmode=verify-full");
    let ca = certificates.file("ca.pem");
    let [of_relay, of_relay_key] = certificates.pair("relay", None);
    let own = ["--database-tls-ca", &ca, "--database-tls-cert", &of_relay, "--database-tls-key", &of_relay_key];
    let relay = Relay::start(&to, &own);
    let verified = format!("sslmode=verify-full sslrootcert={ca}");
    let unbound = format!("{verified} channel_binding=disable");
    let with_server = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    for settings in [&unbound, "sslmode=disable", "sslmode=disable channel_binding=prefer"] {
        assert_eq!(output(&mut psql(&relay.port, settings, with_server)), "t\n", "{settings}");
        let is_encrypted = output(&mut psql(&relay.port, settings, "\\conninfo")).contains("SSL connection");
        assert_eq!(is_encrypted, settings == unbound);
        let statement = "SELECT * FROM products ORDER BY id";
        let direct = output(&mut psql(&port, &verified, statement));
        assert!(direct.len() > 3_000_000);
        assert!(output(&mut psql(&relay.port, settings, statement)) == direct);
        output(&mut psql(&relay.port, settings, "UPDATE products SET name = 'mate' WHERE id = 1"));
        let wrong = said(psql(&relay.port, settings, "SELECT 1").env("PGPASSWORD", "x").args(["-d", "password=wrong"]));
        assert!(!wrong.0, "{wrong:?}");
    }
    // A login that is bound to the TLS of its connection is refused, unless the relay shows the database's certificate.
    let bound = format!("{verified} channel_binding=require");
    let (is_through, told) = said(&mut psql(&relay.port, &bound, "SELECT 1"));
    assert!(!is_through && told.contains("channel binding"), "{told}");
    let shared = ["--database-tls-ca", &ca, "--database-tls-cert", &certificate, "--database-tls-key", &key];
    let same = Relay::start(&to, &shared);
    assert_eq!(output(&mut psql(&same.port, &bound, "SELECT name FROM products WHERE id = 1")), "mate\n");
    assert_eq!(output(&mut psql(&same.port, &verified, with_server)), "t\n");
    drop(same);
    if has(PYTHON, &["-c", "import psycopg2"]) {
        // A request to cancel is a connection of its own.
        let program = format!(
            "import psycopg2, threading, time
for more in (dict(sslmode='verify-full', sslrootcert='{ca}', channel_binding='disable'), dict(sslmode='disable')):
    connection = psycopg2.connect(host='localhost', port={}, user='shop', password='secret', dbname='postgres', **more)
    threading.Timer(0.5, connection.cancel).start()
    try:
        connection.cursor().execute('SELECT pg_sleep(60)')
    except psycopg2.extensions.QueryCanceledError:
        print('cancelled')",
            relay.port
        );
        assert_eq!(output(Command::new(PYTHON).args(["-c", &program])), "cancelled\ncancelled\n");
    }
    let explained = explained(&to, &ca, "SELECT name FROM products WHERE id = 1");
    assert!(explained.contains("products: id=1"), "{explained}");

    let foreign = certificates.directory.path().join("other.pem");
    Certificates::authority(&foreign);
    let foreign = foreign.display().to_string();
    let distrusting = Relay::start(&to, &[&own[2..], &["--database-tls-ca", &foreign]].concat());
    for settings in ["sslmode=disable", &unbound] {
        let (is_through, told) = said(&mut psql(&distrusting.port, settings, "SELECT 1"));
        assert!(!is_through && told.contains("no TLS with the database") && told.contains("UnknownIssuer"), "{told}");
    }
    // A client with TLS is told in TLS that the database is away.
    let [free] = ports();
    let away = format!("postgres://shop:secret@localhost:{free}/postgres?sslmode=verify-full");
    let lonely = Relay::start(&away, &own);
    let (is_through, told) = said(&mut psql(&lonely.port, &unbound, "SELECT 1"));
    assert!(!is_through && told.contains("cannot be reached"), "{told}");
}

#[test]
fn certificates_that_are_renewed_are_shown_to_new_connections() {
    let certificates = Certificates::new();
    let Some(server) = Mariadb::get() else { return };
    output(server.client().args(["-e", "CREATE OR REPLACE USER shop IDENTIFIED BY 'secret'"]));
    let to = format!("mysql://localhost?socket={}", server.socket().display());
    let [of_relay, of_relay_key] = certificates.pair("relay", None);
    let relay = Relay::start(&to, &["--database-tls-cert", &of_relay, "--database-tls-key", &of_relay_key]);
    let verified = [&format!("--ssl-ca={}", certificates.file("ca.pem")), "--ssl-verify-server-cert"];
    assert_eq!(output(&mut mariadb(&relay.port, &verified, "SELECT 1")), "1\n");
    // By another authority.
    let renewed = Certificates::new();
    let pair = renewed.pair("relay", None).map(PathBuf::from);
    for (from, to) in pair.iter().zip([&of_relay, &of_relay_key]) {
        fs::copy(from, to).unwrap();
    }
    let verified = [&format!("--ssl-ca={}", renewed.file("ca.pem")), "--ssl-verify-server-cert"];
    verbena_testkit::programs::wait_for("the new certificate", || {
        mariadb(&relay.port, &verified, "SELECT 1").output().unwrap().status.success()
    });
}
