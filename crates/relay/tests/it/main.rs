//! The relay's machines by dialogues, and the relay between real clients and real servers.
//!
//! - `dialogue`, `words`: a conversation line by line, and a judge by first words, for the others.
//! - `encryption`: TLS at either end.
//! - `kit`, `tap`: programs that tests start, and what reaches the database, in the log of the brackets.
//! - `memory`: long results and files through a relay whose memory is looked at.
//! - `mysql_machine`: conversations of MySQL, line by line.
//! - `mysql_raw`: commands that no client at hand sends, at a real server.
//! - `mysql_real`: clients of MariaDB with the relay and without.
//! - `postgres_machine`: conversations of PostgreSQL, line by line.
//! - `postgres_raw`, `postgres_real`: messages that no client at hand sends, and clients of PostgreSQL.
//! - `replay`: real conversations cut at every byte or with bytes changed, and bytes that no program sends.
//! - `shared`: every order of events of commits that share a bracket.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dialogue;
mod encryption;
mod kit;
mod memory;
mod mysql_machine;
mod mysql_raw;
mod mysql_real;
mod postgres_machine;
mod postgres_raw;
mod postgres_real;
mod replay;
mod shared;
mod tap;
mod words;
