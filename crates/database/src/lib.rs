//! Dependencies from SQL: a relay between an application and its database, and what it tells the caches.
//!
//! [`verbena_relay`] passes the frames and knows where commands end; [`verbena_statements`] knows what a statement reads and touches. Here they meet:
//!
//! ```text
//!   application ---> relay ---> database
//!                      | each statement, each row            the catalog, read by a connection of its own
//!                      v                                           v
//!                    Session (a judge) ---- analysis of the statement under the catalog
//!                      | read: names                         | commit: names
//!                      v                                     v
//!                    Fills (this process's), and the log of reads   an update of content, around the commit
//! ```
//!
//! docs/howto/dependencies-from-sql.md says what it promises and what it assumes.

mod address;
mod bracket;
mod capture;
mod catalog;
mod charsets;
mod config;
mod elsewhere;
mod error;
mod explain;
mod parameters;
mod postgres;
mod search;
mod session;
mod start;
mod trust;
mod turns;
mod waiting;
mod watch;

pub use address::{Address, Product};
pub use catalog::Catalog;
pub use config::{DatabaseConfig, Scheme};
pub use error::DatabaseError;
pub use explain::{Explanation, explain};
pub use start::{Bound, Database};
pub use trust::Trust;
pub use watch::{NamedBy, Watched, watch_socket};
