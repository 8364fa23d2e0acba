//! This node's part in the cluster: the machines of `cluster`, driven, and what services are told of their decisions.

pub(crate) mod drain;
pub(crate) mod driver;
pub(crate) mod history;
pub(crate) mod keeping;
pub(crate) mod life;
pub(crate) mod mailbox;
mod post;
pub(crate) mod records;
pub(crate) mod service;
pub(crate) mod status;
mod waiting;
