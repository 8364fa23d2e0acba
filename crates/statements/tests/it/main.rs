//! The law of names against a table that is really read and written.

mod analysis;
mod applications;
mod bound;
mod fills;
mod oracle;
mod postgres;
mod sqlite;
mod values;
