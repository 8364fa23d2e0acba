//! Locks at work in one node: what drives the machine over a fabric.
//!
//! There is nothing to decide here. The driver gives [`Locks`](crate::Locks) what arrives, and does what it says, in order.

mod driver;
mod life;
mod posts;
mod stepped;

pub use stepped::Stepped;
