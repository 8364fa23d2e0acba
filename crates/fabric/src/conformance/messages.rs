//! F5: messages carry view, sender and number; they are bounded, and kept apart by class.

use super::harness::{Able, Harness};
use super::scene::{PATIENCE, VIEW, eventually, node, pass, peer, receive};
use crate::{Class, Error, Message, Port, Views};
use verbena_terms::ViewNumber;

const PORT: Port = Port(9);
const NEXT: ViewNumber = ViewNumber(VIEW.0 + 1);

/// F5: what arrives names its sender, its view and its number, and is whole; a connection keeps the order in a class.
pub fn messages_arrive_as_they_were_sent(harness: &mut dyn Harness) -> Able<()> {
    let (one, two) = (node(harness), node(harness));
    let inboxes = [&one, &two].map(|node| node.listen(PORT, Views::Current).expect("a port opens"));
    let ways = [peer(&*one, &*two), peer(&*two, &*one)];
    for (round, class) in Class::ALL.into_iter().enumerate() {
        for number in 0..20 {
            let body = vec![number as u8; number as usize * 50];
            ways[0].send(class, VIEW, PORT, number, &body).expect("a message is taken");
            ways[1].send(class, VIEW, PORT, number, &body).expect("a message is taken");
        }
        for (inbox, at, from) in [(&inboxes[1], &two, &one), (&inboxes[0], &one, &two)] {
            for number in 0..20 {
                let message = receive(harness, &**at, inbox);
                let body = vec![number as u8; number as usize * 50];
                let from = from.identity();
                assert_eq!(message, Message { from, view: VIEW, number, class, port: PORT, body }, "round {round}");
            }
        }
    }
    let own = peer(&*one, &*one);
    own.send(Class::Control, VIEW, PORT, 99, b"to myself").expect("a message is taken");
    let message = receive(harness, &*one, &inboxes[0]);
    assert_eq!((message.from, message.number), (one.identity(), 99));
    Ok(())
}

/// F5: a message of another view is dropped, but for the ports that say otherwise; a message to a port without a
/// listener is no error.
pub fn messages_of_other_views_are_dropped(harness: &mut dyn Harness) -> Able<()> {
    let (from, to) = (node(harness), node(harness));
    let current = to.listen(Port(1), Views::Current).expect("a port opens");
    let later = to.listen(Port(2), Views::CurrentAndLater).expect("a port opens");
    let any = to.listen(Port(3), Views::Any).expect("a port opens");
    let way = peer(&*from, &*to);
    let mut take = |number: u64| {
        for port in 1..=4 {
            for view in [VIEW.0 - 1, VIEW.0, NEXT.0] {
                way.send(Class::Control, ViewNumber(view), Port(port), number, &[]).expect("a message is taken");
            }
        }
        // In order within the class: when the last has come, all the others have come or were dropped.
        way.send(Class::Control, VIEW, Port(3), number + 1, &[]).expect("a message is taken");
        let mut views = vec![];
        loop {
            let message = receive(harness, &*to, &any);
            if message.number == number + 1 {
                break;
            }
            views.push(message.view.0);
        }
        let rest = |inbox: &crate::Inbox| std::iter::from_fn(|| inbox.try_take()).map(|m| m.view.0).collect::<Vec<_>>();
        (rest(&current), rest(&later), views)
    };
    let (before, now, next) = (VIEW.0 - 1, VIEW.0, NEXT.0);
    assert_eq!(take(10), (vec![now], vec![now, next], vec![before, now, next]));
    to.set_view(NEXT);
    assert_eq!(take(20), (vec![next], vec![next], vec![before, now, next]));
    Ok(())
}

/// A port has one reader; when that is gone it can be opened again, and finds nothing of what was for the former.
pub fn a_port_has_one_reader_and_can_be_opened_again(harness: &mut dyn Harness) -> Able<()> {
    let (from, to) = (node(harness), node(harness));
    let way = peer(&*from, &*to);
    let former = to.listen(PORT, Views::Any).expect("a port opens");
    let watch = to.listen(Port(10), Views::Any).expect("another port opens");
    assert!(matches!(to.listen(PORT, Views::Any), Err(Error::Full { .. })), "a port has one reader");
    for number in 1..=2 {
        way.send(Class::Control, VIEW, PORT, number, b"for the former").expect("a message is taken");
    }
    assert_eq!(receive(harness, &*to, &former).number, 1);
    drop(former);
    way.send(Class::Control, VIEW, PORT, 3, b"for nobody").expect("a message is taken");
    way.send(Class::Control, VIEW, Port(10), 4, &[]).expect("a message is taken");
    assert_eq!(receive(harness, &*to, &watch).number, 4);
    let inbox = to.listen(PORT, Views::Any).expect("a port opens again");
    way.send(Class::Control, VIEW, PORT, 5, &[]).expect("a message is taken");
    assert_eq!(receive(harness, &*to, &inbox).number, 5);
    Ok(())
}

/// F5: a message of control does not wait until a backlog of bulk has been delivered.
pub fn control_does_not_wait_behind_bulk(harness: &mut dyn Harness) -> Able<()> {
    // Many messages of control, because who delivers may keep up with the sender, and then there is no backlog most of the time.
    const ATTEMPTS: u32 = 10;
    const EVERY: u64 = 50;
    /// With those of control no more than the inbox of any provider holds.
    const MOST: u64 = 1000;
    let (from, to) = (node(harness), node(harness));
    // One port for both classes: its order is that of arrival, however late the reader looks.
    let inbox = to.listen(PORT, Views::Any).expect("a port opens");
    let way = peer(&*from, &*to);
    let body = vec![7; (from.capabilities().largest_message as usize).min(64 << 10)];
    for attempt in 1..=ATTEMPTS {
        let (mut bulk, mut urgent) = (0, 0);
        let mut urge = |bulk| {
            way.send(Class::Control, VIEW, PORT, bulk, b"urgent").expect("a message of control is taken");
            urgent += 1;
        };
        // A full queue, or so much that it takes a while.
        while bulk < MOST && way.send(Class::Bulk, VIEW, PORT, bulk, &body).is_ok() {
            bulk += 1;
            if bulk % EVERY == 0 {
                urge(bulk);
            }
        }
        urge(bulk);
        assert!(bulk > 1, "a backlog has more than {bulk} messages");
        let (mut come, mut overtook) = (0, 0);
        for _ in 0..bulk + urgent {
            match receive(harness, &*to, &inbox) {
                Message { class: Class::Bulk, .. } => come += 1,
                Message { number: sent, .. } => overtook += u64::from(come < sent),
            }
        }
        println!(
            "  attempt {attempt}: {overtook} of {urgent} messages of control came before bulk that was sent before them"
        );
        if overtook > 0 {
            return Ok(());
        }
    }
    panic!("control always waited until all of bulk had come");
}

/// What waits for a peer that takes nothing is bounded, and the sender gets an error; control has a queue of its own.
pub fn a_queue_that_nobody_empties_is_full(harness: &mut dyn Harness) -> Able<()> {
    const FAR_TOO_MANY: u64 = 100_000;
    let target = harness.target(64)?;
    let from = node(harness);
    let way = from.connect(target.incarnation, &target.address).expect("a node connects to a target");
    harness.pause(target.incarnation)?;
    let body = vec![1; (from.capabilities().largest_message as usize).min(16 << 10)];
    let mut sent = 0;
    let full = eventually(harness, &*from, |_| {
        let before = sent;
        while sent < FAR_TOO_MANY && way.send(Class::Bulk, VIEW, PORT, sent, &body).is_ok() {
            sent += 1;
        }
        // Full for good, not only until the first ones had left.
        sent == before
    });
    let result = way.send(Class::Bulk, VIEW, PORT, sent, &body);
    let control = way.send(Class::Control, VIEW, PORT, sent, b"urgent");
    harness.resume(target.incarnation);
    assert!(full && sent < FAR_TOO_MANY, "{sent} messages were taken for a peer that takes none");
    assert!(matches!(result, Err(Error::Full { .. })), "{result:?}");
    control.expect("control has a queue of its own");
    let emptied = eventually(harness, &*from, |_| way.send(Class::Bulk, VIEW, PORT, sent, &body).is_ok());
    assert!(emptied, "a queue takes messages again within {PATIENCE:?} when its peer does");
    pass(harness, &*from, super::scene::SHORT);
    Ok(())
}
