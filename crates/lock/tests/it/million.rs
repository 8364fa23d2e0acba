//! What a lock takes of memory: at the node whose clients hold it, and at its home. In a process of its own, which has nothing else to do.

use verbena_lock::{Asker, Name, RequestId};

use verbena_testkit::programs::alone;

use crate::nodes::cluster::{Nodes, WRITE};

/// Bytes that the process has in memory.
fn resident() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// `VERBENA_LONG=1` takes a million.
#[test]
fn a_lock_takes_a_kibibyte_or_less() {
    alone("million::a_lock_takes_a_kibibyte_or_less", measure_locks);
}

fn measure_locks() {
    let count = if std::env::var_os("VERBENA_LONG").is_some() { 1_000_000 } else { 20_000 };
    let mut nodes = Nodes::new(2, count);
    let before = resident();
    let name = |nth: u32| format!("lock/{nth:08}");
    let mut held: Vec<RequestId> = vec![];
    for first in (0..count).step_by(1000) {
        let last = count.min(first + 1000);
        held.extend((first..last).map(|nth| {
            let (asker, name) = (Asker { number: 1, pid: 1 }, Name::new(name(nth).as_bytes()).unwrap());
            nodes.nodes[1].0.acquire_for(asker, name, WRITE)
        }));
        nodes.run();
        assert_eq!(nodes.answers().len(), (last - first) as usize);
    }
    let while_held = resident() - before;
    for batch in held.chunks(1000) {
        batch.iter().for_each(|&id| nodes.nodes[1].0.release(id).unwrap());
        nodes.run();
    }
    let each = |bytes: u64| bytes / u64::from(count);
    println!("counted: {count} locks, names of 13 bytes: {} bytes each at home and holder", each(while_held));
    assert!(each(while_held) <= 1024, "{} bytes each", each(while_held));
    let again = nodes.acquire(0, &name(7), WRITE);
    assert_eq!(nodes.answers().len(), 1);
    nodes.release(0, again);
}
