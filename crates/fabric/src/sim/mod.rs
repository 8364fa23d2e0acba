//! The provider `sim`: many nodes in one process, in virtual time, from a seed.
//!
//! A [`World`] has a queue of what will happen. [`World::step`] lets the next thing happen: a request arrives, one
//! element of a batch is executed, an answer comes back, a deadline passes. Nothing happens between two steps, and
//! which thing is next, when, and whether at all is drawn from the seed. So a run is a plain loop, a run of an hour
//! takes a second, and a seed gives the same run to the byte ([`World::digest`]).
//!
//! The fabric is not kinder than the contract, nor crueller:
//!
//! * An operation takes effect at some moment between its post and its end, or after it: the request travels, waits,
//!   is executed element by element with others acting in between (F1), blocks in two halves, and the answer travels
//!   back.
//! * What ended as [`Unknown`](crate::Error::Unknown) may have been executed, may be executed later, or never (F2). A
//!   request that arrives twice is swallowed by the target's [window](crate::window), which knows nothing of the
//!   simulation.
//! * A plain write to a word that atomics change is a panic (F3): no other provider would notice.
//! * A batch that began before its region was made anew still ends in the old memory (F4).
//! * Messages are lost, repeated and overtaken as by connections that break (F5).
//!
//! [`Faults`] says how much of this happens by itself; pauses, crashes and partitions are the scenario's to order.
//! What the fabric can do is configured too ([`World::with_capabilities`]), because what stands above asks for it.
//!
//! # A scenario
//!
//! A scenario whose nodes are passive needs no loop: [`World::finish`] lets things happen until an operation has ended.
//!
//! ```
//! use std::time::Duration;
//! use verbena_fabric::sim::{Faults, World, check_seeds};
//! use verbena_fabric::{Batch, Class, Error, Operation, Rights, Settled};
//! use verbena_terms::{Incarnation, Time, ViewNumber};
//!
//! check_seeds("a_counter_is_exact", 50, |seed| {
//!     let millisecond = Duration::from_millis(1);
//!     let world = World::new(seed, Faults::swarm(seed, millisecond));
//!     let home = world.node(Incarnation::new(1, 1));
//!     let caller = world.node(Incarnation::new(2, 1));
//!     let region = home.register(64, ViewNumber(1)).unwrap();
//!     let peer = caller.connect(home.identity(), &home.address()).unwrap();
//!     let counter = peer.open(&region.key(Rights::Change), Time::FAR).unwrap();
//!
//!     let soon = || caller.clock().now() + millisecond;
//!     let mut added = 0;
//!     for _ in 0..10 {
//!         let add = Batch::one(Operation::FetchAdd { at: 0, addend: 1 });
//!         match world.finish(counter.post(add, Class::Control, soon())) {
//!             Ok(_) => added += 1,
//!             // Unknown is not an end (F2).
//!             Err(Error::Unknown { first: Some(operation), .. }) => loop {
//!                 match world.finish(counter.settle(operation, Class::Control, soon())) {
//!                     Ok(Settled::Executed(_)) => break added += 1,
//!                     Ok(Settled::Barred) => break,
//!                     Err(_) => world.note(format_args!("{operation} is still unknown")),
//!                 }
//!             },
//!             Err(error) => panic!("{error}"),
//!         }
//!     }
//!     assert_eq!(region.load(0), Ok(added));
//! });
//! ```
//!
//! A seed that fails is printed with its last events and with the command that replays it.
//!
//! # Programs on the nodes
//!
//! A protocol's state machines are driven by the steps: each names the node that something happened to, and the
//! driver of that node looks at its inbox, its pending operations, its timers. A paused or crashed node gets no
//! steps. Time is what the node's own clock says.
//!
//! ```
//! use std::time::Duration;
//! use verbena_fabric::sim::{Faults, Step, World};
//! use verbena_fabric::{Class, Port, Views};
//! use verbena_terms::{Incarnation, Time, ViewNumber};
//!
//! const PORT: Port = Port(1);
//! let world = World::new(1, Faults::none());
//! let (one, two) = (world.node(Incarnation::new(1, 1)), world.node(Incarnation::new(2, 1)));
//! let inboxes = [&one, &two].map(|node| (node.identity(), node.listen(PORT, Views::Any).unwrap()));
//! let to_two = one.connect(two.identity(), &two.address()).unwrap();
//!
//! world.wake_node_at(one.identity(), one.clock().now() + Duration::from_millis(5), 7);
//! let mut heard = 0;
//! while let Some(step) = world.step_before(Time::from_nanos(1_000_000_000)) {
//!     match step {
//!         // A timer of a node's machine: its actions are carried out through its fabric.
//!         Step::Wake { node: Some(_), token: 7 } => {
//!             to_two.send(Class::Control, ViewNumber(1), PORT, 1, b"ping").unwrap();
//!         }
//!         Step::Message { node, .. } => {
//!             let (_, inbox) = inboxes.iter().find(|(owner, _)| *owner == node).unwrap();
//!             heard += usize::from(inbox.try_take().is_some());
//!         }
//!         // Here the driver polls what its node has pending.
//!         Step::Completed { .. } => {}
//!         _ => {}
//!     }
//!     // Here the invariants are checked, after every step.
//! }
//! assert_eq!(heard, 1);
//! ```
//!
//! A driver that draws anything uses [`Dice`] of the seed and walks no hash map; otherwise its seeds do not replay, and
//! [`check_seeds`] says so when one fails.

mod caller;
mod dice;
mod executor;
mod faults;
mod memory;
mod network;
mod node;
mod owner;
mod provider;
mod seeds;
mod slab;
mod state;
mod trace;
mod world;

pub use dice::Dice;
pub use faults::Faults;
pub use network::Outage;
pub use seeds::{MANY_SEEDS, Seed, check_seeds};
pub use state::Step;
pub use trace::Log;
pub use world::{World, capabilities};
