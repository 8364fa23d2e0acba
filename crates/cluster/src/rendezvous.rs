//! Which member is the home of a key: the one that draws the highest lot for it (rendezvous hashing, Thaler and Ravishankar
//! 1998). When a member comes or goes only the keys that it wins or won move.

use siphasher::sip::SipHasher13;
use verbena_terms::{Incarnation, Rank};

use crate::View;

/// The home of the key whose hash is `key_hash`; `None` if the view has no home.
///
/// Lots are drawn by rank, not by incarnation, so a node that restarts is home of the same keys again (as a new
/// incarnation, which owns nothing of what the earlier one did). Every node computes the same, in every build: SipHash-1-3
/// with the key 0, 0 over `[key_hash : 8 | rank : 4]`, little endian; a tie goes to the higher rank.
pub fn home_of(key_hash: u64, view: &View) -> Option<Incarnation> {
    view.homes().map(|home| home.incarnation).max_by_key(|home| (lot(key_hash, home.rank), home.rank))
}

fn lot(key_hash: u64, rank: Rank) -> u64 {
    let mut block = [0; 12];
    block[..8].copy_from_slice(&key_hash.to_le_bytes());
    block[8..].copy_from_slice(&rank.0.to_le_bytes());
    SipHasher13::new_with_keys(0, 0).hash(&block)
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
        for key in 0..1000 {
            assert_eq!(home_of(key, &before).unwrap().rank, home_of(key, &after).unwrap().rank);
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
        assert_eq!([lot(0, Rank(1)), lot(1, Rank(1)), lot(0, Rank(2))], LOTS);
    }

    /// Computed apart, from the definition of SipHash.
    const LOTS: [u64; 3] = [2_080_147_055_954_262_057, 11_116_729_209_042_922_736, 15_131_467_959_069_592_321];
}
