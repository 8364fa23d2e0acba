//! Commands in sites.

use std::io;
use std::net::IpAddr;
use std::process::{Child, Command as Process};

use serde::{Deserialize, Serialize};
use verbena_terms::keep_off;
use verbena_wan::{Plan, Site, Wan};

use super::names::{self, Names};
use crate::commands::child;
use crate::commands::signals::Mask;
use crate::error::Result;

/// What a command in a site has there.
#[derive(Debug, Serialize, Deserialize)]
pub struct Place {
    /// The environment variables that describe the WAN to it.
    environment: Vec<(String, String)>,
    /// The core of the router, which it keeps off.
    off: Option<usize>,
    /// The names of sites, as lines of `/etc/hosts`; nothing from a process of an earlier version.
    #[serde(default)]
    hosts: String,
}

impl Place {
    /// In this site.
    pub fn of(plan: &Plan, site: &str) -> Self {
        Place { environment: environment(plan, site), off: plan.backend.core(), hosts: names::lines(plan) }
    }

    /// The names of sites for commands, where these can have them.
    pub fn names(&self) -> Option<Names> {
        if self.hosts.is_empty() { None } else { Names::of(&self.hosts) }
    }
}

/// Starts a command in a site, where it sees these names and has these signals blocked. It ends with the thread that starts it.
pub fn start(
    wan: &Wan,
    site: &str,
    process: Process,
    names: Option<&Names>,
    signals: Mask,
) -> Result<io::Result<Child>> {
    let start = || spawn(process, Place::of(wan.plan(), site), names, signals);
    Ok(wan.site(site)?.visit(start).map_err(verbena_wan::Error::from)?)
}

/// The same in the network of this thread.
pub fn spawn(mut process: Process, place: Place, names: Option<&Names>, signals: Mask) -> io::Result<Child> {
    process.envs(place.environment);
    let (off, names) = (place.off, names.cloned());
    let apart = move || {
        off.map_or(Ok(()), keep_off)?;
        names.as_ref().map_or(Ok(()), Names::mount)
    };
    // SAFETY: `keep_off` and `mount` take no lock and allocate nothing, as they say.
    unsafe { child::dies_with_us(&mut process, signals, apart) };
    process.spawn()
}

/// The environment of a command in `site`: where it is, and where the other sites are.
fn environment(plan: &Plan, site: &str) -> Vec<(String, String)> {
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
