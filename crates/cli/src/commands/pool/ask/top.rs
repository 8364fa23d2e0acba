//! `verbena pool top`: what happens in a pool, as it happens.
//!
//! A reading is what one pool knows of all nodes; a line is the difference between two of them.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use verbena_pool::Client;
use verbena_terms::{Lapse, Size};

use super::Reach;
use crate::commands::at_least_one;
use crate::error::Result;
use crate::output::{output, write_json};

/// To the top of a terminal, and nothing below.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Args, Debug)]
pub struct Top {
    /// Time between two readings.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(1), value_parser = Lapse::or_seconds)]
    interval: Lapse,
    /// End after this many readings; without it, until Ctrl-C.
    #[arg(long, value_name = "NUMBER", value_parser = at_least_one())]
    count: Option<usize>,
    #[command(flatten)]
    reach: Reach,
}

/// What a node had counted at a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Counted {
    name: String,
    role: String,
    lent: u64,
    used: u64,
    objects: u64,
    local_hits: u64,
    remote_hits: u64,
    misses: u64,
}

/// What the pool said at one moment.
#[derive(Debug)]
struct Reading {
    at: Instant,
    scheme: String,
    nodes: Vec<Counted>,
    hottest: Vec<Key>,
}

/// What is shown of a node.
#[derive(Debug, PartialEq, Serialize)]
struct Node {
    name: String,
    role: String,
    reads_per_s: f64,
    /// Of the reads between the two readings, those that found an object at this node, and at another one; `null` if there were no reads.
    local_hits: Option<f64>,
    remote_hits: Option<f64>,
    lent_bytes: u64,
    used_bytes: u64,
    objects: u64,
}

/// A key, and how often it is read beside the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Key {
    key: String,
    count: u64,
}

#[derive(Debug, Serialize)]
struct Shown<'a> {
    scheme: &'a str,
    nodes: Vec<Node>,
    hottest: &'a [Key],
}

impl Counted {
    /// A line of `stats nodes`; `None` of a server that says something else.
    fn parse(name: String, rest: &str) -> Option<Counted> {
        let (role, numbers) = rest.split_once(' ')?;
        let numbers: Vec<u64> = numbers.split(' ').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        let [lent, used, objects, local_hits, remote_hits, misses] = numbers[..] else { return None };
        Some(Counted { name, role: role.to_owned(), lent, used, objects, local_hits, remote_hits, misses })
    }

    /// What happened since `before`, within `seconds` seconds. A node that started anew meanwhile counts from
    /// 0.
    fn since(&self, before: Option<&Counted>, seconds: f64) -> Node {
        let none = Counted::default();
        let before = before.filter(|before| before.reads() <= self.reads()).unwrap_or(&none);
        let reads = self.reads() - before.reads();
        let part =
            |of: fn(&Counted) -> u64| (reads > 0).then(|| of(self).saturating_sub(of(before)) as f64 / reads as f64);
        Node {
            name: self.name.clone(),
            role: self.role.clone(),
            reads_per_s: reads as f64 / seconds,
            local_hits: part(|counted| counted.local_hits),
            remote_hits: part(|counted| counted.remote_hits),
            lent_bytes: self.lent,
            used_bytes: self.used,
            objects: self.objects,
        }
    }

    fn reads(&self) -> u64 {
        self.local_hits + self.remote_hits + self.misses
    }
}

impl Reading {
    fn take(client: &mut Client) -> Result<Reading> {
        let scheme = client.scheme()?;
        let nodes = client.statistics("nodes")?;
        let nodes = nodes.into_iter().filter_map(|(name, rest)| Counted::parse(name, &rest)).collect();
        let hottest = client.statistics("hot")?;
        let hottest = hottest.into_iter().filter_map(|(key, count)| Some(Key { key, count: count.parse().ok()? }));
        Ok(Reading { at: Instant::now(), scheme, nodes, hottest: hottest.collect() })
    }

    fn since(&self, before: &Reading) -> Shown<'_> {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(0.001);
        let of = |node: &Counted| node.since(before.nodes.iter().find(|old| old.name == node.name), seconds);
        Shown { scheme: &self.scheme, nodes: self.nodes.iter().map(of).collect(), hottest: &self.hottest }
    }
}

impl Top {
    pub(super) fn run(self) -> Result<()> {
        let every = self.interval.0.max(Duration::from_millis(50));
        let mut client = self.reach.client()?;
        let mut before = Reading::take(&mut client)?;
        let mut out = output();
        let is_live = !self.reach.format.json && self.count.is_none() && std::io::stdout().is_terminal();
        let mut shown = 0;
        while self.count.is_none_or(|count| shown < count) {
            std::thread::sleep(every);
            let reading = Reading::take(&mut client)?;
            let now = reading.since(&before);
            if self.reach.format.json {
                write_json(&mut out, &now)?;
            } else {
                if is_live {
                    write!(out, "{CLEAR}")?;
                }
                write!(out, "{}", words(&now))?;
            }
            out.flush()?;
            before = reading;
            shown += 1;
        }
        Ok(())
    }
}

fn words(shown: &Shown<'_>) -> String {
    let part = |part: Option<f64>| part.map_or("-".to_owned(), |part| format!("{:.0}%", 100.0 * part));
    let mut text = format!(
        "{:<20} {:<8} {:>9} {:>6} {:>7} {:>6} {:>10} {:>10} {:>9}\n",
        "node", "role", "reads/s", "local", "remote", "miss", "used", "lent", "objects"
    );
    for node in &shown.nodes {
        let missed = node.local_hits.zip(node.remote_hits).map(|(local, remote)| (1.0 - local - remote).max(0.0));
        text += &format!(
            "{:<20} {:<8} {:>9.0} {:>6} {:>7} {:>6} {:>10} {:>10} {:>9}\n",
            node.name,
            node.role,
            node.reads_per_s,
            part(node.local_hits),
            part(node.remote_hits),
            part(missed),
            Size(node.used_bytes).to_string(),
            Size(node.lent_bytes).to_string(),
            node.objects,
        );
    }
    let keys: Vec<String> = shown.hottest.iter().map(|key| format!("{} ({})", key.key, key.count)).collect();
    let keys = if keys.is_empty() { "none yet".to_owned() } else { keys.join(", ") };
    text + &format!("scheme {}; read most here: {keys}\n", shown.scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_happened_between_two_readings() {
        let old = Counted::parse("a".into(), "active 1024 512 3 10 20 30").unwrap();
        let new = Counted::parse("a".into(), "active 1024 768 4 40 30 90").unwrap();
        let node = new.since(Some(&old), 2.0);
        assert_eq!((node.reads_per_s, node.local_hits, node.remote_hits), (50.0, Some(0.3), Some(0.1)));
        assert_eq!((node.used_bytes, node.objects), (768, 4));
        let idle = new.since(Some(&new), 1.0);
        assert_eq!((idle.reads_per_s, idle.local_hits), (0.0, None));
        let again = old.since(Some(&new), 1.0);
        assert_eq!(again.reads_per_s, 60.0, "a node that started anew counts from 0");
        for strange in ["", "active", "active 1 2 3", "active 1 2 3 4 5 6 7", "active a 2 3 4 5 6"] {
            assert_eq!(Counted::parse("a".into(), strange), None, "{strange}");
        }
        let hottest = [Key { key: "k".into(), count: 7 }];
        let shown = Shown { scheme: "bcc", nodes: vec![node, idle], hottest: &hottest };
        let text = words(&shown);
        assert!(text.contains("30%") && text.contains("60%") && text.contains("scheme bcc; read most here: k (7)"));
    }
}
