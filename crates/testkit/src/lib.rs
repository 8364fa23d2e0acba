//! What the tests of several crates share. It is a dev-dependency only: no program links it.
//!
//! - [`machine`]: tests that run inside an emulated machine with RDMA devices, and [`adapters`], what nodes open there.
//! - [`namespaces`] and [`networks`]: networks of a test's own, on this machine.
//! - [`keeper`] and [`store`]: who is in, for simulations of what stands above the cluster; and the register of the cluster's own.
//! - [`relay`]: a link on loopback that loses, holds and cuts what it carries.
//! - [`programs`] and [`nodes`]: the programs of this workspace as processes, and clusters of helpers.
//! - [`etcds`]: three members of etcd.
//!
//! What a test forgets to end, ends with the value that started it.

#![allow(clippy::unwrap_used, reason = "a helper of a test that cannot go on fails the test")]
#![allow(missing_docs, reason = "test code")]

#[cfg(feature = "adapters")]
pub mod adapters;
pub mod etcds;
pub mod keeper;
pub mod machine;
pub mod namespaces;
pub mod networks;
pub mod nodes;
pub mod programs;
pub mod relay;
pub mod store;

#[cfg(feature = "sim")]
pub use verbena_fabric::sim::check_seeds;
