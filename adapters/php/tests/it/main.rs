//! PHP with the extension.
//!
//! | Module | What it tests |
//! |---|---|
//! | `testimony` | which requests are testified to be made of the database alone, and how their answers come |
//! | `lists` | pages of PHP behind the proxy and the relay have lists, if that is proved and only then |
//! | `site` | PHP, built with the extension, and the stack before it |

#![allow(clippy::unwrap_used, reason = "a helper function of a test that cannot go on fails the test")]

mod lists;
mod site;
mod testimony;
