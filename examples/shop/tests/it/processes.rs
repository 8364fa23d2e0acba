//! Two `shop` processes on one file.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

struct Shop {
    process: Child,
    address: String,
}

impl Shop {
    fn start(database: &Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_shop"))
            .args(["--listen", "127.0.0.1:0", "--database"])
            .arg(database)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("shop: http://").unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Shop { process, address }
    }

    fn ask(&self, method: &str, path: &str, form: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: {}\r\n\
             content-type: application/x-www-form-urlencoded\r\n\r\n{form}",
            form.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        answer
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn two_processes_serve_one_shop_and_one_may_die() {
    let directory = tempfile::tempdir().unwrap();
    let database = directory.path().join("shop.db");
    // Both make the file at the same moment.
    let (mut one, two) = std::thread::scope(|scope| {
        let one = scope.spawn(|| Shop::start(&database));
        let two = scope.spawn(|| Shop::start(&database));
        (one.join().unwrap(), two.join().unwrap())
    });
    for number in 0..20 {
        let (writer, reader) = if number % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let answer = writer.ask("POST", "/product/5/price", &format!("number={}", 1000 + number));
        assert!(answer.ends_with(&format!("commit {} id 5\n", number + 2)), "{answer}");
        assert!(reader.ask("GET", "/product/5", "").contains(&format!(" 10.{number:02} ")));
    }
    one.process.kill().unwrap();
    one.process.wait().unwrap();
    two.ask("POST", "/product/5/price", "number=7");
    let again = Shop::start(&database);
    assert!(again.ask("GET", "/product/5", "").contains("data-commit=\"22\""));
}

#[test]
fn a_signal_ends_it_in_good_order() {
    let directory = tempfile::tempdir().unwrap();
    let mut shop = Shop::start(&directory.path().join("shop.db"));
    shop.ask("GET", "/", "");
    let told = Command::new("kill").arg(shop.process.id().to_string()).status().unwrap();
    assert!(told.success());
    assert!(shop.process.wait().unwrap().success());
}

#[test]
fn shops_that_begin_together_make_one_database() {
    for _ in 0..10 {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("shop.db");
        let begin = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    begin.wait();
                    verbena_shop::Database::open(&file).unwrap();
                });
            }
        });
    }
}
