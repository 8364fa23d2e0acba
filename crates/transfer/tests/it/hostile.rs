//! A sender that means harm.

use verbena_transfer::{Basis, Entry, EntryKind, Frame, Identity, Receiver, ReceiverAction, SessionSettings};

fn offer(file: u32, size: u64) -> Frame {
    let entry = Entry { path: b"a".to_vec(), kind: EntryKind::File, mode: 0 };
    Frame::Offer { file, entry, identity: Identity { size, ..Identity::default() } }
}

fn chunk(file: u32, offset: u64) -> Frame {
    Frame::Chunk { session: 1, file, offset, sequence: 1, is_whole_file: false, hash: [0; 32] }
}

fn violates(receiver: &mut Receiver) -> bool {
    receiver.actions().iter().any(|action| matches!(action, ReceiverAction::Violation(_)))
}

#[test]
fn what_was_not_granted_ends_the_session() {
    let settings = SessionSettings::new(1, 1);
    let mut receiver = Receiver::new(settings);
    receiver.frame(0, offer(1, 1 << 40), Vec::new());
    for at in 0..8 {
        receiver.frame(0, chunk(1, at << 20), vec![0; 1 << 20]);
    }
    assert!(!violates(&mut receiver));
    receiver.frame(0, chunk(1, 8 << 20), vec![0; 1 << 20]);
    assert!(violates(&mut receiver));
    let mut receiver = Receiver::new(settings);
    receiver.frame(7, chunk(1, 0), vec![0; 1]);
    assert!(violates(&mut receiver), "a stream that is none");
}

#[test]
fn no_number_takes_memory() {
    let mut receiver = Receiver::new(SessionSettings::new(1, 1));
    receiver.frame(0, offer(1, u64::MAX), Vec::new());
    receiver.actions();
    receiver.frame(0, offer(2, 1000), Vec::new());
    receiver.prepared(2, Ok(Basis::Part(vec![(u64::MAX, [0; 32])])));
    receiver.frame(0, chunk(2, !0 << 20), vec![0; 10]);
    receiver.frame(0, chunk(2, 12345), vec![0; 10]);
    receiver.frame(
        0,
        Frame::End {
            file: 2,
            identity: Identity { size: u64::MAX, ..Identity::default() },
            root: [0; 32],
            sent: 0,
            again: 0,
        },
        Vec::new(),
    );
    assert!(!violates(&mut receiver));
    assert_eq!(receiver.dropped(), 2);
    receiver.frame(0, offer(2, 1), Vec::new());
    assert!(violates(&mut receiver), "a number that was used");
}
