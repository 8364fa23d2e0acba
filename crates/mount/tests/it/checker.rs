//! Close-to-open, checked: writers at the mount and below, readers at the mount, and no open that misses what was closed before it.
//!
//! A file is lines of one number each. A writer writes the next number and notes it after the close; a reader looks at the note before
//! it opens. A file that is rewritten must show no older number; one that is appended to must end with no older number.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use verbena_bank::Rules;
use verbena_mount::MountOptions;

use crate::banked::Bank;
use crate::setup::Pair;

const FILES: usize = 6;

#[derive(Default)]
struct File {
    begun: AtomicU64,
    closed: AtomicU64,
}

fn lines(number: u64, count: u64) -> String {
    format!("{number:015}\n").repeat(count as usize)
}

/// Files 0 and 1 are appended to; the others are rewritten, truncated or replaced. Every second writer works at the mount.
fn write(pair: &Pair, at: usize, file: &File, random: &mut Pcg64) {
    let number = file.begun.fetch_add(1, SeqCst) + 1;
    let folder = if random.next_u64().is_multiple_of(2) { &pair.fast } else { &pair.slow };
    let path = folder.join(format!("f{at}"));
    let content = lines(number, 1 + random.next_u64() % 9000);
    if at < 2 {
        let mut log = OpenOptions::new().append(true).create(true).open(&path).unwrap();
        log.write_all(&content.as_bytes()[..16]).unwrap();
    } else if random.next_u64().is_multiple_of(3) {
        let new = folder.join(format!("new{at}"));
        fs::write(&new, content).unwrap();
        fs::rename(new, path).unwrap();
    } else {
        fs::write(path, content).unwrap();
    }
    file.closed.store(number, SeqCst);
}

/// How many opens were old.
fn check(rules: Rules, opens: u64) -> Option<(u64, u64)> {
    let bank = Bank::new(2)?;
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "5".repeat(64)).unwrap();
    let set = |options: &mut MountOptions| {
        options.bank = bank.list.parse().unwrap();
        options.volume = Some("v".to_owned());
        options.secret = Some(secret.path().to_owned());
        options.rules = rules;
    };
    let pair = Pair::new(set)?;
    let other = Pair::new(|options| {
        set(options);
        options.below = pair.slow.clone();
    })?;
    let files: [File; FILES] = Default::default();
    let (done, old, ended) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (pair, other, files, done, old, ended) = (&pair, &other, &files, &done, &old, &ended);
        for writer in 0..2_u64 {
            scope.spawn(move || {
                let mut random = Pcg64::seed_from_u64(writer);
                while !ended.load(SeqCst) {
                    // One writer a file: their order is that of their numbers.
                    let at = (random.next_u64() % (FILES as u64 / 2) * 2 + writer) as usize;
                    write(pair, at, &files[at], &mut random);
                    std::thread::sleep(Duration::from_millis(random.next_u64() % 100));
                }
            });
        }
        for reader in 0..3 {
            scope.spawn(move || {
                let mut random = Pcg64::seed_from_u64(100 + reader);
                while done.fetch_add(1, SeqCst) < opens {
                    let at = (random.next_u64() % FILES as u64) as usize;
                    let mount = if random.next_u64().is_multiple_of(2) { pair } else { other };
                    std::thread::sleep(Duration::from_micros(random.next_u64() % 5000));
                    let closed = files[at].closed.load(SeqCst);
                    let Ok(text) = fs::read_to_string(mount.fast.join(format!("f{at}"))) else {
                        old.fetch_add(u64::from(closed > 0), SeqCst);
                        continue;
                    };
                    let is_busy = files[at].begun.load(SeqCst) > closed;
                    let numbers: Vec<u64> = text.lines().filter_map(|line| line.parse().ok()).collect();
                    let oldest = if at < 2 { numbers.last() } else { numbers.iter().min() };
                    let is_old = oldest.map_or(!is_busy && closed > 0, |number| *number < closed);
                    old.fetch_add(u64::from(is_old), SeqCst);
                }
                ended.store(true, SeqCst);
            });
        }
    });
    let hits = pair.count("bank_hits") + other.count("bank_hits");
    Some((old.load(SeqCst), hits))
}

#[test]
fn no_open_misses_what_was_closed_before_it() {
    let opens = if std::env::var_os("VERBENA_LONG").is_some() { 1_000_000 } else { 3000 };
    let Some((old, hits)) = check(Rules::default(), opens) else { return };
    assert_eq!(old, 0, "of {opens} opens");
    assert!(hits > 0, "the bank took part");
}

/// The checker sees old bytes where there are some.
#[test]
fn the_checker_finds_a_bank_that_is_believed_without_versions() {
    let Some((old, _)) = check(Rules { version: false, ..Rules::default() }, 3000) else { return };
    assert!(old > 0);
}
