//! Shared memory with real processes: `verbena mem` and programs at several nodes, of which some are stopped or killed.

mod checkpoints;
mod client;
mod commands;
mod locking;
mod reclaiming;
mod users;
mod windows;

use std::time::Duration;

use verbena_client::{Error, Failure, Memory, Socket};
use verbena_testkit::nodes::{Cluster, Node, are_in};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn three(cluster: &Cluster) -> [Node; 3] {
    let nodes = NAMES.map(|name| cluster.start(name));
    for node in &nodes {
        node.wait_until("three in", |status| are_in(status, &[1, 2, 3]));
    }
    nodes
}

fn connect(cluster: &Cluster, node: &str) -> Memory {
    connect_for(cluster, node, Duration::from_secs(10))
}

fn connect_for(cluster: &Cluster, node: &str, patience: Duration) -> Memory {
    let socket = Socket::new(Some(&cluster.path().join("run")), Some(node)).unwrap();
    Memory::connect(&socket, patience).unwrap()
}

/// Of what kind the reason is, of something that was not done.
fn why<T: std::fmt::Debug>(result: Result<T, Error>) -> Failure {
    match result {
        Err(Error::Memory { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}
