//! Whom a client of TLS believes: the authorities of the system, or those of one file and no others. There is no way to let one pass that does not prove who it is.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};

/// The certificates of the authorities in this file, PEM, or of the system's.
///
/// # Errors
/// The file cannot be read, or there are none: what is wrong and what to do, with the file's name.
pub fn authorities(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, String> {
    let Some(file) = file else {
        let mut found = rustls_native_certs::load_native_certs().certs;
        // Some that systems have are of forms that nothing reads.
        found.retain(|certificate| RootCertStore::empty().add(certificate.clone()).is_ok());
        return match found.is_empty() {
            true => {
                Err("no authorities are known on this system: install the package ca-certificates, or name a file"
                    .into())
            }
            false => Ok(found),
        };
    };
    let unreadable = |error| match error {
        pem::Error::Io(error) => {
            format!("{}: {error}: it must exist, and be readable by the user of this process", file.display())
        }
        other => format!("{}: {other}: it has to be PEM", file.display()),
    };
    let found = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(unreadable)?;
    match found.is_empty() {
        true => Err(format!("{}: no certificate is in it: it has to be PEM", file.display())),
        false => Ok(found),
    }
}

/// What connections are made with, where one of these authorities has to vouch for the other end.
///
/// # Errors
/// As [`authorities`] has them, and of a file whose certificates are no authorities'.
pub fn client(file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let named = file.map(|file| format!("{}: ", file.display())).unwrap_or_default();
    for certificate in authorities(file)? {
        roots
            .add(certificate)
            .map_err(|error| format!("{named}{error}: it has to hold certificates of authorities"))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Why a handshake failed, with what to do about what users stumble over.
pub fn of_handshake(error: io::Error) -> io::Error {
    let found = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(advice) = found.and_then(advice) else { return error };
    io::Error::new(error.kind(), format!("{error}; {advice}"))
}

/// What to do about an error of TLS.
pub fn advice(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidMessage(_) => Some("what answers there speaks no TLS"),
        rustls::Error::InvalidCertificate(why) if format!("{why:?}").contains("CaUsedAsEndEntity") => Some(
            "its certificate is one of an authority, which no server may show: make it with `-addext basicConstraints=critical,CA:FALSE`",
        ),
        _ => None,
    }
}
