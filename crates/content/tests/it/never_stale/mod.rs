//! The whole page protocol under a seed, with everything that can go wrong, and checkers that know the database's own
//! order of commits.
//!
//! The nodes live in a world of `verbena_fabric::sim`. What runs on them is the product: its driver of the page protocol, its readers, the
//! cluster's machines; what is made up is what they stand between, the clients and the application.
//!
//! `cargo test -p verbena-content --test it never_stale` runs sixty seeds; `VERBENA_SEEDS=10000` runs that many, and
//! `VERBENA_SEED=17 VERBENA_TRACE=1` runs that one and says what happened in it.

mod checker;
mod database;
mod dialogue;
mod membership;
mod outside;
mod process;
mod proxy;
mod records;
mod register;
mod restarts;
mod rules_off;
mod seeds;
mod settings;
mod slow;
mod world;
