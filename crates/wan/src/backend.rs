//! What runs the links of a WAN.

use serde::{Deserialize, Serialize};

use crate::router::Mode;
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
        /// Of all chance.
        seed: u64,
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
        Backend::Router { mode: Mode::default(), seed: USUAL_SEED }
    }
}

impl Backend {
    /// The one of this name. A mode and a seed that are not given are as usual.
    ///
    /// # Errors
    /// Where one is given that the backend does not have.
    pub fn new(name: BackendName, mode: Option<Mode>, seed: Option<u64>) -> Result<Self, Impossible> {
        match (name, mode, seed) {
            (BackendName::Router, ..) => {
                Ok(Backend::Router { mode: mode.unwrap_or_default(), seed: seed.unwrap_or(USUAL_SEED) })
            }
            (BackendName::Kernel, Some(_), _) => Err(lacks("mode", "the kernel's timers release packets")),
            (BackendName::Kernel, _, Some(_)) => Err(lacks("seed", "the kernel draws, and no run can be repeated")),
            (BackendName::Kernel, None, None) => Ok(Backend::Kernel),
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
        assert_eq!(Backend::new(BackendName::Router, None, None), Ok(Backend::default()));
        let router = Backend::Router { mode: Mode::Sleep, seed: 7 };
        assert_eq!(Backend::new(BackendName::Router, Some(Mode::Sleep), Some(7)), Ok(router));
        assert_eq!(Backend::new(BackendName::Kernel, None, None), Ok(Backend::Kernel));
        for (mode, seed, said) in
            [(Some(Mode::Precise), None, "mode: the backend kernel"), (None, Some(1), "seed: the backend kernel")]
        {
            let refused = Backend::new(BackendName::Kernel, mode, seed).map_err(|error| error.to_string());
            assert!(refused.as_ref().is_err_and(|words| words.starts_with(said)), "{refused:?}");
        }
    }
}
