//! Nothing is wrong under faults, and each rule that is switched off is seen.

use verbena_transfer::Rules;

use crate::world::{Faults, Verdict, World};

const FAULTS: Faults = Faults { kill: 6, power: 2, flip: 3, change: 8, lanes: 20 };
const QUIET: Faults = Faults { kill: 0, power: 0, flip: 0, change: 0, lanes: 20 };

fn runs(rules: Rules, faults: Faults, seeds: std::ops::Range<u64>) -> Verdict {
    let mut all = Verdict::default();
    for seed in seeds {
        let Verdict { wrong, damaged, is_stuck, stored, sent } = World::new(seed, rules).run(faults);
        all.wrong += wrong;
        all.damaged += damaged;
        all.is_stuck |= is_stuck;
        all.stored += stored;
        all.sent += sent;
        if rules == Rules::ALL {
            assert_eq!((wrong, damaged), (0, 0), "seed {seed}");
            assert!(!is_stuck, "seed {seed}");
        }
    }
    all
}

fn seeds() -> u64 {
    if std::env::var_os("VERBENA_LONG").is_some() { 10_000 } else { 1_500 }
}

#[test]
fn no_file_is_wrong_and_every_one_comes_to_its_end() {
    let verdict = runs(Rules::ALL, FAULTS, 0..seeds());
    assert!(verdict.stored > seeds(), "{verdict:?}");
}

#[test]
fn no_file_that_is_handed_over_is_wrong() {
    let mut stored = 0;
    for seed in 0..seeds() {
        let verdict = World::handed_over(seed, Rules::ALL).run(FAULTS);
        assert!(verdict.wrong == 0 && verdict.damaged == 0 && !verdict.is_stuck, "seed {seed}: {verdict:?}");
        assert_eq!(verdict.sent, 0, "seed {seed}: bytes went over a stream");
        stored += verdict.stored;
    }
    assert!(stored > seeds(), "{stored}");
}

/// Each rule that holds without a wire, switched off.
#[test]
fn without_a_rule_what_is_handed_over_is_wrong() {
    let seen = |rules: Rules, faults: Faults| {
        assert!((0..3000).any(|seed| World::handed_over(seed, rules).run(faults).wrong > 0), "{rules:?}");
    };
    seen(Rules { last_look: false, ..Rules::ALL }, Faults { change: 30, ..QUIET });
    seen(Rules { hash_claims: false, ..Rules::ALL }, Faults { flip: 0, change: 0, ..FAULTS });
    seen(Rules { owner: false, ..Rules::ALL }, Faults { power: 0, flip: 0, ..FAULTS });
}

#[test]
fn without_faults_nothing_is_sent_twice() {
    for seed in 0..50 {
        let verdict = World::new(seed, Rules::ALL).run(QUIET);
        assert!(verdict.wrong == 0 && verdict.damaged == 0 && !verdict.is_stuck, "seed {seed}: {verdict:?}");
    }
}

/// What a rule prevents comes when it is off.
#[track_caller]
fn seen(rules: Rules, faults: Faults, is_seen: impl Fn(&Verdict) -> bool) {
    let mut seed = 0;
    while seed < 3000 {
        if is_seen(&runs(rules, faults, seed..seed + 20)) {
            return;
        }
        seed += 20;
    }
    panic!("nothing was seen in {seed} runs with {rules:?}");
}

#[test]
fn without_an_owner_a_late_block_lands_in_the_file() {
    seen(Rules { owner: false, ..Rules::ALL }, Faults { power: 0, flip: 0, ..FAULTS }, |verdict| verdict.wrong > 0);
}

#[test]
fn without_the_last_look_halves_are_joined() {
    seen(Rules { last_look: false, ..Rules::ALL }, Faults { change: 30, ..QUIET }, |verdict| verdict.wrong > 0);
}

#[test]
fn without_hashing_claims_zeros_are_kept() {
    seen(Rules { hash_claims: false, ..Rules::ALL }, Faults { flip: 0, change: 0, ..FAULTS }, |verdict| {
        verdict.wrong > 0
    });
}

#[test]
fn without_comparing_hashes_a_flipped_bit_stays() {
    seen(Rules { compare_hashes: false, ..Rules::ALL }, Faults { flip: 20, ..QUIET }, |verdict| verdict.wrong > 0);
}

#[test]
fn without_counting_an_end_overtakes_its_chunks() {
    seen(Rules { count_chunks: false, ..Rules::ALL }, QUIET, |verdict| verdict.wrong > 0);
}

#[test]
fn without_numbers_a_late_chunk_is_written_into_another_file() {
    // The root still says so: no wrong file, but one that is refused although nothing was damaged.
    seen(Rules { drop_strays: false, ..Rules::ALL }, Faults { change: 60, ..QUIET }, |verdict| verdict.damaged > 0);
}

#[test]
fn without_a_sequence_an_older_chunk_overtakes() {
    seen(Rules { keep_order: false, ..Rules::ALL }, Faults { change: 60, ..QUIET }, |verdict| verdict.damaged > 0);
}

#[test]
fn without_the_credit_of_what_is_dropped_a_session_stands() {
    assert!(!World::crowded(1, Rules::ALL).run(QUIET).is_stuck);
    assert!(World::crowded(1, Rules { credit_dropped: false, ..Rules::ALL }).run(QUIET).is_stuck);
}
