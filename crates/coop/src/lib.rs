//! Cooperative caching: the memory of all nodes as one cache, decided without input or output.
//!
//! One word says which version of a key is valid. Where a copy lies is a hint. *An object says itself which version it is.* So any node
//! may hold any copy, none can be stale, none is ever invalidated, and word and object are read side by side in one round trip (rule K2).
//! Homes alone write key tables and holders alone their memory (rule K1); all others read.
//!
//! [`Table`] is a home's part of the key table. [`Holder`] is a node's share of the memory: allocation, replacement, expiry. [`placement`] has
//! the schemes that say where an object goes: those of chapter 7 and an adaptive one. [`Coop`] is a node: home, holder and reader in one machine.

mod copies;
mod extents;
mod fetch;
mod ghosts;
pub mod holder;
mod home;
mod machine;
mod message;
mod mirror;
mod rules;
pub mod service;
mod work;

pub mod object;
mod place;
pub mod placement;
pub mod table;
mod tenant;
mod version;

pub use holder::Holder;
pub use machine::{Action, Clocks, Completion, Coop, Settings, Tally};
pub use message::{Ask, Board, Expect, Frame, Offered, Shown, Takes, Verdict, Wanted};
pub use object::Object;
pub use place::{Place, UNIT_BYTES, hash_of};
pub use placement::{Chosen, SchemeName};
pub use rules::Rules;
pub use table::Table;
pub use tenant::{Share, Tenant, Usage};
pub use version::{Version, Versions};
pub use work::{Command, Failure, Reply};
