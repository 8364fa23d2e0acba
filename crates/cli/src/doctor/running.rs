//! The nodes of this configuration that run here.

use std::time::Duration;

use verbena_client::wire::{State, Status};
use verbena_client::{Helper, Roll, Socket};

use super::Check;
use crate::config::Config;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// What is found.
const WHAT: &str = "running node";

/// One for each node that runs, and what keeps it from its work.
pub(super) fn checks(config: &Config) -> Vec<Check> {
    let sockets = match config.settings().sockets() {
        Ok(sockets) => sockets,
        // The directories have been looked at: they say it.
        Err(_) => return vec![],
    };
    sockets.iter().flat_map(node).collect()
}

fn node(socket: &Socket) -> Vec<Check> {
    let path = socket.path();
    let roll = match Helper::connect(socket, PATIENCE).and_then(|mut helper| helper.roll()) {
        Ok(roll) => roll,
        Err(verbena_client::Error::NoHelper { .. }) => return vec![],
        Err(error) => {
            let remedy = "Its log says more; if it hangs, kill it: the others go on after a lease";
            return vec![Check::missing(WHAT, format!("{}: {error}", path.display()), remedy)];
        }
    };
    let Roll { status, departed, .. } = roll;
    let mut checks = vec![standing(&status)];
    for gone in &departed {
        let Some(keeps_out) = gone.keeps_out else { continue };
        let name = gone.name.clone().unwrap_or_else(|| gone.incarnation.to_string());
        let remedy = "It ends by itself; a shorter pages.longest_transaction is waited for less long";
        checks.push(Check::fair(WHAT, format!("{}: {name} is gone: {keeps_out}", status.name), remedy));
    }
    checks
}

fn standing(Status { name, state, waits, refused, view, pid, .. }: &Status) -> Check {
    match (state, refused, waits) {
        (_, Some(refused), _) => Check::missing(
            WHAT,
            format!("{name} (process {pid}) is refused: {refused}"),
            "Mend that, and start it again",
        ),
        (_, _, Some(waits)) => Check::missing(
            WHAT,
            format!("{name} (process {pid}) waits for {waits}"),
            "Start that node; if it runs, see whether node.runtime, cluster.members and the network are the same for both",
        ),
        (State::Member, ..) => Check::good(WHAT, format!("{name} (process {pid}), a member of view {view}")),
        (State::Joining, ..) => Check::fair(WHAT, format!("{name} (process {pid}) is in no view yet"), "Wait a lease"),
        (State::Lapsed, ..) => Check::fair(
            WHAT,
            format!("{name} (process {pid}) has no lease: it serves nothing until it is renewed"),
            "The keeper must run and be reached (verbena cluster)",
        ),
        (State::Leaving, ..) => {
            Check::fair(WHAT, format!("{name} (process {pid}) is leaving"), "Wait until it has ended")
        }
    }
}
