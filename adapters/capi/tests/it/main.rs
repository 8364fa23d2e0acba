//! Tests of what programs in C see.
//!
//! | Module | What it tests |
//! |---|---|
//! | `c` | programs in C against real nodes |
//! | `header` | that `include/verbena.h` is that of the code |

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod c;
mod header;
