//! The translators of a bank in volumes of GlusterFS: loaded, looked at, taken out.
//!
//! A volume's graphs stand in files that glusterd writes and gives to bricks and clients. [`enable`] edits those files, and installs a filter:
//! a program that glusterd runs on each such file that it writes anew. What the volume is to have stands in a note. [`disable`] edits the files
//! back, byte for byte, and takes note and filter away. No option of the volume is touched: glusterd 10 cannot reset those that begin with `user.`.
//!
//! Each step leaves all files whole. The note is the first thing written and the last thing removed, so after a kill in between, either
//! command finishes what the first one, or the other one, began.

mod check;
mod files;
mod volfile;

use std::path::{Path, PathBuf};

use thiserror::Error;

pub use self::check::{Finding, VolumeReport, check};
pub use self::files::{disable, enable, filter};

/// Where GlusterFS is on this machine.
#[derive(Clone, Debug)]
pub struct GlusterPaths {
    /// The working directory of glusterd.
    pub state: PathBuf,
    /// The directory of its version, in which `xlator` stands.
    pub library: PathBuf,
}

/// What the translators of a volume are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslatorOptions(Vec<(String, String)>);

/// Why a volume was not changed, or not wholly.
#[derive(Debug, Error)]
pub enum GlusterError {
    /// No GlusterFS here.
    #[error(
        "no GlusterFS is installed: {place} is not there; install glusterfs-server, or name its place with --state and --library"
    )]
    NoGluster {
        /// What was looked for.
        place: PathBuf,
    },
    /// A name that is none of a volume, or of none that there is.
    #[error("glusterd has no volume {volume:?} on this machine: `gluster volume list` names them")]
    NoVolume {
        /// The name.
        volume: String,
    },
    /// The translators are not where GlusterFS looks.
    #[error("{place} is not there: build and install the translators with `make -C adapters/gluster install`")]
    NoTranslator {
        /// The file.
        place: PathBuf,
    },
    /// An option that a line of a volume's file cannot hold.
    #[error("option {name} of a translator: {value:?} is empty, or has a blank or a control character")]
    Option {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A file of the volume is none that we know.
    #[error("{place}: {why}; nothing was changed in it")]
    Volfile {
        /// The file.
        place: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The file system of the volume fails over faster than words show that a brick is dead (rule B11).
    #[error(
        "volume {volume}: network.ping-timeout is {seconds} s, and a client trusts a silent brick's words for 2 s: set it to more than 2, or use --scheme imca"
    )]
    PingTimeout {
        /// The volume.
        volume: String,
        /// Its ping-timeout.
        seconds: u64,
    },
    /// The system refuses.
    #[error("{place}: {error}; glusterd's files belong to root, so this needs root")]
    System {
        /// The file.
        place: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

impl GlusterPaths {
    /// Debian's: `/var/lib/glusterd` and the newest `/usr/lib/*/glusterfs/*` with translators.
    pub fn find(state: Option<PathBuf>, library: Option<PathBuf>) -> Result<Self, GlusterError> {
        let state = state.unwrap_or_else(|| "/var/lib/glusterd".into());
        let library = match library {
            Some(library) => library,
            None => {
                let mut found = installed();
                found.sort();
                found.pop().ok_or(GlusterError::NoGluster { place: "/usr/lib/*/glusterfs/*/xlator".into() })?
            }
        };
        for place in [&state, &library] {
            if !place.is_dir() {
                return Err(GlusterError::NoGluster { place: place.clone() });
            }
        }
        Ok(GlusterPaths { state, library })
    }

    fn volume(&self, volume: &str) -> Result<PathBuf, GlusterError> {
        let is_name =
            !volume.is_empty() && volume.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let place = self.state.join("vols").join(volume);
        if is_name && place.is_dir() { Ok(place) } else { Err(GlusterError::NoVolume { volume: volume.to_owned() }) }
    }

    fn notes(&self) -> PathBuf {
        self.state.join("verbena-bank")
    }

    fn filters(&self) -> PathBuf {
        self.library.join("filter")
    }

    fn script(&self) -> PathBuf {
        self.filters().join("verbena-bank")
    }

    fn translator(&self, name: &str) -> PathBuf {
        self.library.join("xlator/user").join(name).with_extension("so")
    }
}

fn installed() -> Vec<PathBuf> {
    let inside = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let versions = inside("/usr/lib".into()).into_iter().flat_map(|machine| inside(machine.join("glusterfs")));
    versions.filter(|version| version.join("xlator").is_dir()).collect()
}

impl TranslatorOptions {
    /// Options by name. Both translators get the same.
    pub fn new(options: &[(&str, String)]) -> Result<Self, GlusterError> {
        let is_bad =
            |text: &str| text.is_empty() || text.contains(|letter: char| letter.is_whitespace() || letter.is_control());
        match options.iter().find(|(name, value)| is_bad(name) || is_bad(value)) {
            Some((name, value)) => Err(GlusterError::Option { name: (*name).to_owned(), value: value.clone() }),
            None => {
                Ok(TranslatorOptions(options.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()))
            }
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Whether reads are coherent.
    fn is_strong(&self) -> bool {
        self.value("scheme").is_none_or(|scheme| scheme == "strong")
    }

    fn text(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
    }

    fn parse(text: &str) -> Self {
        TranslatorOptions(
            text.lines()
                .filter_map(|line| line.split_once(' '))
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }
}

/// The volume whose file this is: `.../vols/VOLUME/FILE`.
fn volume_of(file: &Path) -> Option<(&Path, &str)> {
    let folder = file.parent()?;
    let vols = folder.parent().filter(|vols| vols.file_name().is_some_and(|name| name == "vols"))?;
    Some((vols.parent()?, folder.file_name()?.to_str()?))
}
