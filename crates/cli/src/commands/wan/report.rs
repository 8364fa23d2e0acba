//! What links have done, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use serde::Serialize;
use verbena_wan::Wan;
use verbena_wan::router::{Mode, Seen};

use crate::error::Result;

/// What `--json` prints.
#[derive(Debug, Serialize)]
pub struct Report {
    mode: Mode,
    seed: u64,
    links: Vec<Link>,
}

#[derive(Debug, Serialize)]
struct Link {
    name: String,
    ways: [Direction; 2],
}

#[derive(Debug, Serialize)]
struct Direction {
    from: String,
    to: String,
    /// Those that are not as usual, by name.
    options: BTreeMap<&'static str, String>,
    #[serde(flatten)]
    seen: Seen,
}

impl Report {
    /// What has happened so far.
    pub fn of(wan: &Wan) -> Result<Self> {
        let plan = wan.plan();
        let link = |(link, [there, back]): (&verbena_wan::Link, [Seen; 2])| {
            let site = |end: usize| plan.sites[link.between[end]].name.clone();
            let way = |end: usize, seen| Direction {
                from: site(end),
                to: site(1 - end),
                options: link.ways[end].options().collect(),
                seen,
            };
            Link { name: link.name.clone(), ways: [way(0, there), way(1, back)] }
        };
        let links = plan.links.iter().zip(wan.look()?).map(link).collect();
        Ok(Report { mode: plan.mode, seed: plan.seed, links })
    }

    /// For people.
    pub fn print(&self, to: &mut impl Write) -> Result<()> {
        for Link { name, ways } in &self.links {
            for way in ways {
                let options: Vec<String> = way.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
                writeln!(to, "{name}: {} to {}  {}", way.from, way.to, options.join(" "))?;
                way.print(to)?;
            }
        }
        Ok(())
    }
}

impl Direction {
    fn print(&self, to: &mut impl Write) -> Result<()> {
        let Seen { counts, overrun, unsent, under_way, queued_packets, queued_bytes, took } = &self.seen;
        let dropped = counts.dropped;
        let (sent, arrived) = (counts.packets, counts.arrived);
        writeln!(to, "  packets    {sent} sent, {arrived} arrived, {under_way} under way")?;
        let causes = [
            ("drop_rate", dropped.drop_rate),
            ("loss", dropped.loss),
            ("burst", dropped.burst),
            ("the queue was full", dropped.queue_limit),
            ("codel", dropped.codel),
            ("memory", dropped.memory),
            ("the router was too slow", overrun + unsent),
        ];
        line(to, "dropped", &causes)?;
        let others = [
            ("twice", counts.duplicated),
            ("changed", counts.corrupted),
            ("out of order", counts.out_of_order),
            ("in large frames against a rule", counts.unsplit),
        ];
        line(to, "besides", &others)?;
        if *queued_packets > 0 {
            writeln!(to, "  queue      {queued_packets} packets, {queued_bytes} bytes")?;
        }
        if took.frames > 0 {
            let ms = |nanos| format!("{:.3} ms", Duration::from_nanos(nanos).as_secs_f64() * 1e3);
            let (least, median, p99) = (ms(took.least_ns), ms(took.median_ns), ms(took.p99_ns));
            writeln!(to, "  took       least {least}, median {median}, p99 {p99}, most {}", ms(took.most_ns))?;
        }
        Ok(())
    }
}

/// What there is of these, if there is any.
fn line(to: &mut impl Write, what: &str, numbers: &[(&str, u64)]) -> Result<()> {
    let some: Vec<String> =
        numbers.iter().filter(|(_, number)| *number > 0).map(|(name, number)| format!("{number} {name}")).collect();
    if !some.is_empty() {
        writeln!(to, "  {what:<10} {}", some.join(", "))?;
    }
    Ok(())
}
