//! What to do about an address where nothing can listen: which process holds it, or what a port takes.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use verbena_database::{DatabaseConfig, DatabaseError};
use verbena_pool::{MemcachedConfig, ServerError};
use verbena_proxy::{ProxyConfig, ProxyError};
use verbena_terms::Section;

use crate::config::{Loaded, Place, flag_name};
use crate::error::Error;

/// Where the kernel lists the sockets of this network namespace (proc_net(5)), by family.
const LISTS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a socket that listens, in these lists (`TCP_LISTEN` in include/net/tcp_states.h).
const LISTENS: &str = "0A";
/// The first port that every user may take, unless the kernel says otherwise.
const FIRST_FREE: u16 = 1024;

/// A socket that listens.
#[derive(Debug, PartialEq, Eq)]
struct Listening {
    address: SocketAddr,
    user: u32,
    inode: u64,
}

/// The address of a section that a command has a short flag for, `--listen`.
pub struct Short {
    /// The section.
    pub section: &'static str,
    /// Whether the user wrote it.
    pub was_typed: bool,
}

/// An address, as the command line has it. `examples` are what it could be.
///
/// # Errors
/// It is none.
pub fn ip_and_port(given: &str, examples: &str) -> std::result::Result<SocketAddr, String> {
    given.parse().map_err(|_| format!("not IP:PORT, for example {examples}"))
}

/// An error of an address where nothing can listen, with what to do about it under the name by which the user gave the address. Other errors stay as they are.
pub fn named(error: Error, loaded: &Loaded, short: &Short) -> Error {
    let (section, address, reason) = match &error {
        Error::Proxy(ProxyError::Listen { address, reason }) => (ProxyConfig::NAME, address, reason),
        Error::Memcached(ServerError::Listen { address, reason }) => (MemcachedConfig::NAME, address, reason),
        Error::Database(DatabaseError::Listen { address, reason }) => (DatabaseConfig::NAME, address, reason),
        _ => return error,
    };
    let is_short = section == short.section;
    let key = match loaded.origin(section, "listen") {
        Place::File(_) => format!("{section}.listen"),
        Place::Flag(long) if !(is_short && short.was_typed) => long,
        _ if is_short => "--listen".into(),
        _ => format!("--{}", flag_name(section, "listen")),
    };
    Error::Refused { problem: format!("{error}; {}", advice(*address, reason, &key)), exit_code: error.exit_code() }
}

/// What to do about it, and where it can be found out, which process is in the way. `key` is where the address is written.
pub fn advice(address: SocketAddr, reason: &io::Error, key: &str) -> String {
    match reason.kind() {
        ErrorKind::AddrInUse => {
            let holder = holder(address).unwrap_or_else(|| "another process".into());
            format!("{holder} listens there: end it, or write another port ({key}; port 0 takes a free one)")
        }
        ErrorKind::PermissionDenied => {
            let first = first_free_port();
            format!(
                "ports below {first} are for root and for processes with CAP_NET_BIND_SERVICE: write a higher port ({key}), or give this user the right \
                 (systemd: AmbientCapabilities=CAP_NET_BIND_SERVICE; the whole machine: sysctl net.ipv4.ip_unprivileged_port_start={})",
                address.port()
            )
        }
        ErrorKind::AddrNotAvailable => {
            format!(
                "no interface of this machine has {}: `ip address` lists those that there are ({key})",
                address.ip()
            )
        }
        _ => format!("write another address ({key})"),
    }
}

/// The process that listens at an address, or in its way; its user where the system does not say which.
fn holder(address: SocketAddr) -> Option<String> {
    let lists = LISTS.into_iter().filter_map(|list| fs::read_to_string(list).ok());
    let found = lists.flat_map(|list| in_the_way(&list, address)).next()?;
    let name = process_of(found.inode).unwrap_or_else(|| format!("a process of user {}", found.user));
    Some(if found.address == address { name } else { format!("{name}, at {},", found.address) })
}

/// The sockets of a list that listen where nothing else can then listen at `address`.
fn in_the_way(list: &str, address: SocketAddr) -> Vec<Listening> {
    let meets = |ip: IpAddr| ip == address.ip() || ip.is_unspecified() || address.ip().is_unspecified();
    let all = list.lines().filter_map(listening);
    all.filter(|found| found.address.port() == address.port() && meets(found.address.ip())).collect()
}

/// A line of a list, if it is of a socket that listens: `sl local_address rem_address st queues tr:when retrnsmt uid timeout inode`.
fn listening(line: &str) -> Option<Listening> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, _, LISTENS, _, _, _, user, _, inode, ..] = fields[..] else { return None };
    let (ip, port) = local.split_once(':')?;
    // Each word of an address is written as this machine reads it.
    let words = ip.as_bytes().chunks(8).map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok());
    let bytes: Vec<u8> = words.collect::<Option<Vec<u32>>>()?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let ip = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(four) => IpAddr::V4(Ipv4Addr::from(four)),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).ok()?)),
    };
    let address = SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?);
    Some(Listening { address, user: user.parse().ok()?, inode: inode.parse().ok()? })
}

/// The process that has this socket open: its number and its name.
fn process_of(inode: u64) -> Option<String> {
    let socket = format!("socket:[{inode}]");
    let has_it = |directory: &Path| {
        let open = fs::read_dir(directory.join("fd")).ok()?;
        open.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|to| to.as_os_str() == &*socket)).then_some(())
    };
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        has_it(&entry.path())?;
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        Some(format!("process {number} ({})", name.trim()))
    })
}

fn first_free_port() -> u16 {
    let said = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    said.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(FIRST_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 0100007F:1F91 0100007F:C000 01 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0 100 0 0 10 0
";

    #[test]
    #[cfg(target_endian = "little")]
    fn the_sockets_in_the_way_are_those_that_listen_there() {
        let of = |address: &str| {
            in_the_way(LIST, address.parse().unwrap())
                .into_iter()
                .map(|found| (found.user, found.inode))
                .collect::<Vec<_>>()
        };
        assert_eq!(of("127.0.0.1:8080"), [(1000, 4711)]);
        assert_eq!(of("0.0.0.0:8080"), [(1000, 4711)]);
        assert_eq!(of("192.0.2.1:80"), [(0, 4712)]);
        assert_eq!(of("192.0.2.1:8080"), [], "another address of the machine");
        assert_eq!(of("127.0.0.1:8081"), [], "a connection");
        let six = "0: 00000000000000000000000001000000:0050 0:0 0A 0:0 0:0 0 7 0 9 1";
        let expected = Listening { address: "[::1]:80".parse().unwrap(), user: 7, inode: 9 };
        assert_eq!(listening(six), Some(expected));
        assert_eq!(listening("0: xyz:0050 0:0 0A 0:0 0:0 0 7 0 9 1"), None);
    }

    #[test]
    fn the_process_that_listens_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let said = advice(listener.local_addr().unwrap(), &ErrorKind::AddrInUse.into(), "proxy.listen");
        assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
        assert!(said.contains("listens there") && said.contains("proxy.listen"), "{said}");
        for (kind, what) in
            [(ErrorKind::PermissionDenied, "CAP_NET_BIND_SERVICE"), (ErrorKind::AddrNotAvailable, "192.0.2.1")]
        {
            let said = advice("192.0.2.1:80".parse().unwrap(), &kind.into(), "node.api");
            assert!(said.contains(what) && said.contains("node.api"), "{said}");
        }
    }
}
