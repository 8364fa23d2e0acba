//! The law of names against a table that is really read and written.

mod bound;
mod oracle;
mod values;
