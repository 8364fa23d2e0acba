//! Where a database is, and as whom its catalog is read.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use url::Url;
use verbena_relay::Upstream;

use crate::trust::Trust;

/// Which protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// MySQL and MariaDB.
    MySql,
    /// PostgreSQL.
    PostgreSql,
}

/// Before the port in the name of a socket of PostgreSQL.
const SOCKET: &str = ".s.PGSQL.";

/// An address such as `mysql://shop:secret@127.0.0.1:3306` or `postgres://shop:secret@127.0.0.1:5432/shop`.
#[derive(Clone)]
pub struct Address {
    /// Which protocol.
    pub product: Product,
    /// Its host and port.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its socket, if it is reached by one: `?socket=/run/mysqld/mysqld.sock`; of PostgreSQL also its directory.
    pub socket: Option<PathBuf>,
    /// Who reads the catalog; none: nobody, and nothing is known of the tables.
    pub user: Option<String>,
    /// The user's password.
    pub password: Option<String>,
    /// PostgreSQL: the database whose catalog is read; without one that of the user's name. MySQL: the one in which `explain` looks for tables.
    pub database: Option<String>,
    /// It is asked to encrypt: `?sslmode=verify-full` of PostgreSQL, `?ssl-mode=VERIFY_IDENTITY` of MySQL.
    pub encrypts: bool,
    /// What it is believed by then.
    pub trust: Option<Arc<Trust>>,
}

impl Address {
    /// Where the relay connects.
    pub fn upstream(&self) -> Upstream {
        match &self.socket {
            Some(path) => Upstream::Unix(path.clone()),
            None => Upstream::Tcp(format!("{}:{}", self.host, self.port)),
        }
    }

    /// Where the relay listens if nothing else is said: on loopback, at the port after the database's.
    pub fn beside(&self) -> SocketAddr {
        (IpAddr::V4(Ipv4Addr::LOCALHOST), self.port.checked_add(1).unwrap_or(0)).into()
    }

    /// The relay's own socket: in PostgreSQL's manner, where clients look for it, or behind the beginning of a name.
    pub fn socket_beside(&self, place: &Path, port: u16) -> PathBuf {
        match self.product {
            Product::MySql => PathBuf::from(format!("{}.mysql.sock", place.display())),
            Product::PostgreSql => place.with_file_name(format!("{SOCKET}{port}")),
        }
    }

    /// What tells its names from those of another database.
    pub fn identity(&self) -> Vec<u8> {
        let scheme = match self.product {
            Product::MySql => "mysql",
            Product::PostgreSql => "postgres",
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
        let wrong = |why: &str| {
            format!("not mysql://USER:PASSWORD@HOST:PORT or postgres://USER:PASSWORD@HOST:PORT/DATABASE: {why}")
        };
        let url = Url::parse(text).map_err(|error| match error {
            url::ParseError::RelativeUrlWithoutBase => wrong("it has no scheme"),
            error => wrong(&error.to_string()),
        })?;
        let (product, port) = match url.scheme() {
            "mysql" | "mariadb" => (Product::MySql, 3306),
            "postgres" | "postgresql" => (Product::PostgreSql, 5432),
            scheme => return Err(wrong(&format!("{scheme}:// is no database that is known here"))),
        };
        let port = url.port().unwrap_or(port);
        let (mut socket, mut encrypts) = (None, false);
        let (mode, plain, proved) = match product {
            Product::MySql => ("ssl-mode", "DISABLED", "VERIFY_IDENTITY"),
            Product::PostgreSql => ("sslmode", "disable", "verify-full"),
        };
        for (key, value) in url.query_pairs() {
            match &*key {
                key if key == mode && value.eq_ignore_ascii_case(proved) => encrypts = true,
                key if key == mode && value.eq_ignore_ascii_case(plain) => {}
                key if key == mode => {
                    let problem = format!(
                        "{mode}={value} does not check the database's certificate: write {mode}={proved}, and name the certificate's authority in database.tls_ca; or {mode}={plain}"
                    );
                    return Err(wrong(&problem));
                }
                "socket" if value.starts_with('/') => {
                    let path = PathBuf::from(&*value);
                    let is_directory = product == Product::PostgreSql && postgres_socket(&path).is_none();
                    socket = Some(if is_directory { path.join(format!("{SOCKET}{port}")) } else { path });
                }
                "socket" => return Err(wrong("socket is an absolute path")),
                other => {
                    return Err(wrong(&format!("{other} is no parameter that is known here; socket and {mode} are")));
                }
            }
        }
        if encrypts && socket.is_some() {
            return Err(wrong(&format!("a socket is not encrypted: leave out {mode}")));
        }
        if url.path().contains('&') && url.path().contains('=') {
            return Err(wrong("parameters begin with a ?, as in ?socket=/PATH, and & stands between them"));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        if host.is_none() && socket.is_none() {
            return Err(wrong("it names no host"));
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let user = Some(url.username()).filter(|user| !user.is_empty()).map(decoded);
        Ok(Address {
            product,
            host: host.unwrap_or("localhost").to_owned(),
            port,
            socket,
            user,
            password: url.password().map(decoded),
            database: url.path().strip_prefix('/').filter(|name| !name.is_empty()).map(decoded),
            encrypts,
            trust: None,
        })
    }
}

/// The directory and the port of a socket of PostgreSQL.
pub(crate) fn postgres_socket(path: &Path) -> Option<(&Path, u16)> {
    let port = path.file_name()?.to_str()?.strip_prefix(SOCKET)?.parse().ok()?;
    Some((path.parent()?, port))
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
        let address: Address = "postgresql://shop@[::1]/the%20shop".parse().unwrap();
        assert_eq!((address.port, address.database.as_deref()), (5432, Some("the shop")));
        for socket in ["/run/postgresql", "/run/postgresql/.s.PGSQL.5433"] {
            let address: Address = format!("postgres://shop@localhost:5433/shop?socket={socket}").parse().unwrap();
            assert_eq!(address.upstream(), Upstream::Unix("/run/postgresql/.s.PGSQL.5433".into()));
            assert_eq!(address.socket_beside(Path::new("/run/v/local"), 7), Path::new("/run/v/.s.PGSQL.7"));
        }
        for (text, encrypts) in [
            ("postgres://shop@db/shop?sslmode=verify-full", true),
            ("postgres://shop@db/shop?sslmode=disable", false),
            ("mysql://shop@db?ssl-mode=verify_identity", true),
            ("mysql://shop@db", false),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().encrypts, encrypts, "{text}");
        }
        let address: Address = "mariadb://root@localhost?socket=/run/mysqld.sock".parse().unwrap();
        assert_eq!(address.upstream(), Upstream::Unix("/run/mysqld.sock".into()));
    }

    #[test]
    fn what_is_no_address_says_why_and_never_the_password() {
        for (text, why) in [
            ("127.0.0.1:3306", "not mysql://"),
            ("redis://:secret@a", "redis:// is no database"),
            ("postgres://u:secret@a/b?sslmode=require", "sslmode=require does not check the database's certificate"),
            (
                "postgres://u:secret@a/b?ssl-mode=DISABLED",
                "ssl-mode is no parameter that is known here; socket and sslmode are",
            ),
            ("mysql://u:secret@a?ssl-mode=PREFERRED", "write ssl-mode=VERIFY_IDENTITY"),
            ("mysql://u:secret@a?ssl-mode=VERIFY_IDENTITY&socket=/run/m.sock", "a socket is not encrypted"),
            ("mysql://u:secret@a?tls=1", "tls is no parameter"),
            ("mysql://u:secret@a?socket=x", "absolute path"),
            ("mysql:///shop", "no host"),
            ("postgres://u:secret@a/b&sslmode=verify-full", "parameters begin with a ?"),
        ] {
            let said = text.parse::<Address>().unwrap_err();
            assert!(said.contains(why) && !said.contains("secret"), "{text}: {said}");
        }
    }
}
