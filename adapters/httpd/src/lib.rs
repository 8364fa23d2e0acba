//! `mod_verbena.c` is a module of Apache's: a provider for mod_cache around another one, which asks the helper of its machine before each use of a copy. docs/howto/apache.md
//! tells how to use it, and `Makefile` makes it. There is nothing for programs in Rust.

#![forbid(unsafe_code)]
