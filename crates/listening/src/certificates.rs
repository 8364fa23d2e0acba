//! The certificates that a listener shows to its clients, chosen by the name that a client asks for (SNI), and read again when their files change.
//!
//! A connection keeps what it began with. New ones get what was read last: so a renewed certificate takes effect without a new listener. Files
//! that do not go together, as when one of two is replaced, or that cannot be read, change nothing until they do.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::{CertifiedKey, SigningKey};
use thiserror::Error;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file.
    #[error("{key}: {problem}")]
    File {
        /// The key of the configuration that names it: `tls_cert` or `tls_key`.
        key: &'static str,
        /// The file, what is wrong with it, and what to do about it.
        problem: String,
    },
    /// What connections are taken with cannot be made.
    #[error("{0}")]
    Tls(String),
}

/// A certificate with those that vouch for it, and its key, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// Of the certificate, the server's own first.
    pub certificate: PathBuf,
    /// Of the key.
    pub key: PathBuf,
}

/// What tells that a file is another one than before: device, inode, bytes, modification time in nanoseconds.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

/// The certificates of a listener.
#[derive(Debug)]
pub struct Certificates {
    files: Vec<Files>,
    chosen_from: ArcSwap<Choice>,
    stamps: Mutex<Vec<Stamp>>,
}

/// The certificates by the names that they are for.
#[derive(Debug)]
struct Choice {
    /// For a client that asks for a name that none is for, or for none.
    first: Arc<CertifiedKey>,
    /// `*.example.org` is for all names with one label more than `example.org`.
    by_name: HashMap<String, Arc<CertifiedKey>>,
}

impl Certificates {
    /// Reads them. Of several for one name the first counts.
    ///
    /// # Errors
    /// Which file cannot be used, why, and what to do about it.
    pub fn open(files: Vec<Files>) -> Result<Arc<Self>, CertificateError> {
        let stamps = stamps(&files);
        let chosen_from = ArcSwap::from_pointee(read(&files)?);
        Ok(Arc::new(Certificates { files, chosen_from, stamps: Mutex::new(stamps) }))
    }

    /// Reads them again if a file has changed, or at any rate. What cannot be used leaves things as they are, and the log says so.
    pub fn refresh(&self, at_any_rate: bool) {
        let mut known = self.stamps.lock();
        let now = stamps(&self.files);
        if *known == now && !at_any_rate {
            return;
        }
        *known = now;
        match read(&self.files) {
            Ok(choice) => {
                self.chosen_from.store(Arc::new(choice));
                tracing::info!("the certificates for clients were read again");
            }
            Err(error) => tracing::warn!(%error, "the certificates for clients stay as they were"),
        }
    }

    /// What connections of clients are taken with. These protocols are offered (RFC 7301), the best one first.
    ///
    /// # Errors
    /// The keys of session tickets could not be made.
    pub fn server(self: &Arc<Self>, protocols: &[&[u8]]) -> Result<Arc<ServerConfig>, CertificateError> {
        let failed = |error: rustls::Error| CertificateError::Tls(error.to_string());
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(failed)?;
        let mut server = builder.with_no_client_auth().with_cert_resolver(self.clone());
        server.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // Each thread takes connections: what one of them knows of a session would be lost on the others.
        server.ticketer = ring::Ticketer::new().map_err(failed)?;
        Ok(Arc::new(server))
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let choice = self.chosen_from.load();
        Some(choice.find(hello.server_name().unwrap_or_default()))
    }
}

impl Choice {
    fn find(&self, name: &str) -> Arc<CertifiedKey> {
        let name = name.to_ascii_lowercase();
        let wild = || name.split_once('.').and_then(|(_, rest)| self.by_name.get(&format!("*.{rest}")));
        self.by_name.get(&name).or_else(wild).unwrap_or(&self.first).clone()
    }
}

fn stamps(files: &[Files]) -> Vec<Stamp> {
    let stamp = |file: &Path| {
        let about = fs::metadata(file).ok()?;
        Some((about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
    };
    files.iter().flat_map(|pair| [stamp(&pair.certificate), stamp(&pair.key)]).collect()
}

fn read(files: &[Files]) -> Result<Choice, CertificateError> {
    let mut by_name = HashMap::new();
    let mut first = None;
    for pair in files {
        let (key, names) = read_pair(pair)?;
        first.get_or_insert_with(|| key.clone());
        for name in names {
            by_name.entry(name).or_insert_with(|| key.clone());
        }
    }
    let nothing = || CertificateError::Tls("no certificate is given".into());
    Ok(Choice { first: first.ok_or_else(nothing)?, by_name })
}

/// The key with its chain, and the names that the certificate is for, in lower case.
fn read_pair(files: &Files) -> Result<(Arc<CertifiedKey>, Vec<String>), CertificateError> {
    let Files { certificate, key } = files;
    let wrong = |key: &'static str, file: &Path, why: String| CertificateError::File {
        key,
        problem: format!("{}: {why}", file.display()),
    };
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| wrong("tls_cert", certificate, unreadable(&error, "a certificate")))?;
    let Some(leaf) = chain.first() else {
        return Err(wrong(
            "tls_cert",
            certificate,
            "no certificate is in it: it has to be PEM, the server's own first".into(),
        ));
    };
    let names = names(leaf).map_err(|why| wrong("tls_cert", certificate, why))?;
    let private = PrivateKeyDer::from_pem_file(key);
    let private = private.map_err(|error| wrong("tls_key", key, unreadable(&error, "a private key")))?;
    let signing = signing_key(&private);
    let signing =
        signing.map_err(|error| wrong("tls_key", key, format!("{error}; RSA, ECDSA and Ed25519 can be used")))?;
    let certified = CertifiedKey::new(chain, signing);
    certified.keys_match().map_err(|_| {
        wrong("tls_key", key, format!("not the key of {}: give the one that was made with it", certificate.display()))
    })?;
    Ok((Arc::new(certified), names))
}

/// The key for signatures. Some tools put a key in PKCS#8 between the lines of an older form, and OpenSSL reads it.
fn signing_key(private: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
    ring::sign::any_supported_type(private).or_else(|error| {
        let bytes = match private {
            PrivateKeyDer::Pkcs1(key) => key.secret_pkcs1_der(),
            PrivateKeyDer::Sec1(key) => key.secret_sec1_der(),
            _ => return Err(error),
        };
        let in_pkcs8 = PrivateKeyDer::Pkcs8(bytes.to_vec().into());
        ring::sign::any_supported_type(&in_pkcs8).map_err(|_| error)
    })
}

fn unreadable(error: &rustls::pki_types::pem::Error, what: &str) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => format!("{error}: it must exist, and be readable by the user of this process"),
        Error::NoItemsFound => format!("{what} is not in it: it has to be PEM (BEGIN ... END)"),
        other => format!("{other}: it has to be PEM (BEGIN ... END)"),
    }
}

fn names(certificate: &CertificateDer<'_>) -> Result<Vec<String>, String> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|error| format!("no certificate: {error}"))?;
    let names = parsed.subject_alternative_name().map_err(|error| format!("no certificate: {error}"))?;
    let names = names.map_or(&[][..], |extension| &extension.value.general_names);
    let names = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    Ok(names.collect())
}
