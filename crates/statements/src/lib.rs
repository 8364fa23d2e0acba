//! What SQL reads and touches, as names of dependencies.
//!
//! A page that shows rows of a database must be bumped when a write changes one of its answers. Both sides become sets
//! of names: a read gives the names that it depends on, a write those that it touches, and a write that can change an
//! answer shares a name with it. The law is in docs/STATEMENTS.md. This crate holds the names, their bound and the
//! values in them; the statements themselves are described to it by [`Read`] and [`Write`].

mod fills;
mod name;
mod read;
mod rules;
mod value;
mod write;

pub use fills::{Charged, Fill, FillRules, Fills, Moment, Tag, Whose, Why};
pub use name::{MAX_NAMES, Name, Names, Side};
pub use read::{Equality, Read};
pub use rules::Rules;
pub use value::{ColumnType, Literal, canonical};
pub use write::{Change, Write};
