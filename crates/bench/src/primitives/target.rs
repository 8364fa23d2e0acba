//! The target process of `fabric.primitives`: it owns the region, answers messages, and says what processor time it took.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use verbena_fabric::{Address, Error, Inbox, Peer, Port, RegionKey, Rights, Views};
use verbena_terms::{Incarnation, ViewNumber};

use super::NO_SUCH_PLACE;
use super::fabrics::{self, Place};
use crate::child::{Answer, hear, say};

/// The caller of every operation.
pub(super) const CALLER: Incarnation = Incarnation::new(1, 1);
/// Its target.
pub(super) const TARGET: Incarnation = Incarnation::new(2, 1);
/// The only view there is.
pub(super) const VIEW: ViewNumber = ViewNumber(1);
/// Where messages go on either side.
pub(super) const PORT: Port = Port(1);

/// Where the region has the word that fetch-and-add works on.
pub(super) const ADDED_AT: u64 = 0;
/// And the one that compare-and-swap works on, on a cache line of its own.
pub(super) const SWAPPED_AT: u64 = 512;
/// Where reads begin.
pub(super) const READ_AT: u64 = 4096;

/// The byte that stands `at` bytes behind [`READ_AT`].
pub(super) const fn pattern(at: usize) -> u8 {
    (at % 251) as u8
}

/// An order to a target.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Get to know the caller.
    Meet { caller: Address },
    /// Answer messages from now on.
    Begin { answer: Waiting },
    /// Leave off.
    End,
}

/// How a receiver waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Waiting {
    /// By looking again and again.
    Polling,
    /// Asleep, until it is woken.
    Asleep,
}

/// What a target says first.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ready {
    pub(super) address: Address,
    pub(super) key: RegionKey,
}

/// Serves a region at the place of this name, with room for reads and writes of `largest` bytes each,
/// until the starter is done.
pub(super) fn serve(name: &str) -> Result<(), String> {
    let text = |error: Error| error.to_string();
    let place = Place::named(name).ok_or(NO_SUCH_PLACE)?;
    let fabric = fabrics::open(place, TARGET).map_err(text)?;
    fabric.set_view(VIEW);
    let largest = fabric.pool().largest();
    let region = fabric.register(READ_AT + 2 * largest as u64, VIEW).map_err(text)?;
    let bytes: Vec<u8> = (0..largest).map(pattern).collect();
    region.write(READ_AT, &bytes).map_err(text)?;
    let inbox = fabric.listen(PORT, Views::Any).map_err(text)?;
    say(&Answer::Done(Ready { address: fabric.address(), key: region.key(Rights::Change) }))?;

    let Some(Order::Meet { caller }) = hear()? else {
        return Err("the first order was not to meet the caller".to_owned());
    };
    let peer = fabric.connect(CALLER, &caller).map_err(text)?;
    say(&Answer::Done(()))?;
    while let Some(order) = hear::<Order>()? {
        match order {
            Order::Begin { answer } => work(&inbox, &*peer, answer)?,
            other => return Err(format!("{other:?} came where a beginning was expected")),
        }
    }
    Ok(())
}

/// One stretch of work, from `Begin` to `End`.
fn work(inbox: &Inbox, peer: &dyn Peer, waiting: Waiting) -> Result<(), String> {
    let stop = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || answer_messages(inbox, peer, waiting, stop));
        let ended = say(&Answer::Done(())).and_then(|()| hear::<Order>());
        stop.store(true, Ordering::Relaxed);
        answering.join().map_err(|_| "the answering thread panicked".to_owned())??;
        match ended? {
            Some(Order::End) => say(&Answer::Done(())),
            Some(other) => Err(format!("{other:?} came where an end was expected")),
            None => Ok(()),
        }
    })
}

fn answer_messages(inbox: &Inbox, peer: &dyn Peer, waiting: Waiting, stop: &AtomicBool) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        let message = match waiting {
            Waiting::Polling => inbox.try_take(),
            Waiting::Asleep => inbox.take(Duration::from_millis(50)),
        };
        match message {
            Some(message) => {
                let sent = peer.send(message.class, VIEW, PORT, message.number, &message.body);
                sent.map_err(|error| error.to_string())?;
            }
            None => std::hint::spin_loop(),
        }
    }
    Ok(())
}
