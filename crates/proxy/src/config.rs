//! The section `[proxy]` of the configuration file.

use std::net::SocketAddr;

use http::Uri;
use verbena_caching::Route;
use verbena_terms::{Contradiction, Lapse, Size, section};

section! {
    /// The proxy in front of the application.
    pub struct ProxyConfig as "proxy", checked by ProxyConfig::check {
        /// Where clients reach it. Port 0 takes a free one.
        pub listen: SocketAddr as "ADDRESS" = SocketAddr::from(([127, 0, 0, 1], 8080)),
        /// The application: `http://HOST:PORT`. Several are used in turn, those that answer.
        pub origin: Vec<String> as "URL" = Vec::new(),
        /// Threads, each with a listener of its own. 0: one for each core.
        pub threads: usize as "NUMBER" = 0,
        /// Memory for stored pages, headers and bodies included. A quarter of it more may be taken by pages on their way into the store.
        pub memory: Size as "SIZE" = Size(256 << 20),
        /// The largest body that is stored. Larger ones pass through in constant memory.
        pub largest: Size as "SIZE" = Size(4 << 20),
        /// How long a connection to the application may take to open.
        pub connect_timeout: Lapse as "TIME" = Lapse::seconds(5),
        /// How long the application may take until it begins to answer, and between two pieces of an answer.
        pub origin_timeout: Lapse as "TIME" = Lapse::seconds(60),
        /// How long a client may take to send the head of a request, to send nothing of a body, or to take nothing of an answer.
        pub client_timeout: Lapse as "TIME" = Lapse::seconds(15),
        /// How long requests under way may go on after the signal to stop.
        pub drain: Lapse as "TIME" = Lapse::seconds(10),
        /// Connections of clients at once; more wait until one closes.
        pub connections: usize as "NUMBER" = 10_000,
        /// Rules for parts of the address space. The longest prefix that fits decides.
        pub routes: Vec<Route> as "ROUTES" = Vec::new(),
    }
}

impl ProxyConfig {
    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        for (at, origin) in self.origin.iter().enumerate() {
            if let Err(problem) = parse_origin(origin) {
                found.push(Contradiction::new(format!("origin.{at}"), problem));
            }
        }
        if self.connections == 0 {
            found.push(Contradiction::new("connections", "no connection could ever be made"));
        }
        for (at, route) in self.routes.iter().enumerate() {
            if !route.prefix.starts_with('/') {
                found.push(Contradiction::new(format!("routes.{at}.prefix"), "a prefix begins with \"/\""));
            }
        }
        found
    }
}

/// The authority of `http://HOST:PORT`, or what is wrong with it.
pub(crate) fn parse_origin(origin: &str) -> Result<http::uri::Authority, String> {
    let wrong = |why: &str| Err(format!("{origin:?} is not http://HOST:PORT: {why}"));
    let Ok(uri) = origin.parse::<Uri>() else { return wrong("not a URL") };
    match (uri.scheme_str(), uri.authority(), uri.path_and_query().map(|path| path.as_str())) {
        (Some("http"), Some(authority), None | Some("/")) => Ok(authority.clone()),
        (Some("http"), Some(_), _) => wrong("it must have no path"),
        (Some("https"), ..) => wrong("only plain http is spoken with the application"),
        _ => wrong("no scheme"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_terms::Section;

    #[test]
    fn each_mistake_is_named() {
        let config = ProxyConfig {
            origin: ["http://a:1", "a:1", "https://a", "http://a/b"].map(String::from).into(),
            connections: 0,
            routes: vec![Route { prefix: "shop".into(), ..Route::default() }],
            ..ProxyConfig::default()
        };
        let keys: Vec<String> = config.contradictions().into_iter().map(|found| found.key).collect();
        assert_eq!(keys, ["origin.1", "origin.2", "origin.3", "connections", "routes.0.prefix"]);
        assert_eq!(ProxyConfig::default().contradictions(), [], "a node that is no proxy has no origin");
    }
}
