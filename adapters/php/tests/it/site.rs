//! PHP with the extension, and what stands before it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use verbena_testkit::mariadb::Mariadb;
use verbena_testkit::programs::{end_with_group, folder, has, output, verbena, wait_for};

/// The longest wait for an answer.
const SOON: Duration = Duration::from_secs(60);
/// The program of the site.
pub const PROGRAM: &str = include_str!("index.php");

/// An answer, as a client gets it.
#[derive(Debug)]
pub struct Answer {
    /// In small letters.
    pub head: String,
    pub body: String,
}

/// A process that ends with the test.
struct Ended(Child);

/// PHP's own server.
pub struct Php {
    pub port: u16,
    pub directory: TempDir,
    _process: Ended,
}

/// PHP behind a proxy, with its MariaDB behind the relay.
pub struct Site {
    _php: Php,
    pub proxy: u16,
    pub server: Arc<Mariadb>,
    socket: PathBuf,
    _directory: TempDir,
    _proxy: Ended,
}

impl Drop for Ended {
    fn drop(&mut self) {
        end_with_group(&mut self.0);
    }
}

/// The extension; nothing where PHP or what builds extensions is not installed.
pub fn extension() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let has_all = has(
            "php",
            &["-r", "exit(PHP_VERSION_ID >= 80200 && extension_loaded('mysqli') && extension_loaded('dom') ? 0 : 1);"],
        ) && has("php-config", &["--includes"]);
        if !has_all {
            eprintln!("skipped: php8.2-cli, php8.2-mysql, php8.2-xml and php8.2-dev are not installed");
            return None;
        }
        let out = folder().join("deps").join(format!("php-{}", std::process::id()));
        std::fs::create_dir_all(&out).unwrap();
        let mut make = Command::new("make");
        output(make.args(["-s", "-C", env!("CARGO_MANIFEST_DIR")]).arg(format!("OUT={}", out.display())));
        Some(out.join("verbena.so"))
    };
    BUILT.get_or_init(build).clone()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Php {
    /// Serves the program, which finds its database at `relay`. `code` says which files are the program.
    pub fn start(relay: &str, code: Option<&str>) -> Option<Php> {
        let extension = extension()?;
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("index.php"), PROGRAM).unwrap();
        std::fs::write(directory.path().join("data.php"), "<?php return 7;").unwrap();
        let port = free_port();
        let code = code.map_or_else(|| directory.path().display().to_string(), str::to_owned);
        let mut php = Command::new("php");
        // Several requests at once, and no requests of one process alone.
        php.env("PHP_CLI_SERVER_WORKERS", "2").env("RELAY", relay);
        // Its workers outlive it otherwise.
        php.process_group(0);
        php.arg("-d").arg(format!("extension={}", extension.display())).arg("-d").arg(format!("verbena.code={code}"));
        php.arg("-S").arg(format!("127.0.0.1:{port}")).arg("-t").arg(directory.path());
        let log = File::create(directory.path().join("log")).unwrap();
        let process = Ended(php.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        wait_for("PHP", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(Php { port, directory, _process: process })
    }

    /// Asks as a proxy does whose fill has this tag.
    pub fn ask(&self, query: &str, lines: &str) -> Answer {
        ask(self.port, query, lines)
    }
}

/// Asks for the program's page.
pub fn ask(port: u16, query: &str, lines: &str) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET /index.php?{query} HTTP/1.1\r\nHost: php.example\r\nConnection: close\r\n{lines}\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Answer { head: head.to_lowercase(), body: body.to_owned() }
}

impl Answer {
    pub fn is_hit(&self) -> bool {
        self.head.contains("verbena; hit")
    }

    /// What it testifies.
    pub fn testimony(&self) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix("verbena-complete: "))
    }
}

impl Site {
    /// `promised`: the configuration says that pages are made of the database alone.
    pub fn start(promised: bool, code: Option<&str>) -> Option<Site> {
        extension()?;
        let server = Mariadb::get()?;
        let tables = "DROP DATABASE IF EXISTS shop; CREATE DATABASE shop; USE shop;
            CREATE TABLE products (id INT PRIMARY KEY, name VARBINARY(100) NOT NULL, price INT NOT NULL);
            INSERT INTO products VALUES (1, 'tea', 10), (2, 'coffee', 20), (3, 'cocoa', 300);
            CREATE OR REPLACE USER shop IDENTIFIED BY 'secret'; GRANT ALL ON shop.* TO shop;";
        output(server.client().args(["-e", tables]));
        let directory = tempfile::tempdir().unwrap();
        let relay = free_port();
        let php = Php::start(&format!("127.0.0.1:{relay}"), code)?;
        let to = format!("mysql://shop:secret@localhost?socket={}", server.socket().display());
        let (origin, listen) = (format!("http://127.0.0.1:{}", php.port), format!("127.0.0.1:{relay}"));
        let mut proxy = verbena(&["proxy", "--json", "--listen", "127.0.0.1:0", "--origin", &origin]);
        proxy.args(["--database", &to, "--database-listen", &listen, "--node-runtime", "run", "--node-state", "state"]);
        proxy.args(["--database-complete", if promised { "true" } else { "false" }]).current_dir(directory.path());
        let log = File::create(directory.path().join("log")).unwrap();
        let mut proxy = Ended(proxy.stdout(Stdio::piped()).stderr(log).spawn().unwrap());
        let lines = BufReader::new(proxy.0.stdout.take().unwrap()).lines();
        let line = lines.map_while(Result::ok).find(|line| line.contains(r#""serving""#)).expect("the proxy serves");
        let serving: Value = serde_json::from_str(&line).unwrap();
        let port = serving["address"].as_str().unwrap().rsplit_once(':').unwrap().1.parse().unwrap();
        let socket = directory.path().join(serving["database"]["socket"].as_str().unwrap());
        Some(Site { _php: php, proxy: port, server, socket, _directory: directory, _proxy: proxy })
    }

    pub fn get(&self, query: &str) -> Answer {
        ask(self.proxy, query, "")
    }

    /// Asks until it is a hit.
    pub fn warm(&self, query: &str) -> String {
        let first = self.get(query);
        assert!(first.head.starts_with("http/1.1 200"), "{first:?}");
        let mut body = String::new();
        wait_for(&format!("a hit of {query}, which was first {first:?}"), || {
            let answer = self.get(query);
            body = answer.body.clone();
            answer.is_hit()
        });
        body
    }

    /// Statements by hand, through the relay.
    pub fn write(&self, statements: &str) {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-ushop", "-psecret", "shop", "-e", statements]);
        output(client.arg(format!("--socket={}", self.socket.display())));
    }

    /// What the server was asked, while this was done.
    pub fn statements(&self, what: impl FnOnce()) -> String {
        let file = self.server.directory.path().join(format!("asked-{}", self.proxy));
        let on = format!("SET GLOBAL general_log_file = '{}'; SET GLOBAL general_log = 1", file.display());
        output(self.server.client().args(["-e", &on]));
        what();
        output(self.server.client().args(["-e", "SET GLOBAL general_log = 0"]));
        std::fs::read_to_string(file).unwrap()
    }
}

/// Puts a file into a directory.
pub fn put(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).unwrap();
}
