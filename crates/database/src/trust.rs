//! What a database is believed by that is reached with TLS.

use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use verbena_listening::{authorities, client};

/// Who vouches for a database.
pub struct Trust {
    /// What connections are made with.
    pub client: Arc<ClientConfig>,
    /// What it has to prove that it is.
    pub name: ServerName<'static>,
    /// The certificates of those who vouch for it.
    pub authorities: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// The authorities of a file, PEM, or the system's vouch for this host.
    ///
    /// # Errors
    /// There are none, or it is no name of a host.
    pub(crate) fn new(file: Option<&Path>, host: &str) -> Result<Trust, String> {
        let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
        let name = name.map_err(|error| format!("{host}: {error}, so no certificate can be for it"))?;
        Ok(Trust { client: Arc::new(client(file)?), name, authorities: authorities(file)? })
    }
}
