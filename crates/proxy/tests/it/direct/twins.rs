//! Two proxies that differ in where they answer hits, each before an application of its own that answers by the path alone.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use verbena_caching::{CookieRule, Mode, Rule, Writes};
use verbena_metrics::Value;
use verbena_proxy::{Hits, ProxyConfig};
use verbena_terms::Time;

use crate::scene::{Client, PATIENCE, Scene, next_head};

/// The pages that are in the cache, with what their heads say.
pub const PAGES: [(&str, &str); 14] = [
    ("/p/empty", "ETag: \"e\"\r\nContent-Length: 0\r\n"),
    ("/p/small", "ETag: \"x\"\r\nX-Own: small\r\nContent-Length: 5\r\n"),
    ("/p/untagged", "Content-Type: text/html\r\nContent-Length: 300\r\n"),
    ("/p/weak", "ETag: W/\"x\"\r\nContent-Length: 100\r\n"),
    ("/p/dated", "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 10\r\n"),
    ("/p/chunked", "Transfer-Encoding: chunked\r\n"),
    ("/p/large", "ETag: \"x\"\r\nLink: a\r\nLink: b\r\nContent-Length: 100000\r\n"),
    ("/p/public", "Cache-Control: public\r\nContent-Length: 8192\r\n"),
    ("/p/varies", "Vary: Accept-Language\r\nContent-Length: 20\r\n"),
    ("/p/noted", "Cache-Status: inner; hit\r\nContent-Length: 7\r\n"),
    ("/p/gone", "Content-Length: 4\r\n"),
    ("/p/nothing", ""),
    ("/s/tagged", "Cache-Control: max-age=1000\r\nETag: \"x\"\r\nCache-Status: inner; hit\r\nContent-Length: 6\r\n"),
    (
        "/s/dated",
        "Cache-Control: max-age=1000\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nContent-Length: 9\r\n",
    ),
];

/// A proxy that answers hits in one of the ways, and what its application was asked.
pub struct Twin {
    pub scene: Scene,
    asked: Arc<Mutex<Vec<String>>>,
    /// What it had counted when the pages were in the cache.
    before: BTreeMap<String, u64>,
}

/// What a client's bytes led to.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the client got, without moments.
    pub got: String,
    /// What the application was asked.
    pub asked: Vec<String>,
}

impl Twin {
    pub fn new(hits: Hits, is_far_from_home: bool) -> Twin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = asked.clone();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let all = all.clone();
                std::thread::spawn(move || answers(stream, &all));
            }
        });
        let rule = |prefix: &str, writes| Rule { prefix: prefix.into(), writes, ..Rule::default() };
        let change = |config: &mut ProxyConfig| {
            config.origin = vec![format!("http://{address}")];
            config.hits = hits;
            config.threads = 1;
            let cookies = CookieRule {
                ignore: Some(vec!["sid".into()]),
                key: Some(vec!["lang".into()]),
                ..CookieRule::default()
            };
            let standard = Rule { mode: Some(Mode::Standard), ..rule("/s", None) };
            config.routes = vec![
                Rule { cookies, ..rule("/", Some(Writes::Never)) },
                rule("/w", Some(Writes::UnsafeMethods)),
                standard,
            ];
        };
        let scene = if is_far_from_home { Scene::far_from_home(change) } else { Scene::with(change) };
        let mut twin = Twin { scene, asked, before: BTreeMap::new() };
        twin.fill();
        twin
    }

    /// All pages come into the cache.
    pub fn fill(&mut self) {
        for (path, _) in PAGES {
            for lines in [&[][..], &["Accept-Language: de"]] {
                let mut client = self.scene.client();
                client.get_with(path, lines);
                client.answer();
                let end = Instant::now() + PATIENCE;
                loop {
                    let mut client = self.scene.client();
                    client.get_with(path, &[lines, &["Cache-Control: only-if-cached"]].concat());
                    if client.answer().head.contains("verbena; hit") {
                        break;
                    }
                    assert!(Instant::now() < end, "{path} is not stored");
                    let mut client = self.scene.client();
                    client.get_with(path, lines);
                    client.answer();
                }
            }
        }
        self.asked.lock().clear();
        self.before = self.counts();
    }

    /// Sends these pieces, and says what came of them until the connection ended.
    pub fn converse(&self, pieces: &[&[u8]]) -> Outcome {
        let mut stream = Client::of(self.scene.proxy.address()).stream;
        let mut got = Vec::new();
        for piece in pieces {
            // A proxy that has closed is not written to.
            if stream.write_all(piece).is_err() {
                break;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
        let mut buffer = [0; 65536];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            got.extend_from_slice(&buffer[..read]);
        }
        Outcome { got: without_moments(&got), asked: std::mem::take(&mut *self.asked.lock()) }
    }

    /// What it has counted since the pages were in the cache.
    pub fn counted(&self) -> BTreeMap<String, u64> {
        let mut counts = self.counts();
        for (name, count) in &mut counts {
            *count -= self.before.get(name).copied().unwrap_or(0);
        }
        counts.retain(|_, count| *count > 0);
        counts
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for metric in self.scene.registry.snapshot(Time::ZERO).metrics {
            for series in metric.series {
                let name = format!("{}{:?}", metric.name, series.labels);
                match series.value {
                    Value::Counter(count) => counts.insert(name, count),
                    Value::Latency(latency) => counts.insert(name, latency.count()),
                    Value::Gauge(_) => None,
                };
            }
        }
        counts
    }
}

/// Both ways came to the same counts. A count may be a moment later than the bytes.
#[track_caller]
pub fn count_the_same(twins: &[Twin; 2]) {
    let end = Instant::now() + PATIENCE;
    while twins[0].counted() != twins[1].counted() {
        assert!(Instant::now() < end, "{:#?}\n{:#?}", twins[0].counted(), twins[1].counted());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn answers(mut stream: TcpStream, asked: &Mutex<Vec<String>>) {
    let mut read = Vec::new();
    while let Some(head) = next_head(&mut stream, &mut read) {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let length = field(&head, "content-length").and_then(|length| length.parse().ok());
        let is_chunked = field(&head, "transfer-encoding").is_some();
        let is_there = |read: &[u8]| match length {
            Some(length) => read.len() >= length,
            None => !is_chunked || read.ends_with(b"0\r\n\r\n"),
        };
        let mut buffer = [0; 4096];
        while !is_there(&read) {
            match stream.read(&mut buffer) {
                Ok(more @ 1..) => read.extend_from_slice(&buffer[..more]),
                _ => return,
            }
        }
        let body = String::from_utf8_lossy(&read).into_owned();
        read.clear();
        // How a body is cut into chunks is not the same twice.
        let body = if is_chunked { body.lines().skip(1).step_by(2).collect() } else { body };
        asked.lock().push(without_ports(&format!("{head}{body}")));
        if stream.write_all(&answer(&path, head.starts_with("HEAD "))).is_err() {
            return;
        }
    }
}

fn answer(path: &str, is_head: bool) -> Vec<u8> {
    let Some((_, fields)) = PAGES.iter().find(|(page, _)| *page == path) else {
        let body = if is_head { "" } else { "ok" };
        return format!("HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 2\r\n\r\n{body}").into_bytes();
    };
    let status = match *path.split('/').next_back().unwrap_or_default().as_bytes() {
        [b'g', ..] => "410 Gone",
        [b'n', b'o', b't', b'h', ..] => "204 No Content",
        _ => "200 OK",
    };
    let mut text = format!("HTTP/1.1 {status}\r\n{fields}Verbena-Dependencies: front\r\n\r\n").into_bytes();
    if is_head {
        return text;
    }
    if fields.contains("chunked") {
        text.extend_from_slice(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
    } else if let Some(length) = field(&format!("\r\n{fields}"), "content-length") {
        text.extend((0..length.parse::<usize>().unwrap()).map(|at| b'a' + (at % 23) as u8));
    }
    text
}

fn field(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

/// Numbers of ports are of each twin's own.
fn without_ports(text: &str) -> String {
    let mut parts = text.split("127.0.0.1:");
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |text, part| text + "127.0.0.1:PORT" + part.trim_start_matches(|char: char| char.is_ascii_digit()))
}

/// Without what the clock says.
fn without_moments(bytes: &[u8]) -> String {
    let text = bytes.escape_ascii().to_string();
    let (mut out, mut left) = (String::with_capacity(text.len()), text.as_str());
    const MARKS: [&str; 4] = ["\\r\\ndate: ", "\\r\\nage: ", "ttl=", "\\r\\netag: \\\"v"];
    while let Some((at, mark)) = MARKS.iter().filter_map(|mark| Some((left.find(mark)?, *mark))).min() {
        let behind = at + mark.len();
        out.push_str(&left[..behind]);
        left = &left[behind..];
        let end = match mark {
            // Up to the end of the line, or of the tag, which each cluster makes of its own secret.
            "\\r\\ndate: " | "\\r\\nage: " | "\\r\\netag: \\\"v" => left.find("\\r").unwrap_or(left.len()),
            _ => left.find(|char: char| char != '-' && !char.is_ascii_digit()).unwrap_or(left.len()),
        };
        left = &left[end..];
    }
    out + left
}
