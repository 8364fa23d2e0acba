//! What the tests of the command share.

pub mod browser;
pub mod crowd;
pub mod rows;
pub mod traffic;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The system gives the number of a network that is gone to the next one.
static NETWORKS: RwLock<()> = RwLock::new(());

/// For a test that makes networks: other tests may make some at the same time.
pub fn makes_networks() -> RwLockReadGuard<'static, ()> {
    NETWORKS.read().unwrap_or_else(PoisonError::into_inner)
}

/// For a test that looks which networks there are: no other test makes any meanwhile.
pub fn counts_networks() -> RwLockWriteGuard<'static, ()> {
    NETWORKS.write().unwrap_or_else(PoisonError::into_inner)
}
