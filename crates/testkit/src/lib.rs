//! What the tests of several crates share. It is a dev-dependency only: no program links it.
//!
//! - [`machine`]: tests that run inside an emulated machine with RDMA devices, and [`adapters`], what nodes open there.
//! - [`namespaces`] and [`networks`]: networks of a test's own, on this machine.
//! - [`world`] and [`faults`]: a cluster in virtual time and what befalls it, for simulations of what stands above the cluster. [`keeper`]: which nodes are in.
//! - [`store`]: the register, for simulations of the cluster's own keepers.
//! - [`seeds`] and [`counts`]: which seeds a simulation runs, and whether enough happened in them.
//! - [`relay`]: a link on loopback that loses, holds and cuts what it carries.
//! - [`programs`] and [`nodes`]: the programs of this workspace as processes, and clusters of helpers.
//! - [`etcds`]: three members of etcd. [`mariadb`] and [`postgresql`]: servers of databases.
//!
//! What a test forgets to end, ends with the value that started it.

#![allow(clippy::unwrap_used, reason = "a helper of a test that cannot go on fails the test")]
#![allow(missing_docs, reason = "test code")]

#[cfg(feature = "adapters")]
pub mod adapters;
pub mod counts;
pub mod etcds;
#[cfg(feature = "sim")]
pub mod faults;
pub mod keeper;
pub mod machine;
pub mod mariadb;
pub mod namespaces;
pub mod networks;
pub mod nodes;
pub mod postgresql;
pub mod programs;
pub mod relay;
#[cfg(feature = "sim")]
pub mod seeds;
pub mod store;
#[cfg(feature = "sim")]
pub mod world;
