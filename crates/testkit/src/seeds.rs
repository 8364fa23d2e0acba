//! Seeds of the simulations: which ones are run, whether enough happened in them, and which one finds a rule that is switched off.

pub use verbena_fabric::sim::{MANY_SEEDS, Seed, check_seeds};

/// Seeds of an ordinary run: those from 0 on, unless `VERBENA_SEEDS` or `VERBENA_SEED` asks for others ([`check_seeds`]).
pub const SEEDS: u64 = 60;

/// From so many seeds on, what is rare happens as often as it does on the average. Fewer may by chance have less of it: a test asks less of them.
pub const MANY_MORE: u64 = 1000;

/// The first complaint that `run` gives, in seeds from 0 on. No variable changes them: they are as many as it takes to be sure.
///
/// # Panics
/// If none of so many seeds gives one.
pub fn first_that_finds(what: &str, within: u64, mut run: impl FnMut(Seed) -> Option<String>) -> String {
    let found = (0..within).find_map(|number| Some((number, run(Seed::from(number))?)));
    let (number, complaint) = found.unwrap_or_else(|| panic!("{what}: none of {within} seeds finds it"));
    println!("{what}: seed {number} finds {complaint}");
    complaint
}

/// One count of [`assert_enough!`](crate::assert_enough).
///
/// # Panics
/// If it is too small.
pub fn assert_one_enough(seeds: u64, what: &str, count: u64, each: f64) {
    let is_enough = count as f64 >= each * seeds as f64;
    assert!(seeds < MANY_SEEDS || is_enough, "too little of {what}: {count} in {seeds} seeds, not {each} each");
}
