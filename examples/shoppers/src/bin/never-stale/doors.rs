//! How proxies are reached: as they are, or with `--mixed` by TLS and by both versions of HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use verbena_shoppers::Door;

/// The files of the certificate and its key.
pub const FILES: [&str; 2] = ["site.pem", "site.key"];

/// Whether the proxy of this number, from 0, takes TLS alone.
pub fn is_secure(number: usize) -> bool {
    number > 0
}

/// Makes a certificate for the proxies that take TLS, and gives the ways to all: to each of these by HTTP/1.1 and by HTTP/2.
pub fn mixed(proxies: &[SocketAddr], directory: &Path) -> Result<Vec<Door>, String> {
    let said = |error: &dyn std::fmt::Display| format!("no certificate for the proxies: {error}");
    let names: Vec<String> = proxies.iter().map(|address| address.ip().to_string()).collect();
    let key = KeyPair::generate().map_err(|error| said(&error))?;
    let certificate =
        CertificateParams::new(names).and_then(|params| params.self_signed(&key)).map_err(|error| said(&error))?;
    for (file, text) in FILES.iter().zip([certificate.pem(), key.serialize_pem()]) {
        std::fs::write(directory.join(file), text).map_err(|error| format!("{file}: {error}"))?;
    }
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).map_err(|error| said(&error))?;
    let config = |alpn: &[u8]| {
        let mut config = ClientConfig::builder().with_root_certificates(roots.clone()).with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        Arc::new(config)
    };
    let (http1, http2) = (config(b"http/1.1"), config(b"h2"));
    let doors = proxies.iter().enumerate().flat_map(|(number, &address)| match is_secure(number) {
        false => vec![Door::from(address)],
        true => vec![
            Door { tls: Some(http1.clone()), ..Door::from(address) },
            Door { address, tls: Some(http2.clone()), version: hyper::Version::HTTP_2 },
        ],
    });
    Ok(doors.collect())
}
