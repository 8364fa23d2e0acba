//! What a server is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::remedy::in_a_sentence;
use crate::rights::Rights;
use crate::users::UsersError;

/// Options of a server. [`ServeOptions::new`] is read-only, anonymous and on loopback.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The directory that is served.
    pub root: PathBuf,
    /// Where control connections come in.
    pub listen: SocketAddr,
    /// The file of users.
    pub users: Option<PathBuf>,
    /// What `anonymous` and `ftp` may do; `None` lets nobody in without a password.
    pub anonymous: Option<Rights>,
    /// Whether anonymous uploads replace whole files (rule T5).
    pub atomic_stores: bool,
    /// Ports of passive data connections; `None` lets the system choose.
    pub passive_ports: Option<RangeInclusive<u16>>,
    /// The IPv4 address that answers of `PASV` name, for a server behind a translator of addresses.
    pub outer_address: Option<Ipv4Addr>,
    /// Names that `HOST` takes; empty takes any.
    pub hosts: Vec<String>,
    /// Until a login must have succeeded.
    pub login_timeout: Duration,
    /// The longest silence of a control connection.
    pub idle_timeout: Duration,
    /// Until a data connection must be there.
    pub connect_timeout: Duration,
    /// The longest time in which a data connection moves nothing.
    pub stall_timeout: Duration,
    /// The longest time in which a session of many files moves nothing. Large files are hashed meanwhile on either side, so
    /// it is longer.
    pub session_stall_timeout: Duration,
    /// How long running transfers may go on after the server is told to stop.
    pub drain_timeout: Duration,
    /// Control connections at a time.
    pub most_sessions: usize,
    /// Control connections of one address at a time.
    pub most_sessions_per_address: usize,
    /// Failed logins after which an address is banned; 0 bans none.
    pub ban_after: u32,
    /// How long an address is banned, and within which time its failures count.
    pub ban_lasts: Duration,
    /// A unix socket for the administrator, who asks there by HTTP for metrics and sessions, and ends sessions. In a directory
    /// it is `ftp-PORT.sock`.
    pub control: Option<PathBuf>,
    /// Where metrics are given by HTTP.
    pub metrics: Option<SocketAddr>,
    /// Where a line is appended for each transfer, in the format of xferlog(5).
    pub transfer_log: Option<PathBuf>,
    /// The certificate for `AUTH TLS`; `None` has no TLS.
    pub tls: Option<TlsOptions>,
}

/// TLS of a server.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// A PEM file: the server's certificate first, then those that lead to its authority.
    pub certificates: PathBuf,
    /// A PEM file with the certificate's private key; may be the same file.
    pub key: PathBuf,
    /// Whether logins and data in clear are refused.
    pub is_required: bool,
    /// Which data connections count as the client's own.
    pub data: DataTls,
    /// Whether an upload counts as whole if its TLS ends without `close_notify`, as some clients' do (rule T4).
    pub takes_unclean_end: bool,
}

impl TlsOptions {
    /// TLS as the client likes, with this certificate and key.
    pub fn new(certificates: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsOptions {
        TlsOptions {
            certificates: certificates.into(),
            key: key.into(),
            is_required: false,
            data: DataTls::Any,
            takes_unclean_end: false,
        }
    }
}

/// Which encrypted data connections belong to a control connection (rule T2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTls {
    /// Those that resume its TLS session, and whole handshakes from its address.
    Any,
    /// Those that resume its TLS session alone.
    Resumed,
}

impl ServeOptions {
    /// Serves `root` to anonymous readers on 127.0.0.1, port 2121.
    pub fn new(root: impl Into<PathBuf>) -> ServeOptions {
        ServeOptions {
            root: root.into(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 2121)),
            users: None,
            anonymous: Some(Rights::READ),
            atomic_stores: false,
            passive_ports: None,
            outer_address: None,
            hosts: Vec::new(),
            login_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            session_stall_timeout: Duration::from_secs(600),
            drain_timeout: Duration::from_secs(30),
            most_sessions: 1000,
            most_sessions_per_address: 100,
            ban_after: 10,
            ban_lasts: Duration::from_secs(600),
            control: None,
            metrics: None,
            transfer_log: None,
            tls: None,
        }
    }
}

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The served directory cannot be opened.
    #[error("--root {}: {}; give a directory that the user of this process can read and enter", path.display(), in_a_sentence(*reason))]
    Root {
        /// The directory.
        path: PathBuf,
        /// Why.
        reason: verbena_transfer::FileError,
    },
    /// The port cannot be had.
    #[error("cannot listen on {address}: {error}; {}", listening(error))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// The file of users is wrong.
    #[error(transparent)]
    Users(#[from] UsersError),
    /// The transfer log cannot be written.
    #[error("--transfer-log {}: {error}; give a file that this user can write, in a directory that exists", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{}: {problem}", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The administrator's socket cannot be had.
    #[error("cannot listen on {}: {error}; choose another path by --control, in a directory that exists", path.display())]
    Control {
        /// Where.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// Two metrics of one name.
    #[error(transparent)]
    Metrics(#[from] verbena_metrics::RegistryError),
    /// Neither anonymous nor users.
    #[error("no user could log in: give a file of users (--users), or leave out --no-anonymous")]
    Nobody,
}

/// What to do about an address where nothing can listen.
fn listening(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::AddrInUse => "another process listens there: end it, or choose another port (0 takes a free one)",
        ErrorKind::AddrNotAvailable => {
            "no interface of this machine has that address: `ip address` lists those that there are"
        }
        ErrorKind::PermissionDenied => "ports below 1024 need root or CAP_NET_BIND_SERVICE",
        _ => "choose another address",
    }
}
