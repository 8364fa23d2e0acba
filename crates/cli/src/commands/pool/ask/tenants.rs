//! `verbena pool tenants`: what each tenant has of a pool.

use std::io::Write;

use clap::Args;
use serde::Serialize;
use verbena_terms::Size;

use super::Reach;
use crate::error::Result;
use crate::output::{output, write_json};

#[derive(Args, Debug)]
pub struct Tenants {
    #[command(flatten)]
    reach: Reach,
}

/// One tenant at one node. What has no limit is `null`.
#[derive(Debug, PartialEq, Serialize)]
struct Tenant {
    name: String,
    bytes: u64,
    guaranteed_bytes: u64,
    most_bytes: Option<u64>,
    items: u64,
    most_items: Option<u64>,
    /// Objects that left for want of room.
    evicted: u64,
    connections: u64,
    most_connections: Option<u64>,
    hits: u64,
    misses: u64,
}

impl Tenant {
    /// A line of `stats tenants`; `None` of a server that says something else.
    fn parse(name: String, rest: &str) -> Option<Tenant> {
        let words: Vec<&str> = rest.split(' ').collect();
        let [bytes, guaranteed, most, items, most_items, evicted, connections, most_connections, hits, misses] =
            words[..]
        else {
            return None;
        };
        let number = |word: &str| word.parse().ok();
        Some(Tenant {
            name,
            bytes: number(bytes)?,
            guaranteed_bytes: number(guaranteed)?,
            most_bytes: number(most),
            items: number(items)?,
            most_items: number(most_items),
            evicted: number(evicted)?,
            connections: number(connections)?,
            most_connections: number(most_connections),
            hits: number(hits)?,
            misses: number(misses)?,
        })
    }
}

impl Tenants {
    /// Asks the pool.
    pub fn run(&self) -> Result<()> {
        let said = self.reach.client()?.statistics("tenants")?;
        let tenants: Vec<Tenant> = said.into_iter().filter_map(|(name, rest)| Tenant::parse(name, &rest)).collect();
        let mut out = output();
        if self.reach.format.json {
            return write_json(&mut out, &tenants);
        }
        let head = ["tenant", "bytes", "guaranteed", "most", "items", "evicted", "connections", "hits"];
        let [name, bytes, guaranteed, most, items, evicted, connections, hits] = head;
        writeln!(
            out,
            "{name:<20} {bytes:>10} {guaranteed:>10} {most:>10} {items:>16} {evicted:>8} {connections:>11} {hits:>5}"
        )?;
        for tenant in &tenants {
            let of = |has: u64, most: Option<u64>| most.map_or(has.to_string(), |most| format!("{has}/{most}"));
            let reads = tenant.hits + tenant.misses;
            let hits = tenant.hits * 100;
            writeln!(
                out,
                "{:<20} {:>10} {:>10} {:>10} {:>16} {:>8} {:>11} {:>5}",
                tenant.name,
                Size(tenant.bytes).to_string(),
                Size(tenant.guaranteed_bytes).to_string(),
                tenant.most_bytes.map_or_else(|| "-".into(), |most| Size(most).to_string()),
                of(tenant.items, tenant.most_items),
                tenant.evicted,
                of(tenant.connections, tenant.most_connections),
                hits.checked_div(reads).map_or_else(|| "-".into(), |part| format!("{part}%")),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_a_tenant_has_and_may_have() {
        let tenant = Tenant::parse("shop".into(), "16 1024 2048 1 - 3 2 5 7 9").unwrap();
        assert_eq!((tenant.bytes, tenant.most_bytes, tenant.most_items), (16, Some(2048), None));
        assert_eq!((tenant.evicted, tenant.most_connections, tenant.misses), (3, Some(5), 9));
        assert_eq!(Tenant::parse("shop".into(), "16 1024"), None);
    }
}
