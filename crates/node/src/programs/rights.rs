//! What only the user may do whose process the node is, and root.

use verbena_protocol::memory::Failure;

/// Why not.
pub(crate) type Refused = (Failure, String);

/// Whether it is the user whose process the node is, or root; `failure` and the reason for others.
pub(crate) fn runs_it(user: u32, runs: u32, failure: Failure, because: &str) -> Result<(), Refused> {
    if user == runs || user == 0 {
        return Ok(());
    }
    Err((failure, format!("user {user} is not the one that runs this node, {runs}, and not root: {because}")))
}
