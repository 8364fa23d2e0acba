//! The section `[memcached]` of the configuration file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use verbena_coop::service::check_tenant_name;
use verbena_terms::{Contradiction, Lapse, section};

section! {
    /// Where memcached clients reach the pool, and what they may do.
    pub struct MemcachedConfig as "memcached", checked by MemcachedConfig::check {
        /// Address that clients connect to. Without `users` there are no passwords: only an address that clients alone reach is a good one. Port 0 takes a free one.
        pub listen: SocketAddr as "ADDRESS" = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 11211),
        /// Unix socket that clients connect to as well. Not set: none.
        pub socket: Option<PathBuf> as "PATH" = None,
        /// The tenant whose clients those at `listen` are. Not set: clients of no tenant, or of the one that they name where there are `users`.
        pub tenant: Option<String> as "NAME" = None,
        /// Further addresses that clients connect to, each with the tenant whose clients they are: `address` and `tenant`.
        pub listeners: Vec<ListenerConfig> as "LISTENERS" = Vec::new(),
        /// File of users as memcached's `-Y` reads it: a line `NAME:PASSWORD` each, the name that of a tenant. Clients of listeners without a tenant send theirs first.
        pub users: Option<PathBuf> as "FILE" = None,
        /// The server's certificate for clients at these addresses, PEM, followed by those of its authorities. If it is set, they speak TLS; at the unix socket they do not. The file,
        /// and that of `tls_key`, is read again when it changes; connections stay.
        pub tls_cert: Option<PathBuf> as "FILE" = None,
        /// The private key of `tls_cert`, PEM.
        pub tls_key: Option<PathBuf> as "FILE" = None,
        /// Threads that serve clients; 0: one for each core.
        pub threads: usize as "NUMBER" = 0,
        /// Connections at a time. Further ones wait.
        pub connections: usize as "NUMBER" = 4096,
        /// How long a client may leave an answer unread. Then its connection is closed.
        pub client_timeout: Lapse as "TIME" = Lapse::seconds(30),
    }
}

/// One of `memcached.listeners`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerConfig {
    /// Address that clients connect to. Port 0 takes a free one.
    pub address: SocketAddr,
    /// The tenant whose clients they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}

impl MemcachedConfig {
    fn check(&self) -> Vec<Contradiction> {
        let none = (self.connections == 0).then(|| Contradiction::new("connections", "no client could be served"));
        let never =
            self.client_timeout.0.is_zero().then(|| Contradiction::new("client_timeout", "no answer could be sent"));
        let listeners = self.listeners.iter().enumerate();
        let listeners = listeners.map(|(nth, listener)| (format!("listeners.{nth}.tenant"), &listener.tenant));
        let unnamed =
            std::iter::once(("tenant".to_owned(), &self.tenant)).chain(listeners).filter_map(|(key, name)| {
                let problem = check_tenant_name(name.as_ref()?).err()?;
                Some(Contradiction::new(key, problem))
            });
        let addresses: Vec<_> =
            std::iter::once(self.listen).chain(self.listeners.iter().map(|listener| listener.address)).collect();
        let twice = self.listeners.iter().enumerate().filter_map(|(nth, listener)| {
            let other = addresses[..=nth].iter().find(|other| overlap(**other, listener.address));
            let problem = |other: &SocketAddr| match *other == listener.address {
                true => format!("{other} stands before it: each listener has an address of its own"),
                false => format!("{other} stands before it, and is one address with this"),
            };
            other.map(|other| Contradiction::new(format!("listeners.{nth}.address"), problem(other)))
        });
        let half = (self.tls_cert.is_some() != self.tls_key.is_some()).then(|| {
            let (key, other) = if self.tls_cert.is_some() { ("tls_key", "tls_cert") } else { ("tls_cert", "tls_key") };
            Contradiction::new(
                key,
                format!("it is not set, and {other} needs it: a certificate and its private key go together"),
            )
        });
        none.into_iter().chain(never).chain(unnamed).chain(twice).chain(half).collect()
    }
}

/// Whether two listeners cannot have these addresses: an unspecified one is all of them, of either family where it is of IPv6.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let is_all = |all: SocketAddr, one: SocketAddr| all.ip().is_unspecified() && (all.is_ipv6() || one.is_ipv4());
    one.port() == other.port()
        && one.port() != 0
        && (one.ip() == other.ip() || is_all(one, other) || is_all(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_is_every_one_of_its_port() {
        let at = |one: &str, other: &str| overlap(one.parse().unwrap(), other.parse().unwrap());
        assert!(at("127.0.0.1:1", "127.0.0.1:1") && at("0.0.0.0:1", "127.0.0.1:1") && at("[::1]:1", "[::]:1"));
        assert!(at("[::]:1", "10.0.0.1:1"), "a socket of IPv6 takes clients of IPv4 too");
        assert!(!at("127.0.0.1:1", "127.0.0.1:2") && !at("127.0.0.1:1", "127.0.0.2:1"));
        assert!(!at("0.0.0.0:1", "[::1]:1") && !at("127.0.0.1:0", "127.0.0.1:0"));
    }
}
