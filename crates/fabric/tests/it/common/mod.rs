//! What the tests of several providers share.

pub mod datagrams;
pub mod far;
pub mod keys;
pub mod network;
pub mod raw;
pub mod relayed;
pub mod sending;
