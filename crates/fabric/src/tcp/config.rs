//! What a tcp fabric is opened with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use super::roster::Names;
use crate::error::{Error, Result};

/// What a tcp fabric is opened with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that peers get instead, as `host:port`. Needed where `listen` is a wildcard address.
    pub advertise: Option<String>,
    /// The identity that this node can prove. Without it the fabric speaks in the clear, which it does on loopback
    /// only, where every user of the machine can then say that it is a node: region keys are still secret, messages are
    /// believed.
    pub tls: Option<TlsIdentity>,
    /// With certificates: the names by which nodes prove their identity. `None`: by their ranks, which the
    /// configuration gives them.
    pub names: Option<Names>,
    /// Speak in the clear beyond loopback too: any host that reaches the port can say that it is any node.
    pub insecure: bool,
    /// Bytes of the pool of buffers.
    pub pool_bytes: usize,
    /// Bytes of all regions.
    pub region_bytes: u64,
    /// Messages of at most 64 KiB that one inbox holds; further ones are dropped and counted.
    pub inbox_messages: usize,
    /// Callers that are known, and connections that are open, per class. A window of 24 KiB each.
    pub most_callers: usize,
    /// How long either end waits for a connection to be made and both ends to have identified themselves.
    pub handshake: Duration,
}

/// Files in PEM form, made by [`keys`](super::keys) or any other authority. They are read again, when they have changed, for each new
/// connection; connections that stand go on with what they were made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsIdentity {
    /// The certificate of the authority that vouches for every node.
    pub authority: PathBuf,
    /// The certificate of this node: for the name `node-RANK.verbena`, or `NAME.member.verbena` where there are names.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            advertise: None,
            tls: None,
            names: None,
            insecure: false,
            pool_bytes: 64 << 20,
            region_bytes: 4 << 30,
            inbox_messages: 4096,
            most_callers: 1024,
            handshake: Duration::from_secs(2),
        }
    }
}

impl TcpConfig {
    /// Refuses a configuration that is open to any host, or cannot be reached.
    pub(super) fn check(&self) -> Result<()> {
        let unusable =
            |reason: String, remedy: &str| Err(Error::Unusable { provider: "tcp", reason, remedy: remedy.into() });
        if self.tls.is_none() && !self.insecure && !self.listen.ip().is_loopback() {
            return unusable(format!("{} is not a loopback address, and there is no certificate", self.listen), REMEDY);
        }
        if self.listen.ip().is_unspecified() && self.advertise.is_none() {
            return unusable(
                format!("{} is not an address that peers could connect to", self.listen),
                "Say in `advertise` which host and port they are to use",
            );
        }
        Ok(())
    }
}

/// What to do where a certificate is missing.
pub(super) const REMEDY: &str =
    "Make certificates with `verbena keys` and name them in the configuration, or write `insecure = true`";
