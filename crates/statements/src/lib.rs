//! What SQL reads and touches, as names of dependencies.
//!
//! A page that shows rows of a database must be bumped when a write changes one of its answers. Both sides become sets
//! of names: a read gives the names that it depends on, a write those that it touches, and a write that can change an
//! answer shares a name with it. The law is in docs/reference/STATEMENTS.md.
//!
//! [`Analyser`] goes from the bytes of a command to an [`Analysis`]: the bytes become tokens, the tokens a shape and its
//! literals, the shape a plan, and the plan with the literals names. Plans are kept. Whatever is not understood is a
//! whole table or everything.

mod analysis;
mod bind;
mod change;
mod ddl;
mod dialect;
mod fills;
mod functions;
mod lex;
mod name;
mod plan;
mod planner;
mod read;
mod rules;
mod schema;
mod scope;
mod select;
mod setting;
mod shape;
mod value;
mod words;
mod write;

pub use analysis::{Analyser, Analysis, Reads};
pub use dialect::{Charset, Dialect, Product};
pub use fills::{Charged, Elsewhere, Fill, FillRules, Fills, Moment, Tag, What, Whose, Why, spelled};
pub use name::{CATALOG, MAX_NAMES, Name, Names, Side};
pub use plan::{Effect, Session, Step, Storable};
pub use read::{Equality, Read};
pub use rules::Rules;
pub use schema::{Cascade, Column, Schema, Table, Trigger};
pub use value::{ColumnType, Literal, canonical};
pub use write::{Change, Write};
