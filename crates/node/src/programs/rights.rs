//! What a node lets two users do alone: the one who runs it, and root.

use verbena_protocol::memory::Failure;

/// Why a request was refused, and of what kind the reason is.
pub(crate) type Refused = (Failure, String);

/// Lets the user who runs the node through, and root.
///
/// # Errors
/// This failure, with what `because` says, for every other user.
pub(crate) fn check_runs(user: u32, runs: u32, failure: Failure, because: &str) -> Result<(), Refused> {
    if user == runs || user == 0 {
        return Ok(());
    }
    Err((failure, format!("user {user} is not the one that runs this node, {runs}, and not root: {because}")))
}
