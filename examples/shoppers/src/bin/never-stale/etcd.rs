//! The three members of etcd: how they are started, what nodes are told of them, and who leads them.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;

use crate::ask;
use crate::network::{inside, outside};
use crate::process::{Part, Place, Process};

const NAMES: [&str; 3] = ["etcd-1", "etcd-2", "etcd-3"];
/// The number of the first of them in the network.
pub const FIRST: u8 = 11;
/// What it prints when it serves.
const GREETING: &str = "serving client traffic insecurely";

const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

fn numbers() -> impl Iterator<Item = (u8, &'static str)> {
    (FIRST..).zip(NAMES)
}

/// Starts all three, each in its place.
///
/// # Errors
/// What is missing; Debian's package etcd-server has the program.
pub fn start(place: impl Fn(u8) -> Result<Place, String>) -> Result<Vec<Process>, String> {
    let one = |(number, name): (u8, &str)| {
        let arguments = arguments(number).split_whitespace().map(OsString::from).collect();
        let process = Process::start((name, Part::Etcd), Path::new("etcd"), arguments, &place(number)?, GREETING);
        process.map_err(|error| error.to_string())
    };
    numbers().map(one).collect()
}

/// With times for leases of a second: a leader that is lost is replaced within one.
fn arguments(number: u8) -> String {
    let peer = |number| format!("http://{}:{PEERS}", inside(number));
    let name = NAMES[usize::from(number - FIRST)];
    let cluster = numbers().map(|(number, name)| format!("{name}={}", peer(number))).collect::<Vec<_>>().join(",");
    let (own, all) = (peer(number), format!("http://0.0.0.0:{CLIENTS}"));
    let known = format!("http://{}:{CLIENTS}", inside(number));
    format!(
        "--name {name} --data-dir state-{name} --heartbeat-interval 50 --election-timeout 300 --logger zap --log-outputs stdout \
         --listen-peer-urls {own} --initial-advertise-peer-urls {own} --listen-client-urls {all} --advertise-client-urls {known} \
         --initial-cluster {cluster}"
    )
}

/// The section of every node's file.
pub fn configuration() -> String {
    let endpoint = |(number, _)| format!("\"http://{}:{CLIENTS}\"", inside(number));
    format!("[etcd]\nendpoints = [{}]\n", numbers().map(endpoint).collect::<Vec<_>>().join(", "))
}

/// Which of them says that it leads, asked from outside.
pub async fn leader(within: Duration) -> Option<&'static str> {
    for (number, name) in numbers() {
        let connecting = TcpStream::connect((outside(number), CLIENTS));
        if ask::sum(connecting, &["etcd_server_is_leader"], within).await == Some(1.0) {
            return Some(name);
        }
    }
    None
}

/// The number in the network of a member with this name.
pub fn number(name: &str) -> Option<u8> {
    numbers().find(|(_, other)| *other == name).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::network::{Cut, Network};
    use crate::process::PATIENCE;

    /// Tends to them until `done` says yes.
    async fn until(
        processes: &mut [Process],
        network: &mut Network,
        what: &str,
        mut done: impl AsyncFnMut(&[Process]) -> bool,
    ) {
        let by = Instant::now() + PATIENCE;
        while !done(processes).await {
            assert!(Instant::now() < by, "{what}");
            processes.iter_mut().for_each(|process| process.tend().unwrap());
            network.tend().unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Who leads, if it is another one than `former`.
    async fn other_leader(former: &str) -> bool {
        leader(PATIENCE / 20).await.is_some_and(|name| name != former)
    }

    #[test]
    fn a_leader_that_is_killed_paused_or_cut_off_is_replaced_and_comes_back() {
        if std::process::Command::new("etcd").arg("--version").output().is_err() {
            println!("skipped: etcd is not installed");
            return;
        }
        let Some(mut network) = verbena_namespaces::or_skipped(Network::new()).unwrap() else { return };
        let directory = tempfile::tempdir().unwrap();
        let place = |number| {
            let network = network.member(number).map_err(|error| error.to_string())?;
            Ok(Place { directory: directory.path().into(), network: Some(network) })
        };
        let mut all = start(place).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for what in ["killed", "paused", "cut off"] {
                until(&mut all, &mut network, what, async |all| all.iter().all(Process::serves)).await;
                until(&mut all, &mut network, what, async |_| leader(PATIENCE / 20).await.is_some()).await;
                let former = leader(PATIENCE / 20).await.unwrap();
                let at = all.iter().position(|process| process.name == former).unwrap();
                let long = Duration::from_secs(2);
                match what {
                    "killed" => all[at].kill(long).unwrap(),
                    "paused" => all[at].pause(long).unwrap(),
                    _ => {
                        let own = number(former).unwrap();
                        let others = numbers().map(|(number, _)| number).filter(|&number| number != own);
                        let pairs: Vec<_> = others.map(|other| Cut::Pair(own, other)).collect();
                        network.cut(&pairs, Instant::now() + long).unwrap();
                    }
                }
                until(&mut all, &mut network, what, async |_| other_leader(former).await).await;
            }
            until(&mut all, &mut network, "everybody is back", async |all| all.iter().all(Process::serves)).await;
        });
    }
}
