//! Networks of this machine with virtual links between them: where what crosses a network is measured and tested. Two are linked with each
//! other, or many by a [`Crossing`], where any way from one to another can be closed.
//!
//! A network is there for as long as somebody holds its [`Namespace`], a thread is in it, or a process was started there. Making one takes
//! CAP_SYS_ADMIN, and linking two CAP_NET_ADMIN and the command `ip` (Debian: iproute2).
//!
//! ```no_run
//! # fn main() -> Result<(), verbena_namespaces::Error> {
//! use verbena_namespaces::{End, Namespace};
//!
//! let (here, there) = (Namespace::new()?, Namespace::new()?);
//! let (near, far) = (End::new("near", [10, 78, 0, 1]), End::new("far", [10, 78, 0, 2]));
//! here.link(near, &there, far)?;
//! there.enter(|| std::process::Command::new("ip").arg("address").status())?;
//! # Ok(())
//! # }
//! ```

mod command;
mod crossing;
mod namespace;

pub use command::{Family, ip, ip_batch, netfilter, tc, tc_batch};
pub use crossing::{Block, Crossing};
pub use namespace::{End, Error, Namespace, Result, or_skipped};
