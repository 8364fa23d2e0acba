//! The experiments with cached pages, after chapters 5 and 6 of the dissertation.
//!
//! ```text
//!   core A: application, home of the pages, threads that only take time      core B: proxy, client
//! ```
//!
//! The home and the proxy are processes of this program, started as users start them; so is every other part. Each
//! scheme has an application, a home and a proxy of its own, which sleep while others are measured.

mod backend;
mod dependencies;
mod httpd;
mod keys;
mod lab;
mod load;
mod machines;
mod measured;
mod memory;
mod once;
mod schemes;
mod stack;
mod updates;
mod views;

pub(crate) use backend::measure as backend;
pub(crate) use dependencies::measure as dependencies;
pub(crate) use httpd::measure as httpd;
pub(crate) use keys::measure as keys;
pub(crate) use load::measure as load;
pub(crate) use machines::Running;
pub(crate) use memory::measure as memory;
pub(crate) use stack::free_addresses;
pub(crate) use updates::measure as updates;
pub(crate) use views::measure as views;
