//! Tests of the shoppers.
//!
//! | Module | What it tests |
//! |---|---|
//! | `never_stale` | processes that are killed, paused and restarted while every answer is checked |
//! | `sight` | shoppers in front of caches that lie |

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod never_stale;
mod sight;
