//! The commands by which networks are set up, in the network of the thread that calls.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::namespace::{Error, Result};

const IP: &str = "ip";
const TC: &str = "tc";
/// Where `tc` looks for the tables of laws of delay (tc-netem(8)), `NAME.dist` each.
const TABLES: &str = "TC_LIB_DIR";

/// Of which packets a rule of netfilter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The command `ip` with these words, in the network of this thread.
///
/// # Errors
/// What it said.
pub fn ip(words: &[&str]) -> Result<()> {
    run(IP, words).map(drop)
}

/// The command `tc` with these words, in the network of this thread: what it prints.
///
/// # Errors
/// What it said.
pub fn tc(words: &[&str]) -> Result<String> {
    run(TC, words)
}

/// Several commands of `ip`, a line each, by one process: it ends at the first that fails.
///
/// # Errors
/// What it said of that one.
pub fn ip_batch(lines: &[String]) -> Result<()> {
    batch(IP, Command::new(IP), lines)
}

/// The same of `tc`, which finds the laws of delay that they name in the directory `tables`, where there is one.
///
/// # Errors
/// What it said of that one.
pub fn tc_batch(lines: &[String], tables: Option<&Path>) -> Result<()> {
    let mut process = Command::new(TC);
    if let Some(tables) = tables {
        process.env(TABLES, tables);
    }
    batch(TC, process, lines)
}

/// Has netfilter's table `filter` hold these rules of `iptables` and no others, in the network of this thread.
///
/// # Errors
/// What it said.
pub fn netfilter(family: Family, rules: &[String]) -> Result<()> {
    let command = match family {
        Family::V4 => "iptables-restore",
        Family::V6 => "ip6tables-restore",
    };
    let mut lines = vec!["*filter".to_owned()];
    lines.extend(["INPUT", "FORWARD", "OUTPUT"].map(|chain| format!(":{chain} ACCEPT [0:0]")));
    lines.extend_from_slice(rules);
    lines.push("COMMIT".to_owned());
    let words = if rules.is_empty() { "(no rules)".to_owned() } else { rules.join("; ") };
    let failed = |reason: String| Error::Command { command, words: words.clone(), reason };
    // Users without root do not have these folders in their path.
    let places = ["/usr/sbin", "/sbin"].map(|folder| Path::new(folder).join(command));
    let program = places.into_iter().find(|place| place.exists()).unwrap_or_else(|| command.into());
    let output = fed(&mut Command::new(program), &lines).map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().trim().to_owned()))
}

fn run(command: &'static str, words: &[&str]) -> Result<String> {
    let failed = |reason: String| Error::Command { command, words: words.join(" "), reason };
    let output = Command::new(command).args(words).output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

/// What a process answers that is given these lines.
fn fed(process: &mut Command, lines: &[String]) -> io::Result<Output> {
    let mut process = process.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = process.stdin.take() {
        // One that ended early has said why.
        let _ = input.write_all((lines.join("\n") + "\n").as_bytes());
    }
    process.wait_with_output()
}

fn batch(command: &'static str, mut process: Command, lines: &[String]) -> Result<()> {
    let failed = |words: &str, reason: String| Error::Command { command, words: words.into(), reason };
    let output = fed(process.args(["-batch", "-"]), lines).map_err(|error| failed("-batch", error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    // `Command failed -:3` ends what it says of the third line.
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let number = said.rsplit(':').next().and_then(|number| number.parse::<usize>().ok());
    let line = number.and_then(|number| lines.get(number.checked_sub(1)?));
    Err(failed(line.map_or("-batch", String::as_str), said.lines().next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::{Namespace, or_skipped};

    #[test]
    fn of_several_commands_the_one_that_failed_is_named() {
        let Some(here) = or_skipped(Namespace::new()).unwrap() else { return };
        let lines =
            ["address add 10.79.1.1/32 dev lo", "link set dev nothing up", "link set dev lo down"].map(String::from);
        let said = here.enter(|| ip_batch(&lines)).unwrap().unwrap_err().to_string();
        assert!(said.contains("link set dev nothing up: Cannot find device"), "{said}");
        // What stood before it is done.
        assert!(here.enter(|| ip(&["address", "add", "10.79.1.1/32", "dev", "lo"])).unwrap().is_err());
        here.enter(|| ip_batch(&lines[2..])).unwrap().unwrap();
    }

    #[test]
    fn queues_are_set_up_and_looked_at() {
        let Some(here) = or_skipped(Namespace::new()).unwrap() else { return };
        let lines = ["qdisc add dev lo root pfifo limit 7", "qdisc add dev lo root nosuch"].map(String::from);
        let said = here.enter(|| tc_batch(&lines, Some(Path::new("/nonexistent")))).unwrap().unwrap_err().to_string();
        assert!(said.starts_with("tc qdisc add dev lo root nosuch: "), "{said}");
        // What stood before it is done.
        assert!(here.enter(|| tc(&["qdisc", "show", "dev", "lo"])).unwrap().unwrap().contains("limit 7p"));
        let said = here.enter(|| tc(&["qdisc", "show", "dev", "none"])).unwrap().unwrap_err().to_string();
        assert!(said.starts_with("tc qdisc show dev none: "), "{said}");
    }
}
