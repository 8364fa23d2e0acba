//! Where a mode of ipc plugs in.
//!
//! A mode is a way for requests to reach the helper and for responses to come back. Everything else is common to all:
//! the socket, who may connect, how the death of either side is seen, request numbers, answers given later. A client
//! names its mode in its greeting; [`open`] makes the helper's end and the descriptors to pass, [`accept`] the client's
//! end out of them. The helper serves clients of all modes from one thread: an end that has something for it, while
//! it sleeps, makes the [`bell`](HelperEnd::bell) readable.

use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::beacon::{Beacon, BoardReader};
use crate::error::{Breach, Error};
use crate::layout::Geometry;
use crate::queues::{self, Requests};
use crate::record::Queues;
use crate::ring::Header;
use crate::rings::{self, Waiting};

/// How a client and the helper talk (DDSS, sections 3.1 to 3.3, and one of our own).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Mode {
    /// System V message queues both ways: MQ-DDSS. A client that waits sleeps.
    Mq,
    /// A shared ring for requests, a System V message queue for responses: RMQ-DDSS. A client that waits sleeps.
    Rmq,
    /// Shared rings both ways, polled: RCQ-DDSS. A client that waits has a core, or takes one from others.
    Rcq,
    /// Shared rings both ways: spin briefly, then sleep on a futex.
    #[default]
    Adaptive,
}

impl Mode {
    /// All there are.
    pub const ALL: [Mode; 4] = [Mode::Mq, Mode::Rmq, Mode::Rcq, Mode::Adaptive];

    /// What it is called: `mq`, `rmq`, `rcq`, `adaptive`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Mq => "mq",
            Mode::Rmq => "rmq",
            Mode::Rcq => "rcq",
            Mode::Adaptive => "adaptive",
        }
    }

    pub(crate) fn number(self) -> u32 {
        match self {
            Mode::Adaptive => 1,
            Mode::Rcq => 2,
            Mode::Mq => 3,
            Mode::Rmq => 4,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Mode::ALL.into_iter().find(|mode| mode.number() == number)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| Error::Mode { name: name.to_owned() })
    }
}

/// The helper's end of one client. Nothing here blocks. After a [`Breach`] the end is not used any more.
pub(crate) trait HelperEnd: Send {
    /// Takes the next request, its bytes into `payload`.
    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach>;
    /// Sends a response, or says that there is no room now. The payload is within the limit.
    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach>;
    /// After some `receive` and `send`: wakes the client if it waits for what they did. Whether it woke it.
    fn flush(&mut self) -> bool;
    /// The core that the client was on when it last waited or rang. Only clients of `adaptive` say it.
    fn client_core(&self) -> Option<usize> {
        None
    }
    /// Whether a request is there.
    fn has_request(&self) -> bool;
    /// Whether a response of that many bytes would find room now.
    fn has_room(&mut self, bytes: usize) -> bool;
    /// From now on the client is to ring when it makes room among the responses, or no longer.
    fn want_room(&mut self, wanted: bool);
    /// What becomes readable when the client has something while the helper sleeps.
    fn bell(&self) -> BorrowedFd<'_>;
    /// Wakes the client for the last time, so that it looks at the socket. Whether it keeps the responses that it has not taken yet.
    fn hang_up(&mut self, keeps: bool);
}

/// What a client waits for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Want {
    pub(crate) response: bool,
    /// Room for a request of that many bytes.
    pub(crate) room: Option<usize>,
    /// The answer to a call, rather than any of those that may take their time: what spinning is worth is learnt apart for both.
    pub(crate) is_call: bool,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Spun,
    Slept,
    /// It slept, and what was wanted is not there.
    InVain,
}

/// The client's end.
pub(crate) trait ClientEnd: Send {
    /// Longest request, bytes.
    fn longest(&self) -> usize;
    /// Sends a request within the limit, or says that there is no room now.
    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach>;
    /// What was sent in part is not sent on.
    fn give_up(&mut self) {}
    /// Takes the next response, its bytes into `payload`.
    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach>;
    /// The helper's board.
    fn board(&self) -> BoardReader;
    /// Looks for what is wanted for a moment, without looking at the clock, where spinning pays. Whether it is there.
    fn glance(&mut self, want: Want) -> bool;
    /// Waits for what is wanted, that long or shorter.
    fn wait(&mut self, want: Want, at_most: Duration) -> Waited;
    /// The helper is gone: what it left for this client to remove is removed.
    fn hang_up(&mut self) {}
}

/// What all clients of one helper share.
pub(crate) struct Common {
    pub(crate) beacon: Beacon,
    pub(crate) queues: Arc<Queues>,
}

/// The helper's end of a new client, a process of `user`, and what to pass to it.
pub(crate) fn open(
    mode: Mode,
    common: &Common,
    user: u32,
    geometry: Geometry,
) -> Result<(Box<dyn HelperEnd>, Vec<OwnedFd>), Error> {
    let Common { beacon, queues } = common;
    match mode {
        Mode::Adaptive => rings::open(Waiting::Sleeps, beacon, geometry),
        Mode::Rcq => rings::open(Waiting::Polls, beacon, geometry),
        Mode::Mq => queues::open(Requests::Queue, beacon, queues, user, geometry),
        Mode::Rmq => queues::open(Requests::Ring, beacon, queues, user, geometry),
    }
}

/// The client's end, from what the helper passed.
pub(crate) fn accept(mode: Mode, geometry: Geometry, descriptors: Vec<OwnedFd>) -> Result<Box<dyn ClientEnd>, Error> {
    match mode {
        Mode::Adaptive => rings::accept(Waiting::Sleeps, geometry, descriptors),
        Mode::Rcq => rings::accept(Waiting::Polls, geometry, descriptors),
        Mode::Mq => queues::accept(Requests::Queue, geometry, descriptors),
        Mode::Rmq => queues::accept(Requests::Ring, geometry, descriptors),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_known_by_its_name_and_its_number() {
        for mode in Mode::ALL {
            assert_eq!(mode.name().parse::<Mode>().unwrap(), mode);
            assert_eq!(Mode::from_number(mode.number()), Some(mode));
        }
        let unknown = "turbo".parse::<Mode>().unwrap_err().to_string();
        assert!(unknown.contains("turbo") && unknown.contains("rcq"), "{unknown}");
    }
}
