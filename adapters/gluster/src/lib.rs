//! `cmcache.c` and `smcache.c` are translators of GlusterFS that read from a cache bank and fill it. docs/concepts/bank.md tells how to use them, and `Makefile` makes them.
//! There is nothing for programs in Rust.

#![forbid(unsafe_code)]
