//! Readers and writers at the same time, of pages whose counters only grow: what a reader is shown is compared with what was told before it asked.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Who asks.
pub struct Crowd<'a> {
    /// The proxy, which may be away for a time.
    pub address: &'a str,
    /// `/page/0` and so on.
    pub pages: usize,
    pub readers: usize,
    pub writers: usize,
    /// Of each writer between two writes.
    pub pause: Duration,
}

/// What they saw.
#[derive(Default)]
pub struct Counts {
    answers: AtomicU64,
    hits: AtomicU64,
    writes: AtomicU64,
    stale: AtomicU64,
}

/// What one crowd saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub answers: u64,
    pub hits: u64,
    pub writes: u64,
    pub stale: u64,
}

/// Ends the others, also where its thread panics.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Counts {
    pub fn seen(&self) -> Seen {
        let [answers, hits, writes, stale] =
            [&self.answers, &self.hits, &self.writes, &self.stale].map(|count| count.load(SeqCst));
        Seen { answers, hits, writes, stale }
    }
}

impl Crowd<'_> {
    /// They ask for as long as `during` takes.
    pub fn ask(&self, during: impl FnOnce(&Counts)) -> Seen {
        let told: Vec<AtomicU64> = (0..self.pages).map(|_| AtomicU64::new(0)).collect();
        let (counts, done) = (Counts::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let _over = Over(&done);
            for number in 0..self.readers + self.writers {
                let (told, counts, done) = (&told, &counts, &done);
                scope.spawn(move || {
                    let _over = Over(done);
                    for turn in number * 7.. {
                        if done.load(SeqCst) {
                            return;
                        }
                        let page = turn % told.len();
                        match number < self.readers {
                            true => self.read(page, &told[page], counts),
                            false => self.write(page, &told[page], counts),
                        }
                    }
                });
            }
            during(&counts);
        });
        counts.seen()
    }

    fn read(&self, page: usize, told: &AtomicU64, counts: &Counts) {
        let before = told.load(SeqCst);
        let Some(answer) = self.asked("GET", page) else { return std::thread::sleep(Duration::from_millis(20)) };
        let value = number(&answer, "values ");
        counts.stale.fetch_add(u64::from(value < before), SeqCst);
        told.fetch_max(value, SeqCst);
        counts.hits.fetch_add(u64::from(answer.contains("; hit")), SeqCst);
        counts.answers.fetch_add(1, SeqCst);
    }

    fn write(&self, page: usize, told: &AtomicU64, counts: &Counts) {
        if let Some(answer) = self.asked("POST", page) {
            told.fetch_max(number(&answer, "value "), SeqCst);
            counts.writes.fetch_add(1, SeqCst);
        }
        std::thread::sleep(self.pause);
    }

    /// One answer, if the proxy and the application give one.
    fn asked(&self, method: &str, page: usize) -> Option<String> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        let request =
            format!("{method} /page/{page} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let is_whole = answer.contains("value");
        (answer.starts_with("HTTP/1.1 200") && is_whole).then_some(answer)
    }
}

/// The first number behind a word.
fn number(text: &str, word: &str) -> u64 {
    let rest = &text[text.rfind(word).unwrap() + word.len()..];
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}
