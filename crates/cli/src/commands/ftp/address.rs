//! Addresses of FTP servers, as users type them.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use percent_encoding::percent_decode_str;
use verbena_ftp::{ClientTls, Location};
use verbena_terms::Lapse;

/// How a server is reached.
#[derive(Args, Debug)]
pub struct Reach {
    /// Encrypt the connections by AUTH TLS; without it ftp:// goes in clear, passwords too. ftps:// is encrypted from the start.
    #[arg(long)]
    tls: bool,
    /// A PEM file with the authorities that may vouch for the server's certificate; without it, those of the system.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// How long the server may be silent, before the command gives up.
    #[arg(long, value_name = "TIME", default_value_t = Lapse::seconds(30), value_parser = silence)]
    timeout: Lapse,
}

impl Reach {
    /// The longest silence of the server.
    pub fn timeout(&self) -> Duration {
        self.timeout.0
    }

    /// Whether options of encrypted connections are given.
    pub fn is_encrypted(&self) -> bool {
        self.tls || self.ca.is_some()
    }

    /// What `text` names: `ftp://[USER[:PASSWORD]@]HOST[:PORT]/PATH`, or the same with `ftps`.
    pub fn location(&self, text: &str) -> Result<Location, String> {
        let wrong =
            |why: &str| format!("{why}; a server's address is ftp://HOST/PATH, or ftp://USER:PASSWORD@HOST:PORT/PATH");
        if !is_remote(text) {
            // A word, or another kind of address, which may hold a password.
            let kind = text.split_once("://").map_or(text.to_owned(), |(scheme, _)| format!("{scheme}://..."));
            return Err(wrong(&format!("{kind:?} does not begin with ftp:// or ftps://")));
        }
        let url = url::Url::parse(text).map_err(|error| wrong(&format!("the address cannot be read: {error}")))?;
        let is_implicit = url.scheme() == "ftps";
        if self.ca.is_some() && !self.tls && !is_implicit {
            return Err("--ca is for encrypted connections: add --tls, or use ftps://".into());
        }
        let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("the address names no host"))?;
        let (user, password) = match url.username() {
            "" => ("anonymous".to_owned(), "verbena@".to_owned()),
            user => (decoded(user), url.password().map(decoded).unwrap_or_default()),
        };
        let path: Vec<u8> = percent_decode_str(url.path()).collect();
        let tls = (self.tls || is_implicit).then(|| ClientTls { is_implicit, authorities: self.ca.clone() });
        Ok(Location {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(if is_implicit { 990 } else { 21 }),
            user,
            password,
            path: if path.is_empty() { b"/".to_vec() } else { path },
            tls,
        })
    }
}

/// A server that may be silent for no time at all cannot answer.
fn silence(given: &str) -> Result<Lapse, String> {
    let time = Lapse::or_seconds(given)?;
    if time.0.is_zero() { Err("the server needs more than no time to answer, such as 30s".into()) } else { Ok(time) }
}

/// Whether an argument names a server.
pub fn is_remote(text: &str) -> bool {
    text.starts_with("ftp://") || text.starts_with("ftps://")
}
