//! Whose client a connection is: said by the listener, by the user at the other end of the unix socket, or by a name and a password that the client sends first.
//!
//! Names and passwords stand in a file as memcached's `-Y` reads it, a line `NAME:PASSWORD` each; the name is that of the tenant. The client sends them as
//! the value of a `set`: `set KEY 0 0 BYTES`, then `NAME PASSWORD`. Until then it is answered `CLIENT_ERROR unauthenticated`. The file is read for each client that
//! says who it is: so a password that was changed counts at once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use verbena_coop::Tenant;
use verbena_coop::service::{DEFAULT_TENANT, TenantConfig, check_tenant_name, clash_of};
use verbena_metrics::Counter;

use crate::config::MemcachedConfig;
use crate::observed::{Observed, OfTenant};

/// Bytes of the file of users.
const MOST_BYTES: u64 = 1 << 20;
/// Tenants that are known at a time.
const MOST: usize = 4096;

/// A tenant, as the server knows it.
pub(crate) struct Known {
    pub tenant: Tenant,
    pub config: TenantConfig,
    pub observed: OfTenant,
    connections: Option<Arc<Semaphore>>,
}

/// A client of a tenant: it has one of the connections that the tenant may have.
pub(crate) struct Member {
    pub known: Arc<Known>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Member {
    fn drop(&mut self) {
        self.known.observed.connections.add(-1);
    }
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The name or the password is wrong.
    Unknown,
    /// The tenant has as many connections as it may.
    Full,
}

/// What the server knows of tenants.
pub(crate) struct Tenants {
    configured: Vec<TenantConfig>,
    users: Option<PathBuf>,
    operator: u32,
    observed: Observed,
    refused: Counter,
    known: Mutex<BTreeMap<String, Arc<Known>>>,
}

impl Tenants {
    /// As configured. `operator` is the user that the process runs as.
    ///
    /// # Errors
    /// The key that cannot be as it is, and why.
    pub fn new(
        config: &MemcachedConfig,
        tenants: &[TenantConfig],
        operator: u32,
        observed: Observed,
    ) -> Result<Tenants, (String, String)> {
        let all = Tenants {
            configured: tenants.to_vec(),
            users: config.users.clone(),
            operator,
            refused: observed.tenants_refused.clone(),
            observed,
            known: Mutex::default(),
        };
        let listeners = config.listeners.iter().enumerate();
        let listeners = listeners.map(|(nth, listener)| (format!("listeners.{nth}.tenant"), listener.tenant.as_ref()));
        for (key, name) in std::iter::once(("tenant".to_owned(), config.tenant.as_ref())).chain(listeners) {
            if let Some(name) = name
                && let Err(problem) = all.find(name)
            {
                return Err((key, problem));
            }
        }
        tenants.iter().for_each(|tenant| drop(all.find(&tenant.name)));
        Ok(all)
    }

    /// The tenant with this name; the default one's is empty.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn find(&self, name: &str) -> Result<Arc<Known>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(name) {
            return Ok(found.clone());
        }
        if !name.is_empty() {
            check_tenant_name(name)?;
        }
        let tenant = Tenant::named(name);
        let names = known.keys().chain(self.configured.iter().map(|tenant| &tenant.name));
        if let Some(other) =
            names.filter(|other| *other != name).find(|other| Tenant::named(other).clashes_with(tenant))
        {
            return Err(clash_of(name, other));
        }
        if known.len() >= MOST {
            return Err(format!("more than {MOST} tenants"));
        }
        let unnamed = || TenantConfig { name: name.to_owned(), ..TenantConfig::default() };
        let config = self.configured.iter().find(|tenant| tenant.name == name).cloned().unwrap_or_else(unnamed);
        let connections = config.connections.map(|most| Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))));
        let label = if name.is_empty() { DEFAULT_TENANT } else { name };
        let found = Arc::new(Known { tenant, config, observed: self.observed.of_tenant(label), connections });
        known.insert(name.to_owned(), found.clone());
        Ok(found)
    }

    /// All that are known, by their names.
    pub fn all(&self) -> Vec<Arc<Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// A client of the tenant that its listener names, or that its user is one of. `None` if it has to say whose it is.
    pub fn admit(&self, listener: Option<&str>, user: Option<u32>) -> Option<Result<Member, Rejection>> {
        let of_user = |uid: u32| self.configured.iter().find(|tenant| tenant.uids.contains(&uid));
        let name = match (user.and_then(of_user), listener) {
            (Some(tenant), _) => &tenant.name,
            (None, Some(name)) => name,
            // The operator is nobody's client.
            (None, None) if self.users.is_none() || user.is_some_and(|uid| uid == 0 || uid == self.operator) => "",
            (None, None) => return None,
        };
        Some(self.member(name))
    }

    /// A client that sent this as its name and its password.
    pub fn authenticate(&self, said: &[u8]) -> Result<Member, Rejection> {
        let checked = self.users.as_ref().map(|path| (path, read(path)));
        let users = match checked {
            Some((_, Ok(users))) => users,
            Some((path, Err(error))) => {
                tracing::error!(path = %path.display(), %error, "no client can say who it is: the file of users cannot be read");
                return Err(Rejection::Unknown);
            }
            None => return Err(Rejection::Unknown),
        };
        // All are looked at, whichever it is.
        let mut name = None;
        for (user, password) in &users {
            if is_same(&[user.as_bytes(), b" ", password].concat(), said) {
                name = Some(user.as_str());
            }
        }
        match name {
            Some(name) => self.member(name),
            None => {
                self.refused.increment();
                Err(Rejection::Unknown)
            }
        }
    }

    fn member(&self, name: &str) -> Result<Member, Rejection> {
        let known = self.find(name).map_err(|problem| {
            tracing::error!(name, problem, "a client is refused");
            self.refused.increment();
            Rejection::Unknown
        })?;
        let permit = match &known.connections {
            None => None,
            Some(connections) => match connections.clone().try_acquire_owned() {
                Ok(permit) => Some(permit),
                Err(_) => {
                    self.refused.increment();
                    return Err(Rejection::Full);
                }
            },
        };
        known.observed.connections.add(1);
        Ok(Member { known, _permit: permit })
    }
}

/// In a time that does not tell how much of it is alike.
fn is_same(expected: &[u8], said: &[u8]) -> bool {
    let pairs = expected.iter().zip(said);
    let unlike = pairs.fold(0, |unlike, (one, other)| unlike | (one ^ other));
    std::hint::black_box(unlike) == 0 && expected.len() == said.len()
}

/// Looks whether the file of users can be used.
///
/// # Errors
/// Which file it is, and what is wrong with it.
pub(crate) fn check_users(path: &Path) -> Result<(), String> {
    read(path).map(drop).map_err(|error| format!("{}: {error}", path.display()))
}

/// The users in the file, with their passwords.
fn read(path: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut text = vec![];
    File::open(path)?.take(MOST_BYTES + 1).read_to_end(&mut text)?;
    let wrong = |problem: String| io::Error::new(io::ErrorKind::InvalidData, problem);
    if text.len() as u64 > MOST_BYTES {
        return Err(wrong(format!("more than {MOST_BYTES} bytes")));
    }
    let mut users = vec![];
    for (nth, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let parts = line.iter().position(|byte| *byte == b':').map(|at| (&line[..at], &line[at + 1..]));
        let user = parts.and_then(|(name, password)| Some((std::str::from_utf8(name).ok()?, password)));
        match user.filter(|(name, password)| check_tenant_name(name).is_ok() && !password.is_empty()) {
            Some((name, password)) => users.push((name.to_owned(), password.to_vec())),
            None => return Err(wrong(format!("line {} is not NAME:PASSWORD", nth + 1))),
        }
    }
    if users.is_empty() { Err(wrong("no user is in it: a line NAME:PASSWORD each".into())) } else { Ok(users) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn users_are_read_line_by_line() {
        let of = |text: &str| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            read(file.path()).map_err(|error| error.to_string())
        };
        let users = of("shop:secret\r\n\nblog:a:b c\n").unwrap();
        assert_eq!(users, [("shop".to_owned(), b"secret".to_vec()), ("blog".to_owned(), b"a:b c".to_vec())]);
        assert_eq!(of("shop:secret\nblog\n").unwrap_err(), "line 2 is not NAME:PASSWORD");
        assert_eq!(of("shop:\n").unwrap_err(), "line 1 is not NAME:PASSWORD");
        assert!(of("").is_err());
        assert!(
            is_same(b"a b", b"a b") && !is_same(b"a b", b"a bc") && !is_same(b"a bc", b"a b") && !is_same(b"", b"x")
        );
    }
}
