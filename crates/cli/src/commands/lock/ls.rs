//! `verbena lock ls`: the holders and waiters of each lock.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use verbena_client::wire::{LockAt, LockMode, LockUser};
use verbena_client::{LockList, Locks};

use crate::commands::reach::Reach;
use crate::commands::status::rounded;
use crate::error::{Error, Result};
use crate::output::{Format, output, write_json};

/// Show the holders and waiters of each lock in the whole cluster.
///
/// Each node reports what its own programs hold and wait for, so locks whose home is down are shown too. Of each lock: the holders, then the waiters in the
/// order in which they will get it, as far as nodes know it; each with its process and node, for how long, and the fencing token. Locks without a holder are
/// not shown.
///
/// Exit code 0; 1 if a member did not answer, so that its programs are missing.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  verbena lock ls
  verbena lock ls cron/ --json")]
pub struct Command {
    /// Show only locks whose names begin with this.
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    prefix: OsString,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    format: Format,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Shown {
    locks: Vec<Lock>,
    /// Members that did not answer.
    silent: BTreeSet<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Lock {
    /// What is no text in it is escaped.
    name: String,
    name_hex: String,
    /// The holders, then the waiters.
    queue: Vec<User>,
    /// Holders that are not in the queue, because they are many.
    more_holders: u64,
    /// Waiters that are not in the queue, because they are many.
    more_waiting: u64,
}

#[derive(Debug, Serialize)]
struct User {
    is_held: bool,
    mode: LockMode,
    node: String,
    rank: u32,
    /// 0 if it is not known.
    pid: u32,
    age_ms: u64,
    token: Option<u64>,
}

impl Command {
    /// Asks and prints.
    pub fn run(self, file: Option<&Path>) -> Result<()> {
        let mut locks = self.reach.by(file, Locks::connect)?;
        let LockList { locks, silent } = locks.list(self.prefix.as_bytes())?;
        let locks = locks.chunk_by(|a, b| a.name == b.name).map(Lock::of).collect();
        let shown = Shown { locks, silent };
        let mut out = output();
        if self.format.json {
            write_json(&mut out, &shown)?;
        } else {
            print(&mut out, &shown.locks, &shown.silent)?;
        }
        if shown.silent.is_empty() { Ok(()) } else { Err(Error::No) }
    }
}

impl Lock {
    /// One lock, as nodes have it.
    pub(super) fn of(nodes: &[LockAt]) -> Lock {
        let name = &nodes[0].name;
        let user = |is_held, at: &LockAt, user: &LockUser| User {
            is_held,
            mode: user.mode,
            node: at.node.clone(),
            rank: at.rank,
            pid: user.pid,
            age_ms: user.age_ms,
            token: user.token,
        };
        let holders = nodes.iter().flat_map(|at| at.holders.iter().map(move |holder| user(true, at, holder)));
        let waiting = in_order(nodes).into_iter();
        let waiting = waiting.flat_map(|at| at.waiting.iter().map(move |waits| user(false, at, waits)));
        Lock {
            name: match std::str::from_utf8(name) {
                Ok(text) if !text.contains(char::is_control) => text.to_owned(),
                _ => name.escape_ascii().to_string(),
            },
            name_hex: name.iter().map(|byte| format!("{byte:02x}")).collect(),
            queue: holders.chain(waiting).collect(),
            more_holders: nodes.iter().map(|at| u64::from(at.more_holders)).sum(),
            more_waiting: nodes.iter().map(|at| u64::from(at.more_waiting)).sum(),
        }
    }
}

/// The node of a holder goes on with its own programs; each other node stands behind the one that it found ahead. Where no node knows the order, the
/// longest waiter is first.
fn in_order(nodes: &[LockAt]) -> Vec<&LockAt> {
    let (mut ordered, mut rest): (Vec<&LockAt>, Vec<&LockAt>) = nodes.iter().partition(|at| !at.holders.is_empty());
    rest.sort_by_key(|at| std::cmp::Reverse(at.waiting.first().map(|user| user.age_ms)));
    while !rest.is_empty() {
        let is_next = |at: &&LockAt| ordered.iter().any(|before| before.rank == at.ahead);
        let next = rest.iter().position(is_next).unwrap_or(0);
        ordered.push(rest.remove(next));
    }
    ordered
}

pub(super) fn print(out: &mut impl Write, locks: &[Lock], silent: &BTreeSet<String>) -> Result<()> {
    let users = || locks.iter().flat_map(|lock| &lock.queue);
    let longest = |width: &dyn Fn(&User) -> usize| users().map(width).max().unwrap_or(0);
    let (node, pid) = (longest(&|user| user.node.len()), longest(&|user| process(user.pid).len()));
    for Lock { name, queue, more_holders, more_waiting, .. } in locks {
        writeln!(out, "{name}")?;
        for user in queue {
            let does = if user.is_held { "held" } else { "waits" };
            let mode = match user.mode {
                LockMode::Shared => "shared",
                LockMode::Exclusive => "exclusive",
            };
            let token = user.token.map_or_else(String::new, |token| format!("  token {token}"));
            let (age, process) = (rounded(user.age_ms), process(user.pid));
            writeln!(out, "  {does:<5}  {mode:<9}  {:<node$}  {process:<pid$}  for {age}{token}", user.node)?;
        }
        if more_holders + more_waiting > 0 {
            writeln!(out, "  and {more_holders} more that hold it, {more_waiting} more that wait")?;
        }
    }
    if !silent.is_empty() {
        let silent: Vec<&str> = silent.iter().map(String::as_str).collect();
        writeln!(out, "no answer from {}: what their programs have is not shown", silent.join(", "))?;
    }
    Ok(())
}

fn process(pid: u32) -> String {
    if pid == 0 { "-".into() } else { format!("process {pid}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(rank: u32, ahead: u32, holds: bool, waits_for: Option<u64>) -> LockAt {
        let user = |age_ms| LockUser { pid: 7, mode: LockMode::Exclusive, token: None, age_ms };
        LockAt {
            name: b"x".to_vec(),
            rank,
            node: format!("n{rank}"),
            ahead,
            holders: if holds { vec![user(5)] } else { vec![] },
            more_holders: 0,
            waiting: waits_for.map(user).into_iter().collect(),
            more_waiting: 0,
        }
    }

    #[test]
    fn who_waits_stands_behind_whom_it_found() {
        let order = |nodes: &[LockAt]| in_order(nodes).iter().map(|at| at.rank).collect::<Vec<_>>();
        assert_eq!(order(&[at(1, 3, false, Some(900)), at(2, 0, true, None), at(3, 2, false, Some(5))]), [2, 3, 1]);
        // No node knows behind which one 1 and 4 stand.
        let nodes = [at(1, 0, false, Some(10)), at(2, 1, false, Some(50)), at(4, 9, false, Some(20))];
        assert_eq!(order(&nodes), [2, 4, 1]);
    }
}
