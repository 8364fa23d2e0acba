//! What a volume has, and what stands above our translators there that takes from the promise (rule B12).

use std::path::PathBuf;

use super::files::volfiles;
use super::volfile::{self, Role};
use super::{GlusterError, GlusterPaths, TranslatorOptions};

/// Translators above ours that answer from memory, and what each takes from `strong`.
const ABOVE: [(&str, &str, &str); 7] = [
    ("performance/io-cache", "performance.io-cache", "answers reads from its own pages for cache-timeout (1 s)"),
    (
        "performance/quick-read",
        "performance.quick-read",
        "answers reads of small files from memory for cache-timeout (1 s)",
    ),
    (
        "performance/md-cache",
        "performance.stat-prefetch",
        "answers stat and lookup from memory for md-cache-timeout (1 s)",
    ),
    (
        "performance/nl-cache",
        "performance.nl-cache",
        "answers lookups of missing names from memory for nl-cache-timeout (60 s)",
    ),
    (
        "performance/write-behind",
        "performance.write-behind",
        "answers writes before the brick has them: other clients may not see them yet",
    ),
    ("performance/read-ahead", "performance.read-ahead", "reads ahead: a read may be as old as the one before it"),
    ("performance/readdir-ahead", "performance.readdir-ahead", "lists ahead: a listing may be as old as its open"),
];

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// A translator, by its kind.
    pub translator: String,
    /// What it takes from the promise.
    pub takes: String,
    /// What switches it off.
    pub remedy: String,
}

/// What a volume has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeReport {
    /// Whether it is to have the translators.
    pub is_enabled: bool,
    /// What they are told, by name.
    pub options: Vec<(String, String)>,
    /// Files of bricks and clients that have them.
    pub loaded: Vec<PathBuf>,
    /// Files of bricks and clients that have them not.
    pub plain: Vec<PathBuf>,
    /// Parts that are missing on this machine.
    pub missing: Vec<PathBuf>,
    /// Whether an earlier command was killed before its end.
    pub is_unfinished: bool,
    /// What stands above them at clients and takes from the promise.
    pub above: Vec<Finding>,
}

/// Looks at a volume, and changes nothing.
pub fn check(paths: &GlusterPaths, volume: &str) -> Result<VolumeReport, GlusterError> {
    let folder = paths.volume(volume)?;
    let note = std::fs::read_to_string(paths.notes().join(volume)).ok();
    let is_enabled = note.is_some();
    let options = note.map_or_else(|| TranslatorOptions(vec![]), |text| TranslatorOptions::parse(&text));
    let (mut loaded, mut plain, mut above) = (vec![], vec![], vec![]);
    for file in volfiles(&folder)? {
        let text =
            std::fs::read_to_string(&file).map_err(|error| GlusterError::System { place: file.clone(), error })?;
        let role = volfile::role(&file.file_name().unwrap_or_default().to_string_lossy(), &text);
        if role == Role::Other {
            continue;
        }
        if role == Role::Client {
            let kinds = volfile::kinds(&text).map_err(|why| GlusterError::Volfile { place: file.clone(), why })?;
            for (kind, option, takes) in ABOVE {
                let is_there = kinds.iter().any(|(_, other)| other == kind);
                if is_there && !above.iter().any(|finding: &Finding| finding.translator == kind) {
                    let remedy = format!("gluster volume set {volume} {option} off");
                    above.push(Finding { translator: kind.to_owned(), takes: takes.to_owned(), remedy });
                }
            }
        }
        if volfile::is_loaded(&text) { loaded.push(file) } else { plain.push(file) }
    }
    let parts = [paths.translator("cmcache"), paths.translator("smcache")];
    let script = is_enabled.then(|| paths.script());
    let missing: Vec<PathBuf> = parts.into_iter().chain(script).filter(|place| !place.exists()).collect();
    let ending = paths.notes().join(format!(".{volume}.ending")).exists();
    let is_unfinished = ending || if is_enabled { !plain.is_empty() } else { !loaded.is_empty() };
    Ok(VolumeReport { is_enabled, options: options.0, loaded, plain, missing, is_unfinished, above })
}
