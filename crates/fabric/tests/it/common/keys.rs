//! An authority and the certificates of a test's nodes, in a folder that goes when it is dropped.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use verbena_fabric::tcp::TlsIdentity;
use verbena_fabric::tcp::keys::{self, Pair};
use verbena_terms::Rank;

pub struct Keys {
    folder: PathBuf,
    mine: bool,
}

impl Keys {
    /// A new authority in a new folder.
    pub fn new(folder: PathBuf) -> Keys {
        std::fs::create_dir(&folder).unwrap();
        keys::create_authority(&pair(&folder, "authority"), good()).unwrap();
        Keys { folder, mine: true }
    }

    /// Somebody else's.
    pub fn of(folder: PathBuf) -> Keys {
        Keys { folder, mine: false }
    }

    pub fn issue(&self, rank: Rank) {
        self.issue_for(rank, good());
    }

    /// Replaces what there is.
    pub fn issue_for(&self, rank: Rank, valid: Range<SystemTime>) {
        let (new, old) = (self.pair("new"), self.pair(&format!("node-{rank}")));
        keys::issue(&self.pair("authority"), rank, &new, valid).unwrap();
        std::fs::rename(new.certificate, old.certificate).unwrap();
        std::fs::rename(new.key, old.key).unwrap();
    }

    pub fn identity(&self, rank: Rank) -> TlsIdentity {
        let Pair { certificate, key } = self.pair(&format!("node-{rank}"));
        TlsIdentity { authority: self.pair("authority").certificate, certificate, key }
    }

    /// Of a node whose certificate is for its name.
    pub fn named(&self, name: &str) -> TlsIdentity {
        let files = self.pair(&format!("member-{name}"));
        if !files.certificate.exists() {
            keys::issue_named(&self.pair("authority"), name, &files, good()).unwrap();
        }
        TlsIdentity { authority: self.pair("authority").certificate, certificate: files.certificate, key: files.key }
    }

    pub fn pair(&self, name: &str) -> Pair {
        pair(&self.folder, name)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if self.mine {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// From an hour ago for a day.
pub fn good() -> Range<SystemTime> {
    let now = SystemTime::now();
    now - Duration::from_secs(3600)..now + Duration::from_secs(24 * 3600)
}

fn pair(folder: &Path, name: &str) -> Pair {
    Pair { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) }
}
