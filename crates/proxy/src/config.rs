//! The section `[proxy]` of the configuration file.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use http::uri::Authority;
use verbena_caching::{Mode, Rule, Writes};
use verbena_content::Replacement;
use verbena_terms::{Contradiction, Lapse, Size, section};

use serde::{Deserialize, Serialize};

use crate::origin::Address;
use crate::proxy_protocol::{Network, ProxyVersion};
use crate::rules;

/// Where hits are answered that clients ask for over HTTP/1.1 without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hits {
    /// Beneath hyper, as soon as their heads are read; hyper gets all other requests.
    #[default]
    Direct,
    /// By hyper, as all other requests are.
    Hyper,
}

/// Which version of HTTP is spoken with the application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OriginHttp {
    /// Over `https` what it chooses, else HTTP/1.1.
    #[default]
    Auto,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, without TLS too.
    Http2,
}

section! {
    /// The proxy in front of the application.
    pub struct ProxyConfig as "proxy", checked by ProxyConfig::check {
        /// Where clients reach it. Port 0 takes a free one.
        pub listen: SocketAddr as "ADDRESS" = SocketAddr::from(([127, 0, 0, 1], 8080)),
        /// The proxy's certificates for clients, PEM, each file with the site's own first and its authorities' after it. With one, clients speak TLS, and HTTP/2 or
        /// HTTP/1.1 as they wish. Of several, the one is shown that is for the name which the client asks for, else the first.
        ///
        /// The files, and those of `tls_key`, are read again when they change, and on SIGHUP; connections stay.
        pub tls_cert: Vec<PathBuf> as "FILE" = Vec::new(),
        /// The private keys of `tls_cert`, in its order, PEM.
        pub tls_key: Vec<PathBuf> as "FILE" = Vec::new(),
        /// Networks of balancers that begin each connection with a header of the PROXY protocol, version 1 or 2, and so name the client: `10.0.0.0/8`, `fd00::/8`, or one
        /// address. A connection from there without such a header is closed; from elsewhere no header is believed.
        pub proxy_protocol_from: Vec<String> as "NETWORKS" = Vec::new(),
        /// The application: `http://HOST:PORT`, `https://HOST:PORT`, or `unix:/PATH` for one that listens on a unix socket. Of several, that answer, the one whose machine is least loaded is asked, as the node there says;
        /// where none says it, or they are alike, the one with the fewest requests under way.
        pub origin: Vec<String> as "URL" = Vec::new(),
        /// The authorities that may vouch for an `https` application, PEM, and no others. Not set: those of the system.
        pub origin_ca: Option<PathBuf> as "FILE" = None,
        /// Which version of HTTP is spoken with the application: `auto`, over `https` HTTP/2 if it chooses that in the handshake (ALPN), else HTTP/1.1; `http1`; or `http2`, also where there is no TLS
        /// (`h2c` with prior knowledge), for back-ends of gRPC. WebSockets go over HTTP/1.1 in any case.
        pub origin_http: OriginHttp as "VERSION" = OriginHttp::Auto,
        /// Begin each connection to the application with a header of the PROXY protocol, version `v1` or `v2`, that names the client. Then each request has a connection of its
        /// own.
        pub origin_proxy_protocol: Option<ProxyVersion> as "VERSION" = None,
        /// The nodes on the machines of `origin`, in its order, by their names; `""` where there is none.
        ///
        /// Not set: an origin that is given by an IP address is on the machine of the node with that address, one on loopback on this machine.
        pub origin_nodes: Vec<String> as "NAMES" = Vec::new(),
        /// Start although a proxy of another cluster on this machine stands before the same application. Neither learns what is written through the other, and each goes on
        /// serving the pages that it has: right only where nothing is written through one of them.
        pub shared_origin: bool as "BOOL" = false,
        /// Pages that are fetched from each of them at once, for the cache. More wait in order, 32 for each of these and for `origin_timeout` at
        /// most, and are refused (503) beyond that. What writes, and what would not be answered from the cache, does not wait.
        ///
        /// Counts what is fetched because a home has come or gone, or the cache is cold, so that no such change overwhelms the application.
        pub fills: usize as "NUMBER" = 128,
        /// Threads, each with a listener of its own. 0: one for each core.
        pub threads: usize as "NUMBER" = 0,
        /// Memory for stored pages, headers and bodies included. A quarter of it more may be taken by pages on their way into the store.
        /// With `s3-fifo`, what it remembers of pages that were replaced takes up to 3% besides.
        pub memory: Size as "SIZE" = Size(256 << 20),
        /// Which pages make room when the memory is full: `s3-fifo`, where those that were asked for once go before those that were asked for
        /// again, or `lru`, where those that were not asked for longest go.
        ///
        /// `s3-fifo` is the cheaper one for hits on many threads, and holds on to what is popular while others ask for everything once.
        pub replacement: Replacement as "POLICY" = Replacement::S3Fifo,
        /// Where hits are answered that clients ask for over HTTP/1.1 without TLS: `direct`, as soon as the head of a request is read, or `hyper`, by the library that answers all
        /// other requests. The answers are the same; `direct` takes less processor time.
        pub hits: Hits as "WAY" = Hits::Direct,
        /// The largest body that is stored. Larger ones pass through in constant memory.
        pub largest: Size as "SIZE" = Size(4 << 20),
        /// How long a connection to the application may take to open.
        pub connect_timeout: Lapse as "TIME" = Lapse::seconds(5),
        /// How long the application may take until it begins to answer, and between two pieces of an answer.
        pub origin_timeout: Lapse as "TIME" = Lapse::seconds(60),
        /// How long a client may take to send the head of a request, the time between two requests included, to send nothing of a body, or to
        /// take nothing of an answer, or less than 1 KiB of it a second.
        pub client_timeout: Lapse as "TIME" = Lapse::seconds(15),
        /// How long requests under way may go on after the signal to stop.
        pub drain: Lapse as "TIME" = Lapse::seconds(10),
        /// Connections of clients at once; more wait until one closes.
        pub connections: usize as "NUMBER" = 10_000,
        /// Requests under way at once on a connection of HTTP/2; a client that opens more has them refused (REFUSED_STREAM), and may send them again.
        pub streams: usize as "NUMBER" = 128,
        /// Tunnels at once (WebSocket), where a route says `upgrade = true`. Each is a connection, one of `connections` too, or a stream of one; a client that wants one more gets 503.
        pub tunnels: usize as "NUMBER" = 1000,
        /// How long a tunnel may carry nothing, in neither direction, until it is closed.
        pub tunnel_timeout: Lapse as "TIME" = Lapse::seconds(600),
        /// Leave the fields that name what a page depends on (`Verbena-Dependencies`, `Surrogate-Key`, `Cache-Tag`, `Cache-Groups`) on
        /// answers, for a cache farther out that gets the purges too, or for inspection.
        pub pass_dependencies: bool as "BOOL" = false,
        /// How the proxy finds that a copy is good, where no route says it: `coherent`, by version words, so that a hit is what the application would say (docs/concepts/never-stale.md
        /// has what is assumed of it); `standard`, by lifetimes and validators (RFC 9111), where nothing is assumed; or `pass`: nothing is stored.
        pub mode: Mode as "MODE" = Mode::Coherent,
        /// Networks whose `PURGE` requests purge, in the dialects of docs/reference/HTTP.md: `127.0.0.1`, `10.0.0.0/8`. An address counts only if no field of the request says that it came through another
        /// proxy.
        ///
        /// With neither this nor `purge_token_file`, `PURGE` is a method that writes, as all are that are not known.
        pub purge_from: Vec<String> as "NETWORKS" = Vec::new(),
        /// A file with a token: `PURGE` requests with `Authorization: Bearer TOKEN` purge, wherever they come from.
        pub purge_token_file: Option<PathBuf> as "FILE" = None,
        /// Rules for parts of the address space, each with `prefix`, and as needed `mode`, `writes`, `harmless`, `upgrade`, `compress`, `languages`, `slice`, `cookies.ignore` or
        /// `cookies.only`, `cookies.key`, `cookies.publish`, `query.ignore`, `query.sort` (docs/reference/HTTP.md). The longest prefix that fits decides. What its rule
        /// does not say is as the next shorter one says, unless it says `inherit = false`.
        ///
        /// Spellings of one path are one path here: `/%63art`, `/x/../cart`. One that applications read differently, such as
        /// `/cart;1`, `//cart`, `/CART` or `/cart.json`, is under the more careful of the rules that it may be under.
        pub routes: Vec<Rule> as "ROUTES" = Vec::new(),
    }
}

impl ProxyConfig {
    /// The routes that leave it to a relay before the database to see what they write, by their index.
    pub fn routes_of_the_database(&self) -> impl Iterator<Item = usize> {
        let all = self.routes.iter().enumerate();
        all.filter(|(_, rule)| rule.writes == Some(Writes::Database)).map(|(at, _)| at)
    }

    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (at, origin) in self.origin.iter().enumerate() {
            match origin.parse::<Address>() {
                Err(problem) => found.push(Contradiction::new(format!("origin.{at}"), problem)),
                Ok(Address::Tcp(authority) | Address::Tls(authority)) if is_reached_at(&authority, self.listen) => {
                    let problem = format!(
                        "the proxy itself listens there (proxy.listen, {}): write where the application listens",
                        self.listen
                    );
                    found.push(Contradiction::new(format!("origin.{at}"), problem));
                }
                Ok(_) if self.origin[..at].contains(origin) => {
                    let problem = "has no effect: it stands before, and requests go to the least loaded of them";
                    found.push(Contradiction::new(format!("origin.{at}"), problem));
                }
                Ok(_) => {}
            }
        }
        let speaks_tls = |origin: &String| matches!(origin.parse(), Ok(Address::Tls(_)));
        if self.origin_ca.is_some() && !self.origin.is_empty() && !self.origin.iter().any(speaks_tls) {
            let problem = "has no effect: no application is reached by https; write https://HOST:PORT in proxy.origin";
            found.push(Contradiction::new("origin_ca", problem));
        }
        let (origins, nodes) = (self.origin.len(), self.origin_nodes.len());
        if nodes > 0 && origins > 0 && nodes != origins {
            let problem = format!("{nodes} nodes for {origins} origins: one for each, in their order, \"\" for none");
            found.push(Contradiction::new("origin_nodes", problem));
        }
        if self.connections == 0 {
            found.push(Contradiction::new("connections", "no connection could ever be made"));
        }
        let (certificates, keys) = (self.tls_cert.len(), self.tls_key.len());
        if certificates != keys {
            let problem = format!("{keys} keys for {certificates} certificates: one for each, in their order");
            found.push(Contradiction::new("tls_key", problem));
        }
        if self.streams == 0 {
            found.push(Contradiction::new("streams", "no request could ever be made over HTTP/2"));
        }
        for (at, network) in self.proxy_protocol_from.iter().enumerate() {
            if let Err(problem) = network.parse::<Network>() {
                found.push(Contradiction::new(format!("proxy_protocol_from.{at}"), problem));
            }
        }
        for (at, network) in self.purge_from.iter().enumerate() {
            if let Err(problem) = network.parse::<Network>() {
                found.push(Contradiction::new(format!("purge_from.{at}"), problem));
            }
        }
        if self.fills == 0 {
            found.push(Contradiction::new("fills", "no page could ever be fetched"));
        }
        if self.largest > self.memory {
            let problem =
                format!("{} is more than proxy.memory, {}: lower it, or raise that", self.largest, self.memory);
            found.push(Contradiction::new("largest", problem));
        }
        for (key, time, problem) in [
            ("connect_timeout", self.connect_timeout, "no application could ever be reached"),
            ("origin_timeout", self.origin_timeout, "no application could ever answer in time"),
            ("client_timeout", self.client_timeout, "no client could ever send its request in time"),
        ] {
            if time.0.is_zero() {
                found.push(Contradiction::new(key, problem));
            }
        }
        if self.tunnels == 0 && self.routes.iter().any(|rule| rule.upgrade == Some(true)) {
            let problem =
                "no WebSocket could ever be opened, and a route says upgrade = true: raise it, or leave that out";
            found.push(Contradiction::new("tunnels", problem));
        }
        found.extend(rules::contradictions(&self.routes, self.largest));
        found
    }
}

/// Whether who asks `authority` on this machine reaches what listens at `listen`, as far as names tell.
fn is_reached_at(authority: &Authority, listen: SocketAddr) -> bool {
    let host = authority.host().trim_matches(['[', ']']);
    let is_local = |host: IpAddr| host == listen.ip() || (listen.ip().is_unspecified() && host.is_loopback());
    let is_same_host = match host.parse::<IpAddr>() {
        Ok(address) => is_local(address),
        Err(_) => host.eq_ignore_ascii_case("localhost") && (listen.ip().is_loopback() || listen.ip().is_unspecified()),
    };
    listen.port() != 0 && authority.port_u16() == Some(listen.port()) && is_same_host
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_terms::Section;

    #[test]
    fn each_mistake_is_named() {
        let config = ProxyConfig {
            origin: ["http://a:1", "a:1", "ftp://a", "http://a/b", "http://[::1]:80"].map(String::from).into(),
            tls_cert: vec!["a.pem".into()],
            origin_ca: Some("ca.pem".into()),
            streams: 0,
            proxy_protocol_from: vec!["10.0.0.0/8".into(), "balancer".into()],
            purge_from: vec!["10.0.0.0/33".into()],
            fills: 0,
            connections: 0,
            memory: Size(1 << 20),
            largest: Size(4 << 20),
            routes: ["shop", "/a", "/a", "/shop?page"]
                .map(|prefix| Rule { prefix: prefix.into(), ..Rule::default() })
                .into(),
            ..ProxyConfig::default()
        };
        let keys: Vec<String> = config.contradictions().into_iter().map(|found| found.key).collect();
        let expected = [
            "origin.1",
            "origin.2",
            "origin.3",
            "origin_ca",
            "connections",
            "tls_key",
            "streams",
            "proxy_protocol_from.1",
            "purge_from.0",
            "fills",
            "largest",
            "routes.0.prefix",
            "routes.2.prefix",
            "routes.3.prefix",
        ];
        assert_eq!(keys, expected);
        assert_eq!(ProxyConfig::default().contradictions(), [], "a node that is no proxy has no origin");
    }

    #[test]
    fn a_proxy_is_not_its_own_application() {
        for (origin, listen, is_own) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", true),
            ("http://localhost:8080", "127.0.0.1:8080", true),
            ("http://127.0.0.1:80", "0.0.0.0:80", true),
            ("http://[::1]", "[::]:80", true),
            ("http://127.0.0.1:8000", "127.0.0.1:8080", false),
            ("http://10.0.0.1:80", "127.0.0.1:80", false),
            ("https://localhost:8443", "0.0.0.0:8443", true),
            ("http://app:80", "0.0.0.0:80", false),
            ("http://127.0.0.1:8080", "127.0.0.1:0", false),
        ] {
            let config =
                ProxyConfig { origin: vec![origin.into()], listen: listen.parse().unwrap(), ..ProxyConfig::default() };
            let found = config.contradictions();
            assert_eq!(found.iter().any(|found| found.key == "origin.0"), is_own, "{origin} at {listen}: {found:?}");
        }
    }
}
