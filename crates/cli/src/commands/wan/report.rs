//! What links have done, for people and for programs.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use verbena_wan::router::Seen;
use verbena_wan::{Backend, Wan};

use crate::error::Result;

/// What `--json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    #[serde(flatten)]
    backend: Backend,
    /// Nanoseconds since it came up.
    up_ns: u64,
    links: Vec<Link>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Link {
    name: String,
    ways: [Direction; 2],
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Direction {
    from: String,
    to: String,
    /// Those that are not as usual, by name.
    options: BTreeMap<String, String>,
    #[serde(flatten)]
    seen: Seen,
    #[serde(skip_serializing_if = "Option::is_none")]
    rates: Option<Rates>,
}

/// Of the time between two looks.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Rates {
    packets_per_s: f64,
    bits_per_s: f64,
    arrived_packets_per_s: f64,
    arrived_bits_per_s: f64,
}

impl Report {
    /// What has happened since `began`, when it came up.
    pub fn of(wan: &Wan, began: Instant) -> Result<Self> {
        let plan = wan.plan();
        let link = |(link, [there, back]): (&verbena_wan::Link, [Seen; 2])| {
            let site = |end: usize| plan.sites[link.between[end]].name.clone();
            let way = |end: usize, seen| Direction {
                from: site(end),
                to: site(1 - end),
                options: link.ways[end].options().map(|(name, value)| (name.into(), value)).collect(),
                seen,
                rates: None,
            };
            Link { name: link.name.clone(), ways: [way(0, there), way(1, back)] }
        };
        let links = plan.links.iter().zip(wan.look()?).map(link).collect();
        let up_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(Report { backend: plan.backend, up_ns, links })
    }

    /// With the rates since an earlier one of the same WAN.
    pub fn since(mut self, before: &Report) -> Self {
        let seconds = Duration::from_nanos(self.up_ns.saturating_sub(before.up_ns)).as_secs_f64();
        let ways = self.links.iter_mut().flat_map(|link| &mut link.ways);
        for (now, before) in ways.zip(before.links.iter().flat_map(|link| &link.ways)) {
            let (counts, then) = (now.seen.counts, before.seen.counts);
            let per_s = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds.max(1e-9);
            now.rates = Some(Rates {
                packets_per_s: per_s(counts.packets, then.packets),
                bits_per_s: 8.0 * per_s(counts.bytes, then.bytes),
                arrived_packets_per_s: per_s(counts.arrived, then.arrived),
                arrived_bits_per_s: 8.0 * per_s(counts.arrived_bytes, then.arrived_bytes),
            });
        }
        self
    }

    /// One link alone.
    pub fn only(mut self, name: &str) -> Result<Self, verbena_wan::Error> {
        let known: Vec<String> = self.links.iter().map(|link| link.name.clone()).collect();
        self.links.retain(|link| link.name == name);
        if self.links.is_empty() {
            return Err(verbena_wan::Error::NoLink { name: name.into(), known });
        }
        Ok(self)
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
        let Seen { counts, overrun, unsent, under_way, queued_packets, queued_bytes, took, unknown } = &self.seen;
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
            ("this machine was too slow", overrun + unsent),
        ];
        if let Some(rates) = &self.rates {
            let [sent, arrived] = [rates.bits_per_s, rates.arrived_bits_per_s].map(bits);
            let (packets, came) = (rates.packets_per_s, rates.arrived_packets_per_s);
            writeln!(to, "  rate       {packets:.0} packets/s, {sent} sent; {came:.0} packets/s, {arrived} arrived")?;
        }
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
        if let Some(took) = took.filter(|took| took.frames > 0) {
            let ms = |nanos| format!("{:.3} ms", Duration::from_nanos(nanos).as_secs_f64() * 1e3);
            let (least, median, p99) = (ms(took.least_ns), ms(took.median_ns), ms(took.p99_ns));
            writeln!(to, "  took       least {least}, median {median}, p99 {p99}, most {}", ms(took.most_ns))?;
        }
        if !unknown.is_empty() {
            writeln!(to, "  not known  {}", unknown.join(", "))?;
        }
        Ok(())
    }
}

fn bits(per_s: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let found = units.into_iter().find(|(unit, _)| per_s >= *unit);
    found.map_or_else(|| format!("{per_s:.0} bit/s"), |(unit, name)| format!("{:.2} {name}", per_s / unit))
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
