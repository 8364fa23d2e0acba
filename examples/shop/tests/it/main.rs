//! Tests of the shop.
//!
//! | Module | What it tests |
//! |---|---|
//! | `announced` | the shop that announces its writes, against a helper that writes down what it is told |
//! | `plain` | pages and changes |
//! | `processes` | processes that share one file |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod announced;
mod common;
mod plain;
mod processes;
