//! The register of the cluster ([`Question`](verbena_cluster::Question)) in etcd: input and output, and no decisions.
//!
//! What is asked is executed as one transaction, or as a read and a transaction that compares what was read; `verbena_cluster::register` says
//! what each compares, which is what makes it safe however late etcd executes it. This crate adds that everything ends: each question by its
//! deadline, each attempt at one endpoint by a shorter one, and then nothing is known of what was asked. Every read is linearizable, so a former
//! leader of etcd that was stuck says nothing old.
//!
//! ```text
//!   asker --ask, never blocks--> [thread verbena-etcd: a task a question] --one endpoint at a time--> etcd
//!         <-----a closure, called once, on that thread-----+
//! ```
//!
//! Built without the feature `client` it needs no protoc, and [`Etcd::start`] says that it was left out.

#[cfg(feature = "client")]
mod client;
mod config;
mod error;
#[cfg(not(feature = "client"))]
mod left_out;

#[cfg(feature = "client")]
pub use client::Etcd;
pub use config::{Deadlines, EtcdConfig};
pub use error::{Error, Result};
#[cfg(not(feature = "client"))]
pub use left_out::Etcd;
