//! Where a mode of ipc plugs in.
//!
//! A mode is a way for requests to reach the helper and for responses to come back. Everything else is common to all:
//! the socket, who may connect, how the death of either side is seen, request numbers, answers given later. A client
//! names its mode in its greeting; [`open`] makes the helper's end and the descriptors to pass, [`accept`] the client's
//! end out of them. The helper serves clients of all modes from one thread: an end that has something for it, while
//! it sleeps, makes the [`bell`](HelperEnd::bell) readable.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::adaptive::{self, BoardReader};
use crate::error::{Breach, Error};
use crate::layout::Geometry;
use crate::ring::Header;

/// How a client and the helper talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Shared rings both ways: spin briefly, then sleep on a futex.
    #[default]
    Adaptive,
}

impl Mode {
    pub(crate) fn number(self) -> u32 {
        match self {
            Mode::Adaptive => 1,
        }
    }

    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [Mode::Adaptive].into_iter().find(|mode| mode.number() == number)
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
    /// Whether a request is there.
    fn has_request(&self) -> bool;
    /// Whether a response of that many bytes would find room now.
    fn has_room(&mut self, bytes: usize) -> bool;
    /// From now on the client is to ring when it makes room among the responses, or no longer.
    fn want_room(&mut self, wanted: bool);
    /// What becomes readable when the client has something while the helper sleeps.
    fn bell(&self) -> BorrowedFd<'_>;
    /// Wakes the client for the last time, so that it looks at the socket.
    fn hang_up(&mut self);
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
    /// Takes the next response, its bytes into `payload`.
    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach>;
    /// The helper's board.
    fn board(&self) -> BoardReader;
    /// Waits for what is wanted, that long or shorter.
    fn wait(&mut self, want: Want, at_most: Duration) -> Waited;
}

/// What all clients of one helper share.
pub(crate) struct Common {
    pub(crate) adaptive: adaptive::Beacon,
}

/// The helper's end of a new client, and what to pass to it.
pub(crate) fn open(
    mode: Mode,
    common: &Common,
    geometry: Geometry,
) -> Result<(Box<dyn HelperEnd>, Vec<OwnedFd>), Error> {
    match mode {
        Mode::Adaptive => adaptive::open(&common.adaptive, geometry),
    }
}

/// The client's end, from what the helper passed.
pub(crate) fn accept(mode: Mode, geometry: Geometry, descriptors: Vec<OwnedFd>) -> Result<Box<dyn ClientEnd>, Error> {
    match mode {
        Mode::Adaptive => adaptive::accept(geometry, descriptors),
    }
}
