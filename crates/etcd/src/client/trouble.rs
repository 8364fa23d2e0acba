//! What an error of etcd, or of the way to it, means, and which key of the configuration to look at.

use std::error::Error as _;
use std::io;

/// Why an attempt failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    pub(super) why: String,
    /// It will fail in the same way until an operator changes something.
    pub(super) lasts: bool,
}

/// What etcd says (`api/v3rpc/rpctypes/error.go`), and the key to look at.
const REFUSALS: [(&str, &str); 5] = [
    ("authentication failed, invalid user ID or password", "etcd.user and etcd.password_file"),
    ("permission denied", "etcd.user, which needs to read and write what begins with etcd.prefix"),
    ("user name is empty", "etcd.user: etcd's authentication is enabled"),
    ("authentication is not enabled", "etcd.user: etcd's authentication is not enabled"),
    ("invalid auth token", "etcd.user and etcd.password_file"),
];

impl Trouble {
    pub(super) fn lasting(why: String) -> Self {
        Trouble { why, lasts: true }
    }

    pub(super) fn of(error: etcd_client::Error) -> Self {
        let said = match &error {
            etcd_client::Error::GRpcStatus(status) => status.message().to_owned(),
            other => other.to_string(),
        };
        if let Some((_, look)) = REFUSALS.iter().find(|(refusal, _)| said.contains(refusal)) {
            return Trouble::lasting(format!("{said}: look at {look}"));
        }
        let (chain, tls) = causes(&error);
        let why = if chain.is_empty() { said } else { format!("{said}: {chain}") };
        match tls {
            Some(look) => Trouble::lasting(format!("{why}: look at {look}")),
            None => Trouble { why, lasts: false },
        }
    }
}

/// What stands behind an error: its last cause, and the key to look at where that is one of TLS.
fn causes(error: &etcd_client::Error) -> (String, Option<&'static str>) {
    let mut next = match error {
        etcd_client::Error::GRpcStatus(status) => status.source(),
        other => other.source(),
    };
    let (mut last, mut look) = (String::new(), None);
    while let Some(cause) = next {
        last = cause.to_string();
        // An error of input and output hides what it wraps from its list of causes.
        let wrapped = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let tls = cause.downcast_ref().or_else(|| wrapped?.downcast_ref::<rustls::Error>());
        look = look.or_else(|| tls.and_then(key_of));
        // The alert comes after the handshake, through HTTP/2, of which only the text comes out.
        if last.contains("received fatal alert") {
            look = Some("etcd.certificate and etcd.key");
        }
        next = cause.source();
    }
    (last, look)
}

fn key_of(error: &rustls::Error) -> Option<&'static str> {
    use rustls::{CertificateError, Error};
    match error {
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => Some("etcd.endpoints: the member's certificate is for another name"),
        Error::InvalidCertificate(_) => Some("etcd.authority"),
        Error::InvalidMessage(_) => Some("etcd.endpoints: is it http, and not https?"),
        _ => None,
    }
}
