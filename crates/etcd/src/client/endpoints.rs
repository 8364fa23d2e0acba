//! Which member of etcd is asked: one, until it fails; then the next.
//!
//! Each endpoint has a client of its own, so that it is known who failed. A client counts as connected when it has read something: then its member is
//! there, trusts this node, and has a quorum behind it. A client that failed, or did not answer in time, is dropped with its connection.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, GetOptions, Identity, TlsOptions, Txn, TxnResponse};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::trouble::Trouble;
use crate::config::{EtcdConfig, HTTPS};
use crate::error::{Error, Result};

/// The members, of which one is asked.
pub(super) struct Endpoints {
    config: EtcdConfig,
    attempt: Duration,
    clients: Vec<RefCell<Option<Client>>>,
    current: Cell<usize>,
    /// Whether the last attempt of all failed: the log says when that changes.
    failing: Cell<bool>,
}

/// What of a transaction is known when its attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twice {
    /// It is a read, or compares what it changes: executing it twice is as good as once.
    Harmless,
    /// A second execution would give its caller a wrong answer: once it was sent, it is not sent again.
    Never,
}

impl Endpoints {
    /// Connects to none, and reads the files, to name the key of one that cannot be used.
    pub(super) fn new(config: &EtcdConfig, attempt: Duration) -> Result<Self> {
        for url in &config.endpoints {
            options(config, url, attempt)?;
        }
        let clients = config.endpoints.iter().map(|_| RefCell::new(None)).collect();
        Ok(Endpoints { config: config.clone(), attempt, clients, current: Cell::new(0), failing: Cell::new(false) })
    }

    /// Has a transaction executed, by a member that answers in time, before `until`. `probe` is a key that may be read.
    pub(super) async fn execute(&self, txn: Txn, twice: Twice, probe: &str, until: Instant) -> Result<TxnResponse> {
        let count = self.clients.len();
        let mut failed = 0;
        // Which endpoints will not answer before an operator changes something.
        let mut lasting = vec![false; count];
        // Silence says less than a reason, and a reason that passes less than one that lasts.
        let mut told = (0, String::new());
        loop {
            let nth = self.current.get();
            let sent = Cell::new(false);
            let late = until.min(Instant::now() + self.attempt);
            let trouble = match timeout_at(late, self.attempt(nth, txn.clone(), probe, &sent)).await {
                Ok(Ok(response)) => {
                    if self.failing.replace(false) {
                        tracing::info!(endpoint = self.config.endpoints[nth], "etcd answers again");
                    }
                    return Ok(response);
                }
                Ok(Err(trouble)) => Some(trouble),
                Err(_) => None,
            };
            let (weight, why) = match &trouble {
                None => (1, "no answer in time"),
                Some(trouble) => (if trouble.lasts { 3 } else { 2 }, trouble.why.as_str()),
            };
            let why = format!("{}: {why}", self.config.endpoints[nth]);
            self.leave(nth, &why);
            failed += 1;
            lasting[nth] |= trouble.is_some_and(|trouble| trouble.lasts);
            if weight >= told.0 {
                told = (weight, why);
            }
            let hopeless = lasting.iter().all(|lasts| *lasts);
            if failed % count == 0 && !hopeless {
                sleep_until(until.min(Instant::now() + self.attempt / 4)).await;
            }
            let again = twice == Twice::Harmless || !sent.get();
            if !again || hopeless || Instant::now() >= until {
                return Err(Error::Unanswered { why: told.1 });
            }
        }
    }

    async fn attempt(
        &self,
        nth: usize,
        txn: Txn,
        probe: &str,
        sent: &Cell<bool>,
    ) -> std::result::Result<TxnResponse, Trouble> {
        let client = self.clients[nth].borrow().clone();
        let mut client = match client {
            Some(client) => client,
            None => {
                let client = self.connect(&self.config.endpoints[nth], probe).await?;
                *self.clients[nth].borrow_mut() = Some(client.clone());
                client
            }
        };
        sent.set(true);
        client.txn(txn).await.map_err(Trouble::of)
    }

    async fn connect(&self, url: &str, probe: &str) -> std::result::Result<Client, Trouble> {
        let options = options(&self.config, url, self.attempt).map_err(|error| Trouble::lasting(error.to_string()))?;
        let mut client = Client::connect([url], Some(options)).await.map_err(Trouble::of)?;
        client.get(probe, Some(GetOptions::new().with_keys_only())).await.map_err(Trouble::of)?;
        Ok(client)
    }

    fn leave(&self, nth: usize, why: &str) {
        *self.clients[nth].borrow_mut() = None;
        // Another request may have left it already.
        if self.current.get() == nth {
            self.current.set((nth + 1) % self.clients.len());
        }
        if self.failing.replace(true) {
            tracing::debug!(why, "etcd does not answer");
        } else {
            tracing::warn!(why, "etcd does not answer: trying the next endpoint");
        }
    }
}

/// What a client for `url` is made with. Reads the files.
fn options(config: &EtcdConfig, url: &str, attempt: Duration) -> Result<ConnectOptions> {
    // A member without a leader says so at once, and is left for one that has one.
    let mut options =
        ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true).with_connect_timeout(attempt);
    if url.starts_with(HTTPS) {
        let mut tls = TlsOptions::new();
        if let Some(authority) = &config.authority {
            tls = tls.ca_certificate(Certificate::from_pem(certificates("authority", authority)?));
        }
        if let (Some(certificate), Some(key)) = (&config.certificate, &config.key) {
            PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("key", key, error))?;
            tls = tls.identity(Identity::from_pem(certificates("certificate", certificate)?, read("key", key)?));
        }
        options = options.with_tls(tls);
    }
    if let (Some(user), Some(file)) = (&config.user, &config.password_file) {
        options = options.with_user(user, password(file)?);
    }
    Ok(options)
}

fn certificates(key: &str, file: &Path) -> Result<Vec<u8>> {
    let pem = read(key, file)?;
    let mut found = CertificateDer::pem_slice_iter(&pem).peekable();
    if found.peek().is_none() {
        return Err(unreadable(key, file, "no certificate in it"));
    }
    found.find_map(std::result::Result::err).map_or(Ok(()), |error| Err(unreadable(key, file, error)))?;
    Ok(pem)
}

/// The first line of a file that its owner alone can read.
fn password(file: &Path) -> Result<String> {
    const KEY: &str = "password_file";
    let mode = fs::metadata(file).map_err(|error| unreadable(KEY, file, error))?.mode();
    if mode & 0o077 != 0 {
        return Err(unreadable(KEY, file, format!("mode {:03o} lets others at it: chmod 600", mode & 0o777)));
    }
    let text = fs::read_to_string(file).map_err(|error| unreadable(KEY, file, error))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => Err(unreadable(KEY, file, "its first line is empty")),
    }
}

fn read(key: &str, file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|error| unreadable(key, file, error))
}

fn unreadable(key: &str, file: &Path, problem: impl std::fmt::Display) -> Error {
    Error::setting(key, format!("{}: {problem}", file.display()))
}
