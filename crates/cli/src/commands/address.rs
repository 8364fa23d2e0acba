//! The address of a page, as it is given to a command.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;

use crate::error::{Error, Result};

/// How well a proxy fits an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// It listens at another port.
    No,
    /// It listens at the port.
    Port,
    /// It listens there.
    Address,
}

/// Where clients of an address connect.
#[derive(Debug, PartialEq, Eq)]
pub struct Port<'a> {
    host: &'a str,
    /// The one that is named, or that of the scheme.
    pub port: u16,
}

impl<'a> Port<'a> {
    /// Of an address, `http://HOST/PATH?QUERY`.
    ///
    /// # Errors
    /// If `url` is not such an address.
    pub fn of(url: &'a str) -> Result<Self> {
        Self::found(url).ok_or_else(|| Error::Refused {
            problem: format!(
                "{url:?} is no address of a page: write http://HOST/PATH?QUERY as clients ask for it, with the port if they name one"
            ),
            exit_code: 2,
        })
    }

    fn found(url: &'a str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return None;
        }
        let authority = rest.split(['/', '?', '#']).next()?;
        let usual = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (authority, usual),
        };
        if host.is_empty() || host.contains(['@', ' ']) {
            return None;
        }
        Some(Port { host: host.trim_matches(['[', ']']), port })
    }

    /// Whether a proxy listens there, by what it says of itself.
    pub fn fits(&self, proxy: &Value) -> Fit {
        let listens = proxy["listens"].as_str().and_then(|listens| listens.parse::<SocketAddr>().ok());
        let Some(listens) = listens.filter(|listens| listens.port() == self.port) else { return Fit::No };
        let ip = listens.ip();
        let is_there = match self.host.parse::<IpAddr>() {
            Ok(host) => host == ip,
            Err(_) => self.host.eq_ignore_ascii_case("localhost") && ip.is_loopback(),
        };
        if is_there || ip.is_unspecified() { Fit::Address } else { Fit::Port }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_proxy_that_an_address_leads_to_fits_it_best() {
        for (url, listens, fit) in [
            ("http://127.0.0.1:8080/a:1", "127.0.0.1:8080", Fit::Address),
            ("http://localhost:8080", "127.0.0.1:8080", Fit::Address),
            ("http://shop.example:8080/", "127.0.0.1:8080", Fit::Port),
            ("http://shop.example:8080?a", "0.0.0.0:8080", Fit::Address),
            ("http://shop.example/", "0.0.0.0:80", Fit::Address),
            ("https://[::1]/", "[::1]:443", Fit::Address),
            ("http://[::1]:8080/", "[::1]:8080", Fit::Address),
            ("http://127.0.0.1:8081/", "127.0.0.1:8080", Fit::No),
            ("http://shop.example/8080", "127.0.0.1:8080", Fit::No),
        ] {
            assert_eq!(Port::of(url).unwrap().fits(&json!({ "listens": listens })), fit, "{url} at {listens}");
        }
        for none in ["http://a:port/", "nonsense", "/page/1", "ftp://a/", "http://", "http:///a", "http://me@a/"] {
            assert_eq!(Port::found(none), None, "{none}");
        }
        assert_eq!(Port::of("http://a/").unwrap().fits(&Value::Null), Fit::No, "an older proxy says nothing");
    }
}
