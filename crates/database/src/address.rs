//! Where a database is, and as whom its catalog is read.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use url::Url;
use verbena_relay::Upstream;

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// MySQL and MariaDB.
    MySql,
}

/// An address such as `mysql://shop:secret@127.0.0.1:3306/shop`.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// Which protocol.
    pub product: Product,
    /// Its host and port.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its socket, if it is reached by one: `?socket=/run/mysqld/mysqld.sock`.
    pub socket: Option<PathBuf>,
    /// Who reads the catalog; none: nobody, and nothing is known of the tables.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
}

impl Address {
    /// Where the relay connects.
    pub fn upstream(&self) -> Upstream {
        match &self.socket {
            Some(path) => Upstream::Unix(path.clone()),
            None => Upstream::Tcp(format!("{}:{}", self.host, self.port)),
        }
    }

    /// Where the relay listens if nothing else is said: on loopback, at the port behind the database's.
    pub fn beside(&self) -> SocketAddr {
        (IpAddr::V4(Ipv4Addr::LOCALHOST), self.port.checked_add(1).unwrap_or(0)).into()
    }

    /// What tells its names from those of another database.
    pub fn identity(&self) -> Vec<u8> {
        let scheme = match self.product {
            Product::MySql => "mysql",
        };
        match &self.socket {
            Some(path) => format!("{scheme}:{}", path.display()).into_bytes(),
            None => format!("{scheme}:{}:{}", self.host, self.port).into_bytes(),
        }
    }
}

/// Without its password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(f, "{}", path.display()),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        // The text may have a password, which no message repeats.
        let wrong = |why: &str| format!("not mysql://USER:PASSWORD@HOST:PORT: {why}");
        let url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        let (product, port) = match url.scheme() {
            "mysql" | "mariadb" => (Product::MySql, 3306),
            "postgres" | "postgresql" => return Err("the relay does not speak PostgreSQL yet, only mysql://".into()),
            scheme => return Err(wrong(&format!("{scheme}:// is no database that is known here"))),
        };
        let mut socket = None;
        for (key, value) in url.query_pairs() {
            match &*key {
                "socket" if value.starts_with('/') => socket = Some(PathBuf::from(&*value)),
                "socket" => return Err(wrong("socket is an absolute path")),
                other => return Err(wrong(&format!("{other} is no parameter that is known here; socket is"))),
            }
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        if host.is_none() && socket.is_none() {
            return Err(wrong("it names no host"));
        }
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = Some(url.username()).filter(|user| !user.is_empty()).map(decoded);
        Ok(Address {
            product,
            host: host.unwrap_or("localhost").to_owned(),
            port: url.port().unwrap_or(port),
            socket,
            user,
            password: url.password().map(decoded),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_whole() {
        let address: Address = "mysql://shop:s%40c&r+t@db:3307/shop".parse().unwrap();
        assert_eq!(address.upstream(), Upstream::Tcp("db:3307".into()));
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("shop"), Some("s@c&r+t")));
        assert_eq!((address.beside().to_string(), address.to_string()), ("127.0.0.1:3308".into(), "db:3307".into()));
        let address: Address = "mysql://127.0.0.1".parse().unwrap();
        assert_eq!((address.port, address.user), (3306, None));
        let address: Address = "mariadb://root@localhost?socket=/run/mysqld.sock".parse().unwrap();
        assert_eq!(address.upstream(), Upstream::Unix("/run/mysqld.sock".into()));
    }

    #[test]
    fn what_is_no_address_says_why_and_never_the_password() {
        for (text, why) in [
            ("127.0.0.1:3306", "not mysql://"),
            ("redis://:secret@a", "redis:// is no database"),
            ("postgres://u:secret@a", "does not speak PostgreSQL"),
            ("mysql://u:secret@a?tls=1", "tls is no parameter"),
            ("mysql://u:secret@a?socket=x", "absolute path"),
            ("mysql:///shop", "no host"),
        ] {
            let said = text.parse::<Address>().unwrap_err();
            assert!(said.contains(why) && !said.contains("secret"), "{text}: {said}");
        }
    }
}
