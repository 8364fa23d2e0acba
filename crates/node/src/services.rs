//! What the node hosts: membership's notices on one side, each service's handle on the other.

mod hosting;
pub(crate) mod loads;
pub(crate) mod locks;
pub(crate) mod member_status;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod peer_status;
pub(crate) mod pool;
pub(crate) mod reads;
