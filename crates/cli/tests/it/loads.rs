//! A proxy asks the origin whose machine is least loaded, as the nodes there publish it: real helpers, whose machines say what the test wants.
//! How soon news count, and until when, is in the tests of `verbena-monitor`, whose time is virtual.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use verbena_testkit::nodes::{Cluster, PATIENCE};
use verbena_testkit::programs::verbena;

use crate::common::traffic::{Client, Ended, started};

/// Longer than anything here takes: who is stopped stays a member.
const LEASE: &str = "300s";
/// Requests in a row that go the same way: equals are asked in turn.
const IN_A_ROW: u32 = 12;

#[test]
fn over_shared_memory() {
    the_least_loaded_is_asked(&Cluster::new(LEASE, &["p", "x", "y"].map(|name| (name, format!("shm://{name}")))));
}

#[test]
fn over_tcp() {
    // Beside those of `Cluster::on_tcp`.
    let host = Cluster::own_host();
    let address = |port: u16| format!("tcp://{host}:{port}");
    the_least_loaded_is_asked(&Cluster::new(
        LEASE,
        &[("p", address(6301)), ("x", address(6302)), ("y", address(6303))],
    ));
}

/// What stands where a machine says how it is.
struct Machine(PathBuf);

impl Machine {
    fn new(directory: &Path, name: &str) -> Machine {
        let machine = Machine(directory.join(format!("proc-{name}")));
        std::fs::create_dir(&machine.0).unwrap();
        std::fs::write(machine.0.join("meminfo"), std::fs::read("/proc/meminfo").unwrap()).unwrap();
        machine.has_tasks(0);
        machine
    }

    /// So many run or wait, on two processors, and one that looks.
    fn has_tasks(&self, tasks: u32) {
        let cpu = "100 0 100 800 0 0 0 0 0 0";
        let running = tasks + 1;
        let stat = format!(
            "cpu  {cpu}\ncpu0 {cpu}\ncpu1 {cpu}\nctxt 1\nbtime 1\nprocesses 1\nprocs_running {running}\nprocs_blocked 0\n"
        );
        std::fs::write(self.0.join("next"), stat).unwrap();
        std::fs::rename(self.0.join("next"), self.0.join("stat")).unwrap();
    }
}

/// Answers with what may not be stored, and counts.
fn origin() -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, asked) = (listener.local_addr().unwrap().to_string(), Arc::new(AtomicU32::new(0)));
    let counted = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let counted = counted.clone();
            std::thread::spawn(move || answer(stream, &counted));
        }
    });
    (address, asked)
}

fn answer(mut stream: TcpStream, counted: &AtomicU32) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    while lines.next().is_some() {
        if lines.by_ref().find(String::is_empty).is_none() {
            return;
        }
        counted.fetch_add(1, Ordering::SeqCst);
        if stream.write_all(b"HTTP/1.1 200 OK\r\ncache-control: no-store\r\ncontent-length: 2\r\n\r\nok").is_err() {
            return;
        }
    }
}

fn node(directory: &Path, name: &str, machine: &Machine) -> Ended {
    let mut command = verbena(&["node", "--json", "--cluster-name", name, "--node-state", &format!("state-{name}")]);
    command.arg("--monitor-proc").arg(&machine.0).current_dir(directory);
    started(&mut command, |line| line.contains(r#""event":"listening""#)).0
}

fn the_least_loaded_is_asked(cluster: &Cluster) {
    let directory = cluster.path();
    let ((x_address, x_asked), (y_address, y_asked)) = (origin(), origin());
    let mut command = verbena(&["proxy", "--json", "--cluster-name", "p", "--node-state", "state-p"]);
    command.args(["--listen", "127.0.0.1:0", "--proxy-origin-nodes", r#"["x", "y"]"#, "--origin"]);
    command.args([format!("http://{x_address}"), "--origin".into(), format!("http://{y_address}")]);
    let (_proxy, serving) = started(command.current_dir(directory), |line| line.contains(r#""event":"serving""#));
    let serving: serde_json::Value = serde_json::from_str(&serving).unwrap();
    let machines = ["x", "y"].map(|name| Machine::new(directory, name));
    let nodes = [0, 1].map(|at| node(directory, ["x", "y"][at], &machines[at]));

    let mut client = Client::new(serving["address"].as_str().unwrap());
    let mut ask = |times: u32| {
        let before = [&x_asked, &y_asked].map(|asked| asked.load(Ordering::SeqCst));
        for _ in 0..times {
            assert_eq!(client.ask("GET", "/").status, 200);
        }
        [x_asked.load(Ordering::SeqCst) - before[0], y_asked.load(Ordering::SeqCst) - before[1]]
    };
    let mut until = |what: &str, is_it: &dyn Fn([u32; 2]) -> bool| {
        let began = Instant::now();
        loop {
            let asked = ask(IN_A_ROW);
            if is_it(asked) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: never; {asked:?} of {IN_A_ROW} at last");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("with nothing to do both are asked in turn", &|asked| asked == [IN_A_ROW / 2; 2]);
    machines[0].has_tasks(8);
    until("y is asked when x is loaded", &|asked| asked == [0, IN_A_ROW]);
    machines[0].has_tasks(0);
    machines[1].has_tasks(8);
    until("x is asked when y is loaded", &|asked| asked == [IN_A_ROW, 0]);
    // What is not published any more says nothing: x counts as the others do, and both are asked again.
    let process = Pid::from_raw(nodes[0].0.id() as i32).unwrap();
    kill_process(process, Signal::STOP).unwrap();
    until("both are asked when x publishes nothing", &|asked| asked.iter().all(|asked| *asked >= IN_A_ROW / 3));
    kill_process(process, Signal::CONT).unwrap();
    until("x is asked when it publishes again", &|asked| asked == [IN_A_ROW, 0]);
}
