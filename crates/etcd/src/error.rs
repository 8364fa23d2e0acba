//! Why etcd cannot be asked, or did not answer.

use thiserror::Error;

/// What this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// Why etcd cannot be asked, or did not answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Error {
    /// A value of the configuration, or a file that it names, cannot be taken.
    #[error("etcd.{key}: {problem}")]
    Setting {
        /// The key below `etcd`.
        key: String,
        /// What is wrong with it.
        problem: String,
    },
    /// It was built without the feature that speaks with etcd.
    #[error(
        "this verbena was built without etcd: build it with the feature `etcd`, which is there by default, or use another cluster.provider"
    )]
    LeftOut,
    /// No answer: what was asked may have been done, and may yet be.
    #[error("etcd does not answer: {why}")]
    Unanswered {
        /// What the last endpoint that was tried said, or that it said nothing; with the key of the configuration to look at, where there is one.
        why: String,
    },
    /// The keys are not those that this client enrolled in before: they were lost, and are counted from the beginning.
    #[error(
        "what etcd has under {prefix} is not what this node joined: it was deleted or restored while the node ran. Lives from before know nothing of those from \
         after it, so this one ends. Start every node of the cluster again"
    )]
    AnotherEra {
        /// Under which everything is.
        prefix: String,
    },
    /// What etcd has under a key is not to be understood, and was left as it is (rule F6).
    #[error("etcd has under {key} what this program cannot read: {problem}")]
    Unreadable {
        /// The key in etcd.
        key: String,
        /// What was expected and what was found.
        problem: String,
    },
    /// Something of this machine is missing.
    #[error("cannot {what}: {reason}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        reason: String,
    },
}

impl Error {
    pub(crate) fn setting(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Error::Setting { key: key.into(), problem: problem.into() }
    }
}
