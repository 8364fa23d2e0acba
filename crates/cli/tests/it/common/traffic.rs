//! The unchanged application, proxies in front of it, and readers and writers that check what they are told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use verbena_testkit::nodes::PATIENCE;
use verbena_testkit::programs::verbena;

pub const PAGES: usize = 4;
const READERS: usize = 6;
const WRITERS: usize = 2;

/// A process that ends with the test.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn application(directory: &Path) -> (Ended, String) {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps/plain.py");
    let mut python = Command::new("python3");
    python.arg(program).arg(directory.join("app.db")).args(["--slow", "10"]);
    let (process, line) = started(&mut python, |line| line.starts_with("port "));
    (process, format!("127.0.0.1:{}", line["port ".len()..].trim()))
}

/// An application in this process, whose connections each have a thread that answers.
pub fn each_connection(answer: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

/// A proxy with a state directory of its own.
pub fn proxy(directory: &Path, name: &str, origin: &str, more: &[&str]) -> (Ended, String) {
    proxy_with(directory, name, &directory.join(name), origin, more)
}

/// A proxy with this state directory, whose log is `NAME.log`.
pub fn proxy_with(directory: &Path, name: &str, state: &Path, origin: &str, more: &[&str]) -> (Ended, String) {
    let runtime = directory.join("run");
    let mut command = verbena(&["proxy", "--json", "--listen", "127.0.0.1:0", "--origin", &format!("http://{origin}")]);
    command.arg("--node-runtime").arg(runtime).arg("--node-state").arg(state).args(more);
    let log = std::fs::File::create(directory.join(format!("{name}.log"))).unwrap();
    let command = command.current_dir(directory).stderr(log);
    let (process, line) = started(command, |line| line.contains(r#""event":"serving""#));
    let serving: serde_json::Value = serde_json::from_str(&line).unwrap();
    (process, serving["address"].as_str().unwrap().to_owned())
}

/// Starts a program, and gives the first line of this kind that it prints.
pub fn started(command: &mut Command, is_it: impl Fn(&str) -> bool) -> (Ended, String) {
    let mut process = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let line = lines.by_ref().map(Result::unwrap).find(|line| is_it(line)).expect("it says that it serves");
    // It must not find its output closed.
    std::thread::spawn(move || lines.for_each(drop));
    (process, line)
}

pub struct Answer {
    pub status: u16,
    pub hit: bool,
    /// It came from another node's memory.
    pub from_pool: bool,
    pub body: String,
}

/// One kept connection.
pub struct Client(BufReader<TcpStream>);

impl Client {
    pub fn new(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Client(BufReader::new(stream))
    }

    pub fn ask(&mut self, method: &str, path: &str) -> Answer {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: shop\r\ncontent-length: 0\r\n\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let mut answer = Answer { status: 0, hit: false, from_pool: false, body: String::new() };
        let mut length = 0;
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(status) = line.strip_prefix("http/1.1 ") {
                answer.status = status[..3].parse().unwrap();
            } else if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            } else if let Some(value) = line.strip_prefix("cache-status:") {
                answer.hit = value.split(';').any(|word| word.trim() == "hit");
                answer.from_pool = value.split(';').any(|word| word.trim() == "detail=pool");
            }
        }
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        answer.body = String::from_utf8(body).unwrap();
        answer
    }
}

/// What readers and writers share: for each page, the highest value that anyone was told.
#[derive(Default)]
pub struct Seen {
    told: [AtomicU64; PAGES],
    pub answers: AtomicU64,
    /// Of each proxy.
    pub hits: Vec<AtomicU64>,
    pub writes: AtomicU64,
    pub stale: AtomicU64,
    done: AtomicBool,
}

impl Seen {
    fn read(&self, client: &mut Client, proxy: usize, page: usize) {
        let before = self.told[page].load(SeqCst);
        let answer = client.ask("GET", &format!("/page/{page}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let numbers: Vec<u64> =
            answer.body.split(|letter: char| !letter.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
        let [one, two] = numbers[..] else { panic!("{:?} shows no two counters", answer.body) };
        assert_eq!(one, two, "a page of two states");
        self.stale.fetch_add(u64::from(one < before), SeqCst);
        self.told[page].fetch_max(one, SeqCst);
        self.answers.fetch_add(1, SeqCst);
        self.hits[proxy].fetch_add(u64::from(answer.hit), SeqCst);
    }

    /// Whether silence about stale pages does not mean much yet.
    fn is_too_little(&self) -> bool {
        let each = || self.hits.iter().map(|count| count.load(SeqCst));
        let [answers, writes] = [&self.answers, &self.writes].map(|count| count.load(SeqCst));
        answers <= 200 || writes <= 20 || each().sum::<u64>() <= 40 || each().any(|hits| hits == 0)
    }

    fn write(&self, client: &mut Client, page: usize) {
        let answer = client.ask("POST", &format!("/page/{page}"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        self.told[page].fetch_max(answer.body.strip_prefix("value ").unwrap().parse().unwrap(), SeqCst);
        self.writes.fetch_add(1, SeqCst);
    }
}

/// Readers and writers through these proxies, for as long and until there is [`enough`], or until something stale was seen.
pub fn traffic(proxies: &[String], limit: Duration) -> Seen {
    let hits = proxies.iter().map(|_| AtomicU64::new(0)).collect();
    let (seen, began) = (Seen { hits, ..Seen::default() }, Instant::now());
    let goes_on = || {
        !seen.done.load(SeqCst)
            && seen.stale.load(SeqCst) == 0
            && (began.elapsed() < limit || seen.is_too_little() && began.elapsed() < limit + PATIENCE)
    };
    // Whoever fails takes the others with it.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    std::thread::scope(|scope| {
        for number in 0..READERS + WRITERS {
            let (seen, goes_on, proxy) = (&seen, &goes_on, number % proxies.len());
            scope.spawn(move || {
                let _over = Over(&seen.done);
                let (mut client, mut turn) = (Client::new(&proxies[proxy]), number);
                while goes_on() {
                    turn += 1;
                    if number < READERS {
                        seen.read(&mut client, proxy, turn % PAGES);
                    } else {
                        seen.write(&mut client, turn % PAGES);
                        std::thread::sleep(Duration::from_millis(60));
                    }
                }
            });
        }
    });
    seen
}

/// Nothing stale, and enough seen to say so: at every proxy.
pub fn enough(seen: &Seen) {
    let [answers, writes, stale] = [&seen.answers, &seen.writes, &seen.stale].map(|count| count.load(SeqCst));
    let each: Vec<u64> = seen.hits.iter().map(|count| count.load(SeqCst)).collect();
    let hits: u64 = each.iter().sum();
    println!(
        "counted: {answers} answers, {hits} hits ({each:?}), {writes} writes through caches in front of an unchanged application"
    );
    assert_eq!(stale, 0);
    assert!(!seen.is_too_little(), "{answers} answers, {hits} hits, {writes} writes, hits at each proxy: {each:?}");
}
