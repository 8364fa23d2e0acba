//! One direction of a link: what comes at one port leaves at the other one.

use std::io;
use std::time::Duration;

use super::buffers::Buffers;
use super::entrance::{Came, Entrance, Load};
use super::nfqueue::Nfqueue;
use super::port::{Frames, Port};
use super::preference::Preference;
use super::stamps::Stamps;
use super::took::Recorder;
use super::{Seen, clocks};
use crate::machine::Machine;
use crate::way::Way;

/// Frames taken from one end, or sent to one, before the others are looked at; and bytes taken: a large frame takes as long as many small ones.
pub(super) const AT_ONCE: usize = 64;
const BYTES_AT_ONCE: u32 = 128 << 10;
/// Frames taken from an end that another one replaces: more than wait there.
const LAST: usize = 32_768;

/// What a direction has.
pub(super) struct Direction {
    pub machine: Machine<Load>,
    pub entrance: Entrance,
    stamps: Stamps,
    /// The interface, if it has a port.
    name: String,
    takes_large: bool,
    overrun_before: u64,
    pub unsent: u64,
    pub took: Recorder,
}

impl Direction {
    /// Its frames come at the interface `name` in the network of this thread.
    pub fn of_port(machine: Machine<Load>, name: String, mtu: u32) -> io::Result<Self> {
        let takes_large = !machine.way().needs_single_packets();
        let frames = if takes_large { Frames::Large } else { Frames::Single { mtu } };
        let entrance = Entrance::Port(Port::open(&name, frames)?);
        Ok(Direction { name, ..Direction::of(machine, entrance, takes_large) })
    }

    /// Its frames come to the queue of the kernel with this number, large ones too.
    pub fn of_queue(machine: Machine<Load>, queue: u16, mtu: u32) -> io::Result<Self> {
        let entrance = Entrance::Queue(Nfqueue::open(queue, mtu)?);
        Ok(Direction::of(machine, entrance, true))
    }

    fn of(machine: Machine<Load>, entrance: Entrance, takes_large: bool) -> Self {
        Direction {
            machine,
            entrance,
            stamps: Stamps::default(),
            name: String::new(),
            takes_large,
            overrun_before: 0,
            unsent: 0,
            took: Recorder::new(),
        }
    }

    /// Takes what has come, or some of it. Says how many frames that were.
    pub fn receive(&mut self, buffers: &mut Buffers, preference: &mut Preference) -> usize {
        let (mut set_back, mut bytes, mut taken) = (None, 0, 0);
        for _ in 0..AT_ONCE {
            if bytes >= BYTES_AT_ONCE {
                break;
            }
            let Some(came) = self.entrance.receive(buffers) else { break };
            let Came { load, packet, is_housekeeping, stamp } = came;
            taken += 1;
            let at = self.stamps.place(stamp, *set_back.get_or_insert_with(clocks));
            bytes += packet.bytes;
            preference.note(packet.bytes);
            let machine = &mut self.machine;
            let kept = if is_housekeeping { machine.pass(at, packet, load) } else { machine.arrive(at, packet, load) };
            if let Err(load) = kept {
                self.entrance.refuse(load, buffers);
            }
        }
        taken
    }

    /// From now on it does this. A port that takes single packets is replaced where it need not any more; the other way it stays: the large frames that it
    /// is sent no more are split where they are sent.
    pub fn change(&mut self, way: Way, buffers: &mut Buffers, preference: &mut Preference) -> io::Result<()> {
        if !way.needs_single_packets() && !self.takes_large {
            // What waits there is on the line already. Frames that come in between are lost, as on one that is plugged elsewhere.
            let mut taken = 0;
            while taken < LAST {
                match self.receive(buffers, preference) {
                    0 => break,
                    more => taken += more,
                }
            }
            let port = Port::open(&self.name, Frames::Large)?;
            self.overrun_before += self.entrance.overrun();
            self.entrance = Entrance::Port(port);
            self.takes_large = true;
        }
        self.machine.change(way);
        Ok(())
    }

    /// No frame is due sooner after it has come.
    pub fn shortest_delay(&self) -> Duration {
        self.machine.way().shortest_delay()
    }

    /// What it has done.
    pub fn seen(&mut self) -> Seen {
        let (queued_packets, queued_bytes) = self.machine.queued();
        Seen {
            counts: *self.machine.counts(),
            overrun: self.overrun_before + self.entrance.overrun(),
            unsent: self.unsent,
            under_way: self.machine.under_way(),
            queued_packets,
            queued_bytes,
            took: Some(self.took.look()),
            unknown: vec![],
        }
    }
}
