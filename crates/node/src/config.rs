//! The helper's own section of the configuration.

use std::path::PathBuf;

use verbena_terms::{Contradiction, section};

section! {
    /// The helper: where programs on this machine reach it, and what outlives it.
    pub struct NodeConfig as "node", checked by no_contradictions {
        /// Directory of the socket through which programs on this machine reach the helper.
        ///
        /// Not set: `verbena` in `$XDG_RUNTIME_DIR`, else in `/run/user/UID`, else `/tmp/verbena-UID`; made if it is missing,
        /// for its owner alone. Nodes of one machine that meet through shared memory have the same one.
        pub runtime: Option<PathBuf> as "DIR" = None,
        /// Directory of what must outlive the helper: its start number and, at the keeper, the newest view. Made if it is
        /// missing.
        ///
        /// Not set: `verbena/NAME` in `$XDG_STATE_HOME`, else in `/var/lib` for root and in `~/.local/state` for others. A node
        /// that lost it must be given a new line in `cluster.members`: an incarnation is never used twice (rule C1).
        pub state: Option<PathBuf> as "DIR" = None,
    }
}

fn no_contradictions(_: &NodeConfig) -> Vec<Contradiction> {
    vec![]
}
