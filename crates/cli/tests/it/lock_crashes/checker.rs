//! Whether a history is one of a lock: linearizable against a reader-writer lock whose holds end when they are released, or by themselves at any moment (the loss of a
//! lease).
//!
//! Nobody knows when exactly a hold began and ended, only what is certain: it began between asking and answer, and it lasted until the last moment at which its holder was
//! told that it is held. Such a history is right if for each hold a beginning and an end can be chosen so that no writer is beside anybody. Tokens give the order
//! (rule L2), which makes that easy: along the tokens each hold begins as early as it can, when it was asked for and all that exclude it have ended, and ends as
//! early as it can. If one begins after its answer that way, no other choice does better, and the history is wrong. That covers all of these: two that overlap, a
//! token that is smaller than one that was given before it was asked for, and a holder that was told too long that it holds.
//!
//! Not checked is when a lock must be granted: a try that is refused, or a wait that was in vain, is always right.

use std::collections::BTreeMap;

use super::history::{Hold, Mode};

/// What is wrong with a history, in words; nothing if it is right.
pub fn broken(holds: &[Hold]) -> Vec<String> {
    let mut locks = BTreeMap::<&str, Vec<&Hold>>::new();
    for hold in holds {
        locks.entry(&hold.lock).or_default().push(hold);
    }
    let mut broken = Vec::new();
    for holds in locks.values_mut() {
        holds.sort_by_key(|hold| (hold.token, hold.asked));
        one_lock(holds, &mut broken);
    }
    broken
}

/// The earliest end of those who were before, and who that was.
#[derive(Clone, Copy, Default)]
struct Before<'a> {
    end: u64,
    last: Option<&'a Hold>,
}

impl<'a> Before<'a> {
    fn add(&mut self, end: u64, hold: &'a Hold) {
        if end >= self.end {
            *self = Before { end, last: Some(hold) };
        }
    }
}

fn one_lock(holds: &[&Hold], broken: &mut Vec<String>) {
    let (mut writers, mut all) = (Before::default(), Before::default());
    let mut last_writer: Option<&Hold> = None;
    for &hold in holds {
        let before = match hold.mode {
            Mode::Reader => writers,
            Mode::Writer => all,
        };
        let begins = hold.asked.max(before.end);
        if let Some(other) = before.last.filter(|_| begins > hold.granted) {
            broken.push(format!("held by two, or in another order than that of tokens:\n  {other:?}\n  {hold:?}"));
        }
        if let Some(other) = last_writer.filter(|other| other.token == hold.token) {
            broken.push(format!("a writer's token twice:\n  {other:?}\n  {hold:?}"));
        }
        if let (Some(was), Some(other)) = (hold.was_writer, last_writer)
            && was != other.token
        {
            broken.push(format!("a writer before one that let others read with it:\n  {other:?}\n  {hold:?}"));
        }
        let ends = hold.until.unwrap_or_default().max(begins);
        all.add(ends, hold);
        if hold.mode == Mode::Writer {
            writers.add(ends, hold);
            last_writer = Some(hold);
        }
    }
    // A reader with a writer's token may have been sorted before it.
    for pair in holds.windows(2) {
        if pair[0].token == pair[1].token && (pair[0].mode, pair[1].mode) == (Mode::Reader, Mode::Writer) {
            broken.push(format!("a writer's token twice:\n  {:?}\n  {:?}", pair[0], pair[1]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(mode: Mode, token: u64, [asked, granted]: [u64; 2], until: Option<u64>) -> Hold {
        Hold { lock: "x".into(), mode, token, asked, granted, until, was_writer: None, who: String::new() }
    }

    fn writer(token: u64, asked: [u64; 2], until: u64) -> Hold {
        hold(Mode::Writer, token, asked, Some(until))
    }

    fn reader(token: u64, asked: [u64; 2], until: u64) -> Hold {
        hold(Mode::Reader, token, asked, Some(until))
    }

    fn is_right(holds: &[Hold]) -> bool {
        broken(holds).is_empty()
    }

    #[test]
    fn right_histories_are_right() {
        assert!(is_right(&[writer(2, [0, 1], 5), writer(4, [2, 6], 9), writer(6, [3, 10], 12)]), "one after another");
        assert!(is_right(&[reader(1, [0, 1], 9), reader(1, [2, 3], 8), writer(2, [4, 10], 11)]), "readers together");
        assert!(is_right(&[reader(3, [0, 1], 9), reader(5, [2, 3], 8)]), "readers of two views");
        let other = Hold { lock: "y".into(), ..writer(2, [0, 1], 9) };
        assert!(is_right(&[writer(2, [0, 1], 9), other]), "two locks");
        assert!(is_right(&[writer(2, [0, 1], 5), writer(4, [2, 6], 9)]), "lost at 5, whatever its holder thinks");
        assert!(is_right(&[hold(Mode::Writer, 2, [0, 9], None), writer(4, [1, 5], 9)]), "an answer that came late");
    }

    #[test]
    fn wrong_histories_are_seen() {
        assert!(!is_right(&[writer(2, [0, 1], 5), writer(4, [2, 3], 9)]), "two writers");
        assert!(!is_right(&[writer(2, [0, 1], 5), reader(3, [2, 3], 9)]), "a reader beside a writer");
        assert!(!is_right(&[reader(1, [0, 1], 5), writer(2, [2, 3], 4)]), "a writer beside a reader");
        assert!(!is_right(&[writer(4, [0, 1], 5), writer(2, [6, 7], 9)]), "a writer's token goes back");
        assert!(!is_right(&[writer(4, [0, 1], 5), reader(3, [6, 7], 9)]), "a reader's does");
        assert!(!is_right(&[hold(Mode::Writer, 4, [2, 3], None), writer(2, [6, 7], 9)]), "after one lost at once");
        assert!(!is_right(&[writer(2, [0, 1], 2), writer(2, [3, 4], 5)]), "the same token twice");
        assert!(!is_right(&[reader(2, [0, 1], 2), writer(2, [3, 4], 5)]), "a reader's given to a writer");
        assert!(!is_right(&[writer(2, [0, 1], 2), reader(2, [3, 4], 5)]), "and the other way round");
        // Not beside each other, and each pair is right; but the reader cannot have begun before 6, for the writer between them was asked for then.
        let between = hold(Mode::Writer, 4, [6, 9], None);
        assert!(!is_right(&[writer(2, [0, 1], 2), between, reader(5, [3, 5], 5)]), "a third between them");
    }

    #[test]
    fn who_shares_has_had_it_all_the_time() {
        let shares = Hold { was_writer: Some(2), ..reader(3, [4, 5], 9) };
        assert!(is_right(&[writer(2, [0, 1], 3), shares.clone(), reader(3, [4, 5], 9)]));
        let later = Hold { token: 5, ..shares };
        assert!(!is_right(&[writer(2, [0, 1], 2), writer(4, [2, 3], 3), later]));
    }

    /// Any choice of beginnings and ends, all of them tried.
    fn can_be(holds: &[Hold], chosen: &mut Vec<(u64, u64)>) -> bool {
        let Some(hold) = holds.get(chosen.len()) else { return true };
        for begins in hold.asked..=hold.granted {
            for ends in begins.max(hold.until.unwrap_or_default())..=LAST {
                let fits = holds.iter().zip(&*chosen).all(|(other, &(began, ended))| {
                    let excludes = hold.mode == Mode::Writer || other.mode == Mode::Writer;
                    !excludes || if other.token < hold.token { ended <= begins } else { ends <= began }
                });
                chosen.push((begins, ends));
                let can = fits && can_be(holds, chosen);
                chosen.pop();
                if can {
                    return true;
                }
            }
        }
        false
    }

    const LAST: u64 = 6;

    #[test]
    fn says_the_same_as_all_choices_tried() {
        // Knuth's multiplier for 64 bits.
        let mut dice = 1u64;
        let mut below = |end: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % end
        };
        let mut seen = [0; 2];
        for _ in 0..1500 {
            let holds: Vec<Hold> = [2, 4, 6]
                .iter()
                .map(|&token| {
                    let asked = below(LAST - 1);
                    let granted = asked + below(LAST - asked);
                    let until = (below(3) > 0).then(|| granted + below(LAST - granted));
                    // Readers between two writers have the same; others make it no harder.
                    let mode = if below(2) == 0 { Mode::Reader } else { Mode::Writer };
                    hold(mode, token, [asked, granted], until)
                })
                .collect();
            let right = is_right(&holds);
            assert_eq!(right, can_be(&holds, &mut vec![]), "{holds:#?}");
            seen[usize::from(right)] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
    }
}
