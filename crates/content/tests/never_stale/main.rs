//! The whole page protocol under a seed, with everything that can go wrong, and checkers that know the database's own
//! order of commits.
//!
//! `cargo test -p verbena-content --test never_stale` runs a few hundred seeds; `VERBENA_SEEDS=10000` runs that many, and
//! `VERBENA_SEED=17` runs that one and says what happened in it.

mod checker;
mod database;
mod dialogue;
mod dice;
mod node;
mod rules_off;
mod seeds;
mod world;
