//! The identity that a node can prove, and the peers that it believes (mutual TLS 1.3).
//!
//! One authority vouches for every node of a cluster. The certificate of the node of rank 7 is for the name
//! `node-7.verbena`: the caller demands that name of the target, and the target demands of the caller that its
//! certificate is for the rank it says it has. Where every incarnation has a new rank, the certificate is for the name
//! of the node, `app1.member.verbena`, and a roster maps ranks to names. Nothing is resumed from an earlier connection,
//! so every new one is judged by the certificates as they are now.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::client::{Resumption, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use verbena_terms::Rank;

use super::config::TlsIdentity;
use super::roster::Names;
use crate::error::{Error, Result};

/// The two ends' settings, read from files that are looked at before every new connection.
pub(super) struct Tls {
    identity: TlsIdentity,
    names: Option<Names>,
    own: String,
    loaded: Mutex<Loaded>,
}

struct Loaded {
    stamps: [Stamp; 3],
    ends: Ends,
}

#[derive(Clone)]
pub(super) struct Ends {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

/// What tells that a file is another one than before: device, inode, bytes, modification time in nanoseconds.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl Tls {
    /// Reads the files of the node with this rank, or of this name.
    pub(super) fn open(identity: &TlsIdentity, rank: Rank, names: Option<Names>) -> Result<Self> {
        let unusable = |reason: String| Error::Unusable {
            provider: "tcp",
            reason,
            remedy: "Make the certificates of the nodes with `verbena keys`".into(),
        };
        let own = match &names {
            None => name_of(rank),
            Some(names) => member_name(&names.own).map_err(unusable)?,
        };
        let stamps = stamps(identity);
        let ends = load(identity, &own).map_err(unusable)?;
        Ok(Tls { identity: identity.clone(), names, own, loaded: Mutex::new(Loaded { stamps, ends }) })
    }

    /// The name that the certificate of the node of this rank is for; `None` while that is not known yet and is being
    /// looked up.
    pub(super) fn name(&self, rank: Rank) -> Option<String> {
        match &self.names {
            None => Some(name_of(rank)),
            Some(names) => member_name(&names.roster.name(rank)?).ok(),
        }
    }

    /// Whether a certificate that the authority vouches for is that of the node of this rank.
    pub(super) fn proves(&self, certificate: &CertificateDer<'_>, rank: Rank) -> bool {
        self.name(rank).is_some_and(|name| is_of(certificate, &name))
    }

    /// The settings for a new connection. Files that have changed are read again; if they do not go together (yet), what was
    /// read before stays in use, and they are looked at again next time.
    pub(super) fn ends(&self) -> Ends {
        let mut loaded = self.loaded.lock();
        let stamps = stamps(&self.identity);
        if stamps != loaded.stamps {
            match load(&self.identity, &self.own) {
                Ok(ends) => *loaded = Loaded { stamps, ends },
                Err(reason) => tracing::warn!(reason, "new certificates cannot be used: going on with the old ones"),
            }
        }
        loaded.ends.clone()
    }
}

/// The name that a certificate of this rank is for.
pub(super) fn name_of(rank: Rank) -> String {
    format!("node-{rank}.verbena")
}

/// The name that a certificate of the node of this name is for, or why no certificate is possible.
///
/// Certificates do not tell upper from lower case, and names of nodes do: so there is lower case only.
pub(super) fn member_name(name: &str) -> std::result::Result<String, String> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty()
        || name.len() > LONGEST_LABEL
        || !name.bytes().all(good)
        || name.starts_with('-')
        || name.ends_with('-')
    {
        return Err(format!(
            "{name:?} can be in no certificate: a name there has 1 to {LONGEST_LABEL} of a to z, 0 to 9 and hyphens, and no hyphen at either end"
        ));
    }
    Ok(format!("{name}.member.verbena"))
}

/// Bytes between two dots of a name in the DNS.
const LONGEST_LABEL: usize = 63;

/// A name as TLS wants it.
pub(super) fn server_name(name: &str) -> Option<ServerName<'static>> {
    ServerName::try_from(name.to_owned()).ok()
}

/// Whether a certificate is for this name.
fn is_of(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let Some(name) = server_name(name) else { return false };
    ParsedCertificate::try_from(certificate).and_then(|parsed| verify_server_name(&parsed, &name)).is_ok()
}

fn load(identity: &TlsIdentity, name: &str) -> std::result::Result<Ends, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(&identity.authority)? {
        roots.add(authority).map_err(|error| format!("{}: {error}", identity.authority.display()))?;
    }
    let roots = Arc::new(roots);
    let chain = certificates(&identity.certificate)?;
    if !chain.first().is_some_and(|own| is_of(own, name)) {
        return Err(format!("{} is not for {name}", identity.certificate.display()));
    }
    let key =
        PrivateKeyDer::from_pem_file(&identity.key).map_err(|error| format!("{}: {error}", identity.key.display()))?;

    let crypto = Arc::new(rustls::crypto::ring::default_provider());
    let refused =
        |error: rustls::Error| format!("{} with {}: {error}", identity.certificate.display(), identity.key.display());
    Ok(Ends {
        client: Arc::new(client(crypto.clone(), &roots, chain.clone(), key.clone_key()).map_err(refused)?),
        server: Arc::new(server(crypto, roots, chain, key)?),
    })
}

type Chain = Vec<CertificateDer<'static>>;

fn client(
    crypto: Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    chain: Chain,
    key: PrivateKeyDer<'static>,
) -> std::result::Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots.clone())
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server(
    crypto: Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Chain,
    key: PrivateKeyDer<'static>,
) -> std::result::Result<ServerConfig, String> {
    let callers = WebPkiClientVerifier::builder_with_provider(roots, crypto.clone())
        .build()
        .map_err(|error| format!("the authority: {error}"))?;
    let mut config = ServerConfig::builder_with_provider(crypto)
        .with_protocol_versions(&[&TLS13])
        .and_then(|builder| builder.with_client_cert_verifier(callers).with_single_cert(chain, key))
        .map_err(|error| error.to_string())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn certificates(path: &Path) -> std::result::Result<Chain, String> {
    let named = |error: rustls::pki_types::pem::Error| format!("{}: {error}", path.display());
    let chain: Chain =
        CertificateDer::pem_file_iter(path).map_err(named)?.collect::<std::result::Result<_, _>>().map_err(named)?;
    if chain.is_empty() { Err(format!("{}: no certificate in it", path.display())) } else { Ok(chain) }
}

fn stamps(identity: &TlsIdentity) -> [Stamp; 3] {
    [&identity.authority, &identity.certificate, &identity.key].map(|path| {
        let file = fs::metadata(path).ok()?;
        Some((file.dev(), file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
    })
}
