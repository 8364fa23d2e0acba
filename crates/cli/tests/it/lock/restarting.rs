//! A cluster of which all nodes end at once, and start again.

use verbena_client::Hold;
use verbena_client::wire::LockMode;

use super::{Error, acquire, connect, on_tcp, three};

/// Nothing is held then, by those who were not there at the end of what they held either, and each token is larger than all before.
#[test]
fn tokens_grow_and_nothing_is_held_when_everything_was_killed() {
    let cluster = on_tcp();
    let names: Vec<String> = (0..12).map(|nth| format!("lock {nth}")).collect();
    let mut before: Vec<u64> = vec![0; names.len()];
    for _life in 0..3 {
        let nodes = three(&cluster);
        let mut locks = connect(&cluster, "b");
        let held: Vec<Hold> = names.iter().map(|name| acquire(&mut locks, name, LockMode::Exclusive)).collect();
        assert!(held.iter().zip(&before).all(|(hold, before)| hold.token() > *before), "{held:?} after {before:?}");
        before = held.iter().map(Hold::token).collect();
        nodes.into_iter().for_each(|node| node.kill());
        assert!(held.iter().all(|hold| !locks.is_held(hold)));
        assert!(matches!(locks.release(held[0]), Err(Error::Lost)));
    }
}
