//! The relay's machines by dialogues, and the relay between real clients and real servers.
//!
//! - `dialogue`, `words`: a conversation line by line, and a judge by first words, for the others.
//! - `mysql_machine`: conversations of MySQL, line by line.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod dialogue;
mod mysql_machine;
mod words;
