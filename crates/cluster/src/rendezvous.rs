//! Which member is the home of a key: the one that draws the highest lot for it (rendezvous hashing, Thaler and Ravishankar
//! 1998). When a member comes or goes only the keys that it wins or won move.

use siphasher::sip::SipHasher13;
use verbena_terms::{Incarnation, Rank};

use crate::View;

/// The home of the key whose hash is `key_hash`; `None` if the view has no home.
///
/// Lots are drawn by name, not by incarnation, so a node that restarts is home of the same keys again (as a new
/// incarnation, which owns nothing of what the earlier one did), also where it has another rank. Every node computes the same, in every
/// build: SipHash-1-3 of the eight bytes of `key_hash`, little endian, under the key of the name, which is [`name_key`] and 0; a tie goes to
/// the higher rank.
pub fn home_of(key_hash: u64, view: &View) -> Option<Incarnation> {
    view.lots().iter().max_by_key(|(name, home)| (lot(key_hash, *name), home.rank)).map(|(_, home)| *home)
}

/// The home of a key of the cooperative cache: as [`home_of`], among the homes that lend memory to it.
pub fn pool_home_of(key_hash: u64, view: &View) -> Option<Incarnation> {
    let lots = view.pool_lots().iter();
    lots.max_by_key(|(name, home)| (lot(key_hash, *name), home.rank)).map(|(_, home)| *home)
}

/// The home that such a key would have if its home were gone: the second in the same draw.
pub fn pool_heir_of(key_hash: u64, view: &View) -> Option<Incarnation> {
    let mut best: [Option<((u64, Rank), Incarnation)>; 2] = [None; 2];
    for (name, home) in view.pool_lots() {
        let drawn = Some(((lot(key_hash, *name), home.rank), *home));
        if drawn > best[0] {
            best = [drawn, best[0]];
        } else if drawn > best[1] {
            best[1] = drawn;
        }
    }
    best[1].map(|(_, home)| home)
}

/// SipHash-1-3 with the key 0, 0 of a name.
pub(crate) fn name_key(name: &str) -> u64 {
    SipHasher13::new_with_keys(0, 0).hash(name.as_bytes())
}

fn lot(key_hash: u64, name_key: u64) -> u64 {
    SipHasher13::new_with_keys(name_key, 0).hash(&key_hash.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{member, view};
    use crate::{Member, Role, Roles};
    use verbena_terms::ViewNumber;

    const KEYS: u64 = 60_000;

    #[test]
    fn homes_share_the_keys_evenly() {
        let view = view(1, &[(1, 1), (2, 7), (3, 1), (4, 2), (5, 1), (6, 1)]);
        let mut held = [0u64; 7];
        (0..KEYS).for_each(|key| held[home_of(key, &view).unwrap().rank.0 as usize] += 1);
        // 10 000 each; the standard deviation is 91.
        assert!(held[1..].iter().all(|held| held.abs_diff(KEYS / 6) < 500), "{held:?}");
    }

    #[test]
    fn only_the_keys_of_who_left_move() {
        let before = view(1, &[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]);
        let after = view(2, &[(1, 1), (2, 1), (4, 1), (5, 1)]);
        let mut moved = 0;
        for key in 0..KEYS {
            let (was, is) = (home_of(key, &before).unwrap(), home_of(key, &after).unwrap());
            assert!(was == is || was.rank == Rank(3), "key {key} moved from {was} to {is}");
            moved += u64::from(was != is);
        }
        assert!(moved.abs_diff(KEYS / 5) < 500, "{moved} moved");
    }

    #[test]
    fn a_restarted_node_is_home_of_the_same_keys() {
        let before = view(1, &[(1, 1), (2, 1), (3, 1)]);
        let after = view(2, &[(1, 1), (2, 2), (3, 1)]);
        // Where each incarnation has a rank of its own, its name identifies the node.
        let again = Member { incarnation: Incarnation::new(9, 1), ..member(2, 1) };
        let ranked = View::new(ViewNumber(2), vec![member(1, 1), member(3, 1), again], vec![]).unwrap();
        for key in 0..1000 {
            let home = home_of(key, &before).unwrap().rank;
            assert_eq!(home, home_of(key, &after).unwrap().rank);
            let there = home_of(key, &ranked).unwrap().rank;
            assert_eq!(there, if home == Rank(2) { Rank(9) } else { home });
        }
    }

    #[test]
    fn who_is_no_home_owns_nothing() {
        let reader = Member { roles: Roles::of(Role::Reader), ..member(2, 1) };
        let view = View::new(ViewNumber(1), vec![member(1, 1), reader.clone()], vec![]).unwrap();
        assert!((0..1000).all(|key| home_of(key, &view) == Some(Incarnation::new(1, 1))));
        let view = View::new(ViewNumber(1), vec![reader], vec![]).unwrap();
        assert_eq!(home_of(7, &view), None);
    }

    #[test]
    fn every_build_draws_the_same_lots() {
        assert_eq!([("app1", 0), ("app1", 1), ("app2", 0)].map(|(name, key)| lot(key, name_key(name))), LOTS);
    }

    /// Computed apart, from the definition of SipHash.
    const LOTS: [u64; 3] = [9_693_562_431_907_126_674, 6_127_353_165_892_278_969, 8_418_950_258_033_102_676];
}
