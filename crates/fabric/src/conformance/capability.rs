//! [`Capabilities`](crate::Capabilities) are true.

use super::harness::{Able, Harness, Unable};
use super::scene::{SHORT, Scene, VIEW, bytes, finish, node, peer, receive, run, soon};
use crate::{Batch, Class, Error, LARGEST_BATCH, Operation, Port, Views};

/// A target that is stopped still answers, at once and rightly, if its processor is said to be free; otherwise the operation ends. So does what
/// changes something where another one executes that.
pub fn a_stopped_target_answers_if_its_processor_is_free(harness: &mut dyn Harness) -> Able<()> {
    let target = harness.target(4096)?;
    let caller = node(harness);
    let to = caller.connect(target.incarnation, &target.address).expect("a node connects to a target");
    let remote = to.open(&target.key, soon(&*caller)).expect("a target's key opens its region");
    let add = || Batch::one(Operation::FetchAdd { at: 8, addend: 1 });
    assert_eq!(run(harness, &*caller, &remote, add()).expect("a live target answers")[0].word(), Some(0));
    let read = || Batch::read_words(&[8]);
    harness.pause(target.incarnation)?;
    let capabilities = caller.capabilities();
    let is_free = capabilities.target_cpu_free;
    let changes = is_free && capabilities.changes == capabilities.executor;
    // The read first: it finds what was there, whenever the addition is executed.
    let results = [(read(), is_free), (add(), changes)].map(|(batch, answers)| {
        let (has_effect, deadline) = (batch.effects() > 0, if answers { super::PATIENCE } else { SHORT });
        let deadline = caller.clock().now() + deadline;
        let pending = remote.post(batch, Class::Control, deadline);
        (answers, has_effect, finish(harness, &*caller, pending, deadline))
    });
    harness.resume(target.incarnation);
    for (answers, has_effect, result) in results {
        match result {
            Ok(done) => assert!(answers && done[0].word() == Some(1), "answers: {answers}, {done:?}"),
            Err(error) => assert!(
                !answers && matches!(error, Error::Unknown { .. }) && error.may_have_happened() == has_effect,
                "answers: {answers}, {error}"
            ),
        }
    }
    Ok(())
}

/// Where a post is said to be complete when the call returns, it is.
pub fn synchronous_means_complete_on_return(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 4096);
    if !scene.caller.capabilities().synchronous {
        return Err(Unable("operations complete later here"));
    }
    for class in Class::ALL {
        let mut batch = Batch::read_words(&[0, 8]);
        batch.push(Operation::FetchAdd { at: 0, addend: 1 });
        let done = scene.remote.post(batch, class, soon(&*scene.caller)).poll_now();
        assert_eq!(done.expect("complete on return").expect("a batch that is allowed succeeds").len(), 3);
        let refused = scene.remote.post(Batch::read_words(&[4096]), class, soon(&*scene.caller)).poll_now();
        assert!(refused.expect("complete on return").is_err());
    }
    Ok(())
}

/// Reads, writes and messages of the largest size work, and one byte more is refused with the limit named.
pub fn the_largest_sizes_are_true(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 2 << 20);
    let capabilities = scene.caller.capabilities().clone();
    let pool = scene.caller.pool();
    let (read, write) = (capabilities.largest_read as usize, capabilities.largest_write as usize);
    assert!(read.max(write) <= pool.largest(), "the pool has no buffer for what is said to be possible");
    let pattern: Vec<u8> = (0..write).map(|index| (index % 251) as u8).collect();
    scene.one(harness, Operation::Write { at: 3, from: scene.buffer(&pattern) }).expect("the largest write succeeds");
    let into = pool.take(read).expect("the pool has room for the largest read");
    let done = scene.one(harness, Operation::Read { at: 3, into }).expect("the largest read succeeds");
    let both = read.min(write);
    assert!(bytes(done)[..both] == pattern[..both], "the largest write is read as it was written");
    if let Ok(into) = pool.take(read + 1) {
        refused(scene.one(harness, Operation::Read { at: 3, into }), read);
    }
    if let Ok(from) = pool.take(write + 1) {
        refused(scene.one(harness, Operation::Write { at: 0, from }), write);
        assert_eq!(scene.region.load(0).map(|word| word & 0xff_ffff), Ok(0), "nothing was written");
    }
    assert!(capabilities.provider.len() > 1 && LARGEST_BATCH > 1);

    let inbox = scene.owner.listen(Port(1), Views::Any).expect("a port opens");
    let way = peer(&*scene.caller, &*scene.owner);
    let message = capabilities.largest_message as usize;
    for class in Class::ALL {
        let body: Vec<u8> = (0..message).map(|index| (index % 241) as u8).collect();
        way.send(class, VIEW, Port(1), 1, &body).expect("the largest message is taken");
        assert!(receive(harness, &*scene.owner, &inbox).body == body, "the largest message arrives whole");
        refused(way.send(class, VIEW, Port(1), 2, &vec![0; message + 1]), message);
    }
    Ok(())
}

/// F6: a peer that speaks another version is refused, the refusal names both versions, and no other peer is disturbed.
pub fn another_version_is_refused_by_name(harness: &mut dyn Harness) -> Able<()> {
    let scene = Scene::new(harness, 64);
    let error = harness.speak_another_version(&*scene.owner)?.to_string();
    let numbers: std::collections::HashSet<&str> =
        error.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty()).collect();
    assert!(error.contains("version") && numbers.len() >= 2, "a refusal that does not name both versions: {error}");
    assert_eq!(scene.word(harness, Operation::FetchAdd { at: 0, addend: 1 }), 0);
    Ok(())
}

fn refused<T>(result: crate::Result<T>, limit: usize) {
    match result {
        Err(Error::TooLarge { asked, most, .. }) => assert_eq!((asked, most), (limit as u64 + 1, limit as u64)),
        Err(other) => panic!("one byte more than {limit} was refused as {other}"),
        Ok(_) => panic!("one byte more than {limit} was not refused"),
    }
}
