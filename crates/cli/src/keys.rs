//! The certificates in a directory: what they say, and whether they are good now.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use verbena_fabric::tcp::keys::inspect;

use crate::date::{day, days_until, unix_seconds};

/// Days before its end from which on a certificate is said to end soon.
pub const SOON_DAYS: i64 = 30;

/// One certificate.
#[derive(Clone, Debug, Serialize)]
pub struct Certificate {
    /// Its file.
    pub file: PathBuf,
    /// The rank it is for; none for an authority, or where it is for a name.
    pub rank: Option<u32>,
    /// The name of the node it is for, where the cluster's provider is etcd.
    pub member: Option<String>,
    /// Whether it is an authority's.
    pub authority: bool,
    /// First second of its validity, since 1970.
    pub from_unix_s: u64,
    /// The second in which its validity is over.
    pub until_unix_s: u64,
    /// Whole days that are left; negative if it is over.
    pub days_left: i64,
    /// Whether it is good now.
    pub good: bool,
    /// The day of its end.
    pub until: String,
    /// Whether its private key lies beside it.
    pub with_key: bool,
    /// What should be done about it.
    pub remark: Option<String>,
}

/// Reads what a certificate says.
///
/// # Errors
/// That it cannot be read.
pub fn read(file: &Path, now: SystemTime) -> verbena_fabric::Result<Certificate> {
    let inspection = inspect(file)?;
    let valid = inspection.valid;
    let days_left = days_until(valid.end, now);
    let remark = if now < valid.start {
        Some(format!("it is good from {} on: is this machine's clock right?", day(valid.start)))
    } else if now >= valid.end {
        Some("it is over: `verbena keys node` with --replace makes another".into())
    } else if days_left < SOON_DAYS {
        Some("it ends soon: `verbena keys node` with --replace makes another".into())
    } else {
        None
    };
    Ok(Certificate {
        file: file.to_owned(),
        rank: inspection.rank.map(|rank| rank.0),
        member: inspection.member,
        authority: inspection.authority,
        from_unix_s: unix_seconds(valid.start),
        until_unix_s: unix_seconds(valid.end),
        days_left,
        good: valid.contains(&now),
        until: day(valid.end),
        with_key: file.with_extension("key").exists(),
        remark,
    })
}

/// The `.pem` files of a directory, in order of name.
///
/// # Errors
/// What the system says of the directory.
pub fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "pem") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
