//! What a machine is told when it begins.

use std::net::IpAddr;
use std::time::Duration;

/// What a machine is told of its server and its connection.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The client's address.
    pub peer: IpAddr,
    /// The server's address of this connection.
    pub local: IpAddr,
    /// Until a login must have succeeded.
    pub login_timeout: Duration,
    /// The longest silence between commands.
    pub idle_timeout: Duration,
    /// Names that `HOST` takes; empty takes any.
    pub hosts: Vec<String>,
    /// Whether `AUTH TLS` is there.
    pub tls: Tls,
}

/// Whether control connections can be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// No certificate.
    Off,
    /// As the client likes.
    Allowed,
    /// No login, and no data, without.
    Required,
}
