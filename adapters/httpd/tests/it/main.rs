//! Apache with the module, before an application, against real nodes.
//!
//! | Module | What it tests |
//! |---|---|
//! | `pages` | what is a hit and what is not, and that no answer is stale |
//! | `switches` | that each rule is needed: without it, it is seen |

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod apache;
mod application;
mod pages;
mod switches;
