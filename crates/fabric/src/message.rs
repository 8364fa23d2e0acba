//! Messages between nodes, and the inboxes that they arrive in (F5).
//!
//! A message may be lost, and after a reconnection repeated; within a class and a connection they keep their order, between
//! classes, and against one-sided operations, they have none. Services number what must be exact. Where adapters carry messages there is a connection for
//! those that fit ([`Capabilities::largest_by_adapter`](crate::Capabilities::largest_by_adapter)) and one for the others.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use verbena_terms::{Incarnation, ViewNumber};

/// The two service classes. They travel on channels of their own: what is small and urgent never waits behind a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Class {
    /// Words, locks, membership.
    Control = 0,
    /// Pages, files, anything that fills a channel.
    Bulk = 1,
}

impl Class {
    /// Both.
    pub const ALL: [Class; 2] = [Class::Control, Class::Bulk];
}

/// Which service of a node a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Port(pub u16);

/// What a node sent to a port of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender: as the transport knows, not as the message says.
    pub from: Incarnation,
    /// The view in which it was sent.
    pub view: ViewNumber,
    /// The sender's number for it.
    pub number: u64,
    /// The class it came by.
    pub class: Class,
    /// For which service.
    pub port: Port,
    /// What it says.
    pub body: Vec<u8>,
}

/// Which views' messages a port takes; the others are dropped and counted (F5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Views {
    /// The view that the node is in.
    Current,
    /// The view that the node is in, and later ones that it has yet to acknowledge (the exception of P5).
    CurrentAndLater,
    /// All: membership itself.
    Any,
}

/// Where a port's messages wait, in order of arrival. One reader.
#[derive(Debug)]
pub struct Inbox(Arc<Queue>);

impl Inbox {
    /// The oldest message, if there is one.
    pub fn try_take(&self) -> Option<Message> {
        self.0.state.lock().messages.pop_front()
    }

    /// The oldest message; waits for one at most `patience`. Not for a simulated fabric.
    pub fn take(&self, patience: Duration) -> Option<Message> {
        let mut state = self.0.state.lock();
        if state.messages.is_empty() {
            self.0.arrived.wait_while_for(&mut state, |state| state.messages.is_empty(), patience);
        }
        state.messages.pop_front()
    }

    /// The oldest message, awaited.
    pub async fn next(&mut self) -> Message {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    /// The oldest message, or else the task is woken when there is one.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Message> {
        let mut state = self.0.state.lock();
        match state.messages.pop_front() {
            Some(message) => Poll::Ready(message),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// How many messages were dropped because those before them were not taken.
    pub fn overflowed(&self) -> u64 {
        self.0.overflowed.load(Ordering::Relaxed)
    }
}

/// The provider's side of a node's inboxes: sorts what arrives by port and view. Cheap to clone.
#[derive(Clone, Debug)]
pub struct InboxSender(Arc<Board>);

#[derive(Debug)]
struct Board {
    view: AtomicU32,
    limit: usize,
    ports: Mutex<HashMap<Port, (Views, Weak<Queue>)>>,
    other_view: AtomicU64,
    nobody: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    state: Mutex<QueueState>,
    arrived: Condvar,
    overflowed: AtomicU64,
}

#[derive(Debug, Default)]
struct QueueState {
    messages: VecDeque<Message>,
    waker: Option<Waker>,
}

impl InboxSender {
    /// Inboxes that hold at most `limit` messages each.
    pub fn new(limit: usize) -> Self {
        InboxSender(Arc::new(Board {
            view: AtomicU32::new(0),
            limit,
            ports: Mutex::default(),
            other_view: AtomicU64::new(0),
            nobody: AtomicU64::new(0),
        }))
    }

    /// The view that the node is in from now on.
    pub fn set_view(&self, view: ViewNumber) {
        self.0.view.store(view.0, Ordering::SeqCst);
    }

    /// The view that the node is in.
    pub fn view(&self) -> ViewNumber {
        ViewNumber(self.0.view.load(Ordering::SeqCst))
    }

    /// Opens a port. `None` if it is open.
    pub fn open(&self, port: Port, views: Views) -> Option<Inbox> {
        let mut ports = self.0.ports.lock();
        if ports.get(&port).is_some_and(|(_, queue)| queue.strong_count() > 0) {
            return None;
        }
        let queue = Arc::new(Queue { state: Mutex::default(), arrived: Condvar::new(), overflowed: AtomicU64::new(0) });
        ports.insert(port, (views, Arc::downgrade(&queue)));
        Some(Inbox(queue))
    }

    /// Puts a message where it belongs, or drops it: another view, a closed port, a full inbox.
    pub fn deliver(&self, message: Message) {
        let open = self.0.ports.lock().get(&message.port).and_then(|(views, queue)| Some((*views, queue.upgrade()?)));
        let Some((views, queue)) = open else {
            self.0.nobody.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let taken = match views {
            Views::Any => true,
            Views::Current => message.view == self.view(),
            Views::CurrentAndLater => message.view >= self.view(),
        };
        if !taken {
            self.0.other_view.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut state = queue.state.lock();
        if state.messages.len() >= self.0.limit {
            queue.overflowed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.messages.push_back(message);
        let waker = state.waker.take();
        drop(state);
        queue.arrived.notify_one();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// How many messages were dropped because they belong to another view.
    pub fn dropped_other_view(&self) -> u64 {
        self.0.other_view.load(Ordering::Relaxed)
    }

    /// How many messages were dropped because their port is not open.
    pub fn dropped_nobody(&self) -> u64 {
        self.0.nobody.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(view: u32, port: u16, number: u64) -> Message {
        Message {
            from: Incarnation::new(1, 1),
            view: ViewNumber(view),
            number,
            class: Class::Control,
            port: Port(port),
            body: vec![],
        }
    }

    #[test]
    fn views_are_kept_apart() {
        let board = InboxSender::new(8);
        board.set_view(ViewNumber(5));
        let current = board.open(Port(1), Views::Current).unwrap();
        let later = board.open(Port(2), Views::CurrentAndLater).unwrap();
        let any = board.open(Port(3), Views::Any).unwrap();
        for port in 1..=4 {
            for view in 4..=6 {
                board.deliver(message(view, port, u64::from(view)));
            }
        }
        let taken = |inbox: &Inbox| std::iter::from_fn(|| inbox.try_take()).map(|m| m.number).collect::<Vec<_>>();
        assert_eq!(taken(&current), [5]);
        assert_eq!(taken(&later), [5, 6]);
        assert_eq!(taken(&any), [4, 5, 6]);
        assert_eq!((board.dropped_other_view(), board.dropped_nobody()), (3, 3));
    }

    #[test]
    fn an_inbox_is_bounded_and_a_port_has_one_reader() {
        let board = InboxSender::new(2);
        let inbox = board.open(Port(1), Views::Any).unwrap();
        assert!(board.open(Port(1), Views::Any).is_none());
        for number in 0..5 {
            board.deliver(message(0, 1, number));
        }
        assert_eq!(inbox.overflowed(), 3);
        assert_eq!(inbox.take(Duration::ZERO).map(|m| m.number), Some(0));
        drop(inbox);
        assert!(board.open(Port(1), Views::Any).is_some());
    }
}
