//! An HTTP proxy in front of a web application, whose every cached answer is validated at its home.
//!
//! There are three ways through it, and [`verbena_caching`] says which one a request takes:
//!
//! ```text
//!  look      words of the page are read at its home  --unchanged-->  the copy goes out
//!                      |  no copy, or changed                         ^
//!                      +-->  fetched from the origin  --the home accepts it-->  stored
//!  update    begins at every home  -->  origin  -->  whole answer read  -->  ends  -->  the answer goes out
//!  pass      origin
//! ```
//!
//! Nothing of the page protocol is decided here: [`verbena_content`] does. A thread for each core has a listener
//! and connections of its own; they share the store, and the fills under way.

mod ahead;
mod alpn;
mod answer;
mod body;
mod cache;
mod coded;
mod config;
mod connection;
mod direct;
mod error;
mod exchange;
mod explaining;
mod fill;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod health;
mod heap;
mod inbound;
mod joining;
mod known;
mod lead;
mod looked;
mod mark;
mod observed;
mod old;
mod origin;
mod page;
mod page_pool;
mod parts;
mod proxy_protocol;
mod purging;
mod queries;
mod registering;
mod responding;
mod rules;
mod server;
mod shapes;
mod slices;
mod standard;
mod streams;
mod taking;
mod tunnel;
mod update;
mod upload;
mod websocket_key;

pub use config::{Hits, OriginHttp, ProxyConfig};
pub use error::ProxyError;
pub use explaining::{Explained, Explainer, PageWords, StoredCopy};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::proxy_header;
pub use mark::Marks;
pub use proxy_protocol::ProxyVersion;
pub use queries::Queries;
pub use server::Proxy;
