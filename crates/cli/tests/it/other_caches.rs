//! Two caches before one application that do not know of each other: the second does not start (rule P11).

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use verbena_testkit::programs::verbena;

/// Another user of this machine; Debian calls it nobody.
const NOBODY: u32 = 65534;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn proxy(directory: &Path, origin: &str, more: &[&str]) -> Command {
    let mut command = verbena(&[
        "proxy",
        "--listen",
        "127.0.0.1:0",
        "--origin",
        origin,
        "--node-runtime",
        "run",
        "--node-state",
        "state",
    ]);
    command.args(more).current_dir(directory);
    command
}

/// A proxy that serves.
fn serving(command: &mut Command) -> Running {
    let mut running = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let said: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.starts_with("open ")).collect();
    assert!(running.0.try_wait().unwrap().is_none(), "{said:?}");
    running
}

fn is_refused(output: &Output, by: &Running) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(said.contains(&format!("process {} is a verbena proxy", by.0.id())), "{said}");
    assert!(said.contains("node.runtime") && said.contains("proxy.shared_origin"), "what to do: {said}");
}

#[test]
fn the_second_of_two_that_do_not_know_of_each_other_does_not_start() {
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = application.local_addr().unwrap().port();
    let origin = format!("http://127.0.0.1:{port}");
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let first = serving(&mut proxy(one.path(), &origin, &[]));

    // Another runtime directory, and another spelling of the same address.
    is_refused(&proxy(other.path(), &origin, &[]).output().unwrap(), &first);
    is_refused(&proxy(other.path(), &format!("http://localhost:{port}"), &[]).output().unwrap(), &first);

    // One that finds the first joins it. Another application is another matter.
    drop(serving(&mut proxy(one.path(), &origin, &[])));
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    drop(serving(&mut proxy(other.path(), &format!("http://{elsewhere}"), &[])));

    // Where it is said to be right.
    drop(serving(&mut proxy(other.path(), &origin, &["--proxy-shared-origin", "true"])));

    // The mark goes with its process, however that ends.
    drop(first);
    drop(serving(&mut proxy(other.path(), &origin, &[])));
}

#[test]
fn another_user_sees_the_mark() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    let application = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", application.local_addr().unwrap());
    let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    std::os::unix::fs::chown(other.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    let first = serving(&mut proxy(one.path(), &origin, &[]));
    // The program may stand where that user cannot go.
    let program = other.path().join("verbena");
    std::fs::copy(verbena_testkit::programs::path("verbena"), &program).unwrap();
    let mut second = Command::new(program);
    second.args(proxy(other.path(), &origin, &[]).get_args()).current_dir(other.path()).uid(NOBODY).gid(NOBODY);
    is_refused(&second.output().unwrap(), &first);
}
