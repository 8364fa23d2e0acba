//! What runs the links of a WAN.

use serde::{Deserialize, Serialize};

use crate::router::{DataPath, Mode};
use crate::way::Impossible;

/// The seed where none is given.
const USUAL_SEED: u64 = 1;

/// What runs the links of a WAN. Only what is named is taken: none stands in for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "backend", rename_all = "lowercase")]
pub enum Backend {
    /// The router, in user space: on every kernel, with all options.
    Router {
        /// What it does while nothing is due.
        mode: Mode,
        /// What packets are for it.
        path: DataPath,
        /// Of all chance.
        seed: u64,
        /// The core that its thread stays on. Programs in the sites keep off it after
        /// [`Wan::keep_off`](crate::Wan::keep_off). `None`: the thread runs on any core.
        core: Option<usize>,
    },
    /// netem of this machine's kernel. It has no mode, and its chance no seed.
    Kernel,
}

/// Which one is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendName {
    /// [`Backend::Router`]
    #[default]
    Router,
    /// [`Backend::Kernel`]
    Kernel,
}

impl Default for Backend {
    fn default() -> Self {
        Backend::Router { mode: Mode::default(), path: DataPath::default(), seed: USUAL_SEED, core: None }
    }
}

/// What may be said of the router. What is not said is as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterOptions {
    /// What it does while nothing is due.
    pub mode: Option<Mode>,
    /// What packets are for it.
    pub path: Option<DataPath>,
    /// Of all chance.
    pub seed: Option<u64>,
    /// The core of its thread.
    pub core: Option<usize>,
}

impl Backend {
    /// The one of this name.
    ///
    /// # Errors
    /// If an option of a router is given where there is no router.
    pub fn new(name: BackendName, options: RouterOptions) -> Result<Self, Impossible> {
        let RouterOptions { mode, path, seed, core } = options;
        match name {
            BackendName::Router => Ok(Backend::Router {
                mode: mode.unwrap_or_default(),
                path: path.unwrap_or_default(),
                seed: seed.unwrap_or(USUAL_SEED),
                core,
            }),
            BackendName::Kernel if mode.is_some() => Err(lacks("mode", "the kernel's timers release packets")),
            BackendName::Kernel if path.is_some() => Err(lacks("path", "packets stay in the kernel")),
            BackendName::Kernel if seed.is_some() => Err(lacks("seed", "the kernel draws, and no run can be repeated")),
            BackendName::Kernel if core.is_some() => Err(lacks("core", "no thread of this program runs the links")),
            BackendName::Kernel => Ok(Backend::Kernel),
        }
    }

    /// The core of the router's thread, where it has one of its own.
    pub fn core(&self) -> Option<usize> {
        match *self {
            Backend::Router { core, .. } => core,
            Backend::Kernel => None,
        }
    }
}

/// What the backend `kernel` cannot do, and why.
pub(crate) fn lacks(option: &'static str, because: &str) -> Impossible {
    Impossible { option, problem: format!("the backend kernel cannot do it: {because}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_backend_does_not_have_is_refused() {
        let none = RouterOptions::default();
        assert_eq!(Backend::new(BackendName::Router, none), Ok(Backend::default()));
        let all =
            RouterOptions { mode: Some(Mode::Sleep), path: Some(DataPath::Nfqueue), seed: Some(7), core: Some(3) };
        let router = Backend::Router { mode: Mode::Sleep, path: DataPath::Nfqueue, seed: 7, core: Some(3) };
        assert_eq!(Backend::new(BackendName::Router, all), Ok(router));
        assert_eq!(Backend::new(BackendName::Kernel, none), Ok(Backend::Kernel));
        for (options, said) in [
            (RouterOptions { mode: Some(Mode::Precise), ..none }, "mode: the backend kernel"),
            (RouterOptions { path: Some(DataPath::Packet), ..none }, "path: the backend kernel"),
            (RouterOptions { seed: Some(1), ..none }, "seed: the backend kernel"),
            (RouterOptions { core: Some(0), ..none }, "core: the backend kernel"),
        ] {
            let refused = Backend::new(BackendName::Kernel, options).map_err(|error| error.to_string());
            assert!(refused.as_ref().is_err_and(|words| words.starts_with(said)), "{refused:?}");
        }
    }
}
