//! The section `[pages]` of the configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;
use thiserror::Error;
use verbena_cluster::{ClusterConfig, Provider};
use verbena_terms::{Contradiction, Lapse, section};

use super::Options;
use crate::home::HomeLimits;
use crate::names::Names;
use crate::updater::UpdaterLimits;

section! {
    /// The page protocol. The same at every node of a cluster.
    pub struct PagesConfig as "pages", checked by PagesConfig::check {
        /// File with the key under which names of pages and dependencies are hashed: 32 hexadecimal digits.
        ///
        /// Not set: one made from `cluster.members`, or with etcd from `etcd.prefix`, which every reader of the configuration can compute; where none are configured,
        /// a random one in `node.state`. A client that knows the key can choose names that cost each other misses, and can look for two addresses that the cache
        /// takes for one page, in 128 bits of SipHash-1-3, which is made for secret keys. Where strangers choose addresses, set one.
        pub key: Option<PathBuf> as "FILE" = None,
        /// Page words of this home, rounded up to a power of two; with the two beside it 24 bytes each. Pages that share a word cost each other misses.
        pub words: u32 as "NUMBER" = 1 << 16,
        /// Pages of this home whose dependencies are kept. Beyond it the one registered longest ago is dropped, and fetched again.
        pub sets: usize as "NUMBER" = 1 << 17,
        /// How long an update may take to begin at every home, before it is answered 503; and to be confirmed after a change of view,
        /// before its connection is closed.
        pub begin_deadline: Lapse as "TIME" = Lapse::seconds(5),
        /// The longest that a transaction goes on after its node lost its lease: an assumption on the application (rules P6, P10).
        ///
        /// What a dead node had open, and an update of unknown outcome, keeps its pages out of the cache for this time.
        pub longest_transaction: Lapse as "TIME" = Lapse::seconds(30),
    }
}

/// Why the key of names cannot be had.
#[derive(Debug, Error)]
pub enum KeyError {
    /// The file cannot be read.
    #[error("pages.key: {path}: {source}; give a file with 32 hexadecimal digits that this user can read: openssl rand -hex 16", path = .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It holds something else.
    #[error("pages.key: {path}: not 32 hexadecimal digits; make one with: openssl rand -hex 16", path = .path.display())]
    Form {
        /// Which file.
        path: PathBuf,
    },
    /// The system has no randomness.
    #[error("a random key for names: {0}")]
    Random(String),
}

impl PagesConfig {
    /// What the service is started with, in this cluster. `prefix` is what its nodes have in common where etcd keeps it.
    ///
    /// # Errors
    /// If the key cannot be had.
    pub fn options(&self, cluster: &ClusterConfig, prefix: &str) -> Result<Options, KeyError> {
        let key = match &self.key {
            Some(path) => read_key(path)?,
            None if cluster.provider == Provider::Etcd => derived_key([prefix]),
            None if cluster.members.is_empty() => {
                let mut key = [0; 16];
                getrandom::fill(&mut key).map_err(|error| KeyError::Random(error.to_string()))?;
                key
            }
            None => derived_key(cluster.members.iter().flat_map(|member| [member.name.as_str(), &member.address])),
        };
        let longest_transaction = self.longest_transaction.0;
        let defaults = (HomeLimits::default(), UpdaterLimits::default());
        Ok(Options {
            names: Names::new(key),
            home: HomeLimits {
                slots: self.words,
                pages: self.sets,
                lease: cluster.lease.0 + cluster.drift.0,
                max_transaction_time: longest_transaction,
                ..defaults.0
            },
            updater: UpdaterLimits {
                begin_deadline: self.begin_deadline.0,
                max_transaction_time: longest_transaction,
                ..defaults.1
            },
        })
    }

    fn check(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        if self.begin_deadline.0 < Duration::from_millis(10) {
            found.push(Contradiction::new("begin_deadline", "shorter than a home takes to answer: 10ms at least"));
        }
        if self.sets == 0 {
            found.push(Contradiction::new("sets", "no page could have dependencies"));
        }
        found
    }
}

fn read_key(path: &Path) -> Result<[u8; 16], KeyError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| KeyError::Read { path: path.to_owned(), source })?;
    let digits = text.trim();
    let number = (digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .then(|| u128::from_str_radix(digits, 16).ok())
        .flatten();
    number.map(u128::to_be_bytes).ok_or_else(|| KeyError::Form { path: path.to_owned() })
}

/// The same at every node, because what it is made from is.
fn derived_key<'a>(texts: impl IntoIterator<Item = &'a str>) -> [u8; 16] {
    let mut hash = SipHasher24::new();
    for text in texts {
        hash.write_u64(text.len() as u64);
        hash.write(text.as_bytes());
    }
    hash.finish128().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_cluster::Configured;
    use verbena_cluster::Roles;

    fn cluster(names: &[&str]) -> ClusterConfig {
        let member =
            |name: &&str| Configured { name: name.to_string(), address: format!("tcp://{name}:1"), roles: Roles::ALL };
        ClusterConfig { members: names.iter().map(member).collect(), ..ClusterConfig::default() }
    }

    fn fingerprint(config: &PagesConfig, cluster: &ClusterConfig) -> u64 {
        config.options(cluster, "/verbena").unwrap().names.fingerprint()
    }

    #[test]
    fn members_agree_on_a_key_and_nodes_that_are_alone_have_their_own() {
        let config = PagesConfig::default();
        assert_eq!(fingerprint(&config, &cluster(&["a", "b"])), fingerprint(&config, &cluster(&["a", "b"])));
        assert_ne!(fingerprint(&config, &cluster(&["a", "b"])), fingerprint(&config, &cluster(&["a", "c"])));
        assert_ne!(fingerprint(&config, &cluster(&[])), fingerprint(&config, &cluster(&[])));
        let etcd = ClusterConfig { provider: Provider::Etcd, ..cluster(&[]) };
        assert_eq!(fingerprint(&config, &etcd), fingerprint(&config, &etcd), "who joins by one prefix agrees too");
        let other = config.options(&etcd, "/other").unwrap().names.fingerprint();
        assert_ne!(fingerprint(&config, &etcd), other);
    }

    #[test]
    fn a_key_file_holds_32_digits() {
        let path = std::env::temp_dir().join(format!("verbena-key-{}", std::process::id()));
        let config = PagesConfig { key: Some(path.clone()), ..PagesConfig::default() };
        std::fs::write(&path, "000102030405060708090a0b0c0d0e0F\n").unwrap();
        let expected = Names::new([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]).fingerprint();
        assert_eq!(fingerprint(&config, &cluster(&[])), expected);
        std::fs::write(&path, "+00102030405060708090a0b0c0d0e0f").unwrap();
        assert!(config.options(&cluster(&[]), "").unwrap_err().to_string().contains("32 hexadecimal digits"));
        std::fs::remove_file(&path).unwrap();
        assert!(config.options(&cluster(&[]), "").unwrap_err().to_string().contains("No such file"));
    }
}
