//! A server of a test, and a client that speaks line by line.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use verbena_ftp::{Handle, Rights, ServeOptions, Server};

/// Longer waits are failures.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A server on a thread of its own, stopped when it is dropped.
pub struct Running {
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub handle: Handle,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Options of a server on loopback where `anonymous` may do everything.
pub fn options(root: &Path) -> ServeOptions {
    let mut options = ServeOptions::new(root);
    options.listen = "127.0.0.1:0".parse().unwrap();
    options.anonymous = Some(Rights::ALL);
    options
}

impl Running {
    pub fn start(options: ServeOptions) -> Running {
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(options).unwrap();
                ready.send((server.address(), server.metrics(), server.handle())).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
        });
        let (address, metrics, handle) = address.recv().unwrap();
        Running { address, metrics, handle, stop: Some(stop), thread: Some(thread) }
    }

    /// Tells the server to stop, without waiting for it.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Waits until the server has stopped.
    pub fn join(mut self) {
        self.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A client that writes lines and reads replies.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects and reads the greeting.
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut client = Client { stream: BufReader::new(stream) };
        assert!(client.reply().starts_with("220"));
        client
    }

    /// Connects and logs in as `anonymous`, with TYPE I.
    pub fn anonymous(address: SocketAddr) -> Client {
        let mut client = Client::connect(address);
        client.expect("USER anonymous", "331");
        client.expect("PASS x@", "230");
        client.expect("TYPE I", "200");
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// One reply, all its lines.
    pub fn reply(&mut self) -> String {
        let mut text = String::new();
        loop {
            let mut line = Vec::new();
            self.stream.read_until(b'\n', &mut line).unwrap();
            let line = String::from_utf8_lossy(&line).into_owned();
            text.push_str(&line);
            let is_last =
                line.len() < 4 || (line.as_bytes()[3] == b' ' && line.as_bytes()[..3].iter().all(u8::is_ascii_digit));
            if is_last {
                return text;
            }
        }
    }

    /// Sends a line and expects a reply that begins with `code`.
    #[track_caller]
    pub fn expect(&mut self, line: &str, code: &str) -> String {
        self.send(format!("{line}\r\n").as_bytes());
        let reply = self.reply();
        assert!(reply.starts_with(code), "{line}: {reply:?} is not {code}");
        reply
    }

    /// The address of a passive port.
    pub fn passive(&mut self) -> SocketAddr {
        let reply = self.expect("EPSV", "229");
        let port = reply.split('|').nth(3).unwrap().parse().unwrap();
        SocketAddr::new(self.stream.get_ref().peer_addr().unwrap().ip(), port)
    }

    /// The command, its data, and its last reply.
    #[track_caller]
    pub fn fetch(&mut self, line: &str) -> (Vec<u8>, String) {
        let mut data = self.open(line);
        let mut bytes = Vec::new();
        data.read_to_end(&mut bytes).unwrap();
        (bytes, self.reply())
    }

    /// The command and its data connection, behind the 150.
    #[track_caller]
    pub fn open(&mut self, line: &str) -> TcpStream {
        let address = self.passive();
        let data = TcpStream::connect(address).unwrap();
        data.set_read_timeout(Some(LIMIT)).unwrap();
        self.expect(line, "150");
        data
    }

    /// Sends a file, and the last reply.
    #[track_caller]
    pub fn store(&mut self, line: &str, bytes: &[u8]) -> String {
        let mut data = self.open(line);
        data.write_all(bytes).unwrap();
        drop(data);
        self.reply()
    }

    /// Whether the server closes; what it still sends is dropped.
    pub fn closes(mut self) -> bool {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// Whether a program is installed; says that the test is skipped if not.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// Runs a program for at most 60 s.
pub fn run(program: &str, arguments: &[&str], directory: &Path) -> Output {
    Command::new("timeout").arg("60").arg(program).args(arguments).current_dir(directory).output().unwrap()
}

/// Runs a program that must succeed; what it wrote to stdout.
#[track_caller]
pub fn succeed(program: &str, arguments: &[&str], directory: &Path) -> Vec<u8> {
    let output = run(program, arguments, directory);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
    output.stdout
}
