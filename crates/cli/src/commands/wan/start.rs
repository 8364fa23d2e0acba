//! Commands in sites.

use std::io;
use std::net::IpAddr;
use std::process::{Child, Command as Process};

use verbena_terms::keep_off;
use verbena_wan::{Plan, Site, Wan};

use crate::commands::child;
use crate::error::Result;

/// Starts a command in a site. It ends with the thread that starts it.
pub fn start(wan: &Wan, site: &str, process: Process) -> Result<io::Result<Child>> {
    let start = || spawn(process, environment(wan.plan(), site), wan.plan().backend.core());
    Ok(wan.site(site)?.visit(start).map_err(verbena_wan::Error::from)?)
}

/// The same in the network of this thread, off this core.
pub fn spawn(mut process: Process, environment: Vec<(String, String)>, off: Option<usize>) -> io::Result<Child> {
    process.envs(environment);
    let apart = move || Ok(off.map_or(Ok(()), keep_off)?);
    // SAFETY: `keep_off` takes no lock and allocates nothing, as it says.
    unsafe { child::dies_with_us(&mut process, apart) };
    process.spawn()
}

/// What a command in `site` is told: where it is, and where the other sites are.
pub fn environment(plan: &Plan, site: &str) -> Vec<(String, String)> {
    let mut environment = vec![("VERBENA_WAN_SITE".to_owned(), site.to_owned())];
    let mut add = |name: &str, of: &Site| {
        let first = |is_ipv6| of.addresses.iter().find(|address: &&IpAddr| address.is_ipv6() == is_ipv6);
        for (family, address) in [("", first(false)), ("6", first(true))] {
            environment.extend(address.map(|address| (format!("VERBENA_WAN_{name}{family}"), address.to_string())));
        }
    };
    let others: Vec<&Site> = plan.sites.iter().filter(|other| other.name != site).collect();
    if let [other] = others[..] {
        add("PEER", other);
    }
    plan.sites.iter().filter(|own| own.name == site).for_each(|own| add("ADDRESS", own));
    for other in others {
        add(&format!("SITE_{}", other.name.replace('-', "_").to_ascii_uppercase()), other);
    }
    environment
}
