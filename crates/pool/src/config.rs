//! The section `[memcached]` of the configuration file.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use verbena_terms::{Contradiction, Lapse, section};

section! {
    /// Where memcached clients reach the pool, and what they may do.
    pub struct MemcachedConfig as "memcached", checked by MemcachedConfig::check {
        /// Address that clients connect to. There are no passwords: only an address that clients alone reach is a good one. Port 0 takes a free one.
        pub listen: SocketAddr as "ADDRESS" = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 11211),
        /// Unix socket that clients connect to as well. Not set: none.
        pub socket: Option<PathBuf> as "PATH" = None,
        /// Threads that serve clients; 0: one for each core.
        pub threads: usize as "NUMBER" = 0,
        /// Connections at a time. Further ones wait.
        pub connections: usize as "NUMBER" = 4096,
        /// How long a client may leave an answer unread. Then its connection is closed.
        pub client_timeout: Lapse as "TIME" = Lapse::seconds(30),
    }
}

impl MemcachedConfig {
    fn check(&self) -> Vec<Contradiction> {
        let none = (self.connections == 0).then(|| Contradiction::new("connections", "no client could be served"));
        let never =
            self.client_timeout.0.is_zero().then(|| Contradiction::new("client_timeout", "no answer could be sent"));
        none.into_iter().chain(never).collect()
    }
}
