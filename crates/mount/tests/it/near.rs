//! Blocks in the mount's own memory, before the bank.

use std::fs::{self, File};

use verbena_bank::Rules;
use verbena_mount::{explain, purge};

use crate::banked::{Bank, NO_CHANGE_TIME, byte, cached, restore};
use crate::setup::{Pair, eventually};

fn pair(bank: &Bank, rules: Rules, near: u64) -> Option<Pair> {
    Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.rules = rules;
        options.near = near;
        options.deadline = std::time::Duration::from_secs(10);
    })
}

/// So that the next read reaches the mount.
fn drop_pages(file: &File) {
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

#[test]
fn a_near_hit_asks_no_bank_and_counts_under_the_version_alone() {
    let run = |rules: Rules| {
        let mut bank = Bank::new(1)?;
        let pair = pair(&bank, rules, 8 << 20)?;
        fs::write(pair.slow.join("f"), [1; 300_000]).unwrap();
        drop(cached(&pair, "f"));
        assert_eq!(fs::read(pair.fast.join("f")).unwrap(), [1; 300_000]);
        assert_eq!(pair.count("near_blocks"), 5);
        eventually("the bank has it", || pair.count("bank_stored") == 5);
        bank.end();
        let file = cached(&pair, "f");
        drop_pages(&file);
        assert_eq!(fs::read(pair.fast.join("f")).unwrap(), [1; 300_000]);
        assert_eq!((pair.count("near_hits"), pair.count("filled_bytes")), (5, 300_000));
        assert_eq!((pair.count("bank_hits"), pair.count("bank_daemon_down")), (0, 0));
        let explained = explain(&pair.fast.join("f")).unwrap();
        assert!(explained.contains("from the mount's own memory"), "{explained}");
        fs::write(pair.slow.join("f"), [2; 300_000]).unwrap();
        Some(byte(&cached(&pair, "f")))
    };
    let Some(right) = run(Rules::default()) else { return };
    assert_eq!((right, run(Rules { version: false, ..Rules::default() })), (2, Some(1)));
}

#[test]
fn what_the_bank_had_is_near_afterwards_within_the_room_that_there_is() {
    let Some(bank) = Bank::new(1) else { return };
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(secret.path(), "8".repeat(64)).unwrap();
    let mount = |below: Option<&std::path::Path>, near: u64| {
        Pair::new(|options| {
            options.bank = bank.list.parse().unwrap();
            options.secret = Some(secret.path().to_owned());
            options.volume = Some("v".to_owned());
            options.near = near;
            options.deadline = std::time::Duration::from_secs(10);
            below.into_iter().for_each(|below| options.below = below.to_owned());
        })
    };
    let Some(one) = mount(None, 0) else { return };
    let content: Vec<u8> = (0..4_000_000_u32).map(|at| (at / 9) as u8).collect();
    fs::write(one.slow.join("f"), &content).unwrap();
    drop(cached(&one, "f"));
    assert_eq!(fs::read(one.fast.join("f")).unwrap(), content);
    eventually("the bank has all", || one.count("bank_stored") == 62);
    let two = mount(Some(&one.slow), 1 << 20).unwrap();
    for _ in 0..3 {
        let file = cached(&two, "f");
        assert_eq!(fs::read(two.fast.join("f")).unwrap(), content);
        drop_pages(&file);
        // Fifteen whole blocks fit, and the file's end beside them.
        let (bytes, blocks) = (two.count("near_bytes"), two.count("near_blocks"));
        assert!((1 << 19..=1 << 20).contains(&bytes) && (8..=16).contains(&blocks), "{bytes} bytes, {blocks} blocks");
    }
    assert_eq!(two.count("filled_bytes"), 0);
    // What is small enough stays.
    fs::write(one.slow.join("g"), [3; 200_000]).unwrap();
    let three = mount(Some(&one.slow), 1 << 20).unwrap();
    for turn in 0..3 {
        let file = cached(&three, "g");
        assert_eq!(fs::read(three.fast.join("g")).unwrap(), [3; 200_000]);
        drop_pages(&file);
        assert_eq!(three.count("near_hits"), turn * 4);
    }
}

#[test]
fn a_purge_takes_what_is_near() {
    let Some(bank) = Bank::new(1) else { return };
    let Some(pair) = Pair::new(|options| {
        options.bank = bank.list.parse().unwrap();
        options.near = 1 << 20;
        options.clocks = Some(NO_CHANGE_TIME);
        options.deadline = std::time::Duration::from_secs(10);
    }) else {
        return;
    };
    let write = |content: u8| {
        fs::write(pair.slow.join("f"), [content; 100]).unwrap();
        restore(&pair.slow.join("f"), 1_000_000);
    };
    write(1);
    assert_eq!(byte(&cached(&pair, "f")), 1);
    write(2);
    let file = cached(&pair, "f");
    drop_pages(&file);
    assert_eq!((byte(&file), pair.count("near_hits")), (1, 1), "no promise sees this change");
    purge(&pair.fast).unwrap();
    assert_eq!((byte(&cached(&pair, "f")), pair.count("near_blocks")), (2, 1));
}
