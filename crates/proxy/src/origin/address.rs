//! Where an application listens: a host and a port, with TLS or without, or a unix socket.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};

use http::Uri;
use http::uri::Authority;
use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use super::secure::Secure;
use crate::alpn::H2;
use crate::config::OriginHttp;

/// The port of an origin that names none (RFC 9110 section 4.2.1).
pub(crate) const HTTP_PORT: u16 = 80;
/// The same with TLS (section 4.2.2).
pub(crate) const HTTPS_PORT: u16 = 443;
/// Longest path of a unix socket, in bytes (unix(7), `sun_path` without its 0).
const LONGEST_PATH: usize = 107;

/// Where an application listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A host and a port.
    Tcp(Authority),
    /// The same, over TLS.
    Tls(Authority),
    /// A unix socket on this machine.
    Unix(PathBuf),
}

/// A connection to an application.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// Boxed: its state is large, and others have none.
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Whether both ends agreed on HTTP/2 in the handshake of TLS.
    pub fn has_agreed_on_http2(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(H2))
    }
}

impl Address {
    /// The host and the port; none of a unix socket.
    pub fn authority(&self) -> Option<&Authority> {
        match self {
            Address::Tcp(authority) | Address::Tls(authority) => Some(authority),
            Address::Unix(_) => None,
        }
    }

    /// Connects, says this first, and agrees in TLS on one of these versions of HTTP.
    pub async fn connect(&self, secure: Option<&Secure>, http: OriginHttp, first: &[u8]) -> io::Result<Stream> {
        match self {
            Address::Tcp(authority) => tcp(authority, first).await.map(Stream::Tcp),
            Address::Tls(authority) => {
                let secure = secure.ok_or_else(|| io::Error::other("nothing says whom to believe"))?;
                let stream = tcp(authority, first).await?;
                Ok(Stream::Tls(Box::new(secure.connect(authority, stream, http).await?)))
            }
            Address::Unix(path) => {
                let mut stream = UnixStream::connect(path).await?;
                stream.write_all(first).await?;
                Ok(Stream::Unix(stream))
            }
        }
    }
}

/// Small writes that wait for each other cost more than they save, so they are sent at once.
async fn tcp(authority: &Authority, first: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(authority.as_str()).await?;
    // A refusal costs only that.
    let _ = stream.set_nodelay(true);
    stream.write_all(first).await?;
    Ok(stream)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(authority) => authority.fmt(f),
            Address::Tls(authority) => write!(f, "https://{authority}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// `http://HOST:PORT`, `https://HOST:PORT`, `unix:/PATH`, and the two spellings of other proxies for that: `http://unix:/PATH` and `unix//PATH`.
    fn from_str(origin: &str) -> Result<Address, String> {
        let path = origin.strip_prefix("http://").unwrap_or(origin).strip_prefix("unix:");
        let path = path.or_else(|| origin.strip_prefix("unix/")).map(|path| path.trim_end_matches(':'));
        if let Some(path) = path {
            return unix(origin, path);
        }
        let wrong =
            |why: &str| Err(format!("{origin:?} is not http://HOST:PORT, https://HOST:PORT or unix:/PATH: {why}"));
        let Ok(uri) = origin.parse::<Uri>() else { return wrong("not a URL") };
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            // Not repeated: it may hold a password.
            return Err("an origin names no user: write http://HOST:PORT".into());
        }
        let (scheme, port): (fn(Authority) -> Address, u16) = match uri.scheme_str() {
            Some("http") => (Address::Tcp, HTTP_PORT),
            Some("https") => (Address::Tls, HTTPS_PORT),
            Some(_) => return wrong("only http and https are spoken with the application"),
            None => return wrong("no scheme"),
        };
        match (uri.authority(), uri.path_and_query().map(|path| path.as_str())) {
            (Some(authority), None | Some("/")) => {
                let given = authority.as_str().strip_prefix(authority.host()).and_then(|rest| rest.strip_prefix(':'));
                match given.map(str::parse::<u16>) {
                    Some(Ok(1..)) => Ok(scheme(authority.clone())),
                    None => format!("{authority}:{port}").parse().map(scheme).or_else(|_| wrong("not a URL")),
                    Some(_) => wrong("a port is a number from 1 to 65535"),
                }
            }
            (Some(_), _) => wrong("it must have no path"),
            (None, _) => wrong("no host"),
        }
    }
}

fn unix(origin: &str, path: &str) -> Result<Address, String> {
    let why = match path.len() {
        _ if !Path::new(path).is_absolute() => "the path of a unix socket begins with /".to_owned(),
        length if length > LONGEST_PATH => {
            format!("the path of a unix socket has at most {LONGEST_PATH} bytes, and this one {length}")
        }
        _ if path.contains('\0') => "a path has no byte of 0".to_owned(),
        _ => return Ok(Address::Unix(path.into())),
    };
    Err(format!("{origin:?} is not unix:/PATH: {why}"))
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(context),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_has_a_host_and_perhaps_a_port() {
        for right in ["http://a", "http://a:1", "http://a:65535/", "http://[::1]", "http://[::1]:8000"] {
            assert!(right.parse::<Address>().is_ok(), "{right}");
        }
        // A write is sent over a connection of its own, for which there has to be a port.
        for (origin, address) in [
            ("http://a", "a:80"),
            ("http://[::1]/", "[::1]:80"),
            ("http://a:8000", "a:8000"),
            ("https://a", "https://a:443"),
        ] {
            assert_eq!(origin.parse::<Address>().map(|parsed| parsed.to_string()), Ok(address.to_owned()));
        }
        for (wrong, why) in [
            ("http://a:0", "a port is"),
            ("http://a:65536", "a port is"),
            ("http://a:", "a port is"),
            ("http://[::1]:99999", "a port is"),
            ("ftp://a:1", "only http and https"),
            ("https://a:0", "a port is"),
            ("https://a/b", "no path"),
            ("a:1", "no scheme"),
            ("/a", "no scheme"),
            ("http://a/b", "no path"),
            ("", "not a URL"),
        ] {
            let problem = wrong.parse::<Address>().expect_err(wrong);
            assert!(problem.contains(why), "{wrong}: {problem}");
        }
        let problem = "http://user:secret@a:1".parse::<Address>().expect_err("a user");
        assert!(!problem.contains("secret") && problem.contains("no user"), "{problem}");
    }

    #[test]
    fn a_unix_socket_is_written_as_other_proxies_write_it() {
        for right in
            ["unix:/run/app.sock", "http://unix:/run/app.sock", "http://unix:/run/app.sock:", "unix//run/app.sock"]
        {
            let address = right.parse::<Address>().expect(right);
            assert_eq!((address.to_string().as_str(), address.authority()), ("unix:/run/app.sock", None), "{right}");
        }
        let long = format!("unix:/{}", "x".repeat(LONGEST_PATH));
        for (wrong, why) in [
            ("unix:app.sock", "begins with /"),
            ("unix:", "begins with /"),
            ("unix:/a\0b", "byte of 0"),
            (&long, "107"),
        ] {
            let problem = wrong.parse::<Address>().expect_err(wrong);
            assert!(problem.contains(why), "{wrong:?}: {problem}");
        }
    }
}
