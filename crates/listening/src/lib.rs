//! What the servers of this house listen with.
//!
//! A [`Port`] is taken first and listened on later: a process that finds its port taken ends before it has joined a cluster. [`Certificates`] are shown to clients
//! of TLS, and read again when their files change. What its clients of TLS believe is [`authorities`].

mod authorities;
mod certificates;
mod port;

pub use authorities::{advice, authorities, client, of_handshake};
pub use certificates::{CertificateError, Certificates, Files};
pub use port::Port;
