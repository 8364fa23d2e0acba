//! The memcached protocol without input or output: requests out of bytes, what each answers, answers into bytes.
//!
//! Three parts, each pure. [`Parser`] finds requests in a stream that is cut anywhere. [`semantics`] says what one request answers and
//! what becomes of the item, given the item as it stands: it holds over any register of items, a map in a test or entries at a home.
//! [`print`] writes the answer, in the classic or in the meta form of its request.
//!
//! Text and meta commands are those of memcached's `protocol.txt`. The binary protocol is refused by an answer that its clients
//! show ([`refuse_binary`]). Three deviations from memcached are on purpose:
//!
//! - A storage command that is refused is swallowed with its value wherever its length can be read. memcached executes the
//!   value as commands.
//! - Keys hold no control bytes, and numbers out of range are refused. memcached takes the first and truncates the second.
//! - Whether a line is too long does not depend on how its bytes arrive.

mod base64;
mod limits;
mod meta;
mod number;
mod parser;
pub mod print;
mod request;
pub mod semantics;
mod text;

pub use base64::{decode, encode};
pub use limits::Limits;
pub use parser::{Parsed, Parser, Step, refuse_binary};
pub use request::{
    Arithmetic, Direction, Exptime, Keys, Meta, MetaVerb, Mode, Operation, Read, Recache, Rejection, Remove, Request,
    Shown, Statistics, Store,
};
