//! `verbena.c` is an extension for PHP: it tags statements with the page that they are for, and testifies that a page is made of the database alone. docs/howto/php.md tells how to use it,
//! and `Makefile` makes it. There is nothing for programs in Rust.

#![forbid(unsafe_code)]
