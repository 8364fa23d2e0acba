//! The certificate that clients are shown, read again when its files change: connections keep what they began with, new ones get what was read last. Files that
//! do not go together, as when one of two is replaced, change nothing until they do.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// What tells that a file is another one than before: inode, bytes, modification time in nanoseconds.
type Stamp = Option<(u64, u64, i64, i64)>;

/// A certificate and its key, both in PEM files.
#[derive(Debug)]
pub(crate) struct Certificate {
    certificate: PathBuf,
    key: PathBuf,
    current: Mutex<(Arc<CertifiedKey>, [Stamp; 2])>,
}

impl Certificate {
    /// Reads both.
    ///
    /// # Errors
    /// The key of the configuration that cannot be used, and why.
    pub fn open(certificate: &Path, key: &Path) -> Result<Arc<Self>, (String, String)> {
        let stamps = [certificate, key].map(stamp);
        let current = Mutex::new((read(certificate, key)?, stamps));
        Ok(Arc::new(Certificate { certificate: certificate.into(), key: key.into(), current }))
    }

    /// Reads both again if one has changed.
    pub fn refresh(&self) {
        let now = [&self.certificate, &self.key].map(|path| stamp(path));
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.1 == now {
            return;
        }
        current.1 = now;
        match read(&self.certificate, &self.key) {
            Ok(read) => {
                current.0 = read;
                tracing::info!("the certificate for memcached clients was read again");
            }
            Err((key, problem)) => {
                tracing::warn!(key, problem, "the certificate for memcached clients stays as it was");
            }
        }
    }

    /// What connections of clients are taken with.
    ///
    /// # Errors
    /// What cannot be made.
    pub fn server(self: &Arc<Self>) -> Result<Arc<ServerConfig>, rustls::Error> {
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions()?;
        let mut server = builder.with_no_client_auth().with_cert_resolver(self.clone());
        // Each thread takes connections: what one of them knows of a session would be lost on the others.
        server.ticketer = ring::Ticketer::new()?;
        Ok(Arc::new(server))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.lock().unwrap_or_else(PoisonError::into_inner).0.clone())
    }
}

fn stamp(path: &Path) -> Stamp {
    let about = fs::metadata(path).ok()?;
    Some((about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
}

fn read(certificate: &Path, key: &Path) -> Result<Arc<CertifiedKey>, (String, String)> {
    let wrong = |setting: &str, path: &Path, why: String| (setting.to_owned(), format!("{}: {why}", path.display()));
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain =
        chain.map_err(|error| wrong("tls_cert", certificate, format!("{error}: it has to be readable, and PEM")))?;
    if chain.is_empty() {
        return Err(wrong(
            "tls_cert",
            certificate,
            "no certificate is in it: it has to be PEM, the pool's own first".into(),
        ));
    }
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.map_err(|error| wrong("tls_key", key, format!("{error}: it has to be readable, and PEM")))?;
    let signing = ring::sign::any_supported_type(&private);
    let signing =
        signing.map_err(|error| wrong("tls_key", key, format!("{error}; RSA, ECDSA and Ed25519 can be used")))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|_| {
        wrong("tls_key", key, format!("not the key of {}: give the one that was made with it", certificate.display()))
    })?;
    Ok(Arc::new(certified))
}
