//! A small web shop on SQLite, as an application in front of which Verbena's proxy stands.
//!
//! Several processes serve one database file. Every page is made of many rows in one read transaction; every write is one
//! transaction that counts up a commit number. A page says which commit it shows (`data-commit` on `<html>`) and which commit
//! last changed each thing it shows (`data-row` and `data-changed`), and a write answers with the number of its commit: from
//! these a checker outside can tell, in the database's own order, whether an answer is stale, and whether a page mixes two states.
//!
//! The same pages and forms ([`routes`]) are served in two ways. [`Plain`] is the shop as anyone would write it. [`announced`] tells the
//! cache what each page is made of and what each write is about to touch. `plain.rs` and `announced.rs`, side by side, are the whole
//! difference. Either can be made [`lasting`], for caches that go by lifetimes.

mod announced;
mod database;
mod lasting;
mod model;
mod pages;
mod plain;
mod routes;

pub use announced::announced;
pub use database::{Database, Error, Failure};
pub use lasting::lasting;
pub use model::{Change, Committed};
pub use pages::{Page, cart, category, front, product};
pub use plain::Plain;
pub use routes::{Way, routes};
