//! The addresses at which a helper answers over HTTP.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::socket::Socket;

/// Where the helper of this machine listens for HTTP: its unix socket, or the port of `node.api`.
///
/// Written `/run/user/1000/verbena/local.http.sock`, or `http://127.0.0.1:9090`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A unix socket.
    Unix(PathBuf),
    /// A loopback address.
    Loopback(SocketAddr),
}

impl Place {
    /// Where `verbena status` looks for a helper by default: the user's own directory, the name
    /// [`DEFAULT_NAME`](crate::DEFAULT_NAME).
    ///
    /// # Errors
    /// If the user's own directory cannot be made or is not the user's alone.
    pub fn usual() -> Result<Self> {
        Socket::new(None, None).map(Place::from)
    }

    /// The authority of requests in HTTP.
    #[cfg(feature = "updates")]
    pub(crate) fn authority(&self) -> String {
        match self {
            Place::Unix(_) => "helper".into(),
            Place::Loopback(address) => address.to_string(),
        }
    }
}

impl From<Socket> for Place {
    /// The HTTP socket beside the one for messages.
    fn from(socket: Socket) -> Self {
        Place::Unix(socket.http_path())
    }
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = |why| Error::Place { text: text.into(), why };
        if Path::new(text).is_absolute() {
            return Ok(Place::Unix(text.into()));
        }
        let address = text.strip_prefix("http://").ok_or_else(|| wrong("it begins neither with / nor with http://"))?;
        let address: SocketAddr =
            address.trim_end_matches('/').parse().map_err(|_| wrong("http:// is not followed by IP:PORT"))?;
        if !address.ip().is_loopback() {
            return Err(wrong("it is another machine's; a program asks the helper beside it"));
        }
        Ok(Place::Loopback(address))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Unix(path) => path.display().fmt(f),
            Place::Loopback(address) => write!(f, "http://{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_it_is_read() {
        for text in ["/run/verbena/app-1.http.sock", "http://127.0.0.1:9090", "http://[::1]:80"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        assert_eq!("http://127.0.0.1:9090/".parse::<Place>().unwrap().to_string(), "http://127.0.0.1:9090");
    }

    #[test]
    fn what_is_no_place_is_told() {
        let cases = [
            ("helper.sock", "neither"),
            ("https://127.0.0.1:1", "neither"),
            ("http://localhost:1", "IP:PORT"),
            ("http://127.0.0.1", "IP:PORT"),
            ("http://10.0.0.1:80", "another machine"),
        ];
        for (text, why) in cases {
            let told = text.parse::<Place>().unwrap_err().to_string();
            assert!(told.contains(text) && told.contains(why), "{told}");
        }
    }

    #[test]
    fn the_http_socket_is_beside_the_other_and_is_no_other_helper() {
        let directory = std::env::temp_dir().join(format!("verbena-place-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let socket = Socket::new(Some(&directory), Some("app.1")).unwrap();
        for name in ["app.1.sock", "app.1.http.sock", "app-2.sock", "app-2.http.sock"] {
            std::fs::write(directory.join(name), "").unwrap();
        }
        assert_eq!(socket.others(), ["app-2"]);
        assert_eq!(Place::from(socket), Place::Unix(directory.join("app.1.http.sock")));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
