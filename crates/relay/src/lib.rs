//! A relay between an application and its database.
//!
//! It passes the frames of the MySQL and PostgreSQL protocols byte for byte, logins included, and knows no password.
//! It understands where a command and its answer end, the status that the database reports, and where each column of a
//! result comes from. What makes a write visible is *held*: the relay begins a bracket at every home, forwards the
//! command, ends the bracket when the database has answered, and then gives the answer to the application (Q4, Q5).
//!
//! Nothing here knows SQL. A [`Judge`] is shown each command and says what becomes of it; it is shown the columns and
//! the rows of the answer before their bytes are passed on (Q1). A [`Bracket`] begins and ends updates.
//!
//! A [`Conversation`] is one connection as a state machine without input or output: [`mysql::Mysql`] and
//! [`postgres::Postgres`].

mod bracket;
mod conversation;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzing;
mod gate;
mod judge;
pub mod mysql;
pub mod postgres;
mod serve;
mod shared;
mod socket;
mod tls;

pub use bracket::Bracket;
pub use conversation::{Action, Conversation, Encryption, End, Error, Limits, Outcome, Rejection};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use fuzzing::{Reached, mysql_conversation, postgres_conversation};
pub use judge::{Answer, Column, Command, Format, Judge, Kind, Login, Origin, Row, State, Transaction, Verdict};
pub use serve::{ServeLimits, serve};
pub use shared::{Shared, Step};
pub use socket::{KeptSocket, Listener, Upstream, bind_socket};
pub use tls::Tls;
