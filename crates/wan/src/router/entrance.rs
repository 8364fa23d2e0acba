//! Where packets come into a direction, and where they leave it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::buffers::Buffers;
use super::frame::Frame;
use super::nfqueue::{Held, Nfqueue};
use super::port::Port;
use crate::machine::Packet;

/// Where packets come.
#[derive(Debug)]
pub(super) enum Entrance {
    /// Copies of them, which are sent at the port of the other direction.
    Port(Port),
    /// They stay in the kernel, and go on from there.
    Queue(Nfqueue),
}

/// What the machine keeps of a packet.
#[derive(Clone, Debug)]
pub(super) enum Load {
    /// All of it.
    Frame(Frame),
    /// By which the kernel knows it.
    Held(u32),
}

/// What has come.
pub(super) struct Came {
    pub load: Load,
    pub packet: Packet,
    /// By it the two ends of a link find each other.
    pub is_housekeeping: bool,
    /// In nanoseconds of CLOCK_REALTIME.
    pub stamp: u64,
}

impl Entrance {
    /// The next that has come, if there is one.
    pub fn receive(&mut self, buffers: &mut Buffers) -> Option<Came> {
        match self {
            Entrance::Port(port) => port.receive(buffers).map(|(frame, stamp)| Came {
                packet: frame.packet(),
                is_housekeeping: frame.is_housekeeping(),
                load: Load::Frame(frame),
                stamp,
            }),
            Entrance::Queue(queue) => queue.receive().map(|Held { id, packet, is_housekeeping, stamp }| Came {
                load: Load::Held(id),
                packet,
                is_housekeeping,
                stamp,
            }),
        }
    }

    /// Sends a frame that came at the port of the other direction.
    pub fn send(&self, frame: &Frame) -> io::Result<()> {
        match self {
            Entrance::Port(port) => port.send(frame),
            Entrance::Queue(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Lets go on what is held here.
    pub fn let_go(&self, ids: &[u32]) -> io::Result<()> {
        match self {
            Entrance::Queue(queue) => queue.decide(ids, true),
            Entrance::Port(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// What came here is not to go on.
    pub fn refuse(&self, load: Load, buffers: &mut Buffers) {
        match (self, load) {
            // Of a queue that is gone nothing is held.
            (Entrance::Queue(queue), Load::Held(id)) => drop(queue.decide(&[id], false)),
            (_, load) => load.take_back(buffers),
        }
    }

    /// What came when there was no room, since it was opened.
    pub fn overrun(&mut self) -> u64 {
        match self {
            Entrance::Port(port) => port.overrun(),
            Entrance::Queue(queue) => queue.overrun(),
        }
    }
}

impl Load {
    /// Its buffer is used again.
    pub fn take_back(self, buffers: &mut Buffers) {
        if let Load::Frame(frame) = self {
            buffers.take_back(frame);
        }
    }
}

impl AsFd for Entrance {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Entrance::Port(port) => port.as_fd(),
            Entrance::Queue(queue) => queue.as_fd(),
        }
    }
}
