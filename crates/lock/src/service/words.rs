//! The region with the words of the locks that this node is the home of.

use verbena_cluster::{Role, View};
use verbena_fabric::{Region, RegionKey, Rights};
use verbena_service::endpoint::Endpoint;

use super::batches::WordBatch;

/// Gives the node's own words in this view, if it is a home in it: new memory (rule F4).
///
/// # Errors
/// If there is no memory for them.
pub(super) fn enter_view(
    words: &mut Option<Box<dyn Region>>,
    view: &View,
    bytes: u64,
    endpoint: &Endpoint<WordBatch>,
) -> verbena_fabric::Result<Option<RegionKey>> {
    if !view.member(endpoint.me()).is_some_and(|member| member.roles.has(Role::Home)) {
        *words = None;
        return Ok(None);
    }
    let own = match words.take() {
        Some(own) => {
            own.remake(view.number())?;
            own
        }
        None => endpoint.fabric().register(bytes, view.number())?,
    };
    let key = own.key(Rights::Change);
    *words = Some(own);
    Ok(Some(key))
}

/// Stores a word of a lock that no other node knows of yet.
pub(super) fn store(words: Option<&dyn Region>, at: u64, word: u64) {
    let own = words.expect("invariant: a directory is there as long as its words");
    own.store(at, word).expect("invariant: a directory has as many slots as its region");
}
