//! A small language for dialogues: a client, an updater and an application speak in turn, with a real proxy between them.
//!
//! Each line of a test is one step of one of them, so that a race is written down in the order in which it happens. Nobody waits for
//! ever: a step that does not come within [`PATIENCE`] fails the test.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use verbena_cluster::{Lease, Roles};
use verbena_content::Scope;
use verbena_content::service::{Finish, Ticket};
use verbena_content::testing::{Node, assemble, assemble_in};
use verbena_metrics::Registry;
use verbena_proxy::{Proxy, ProxyConfig};
use verbena_terms::{Lapse, Size, Time, ViewNumber};

pub const PATIENCE: Duration = Duration::from_secs(10);

/// A node with a proxy on it, and one application.
pub struct Scene {
    pub node: Node,
    pub proxy: Proxy,
    pub origin: Origin,
    pub registry: Registry,
    pub runtime: tokio::runtime::Runtime,
    /// Nodes beside the proxy's.
    others: Vec<Node>,
}

impl Scene {
    pub fn new() -> Scene {
        Scene::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut ProxyConfig)) -> Scene {
        let origin = Origin::start();
        let registry = Registry::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let nodes = [Node::start(1, Roles::ALL)];
        runtime.block_on(async {
            assemble(&nodes).await;
            // A home has all busy at first.
            nodes[0].fill_eventually(b"ready", nodes[0].only(b"ready")).await;
        });
        let [node] = nodes;
        let mut config = ProxyConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            origin: vec![origin.url()],
            threads: 2,
            memory: Size(16 << 20),
            largest: Size(256 << 10),
            connect_timeout: Lapse(Duration::from_secs(2)),
            origin_timeout: Lapse(Duration::from_secs(5)),
            client_timeout: Lapse(Duration::from_secs(5)),
            drain: Lapse(Duration::from_secs(5)),
            ..ProxyConfig::default()
        };
        change(&mut config);
        let proxy = Proxy::start(&config, node.content.clone(), &registry).unwrap();
        Scene { node, proxy, origin, registry, runtime, others: Vec::new() }
    }

    pub fn client(&self) -> Client {
        Client::of(self.proxy.address())
    }

    /// An update of these dependencies, or of everything, begins at its home.
    pub fn begins(&self, dependency: Option<&str>) -> Ticket {
        let scope = dependency.map_or(Scope::Everything, |name| self.node.only(name.as_bytes()));
        self.runtime.block_on(self.node.content.begin(scope)).unwrap()
    }

    /// The update ends.
    pub fn ends(&self, ticket: Ticket) {
        assert_eq!(self.runtime.block_on(ticket.answered()), Finish::Answer);
    }

    pub fn loses_lease(&self) {
        self.node.lease.store(Lease { until: Time::ZERO, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) });
    }

    pub fn has_lease_again(&self) {
        self.node.lease.store(Lease { until: Time::FAR, acknowledged: ViewNumber(1), in_effect: ViewNumber(1) });
    }

    /// The node was expelled, and joins again.
    pub fn lives_again(&mut self) {
        self.node.lives_again();
        self.runtime.block_on(async {
            assemble_in(ViewNumber(2), [&self.node]).await;
            self.node.fill_eventually(b"ready", self.node.only(b"ready")).await;
        });
    }

    /// A second home takes over some of the pages, in a view of its own.
    pub fn another_home_joins(&mut self) {
        let second = Node::start(2, Roles::ALL);
        self.runtime.block_on(async {
            assemble_in(ViewNumber(2), [&self.node, &second]).await;
            // It has all busy until it has heard of every updater; and the first must find it.
            for page in 0..32_u8 {
                self.node.fill_eventually(&[page], self.node.only(b"ready")).await;
            }
        });
        self.others.push(second);
    }

    /// Fills a page that depends on one thing, and sees it hit.
    pub fn fills(&self, path: &str, dependency: &str, body: &str) {
        let mut client = self.client();
        client.get(path);
        self.origin.asked(path).depends(dependency, body);
        client.answer().is(200, body).said("stored");
        self.hits(path, body);
    }

    /// The page comes to be answered from the cache: it is stored a moment after its last byte went out.
    pub fn hits(&self, path: &str, body: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut client = self.client();
            client.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\nCache-Control: only-if-cached\r\n\r\n"));
            let answer = client.answer();
            if answer.status == 200 {
                answer.is(200, body);
                return;
            }
            assert!(Instant::now() < end, "{path} is not stored: {:?}", answer.field("cache-status"));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The page is not in the cache, and does not come into it.
    pub fn misses(&self, path: &str) {
        for _ in 0..3 {
            let mut client = self.client();
            client.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\nCache-Control: only-if-cached\r\n\r\n"));
            let answer = client.answer();
            assert_eq!(answer.status, 504, "{path} is answered from the cache");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What a counter of one label has come to.
    pub fn counted(&self, name: &str, label: (&str, &str)) -> u64 {
        self.registry.snapshot(Time::ZERO).counter(name, &[label]).unwrap_or(0)
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.registry.snapshot(Time::ZERO).counter(name, &[]).unwrap()
    }

    pub fn gauge(&self, name: &str) -> f64 {
        self.registry.snapshot(Time::ZERO).gauge(name, &[]).unwrap()
    }

    /// Something comes to be so.
    pub fn comes(&self, what: &str, mut is_so: impl FnMut(&Scene) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what} does not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// A client's connection.
pub struct Client {
    pub stream: TcpStream,
    read: Vec<u8>,
    head_only: bool,
}

/// What a client got.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether it came to the end that its framing promises.
    pub whole: bool,
}

impl Client {
    pub fn of(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, read: Vec::new(), head_only: false }
    }

    pub fn send(&mut self, request: &str) {
        self.head_only = request.starts_with("HEAD ");
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    /// A GET with nothing special.
    pub fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n"));
    }

    /// A GET with these further lines.
    pub fn get_with(&mut self, path: &str, lines: &[&str]) {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: shop\r\n{lines}\r\n"));
    }

    pub fn post(&mut self, path: &str, body: &str) {
        let length = body.len();
        self.send(&format!("POST {path} HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{body}"));
    }

    /// Goes without a word.
    pub fn hangs_up(self) {
        drop(self);
    }

    /// Nothing comes for a while.
    pub fn waits(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut byte = [0];
        let read = self.stream.peek(&mut byte);
        assert!(
            read.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)),
            "an answer that is too early: {read:?}"
        );
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }

    /// The connection is closed without an answer.
    pub fn is_closed(&mut self) {
        assert!(!self.more(), "{}", String::from_utf8_lossy(&self.read));
        assert_eq!(self.read, b"");
    }

    /// Bytes of the body that came with the head, as they count for whoever reads on by himself.
    pub fn left(&mut self) -> usize {
        std::mem::take(&mut self.read).len()
    }

    /// The connection ends.
    pub fn is_cut(&mut self) {
        while self.more() {}
    }

    /// The connection is reset, after what came before.
    #[track_caller]
    pub fn is_reset(&mut self) {
        let mut buffer = [0; 65536];
        let end = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the connection is closed in good order"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(end.kind(), ErrorKind::ConnectionReset, "{end}");
    }

    /// Reads on, if there is something to read.
    fn more(&mut self) -> bool {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(n) => {
                self.read.extend_from_slice(&buffer[..n]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came: {error}; before: {:?}", String::from_utf8_lossy(&self.read)),
        }
    }

    pub fn head(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(
                self.more(),
                "the connection was closed without an answer: {:?}",
                String::from_utf8_lossy(&self.read)
            );
        };
        let head = String::from_utf8(self.read.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head, body: Vec::new(), whole: true }
    }

    pub fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if answer.status == 100 {
            answer = self.head();
        }
        if self.head_only || [204, 304].contains(&answer.status) {
            return answer;
        }
        if let Some(length) = answer.field("content-length") {
            let length: usize = length.parse().unwrap();
            while self.read.len() < length && self.more() {}
            answer.whole = self.read.len() >= length;
            answer.body = self.read.drain(..length.min(self.read.len())).collect();
        } else if answer.field("transfer-encoding").is_some() {
            answer.whole = false;
            while let Some(chunk) = self.chunk() {
                if chunk.is_empty() {
                    answer.whole = true;
                    break;
                }
                answer.body.extend_from_slice(&chunk);
            }
        } else {
            while self.more() {}
            answer.body = std::mem::take(&mut self.read);
        }
        answer
    }

    /// The next chunk; the last is empty; none if the connection ends before it.
    fn chunk(&mut self) -> Option<Vec<u8>> {
        let line = loop {
            if let Some(at) = self.read.windows(2).position(|two| two == b"\r\n") {
                break at;
            }
            if !self.more() {
                return None;
            }
        };
        let size = std::str::from_utf8(&self.read[..line]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        while self.read.len() < line + 2 + size + 2 {
            if !self.more() {
                return None;
            }
        }
        let chunk = self.read[line + 2..line + 2 + size].to_vec();
        self.read.drain(..line + 2 + size + 2);
        Some(chunk)
    }
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_string())
    }

    #[track_caller]
    pub fn is(&self, status: u16, body: &str) -> &Self {
        assert_eq!((self.status, String::from_utf8_lossy(&self.body).as_ref()), (status, body), "{}", self.head);
        assert!(self.whole, "the answer is cut");
        self
    }

    /// The status, whatever the text.
    #[track_caller]
    pub fn has(&self, status: u16) -> &Self {
        assert_eq!(self.status, status, "{} {}", self.head, String::from_utf8_lossy(&self.body));
        self
    }

    /// `Cache-Status` says this among other things.
    #[track_caller]
    pub fn said(&self, part: &str) -> &Self {
        let status = self.field("cache-status").unwrap_or_else(|| panic!("no Cache-Status: {}", self.head));
        assert!(status.contains(part), "{status} does not say {part}");
        self
    }
}

/// The application, as a script: it says what was asked, and answers what the test says.
pub struct Origin {
    pub address: SocketAddr,
    asked: Receiver<Asked>,
}

/// A request at the application.
pub struct Asked {
    pub head: String,
    pub stream: TcpStream,
    /// What was read beyond the head.
    body: Vec<u8>,
    /// Dropped when the next request of the connection may be read.
    _turn: Sender<()>,
}

impl Origin {
    pub fn start() -> Origin {
        Origin::listen(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    pub fn listen(listener: TcpListener) -> Origin {
        let address = listener.local_addr().unwrap();
        let (asks, asked) = channel();
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let asks = asks.clone();
                std::thread::spawn(move || converse(stream, &asks));
            }
        });
        Origin { address, asked }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request, which is about this target.
    #[track_caller]
    pub fn asked(&self, target: &str) -> Asked {
        let asked = self.asked.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{target} is not asked for"));
        assert_eq!(asked.head.split(' ').nth(1), Some(target), "{}", asked.head);
        asked
    }

    /// The next request, if one comes soon.
    pub fn asked_soon(&self) -> Option<Asked> {
        self.asked.recv_timeout(Duration::from_millis(50)).ok()
    }

    /// No request comes for a while.
    #[track_caller]
    pub fn is_left_alone(&self) {
        if let Ok(asked) = self.asked.recv_timeout(Duration::from_millis(50)) {
            panic!("asked for {}", asked.head);
        }
    }
}

fn converse(mut stream: TcpStream, asks: &Sender<Asked>) {
    let mut read = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer) {
                Ok(n) if n > 0 => read.extend_from_slice(&buffer[..n]),
                _ => return,
            }
        };
        let head = String::from_utf8(read.drain(..end).collect()).unwrap();
        let (turn, done) = channel();
        let own = stream.try_clone().unwrap();
        if asks.send(Asked { head, stream: own, body: std::mem::take(&mut read), _turn: turn }).is_err() {
            return;
        }
        let _ = done.recv();
    }
}

impl Asked {
    pub fn field(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_string())
    }

    /// Reads so much of its body.
    pub fn reads(&mut self, bytes: usize) -> Vec<u8> {
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 65536];
        while self.body.len() < bytes {
            match self.stream.read(&mut buffer).unwrap() {
                0 => panic!("the request ends after {} of {bytes} bytes", self.body.len()),
                n => self.body.extend_from_slice(&buffer[..n]),
            }
        }
        self.body.drain(..bytes).collect()
    }

    /// Says these bytes; the answer may go on.
    pub fn says(&mut self, bytes: &str) -> &mut Self {
        self.stream.write_all(bytes.as_bytes()).unwrap();
        self
    }

    /// 200 with these lines and this body.
    pub fn answers(mut self, lines: &[&str], body: &str) {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        self.says(&format!("HTTP/1.1 200 OK\r\n{lines}Content-Length: {}\r\n\r\n{body}", body.len()));
    }

    /// 200 with this body, if somebody takes it.
    pub fn try_answers(mut self, body: &str) {
        let _ = self.stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes());
        let _ = self.stream.write_all(body.as_bytes());
    }

    /// 200, depending on everything.
    pub fn page(self, body: &str) {
        self.answers(&[], body);
    }

    /// 200, depending on one thing.
    pub fn depends(self, dependency: &str, body: &str) {
        self.answers(&[&format!("Verbena-Dependencies: {dependency}")], body);
    }

    /// Ends the connection in good order.
    pub fn closes(self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Breaks the connection.
    pub fn resets(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
        // The reader's handle keeps the connection: both must go.
        let _ = self.stream.shutdown(Shutdown::Read);
    }
}
