//! One cluster's caches before an application: the mark that says whose (rule P11).
//!
//! Two caches that do not know of each other serve stale pages: what is written through the one never reaches the other. So each proxy marks its
//! applications with the name of an abstract socket, which all users of a network namespace see and which is gone with its process. Nothing is sent over it: the name is
//! all there is to read, also while its process stands still.
//!
//! ```text
//! @verbena-origin.APPLICATION.CLUSTER.PROCESS      hashes of 64 bits in hexadecimal, and a number
//! @verbena-settings.CLUSTER.LONGEST.ROUTES.ORIGINS.PROCESS      the same; LONGEST is in milliseconds
//! ```
//!
//! The second says what the proxies of one cluster must have in common: a proxy that finds another on this machine with other settings says so.

use std::fs;
use std::hash::Hasher;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use http::uri::Authority;
use siphasher::sip::SipHasher13;

use crate::config::ProxyConfig;
use crate::error::ProxyError;
use crate::origin::{Address, HTTP_PORT, HTTPS_PORT};

const BEGINNING: &str = "verbena-origin.";
const SETTINGS: &str = "verbena-settings.";
/// Where the kernel lists the names of this network namespace (proc_net(5)).
const LIST: &str = "/proc/net/unix";

/// The marks of a proxy, which hold until they are dropped.
#[derive(Debug)]
pub struct Marks {
    sockets: Vec<UnixDatagram>,
}

impl Marks {
    /// What tells the application of a proxy from others: its origins, in whatever order and however they are spelled.
    pub fn identity(config: &ProxyConfig) -> u64 {
        let mut origins: Vec<_> = config
            .origin
            .iter()
            .flat_map(|origin| origin.parse::<Address>())
            .map(|address| canonical(&address))
            .collect();
        origins.sort_unstable();
        origins.dedup();
        hashed(&origins.join("\n"))
    }

    /// Marks the applications of a proxy. `cluster` is the fingerprint of the key of names, which differs between any two clusters.
    ///
    /// Of two proxies that begin at the same moment both see the other, since each marks first and looks then.
    ///
    /// # Errors
    /// [`ProxyError::OtherCache`] if a proxy of another cluster stands before one of them.
    pub fn take(config: &ProxyConfig, cluster: u64) -> Result<Marks, ProxyError> {
        let mut sockets = Vec::new();
        for origin in &config.origin {
            let Ok(address) = origin.parse::<Address>() else { continue };
            let application = hashed(&canonical(&address));
            let name = format!("{BEGINNING}{application:016x}.{cluster:016x}.{}", process::id());
            match SocketAddr::from_abstract_name(&name).and_then(|name| UnixDatagram::bind_addr(&name)) {
                Ok(socket) => sockets.push(socket),
                // An origin that is named twice.
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {}
                Err(error) => {
                    tracing::warn!(%error, origin, "the application cannot be marked: another cache before it would not be noticed")
                }
            }
            let list = match fs::read_to_string(LIST) {
                Ok(list) => list,
                Err(error) => {
                    tracing::warn!(%error, origin, "{LIST} cannot be read: another cache before the application would not be noticed");
                    continue;
                }
            };
            let other = others(&list, application, cluster).next();
            if let Some(process) = other.filter(|_| !config.shared_origin) {
                return Err(ProxyError::OtherCache { origin: origin.clone(), process });
            }
            if let Some(process) = other {
                tracing::warn!(
                    origin,
                    process,
                    "a proxy of another cluster stands before this application: what is written through it stays in this cache"
                );
            }
        }
        Ok(Marks { sockets })
    }

    /// Marks what this proxy shares with the others of its cluster, and warns of each on this machine that has it otherwise. `longest` is `pages.longest_transaction`.
    pub fn compare(&mut self, config: &ProxyConfig, longest: Duration, cluster: u64) {
        let own = Settings {
            longest_ms: u64::try_from(longest.as_millis()).unwrap_or(u64::MAX),
            routes: hashed(&format!("{:?} {:?}", config.mode, config.routes)),
            origins: Marks::identity(config),
        };
        let name = own.name(cluster, process::id());
        if let Ok(socket) = SocketAddr::from_abstract_name(&name).and_then(|name| UnixDatagram::bind_addr(&name)) {
            self.sockets.push(socket);
        }
        // What cannot be read was reported when the application was marked.
        for (process, theirs) in settings_of(&fs::read_to_string(LIST).unwrap_or_default(), cluster) {
            own.warn_of(&theirs, process);
        }
    }
}

/// What proxies of one cluster must have in common.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    longest_ms: u64,
    routes: u64,
    origins: u64,
}

impl Settings {
    fn name(&self, cluster: u64, process: u32) -> String {
        let Settings { longest_ms, routes, origins } = self;
        format!("{SETTINGS}{cluster:016x}.{longest_ms:x}.{routes:016x}.{origins:016x}.{process}")
    }

    /// The keys that another proxy has otherwise, each with what that does.
    fn others(&self, theirs: &Settings) -> Vec<(&'static str, &'static str)> {
        let mut found = Vec::new();
        if self.longest_ms != theirs.longest_ms {
            let problem = "an update whose outcome is unknown is waited for as long as each home says: a shorter time at one may end it too early. Write the same at all";
            found.push(("pages.longest_transaction", problem));
        }
        if self.routes != theirs.routes {
            let problem = "what one proxy leaves out of a page's key, or does not announce as a write, the other does. Write the same at all";
            found.push(("proxy.routes", problem));
        }
        if self.origins != theirs.origins {
            let problem =
                "right if these are one application; two applications need a cluster of their own each (--name)";
            found.push(("proxy.origin", problem));
        }
        found
    }

    fn warn_of(&self, theirs: &Settings, process: u32) {
        for (key, problem) in self.others(theirs) {
            tracing::warn!(key, process, "another proxy of this cluster has this setting otherwise: {problem}");
        }
    }
}

/// What the other processes of a cluster have marked as their settings, by the kernel's list.
fn settings_of(list: &str, cluster: u64) -> impl Iterator<Item = (u32, Settings)> + '_ {
    let marks = list.lines().filter_map(|line| line.split_once('@')?.1.strip_prefix(SETTINGS));
    marks.filter_map(move |mark| {
        let mut parts = mark.split('.');
        let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
        let (of, longest_ms, routes, origins) = (number()?, number()?, number()?, number()?);
        let process = parts.next()?.parse().ok()?;
        (of == cluster && process != process::id()).then_some((process, Settings { longest_ms, routes, origins }))
    })
}

/// The processes of other clusters that have marked an application, by the kernel's list.
fn others(list: &str, application: u64, cluster: u64) -> impl Iterator<Item = u32> + '_ {
    let marks = list.lines().filter_map(|line| line.split_once('@')?.1.strip_prefix(BEGINNING));
    marks.filter_map(move |mark| {
        let mut parts = mark.split('.');
        let mut hash = || u64::from_str_radix(parts.next()?, 16).ok();
        let (of, theirs) = (hash()?, hash()?);
        let process = parts.next()?.parse().ok()?;
        (of == application && theirs != cluster).then_some(process)
    })
}

fn hashed(text: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// One text for each spelling of where an application listens, as far as names tell.
fn canonical(address: &Address) -> String {
    match address {
        Address::Tcp(authority) => format!("{}:{}", host(authority), authority.port_u16().unwrap_or(HTTP_PORT)),
        // A TLS terminator before an application may be on a port of its own: its mark is one of that port.
        Address::Tls(authority) => format!("{}:{}", host(authority), authority.port_u16().unwrap_or(HTTPS_PORT)),
        Address::Unix(path) => format!("unix:{}", path.canonicalize().unwrap_or_else(|_| path.clone()).display()),
    }
}

fn host(authority: &Authority) -> String {
    let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
    let is_loopback =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback { "loopback".to_owned() } else { host }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_application_are_one() {
        let text = |origin: &str| canonical(&origin.parse().unwrap());
        assert_eq!(text("http://localhost:80"), text("http://127.0.0.1"));
        assert_eq!(text("http://[::1]:80"), text("http://LOCALHOST"));
        assert_eq!(text("http://App:81"), text("http://app:81"));
        assert_ne!(text("http://app:81"), text("http://app:82"));
        assert_eq!(text("unix:/tmp/../tmp"), text("unix:/tmp"));
    }

    #[test]
    fn an_application_is_its_origins() {
        let of = |origins: &[&str]| {
            let origin = origins.iter().map(|origin| (*origin).to_owned()).collect();
            Marks::identity(&ProxyConfig { origin, ..ProxyConfig::default() })
        };
        assert_eq!(of(&["http://a", "http://localhost:81"]), of(&["http://127.0.0.1:81", "http://a:80", "http://A"]));
        assert_ne!(of(&["http://a"]), of(&["http://a", "http://b"]));
        assert_ne!(of(&["http://a:81"]), of(&["http://a:82"]));
    }

    #[test]
    fn the_others_are_those_of_other_clusters_before_the_same_application() {
        let line = |name: &str| format!("0000000000000000: 00000002 00000000 00000000 0002 01 12345 {name}\n");
        let mark = |application: u64, cluster: u64, process: u32| {
            line(&format!("@{BEGINNING}{application:016x}.{cluster:016x}.{process}"))
        };
        let list =
            [mark(1, 7, 10), mark(1, 8, 11), mark(2, 8, 12), line("/run/x"), line("@other"), line("@verbena-origin.x")];
        let list = list.concat();
        assert_eq!(others(&list, 1, 7).collect::<Vec<_>>(), [11]);
        assert_eq!(others(&list, 2, 8).count(), 0);
    }

    #[test]
    fn settings_that_differ_in_one_cluster_are_named() {
        let own = Settings { longest_ms: 30_000, routes: 1, origins: 2 };
        let list = |settings: &Settings, cluster, process| {
            format!("0000000000000000: 00000002 00000000 00000000 0002 01 12345 @{}\n", settings.name(cluster, process))
        };
        let theirs = Settings { longest_ms: 5_000, routes: 3, origins: 2 };
        let text =
            list(&theirs, 7, 10) + &list(&own, 7, process::id()) + &list(&own, 8, 11) + "0: @verbena-settings.x\n";
        let found: Vec<_> = settings_of(&text, 7).collect();
        assert_eq!(found, [(10, theirs)]);
        let keys = |theirs: &Settings| own.others(theirs).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
        assert_eq!(keys(&found[0].1), ["pages.longest_transaction", "proxy.routes"]);
        assert_eq!(keys(&Settings { longest_ms: 30_000, routes: 1, origins: 3 }), ["proxy.origin"]);
        assert!(keys(&Settings { longest_ms: 30_000, routes: 1, origins: 2 }).is_empty());
    }
}
