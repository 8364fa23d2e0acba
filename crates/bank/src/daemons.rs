//! The daemons of a bank, as a list that a user writes.

use std::fmt::{self, Display};
use std::hash::Hasher;
use std::path::PathBuf;

use siphasher::sip::SipHasher13;
use thiserror::Error;

use crate::{Placement, secret::hex};

/// Where a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `HOST:PORT`, the host in lower case.
    Tcp(String, u16),
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
}

/// One daemon of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Where it listens.
    pub address: Address,
    /// Its share among the others, at least 1.
    pub weight: u32,
    /// A hash of the address, the same in every program.
    pub(crate) id: u64,
}

/// At least one daemon, and none twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemons(Vec<Daemon>);

/// Why a list of daemons was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ListError {
    /// A bank of memory has a size that is none.
    #[error("bank {list:?}: write memory, or memory:SIZE with a size as in memory:256MiB")]
    Size {
        /// What was written.
        list: String,
    },
    /// It is no kind of bank.
    #[error(
        "bank {list:?} has no known kind: write memory, memcached://HOST:PORT,HOST:PORT, memcached:///PATH/OF/SOCKET or none"
    )]
    Kind {
        /// The list.
        list: String,
    },
    /// The list names no daemon.
    #[error("bank {list:?} names no daemon: write memcached://HOST:PORT,HOST:PORT")]
    Empty {
        /// The list.
        list: String,
    },
    /// One entry is no address.
    #[error(
        "daemon {entry:?} in the bank's list: expected HOST:PORT, [IPV6]:PORT or /PATH/OF/SOCKET, then =WEIGHT if wanted"
    )]
    Entry {
        /// The entry.
        entry: String,
    },
    /// A weight is 0, too large or no number.
    #[error("daemon {entry:?} in the bank's list: a weight is a whole number from 1 to 1000000")]
    Weight {
        /// The entry.
        entry: String,
    },
    /// A daemon stands in the list twice.
    #[error(
        "daemon {address} stands in the bank's list twice: remove one, or give it a weight (={weight}) for a larger share"
    )]
    Twice {
        /// Its address.
        address: String,
        /// The weight that the two have together.
        weight: u32,
    },
    /// A host has no address, or a path is too long for a socket.
    #[error(
        "bank daemon {address}: the host has no address, or the path is too long for a socket (107 bytes); check its spelling and the resolver"
    )]
    Unknown {
        /// The daemon.
        address: String,
    },
}

impl Daemons {
    /// Reads `memcached://h1:11211,h2:11211=3,/run/m.sock`.
    pub fn parse(list: &str) -> Result<Self, ListError> {
        let rest = list.trim().strip_prefix("memcached://").ok_or(ListError::Kind { list: list.to_owned() })?;
        let entries = rest.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let mut daemons: Vec<Daemon> = vec![];
        for entry in entries {
            let daemon = Daemon::parse(entry)?;
            if let Some(other) = daemons.iter().find(|other| other.address == daemon.address) {
                let weight = other.weight.saturating_add(daemon.weight);
                return Err(ListError::Twice { address: daemon.address.to_string(), weight });
            }
            daemons.push(daemon);
        }
        if daemons.is_empty() { Err(ListError::Empty { list: list.to_owned() }) } else { Ok(Daemons(daemons)) }
    }

    /// All, in the order of the list.
    pub fn list(&self) -> &[Daemon] {
        &self.0
    }

    /// What two clients must have in common so that they find each other's blocks.
    pub fn fingerprint(&self, placement: Placement) -> String {
        let mut entries: Vec<String> = self.0.iter().map(|daemon| daemon.to_string()).collect();
        if !placement.minds_order() {
            entries.sort();
        }
        let mut hasher = SipHasher13::new();
        hasher.write(format!("{placement:?} {}", entries.join(",")).as_bytes());
        hex(&hasher.finish().to_be_bytes())
    }
}

impl Display for Daemons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> = self.0.iter().map(Daemon::to_string).collect();
        write!(f, "memcached://{}", entries.join(","))
    }
}

impl Daemon {
    fn parse(entry: &str) -> Result<Self, ListError> {
        const MOST: u32 = 1_000_000;
        let (place, weight) = match entry.rsplit_once('=') {
            Some((place, weight)) => {
                let weight = weight.parse().ok().filter(|weight| (1..=MOST).contains(weight));
                (place, weight.ok_or(ListError::Weight { entry: entry.to_owned() })?)
            }
            None => (entry, 1),
        };
        let address = Address::parse(place).ok_or(ListError::Entry { entry: entry.to_owned() })?;
        let mut hasher = SipHasher13::new();
        hasher.write(address.to_string().as_bytes());
        Ok(Daemon { address, weight, id: hasher.finish() })
    }
}

impl Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weight {
            1 => self.address.fmt(f),
            weight => write!(f, "{}={weight}", self.address),
        }
    }
}

impl Address {
    fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return (text.len() > 1).then(|| Address::Unix(text.into()));
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let is_ipv6 = host.starts_with('[') && host.ends_with(']');
        let bare = if is_ipv6 { &host[1..host.len() - 1] } else { host };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte) || (is_ipv6 && byte == b':');
        let is_host = !bare.is_empty() && bare.bytes().all(is_plain);
        is_host.then(|| Address::Tcp(bare.to_ascii_lowercase(), port))
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_as_it_is_written() {
        let list = "memcached://h1:11211,h2:11212=3,[::1]:7,/run/m.sock";
        assert_eq!(Daemons::parse(list).unwrap().to_string(), list);
    }

    #[test]
    fn what_is_no_list_is_refused_by_its_entry() {
        let error = |list: &str| Daemons::parse(list).unwrap_err().to_string();
        assert!(error("redis://h:1").contains("no known kind"));
        assert!(error("memcached://").contains("names no daemon"));
        for entry in ["h", "h:0", "h:70000", ":1", "h:1:2x", "/", "a b:1", "[::1:7"] {
            assert!(error(&format!("memcached://{entry}")).contains("expected HOST:PORT"), "{entry}");
        }
        assert!(error("memcached://h:1=0").contains("a weight is a whole number"));
        let twice = error("memcached://h:1,g:1,H:1");
        assert!(twice.contains("h:1 stands in the bank's list twice") && twice.contains("=2"), "{twice}");
    }

    #[test]
    fn another_order_is_another_bank_where_the_placement_minds_it() {
        let one = Daemons::parse("memcached://a:1,b:1").unwrap();
        let turned = Daemons::parse("memcached://b:1,a:1").unwrap();
        let same = |placement| one.fingerprint(placement) == turned.fingerprint(placement);
        assert!(same(Placement::Rendezvous));
        assert!(!same(Placement::Crc32) && !same(Placement::Modulo));
    }
}
