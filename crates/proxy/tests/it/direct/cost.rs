//! What a hit costs the proxy in either way. Measured in long runs alone: figures of a build without optimisation say little.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use verbena_proxy::Hits;

use crate::scene::{Client, Scene};

/// Connections, one half by each of two threads.
const CONNECTIONS: usize = 64;
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(1500);

struct Way {
    scene: Scene,
    /// The proxy's one thread.
    thread: String,
}

impl Way {
    fn new(hits: Hits) -> Way {
        let before = threads();
        let scene = Scene::with(|config| (config.hits, config.threads) = (hits, 1));
        let thread = threads().difference(&before).next().unwrap().clone();
        for (path, bytes) in [("/1", 1 << 10), ("/8", 8 << 10)] {
            scene.fills(path, "front", &"x".repeat(bytes));
        }
        Way { scene, thread }
    }

    /// Nanoseconds of processor time that the proxy's thread has had.
    fn time(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/self/task/{}/schedstat", self.thread)).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    }

    /// Microseconds of processor time a hit, and hits a second.
    fn round(&self, path: &str) -> (f64, f64) {
        let before = self.time();
        let began = Instant::now();
        let (address, path) = (self.scene.proxy.address(), path.to_owned());
        let clients = [path.clone(), path].map(|path| std::thread::spawn(move || asks(address, &path, began)));
        let answers: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        let (taken, lasted) = (self.time() - before, began.elapsed());
        (taken as f64 / 1000.0 / answers as f64, answers as f64 / lasted.as_secs_f64())
    }
}

/// Asks on its connections in turn until a round is over, and says how many answers came.
fn asks(address: SocketAddr, path: &str, began: Instant) -> usize {
    let request = format!("GET {path} HTTP/1.1\r\nHost: shop\r\n\r\n");
    let mut first = Client::of(address);
    first.get(path);
    let answer = first.answer();
    answer.has(200).said("verbena; hit");
    let bytes = answer.head.len() + answer.body.len();
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS / 2).map(|_| Client::of(address).stream).collect();
    let (mut buffer, mut answers) = (vec![0; bytes], 1);
    while began.elapsed() < ROUND {
        streams.iter_mut().for_each(|stream| stream.write_all(request.as_bytes()).unwrap());
        streams.iter_mut().for_each(|stream| stream.read_exact(&mut buffer).unwrap());
        answers += streams.len();
    }
    answers
}

/// The threads of this process that are a proxy's.
fn threads() -> BTreeSet<String> {
    let all = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let is_proxy = |path: &std::path::PathBuf| fs::read_to_string(path.join("comm")).unwrap().starts_with("proxy-");
    all.filter(is_proxy).map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

#[test]
fn a_hit_takes_less_beneath_hyper() {
    if std::env::var_os("VERBENA_LONG").is_none() {
        eprintln!("skipped: measured in long runs alone (VERBENA_LONG)");
        return;
    }
    let ways = [Way::new(Hits::Direct), Way::new(Hits::Hyper)];
    for path in ["/8", "/1"] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push([0, 1].map(|way| ways[way].round(path)));
        }
        let of = |pick: fn(&[(f64, f64); 2]) -> f64| median(rounds.iter().map(pick).collect());
        let ratio = of(|[direct, hyper]| direct.0 / hyper.0);
        let extremes = rounds.iter().map(|[direct, hyper]| direct.0 / hyper.0);
        let (least, most) = extremes.fold((f64::MAX, 0.0_f64), |(least, most), r| (least.min(r), most.max(r)));
        println!(
            "{path} KiB: direct {:.2} us, hyper {:.2} us a hit, in pairs {ratio:.2} ({least:.2} to {most:.2}); hits a second {:.2} of hyper's",
            of(|[direct, _]| direct.0),
            of(|[_, hyper]| hyper.0),
            of(|[direct, hyper]| direct.1 / hyper.1),
        );
        assert!(ratio < 1.0, "beneath hyper a hit takes {ratio:.2} of the processor time");
    }
}
