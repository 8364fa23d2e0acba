//! The section `[etcd]` of the configuration file, and how long anything is waited for.

use std::path::PathBuf;
use std::time::Duration;

use verbena_terms::{Contradiction, section};

use crate::error::{Error, Result};

section! {
    /// The etcd that a cluster of `cluster.provider = "etcd"` agrees by. The same at every node, but for files.
    pub struct EtcdConfig as "etcd", checked by EtcdConfig::check {
        /// The client addresses of all etcd members: `http://HOST:PORT` or `https://HOST:PORT`.
        ///
        /// One is asked, and another when it does not answer in time.
        pub endpoints: Vec<String> as "URL" = Vec::new(),
        /// What the cluster's keys begin with: clusters that share an etcd have each their own.
        pub prefix: String as "PREFIX" = "/verbena".into(),
        /// The certificates of the authorities that vouch for etcd's members, a PEM file. Needed with `https`.
        ///
        /// Those that the system trusts are in /etc/ssl/certs/ca-certificates.crt on Debian.
        pub authority: Option<PathBuf> as "FILE" = None,
        /// This node's certificate for etcd, a PEM file. Read again for each connection.
        pub certificate: Option<PathBuf> as "FILE" = None,
        /// Its private key, a PEM file.
        pub key: Option<PathBuf> as "FILE" = None,
        /// The name of this node's user at etcd, where etcd's authentication is enabled.
        pub user: Option<String> as "NAME" = None,
        /// A file with that user's password, one line, readable by its owner only.
        pub password_file: Option<PathBuf> as "FILE" = None,
    }
}

/// How long anything is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// One attempt at one endpoint; then the next one is tried.
    pub attempt: Duration,
    /// A question; then nothing is known of it.
    pub question: Duration,
}

/// Bytes of `etcd.prefix`.
const LONGEST_PREFIX: usize = 255;

impl Deadlines {
    /// Those of a cluster with leases of this length: an eighth and a quarter.
    pub fn of_lease(lease: Duration) -> Self {
        Deadlines { attempt: lease / 8, question: lease / 4 }
    }
}

impl EtcdConfig {
    /// What is wrong where etcd is to be used: every contradiction, and that there are no endpoints.
    pub fn problems(&self) -> Vec<Contradiction> {
        let mut found = self.check();
        if self.endpoints.is_empty() && found.iter().all(|problem| problem.key != "endpoints") {
            found.push(Contradiction::new(
                "endpoints",
                "none: name every member of etcd, as http://HOST:PORT or https://HOST:PORT",
            ));
        }
        found
    }

    /// The first problem as an error.
    #[cfg_attr(not(feature = "client"), allow(dead_code, reason = "nothing is started without the client"))]
    pub(crate) fn usable(&self) -> Result<()> {
        self.problems().into_iter().next().map_or(Ok(()), |first| Err(Error::setting(first.key, first.problem)))
    }

    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut wrong = |key: String, problem: String| found.push(Contradiction::new(key, problem));
        for (nth, endpoint) in self.endpoints.iter().enumerate() {
            if let Err(problem) = url(endpoint) {
                wrong(format!("endpoints.{nth}"), format!("{endpoint:?} {problem}"));
            } else if self.endpoints[..nth].contains(endpoint) {
                wrong(format!("endpoints.{nth}"), format!("{endpoint:?} is there already"));
            }
        }
        let graphic = self.prefix.bytes().all(|byte| byte.is_ascii_graphic());
        if !(self.prefix.starts_with('/')
            && !self.prefix.ends_with('/')
            && graphic
            && self.prefix.len() <= LONGEST_PREFIX)
        {
            let expected =
                format!("a slash and at most {} letters without blanks, the last of them no slash", LONGEST_PREFIX - 1);
            wrong("prefix".into(), format!("{:?} is not {expected}", self.prefix));
        }
        let secure = self.endpoints.iter().any(|endpoint| endpoint.starts_with(HTTPS));
        if secure && self.authority.is_none() {
            wrong(
                "authority".into(),
                "needed with https: the file of the authority that vouches for etcd's members".into(),
            );
        }
        if !secure && !self.endpoints.is_empty() {
            for (key, file) in [("authority", &self.authority), ("certificate", &self.certificate), ("key", &self.key)]
            {
                if file.is_some() {
                    wrong(key.into(), "of no use: none of etcd.endpoints is https".into());
                }
            }
        }
        let pairs = [
            ("certificate", self.certificate.is_some(), "key", self.key.is_some()),
            ("user", self.user.is_some(), "password_file", self.password_file.is_some()),
        ];
        for (one, has_one, other, has_other) in pairs {
            if has_one != has_other {
                let (there, missing) = if has_one { (one, other) } else { (other, one) };
                wrong(missing.into(), format!("needed with etcd.{there}"));
            }
        }
        if self.user.as_ref().is_some_and(String::is_empty) {
            wrong("user".into(), "empty".into());
        }
        if self.endpoints.is_empty() && *self != EtcdConfig::default() {
            wrong("endpoints".into(), "none, and other keys of etcd are set".into());
        }
        found
    }
}

pub(crate) const HTTPS: &str = "https://";

/// What keeps a text from being an endpoint.
fn url(text: &str) -> std::result::Result<(), &'static str> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix(HTTPS));
    let rest = rest.ok_or("does not begin with http:// or https://")?;
    let (host, port) = rest.rsplit_once(':').ok_or("has no port: etcd's default is 2379")?;
    if !port.parse().is_ok_and(|port: u16| port != 0) {
        return Err("does not end with a port from 1 to 65535");
    }
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)),
    };
    if good { Ok(()) } else { Err("has no host between its scheme and its port") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(text: &str) -> Vec<String> {
        let config: EtcdConfig = toml::from_str(text).unwrap();
        config.problems().into_iter().map(|wrong| format!("{}: {}", wrong.key, wrong.problem)).collect()
    }

    #[test]
    fn what_fits_together_is_taken() {
        for good in [
            "endpoints = ['http://10.0.0.11:2379']",
            "endpoints = ['http://[fd00::1]:2379', 'http://etcd-2.example:2379']\nprefix = '/a/b'\nuser = 'app'\npassword_file = 'p'",
            "endpoints = ['https://e:1']\nauthority = 'a.pem'\ncertificate = 'c.pem'\nkey = 'c.key'",
        ] {
            assert_eq!(mistakes(good), Vec::<String>::new(), "{good}");
        }
        assert_eq!(verbena_terms::Section::contradictions(&EtcdConfig::default()), [], "nobody has to have an etcd");
    }

    #[test]
    fn each_mistake_is_named_with_its_key() {
        for (text, expected) in [
            ("", "endpoints: none: name every member"),
            ("user = 'a'\npassword_file = 'p'", "endpoints: none, and other keys of etcd are set"),
            ("endpoints = ['10.0.0.11:2379']", "endpoints.0: \"10.0.0.11:2379\" does not begin with"),
            ("endpoints = ['http://a:1', 'http://a']", "endpoints.1: \"http://a\" has no port"),
            ("endpoints = ['http://a:1', 'http://a:1']", "endpoints.1: \"http://a:1\" is there already"),
            ("endpoints = ['http://a:0']", "endpoints.0: \"http://a:0\" does not end with a port"),
            ("endpoints = ['http://a:1/']", "endpoints.0: \"http://a:1/\" does not end with a port"),
            ("endpoints = ['http://u@a:1']", "endpoints.0: \"http://u@a:1\" has no host"),
            ("endpoints = ['http://[a]:1']", "endpoints.0: \"http://[a]:1\" has no host"),
            ("endpoints = ['http://a:1']\nprefix = 'x'", "prefix: \"x\" is not a slash and"),
            ("endpoints = ['http://a:1']\nprefix = '/x/'", "prefix: \"/x/\" is not a slash and"),
            ("endpoints = ['https://a:1']", "authority: needed with https"),
            ("endpoints = ['http://a:1']\nauthority = 'a'", "authority: of no use"),
            ("endpoints = ['https://a:1']\nauthority = 'a'\ncertificate = 'c'", "key: needed with etcd.certificate"),
            ("endpoints = ['https://a:1']\nauthority = 'a'\nkey = 'c'", "certificate: needed with etcd.key"),
            ("endpoints = ['http://a:1']\nuser = 'u'", "password_file: needed with etcd.user"),
            ("endpoints = ['http://a:1']\npassword_file = 'u'", "user: needed with etcd.password_file"),
            ("endpoints = ['http://a:1']\nuser = ''\npassword_file = 'p'", "user: empty"),
        ] {
            let found = mistakes(text);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{text}: {found:?}");
        }
    }
}
