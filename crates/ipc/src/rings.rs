//! The modes `adaptive` and `rcq`: shared rings both ways.
//!
//! They differ in how a client waits. In `adaptive` it spins for as long as that pays (spin.rs) and then sleeps on a
//! futex word in its own memory, from which the helper wakes it. In `rcq` it looks at its ring again and again, as the
//! paper's clients do (DDSS, section 3.3): no system call is ever needed to wake it, and it has its core to itself or
//! takes one from others.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use verbena_terms::{BootClock, Clock};

use crate::beacon::{Beacon, BoardReader};
use crate::bell;
use crate::cores;
use crate::error::{Breach, Error};
use crate::layout::{CLIENT_CORE, CLIENT_SLEEPS, FOR_RESPONSE, FOR_ROOM, Geometry};
use crate::memory::{Mapping, Memory};
use crate::mode::{ClientEnd, HelperEnd, Waited, Want};
use crate::ring::{Consumer, Header, Producer};
use crate::spin::{self, GLANCE, Spin, Spun};
use crate::wires::{ClientWires, HelperWires};

/// How a client of shared rings waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It looks.
    Polls,
    /// It looks for a while, and then sleeps.
    Sleeps,
}

struct Helper {
    wires: HelperWires,
    requests: Consumer,
    responses: Producer,
    /// What this batch did that the client may sleep for.
    did: u64,
    waiting: Waiting,
}

pub(crate) fn open(
    waiting: Waiting,
    beacon: &Beacon,
    geometry: Geometry,
) -> Result<(Box<dyn HelperEnd>, Vec<OwnedFd>), Error> {
    let (wires, passed) = HelperWires::new(beacon, geometry, 2)?;
    let (requests, responses) = (Consumer::new(geometry.requests()), Producer::new(geometry.responses()));
    Ok((Box::new(Helper { wires, requests, responses, did: 0, waiting }), passed))
}

impl HelperEnd for Helper {
    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        let request = self.requests.pop(&self.wires.memory, payload)?;
        if request.is_some() {
            self.did |= FOR_ROOM;
        }
        Ok(request)
    }

    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach> {
        let sent = self.responses.push(&self.wires.memory, header, payload)?;
        if sent {
            self.did |= FOR_RESPONSE;
        }
        Ok(sent)
    }

    fn flush(&mut self) -> bool {
        let did = std::mem::take(&mut self.did);
        did != 0 && self.waiting == Waiting::Sleeps && bell::wake_if_announced(&self.wires.memory, CLIENT_SLEEPS, did)
    }

    fn client_core(&self) -> Option<usize> {
        cores::of_word(self.wires.memory.load(CLIENT_CORE, Ordering::Relaxed))
    }

    fn has_request(&self) -> bool {
        self.requests.waiting(&self.wires.memory)
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        self.responses.has_room(&self.wires.memory, bytes)
    }

    fn want_room(&mut self, wanted: bool) {
        self.wires.want_room(wanted);
    }

    fn bell(&self) -> BorrowedFd<'_> {
        self.wires.bell()
    }

    fn hang_up(&mut self, _: bool) {
        bell::wake_if_announced(&self.wires.memory, CLIENT_SLEEPS, FOR_RESPONSE | FOR_ROOM);
    }
}

struct Client {
    wires: ClientWires,
    requests: Producer,
    responses: Consumer,
    waits: Waits,
}

enum Waits {
    Polling,
    /// What spinning is worth: for calls, and for everything else.
    Sleeping([Spin; 2]),
}

pub(crate) fn accept(
    waiting: Waiting,
    geometry: Geometry,
    descriptors: Vec<OwnedFd>,
) -> Result<Box<dyn ClientEnd>, Error> {
    let wires = ClientWires::accept(geometry, 2, descriptors)?;
    let (requests, responses) = (Producer::new(geometry.requests()), Consumer::new(geometry.responses()));
    let waits = match waiting {
        Waiting::Polls => Waits::Polling,
        Waiting::Sleeps => {
            let cores = cores::of_this_process();
            Waits::Sleeping([Spin::new(cores), Spin::new(cores)])
        }
    };
    Ok(Box::new(Client { wires, requests, responses, waits }))
}

impl ClientEnd for Client {
    fn longest(&self) -> usize {
        self.requests.longest()
    }

    fn send(&mut self, header: Header, payload: &[u8]) -> Result<bool, Breach> {
        let sent = self.requests.push(&self.wires.memory, header, payload)?;
        if sent && self.wires.helper_is_asleep() {
            if let Waits::Sleeping(_) = self.waits {
                // Before the bell: that may take this core from us.
                self.wires.say_core();
            }
            self.wires.ring();
        }
        Ok(sent)
    }

    fn receive(&mut self, payload: &mut Vec<u8>) -> Result<Option<Header>, Breach> {
        let response = self.responses.pop(&self.wires.memory, payload)?;
        if response.is_some() {
            self.wires.ring_for_room();
        }
        Ok(response)
    }

    fn board(&self) -> BoardReader {
        self.wires.board()
    }

    fn glance(&mut self, want: Want) -> bool {
        let Client { wires, requests, responses, waits } = self;
        if matches!(waits, Waits::Sleeping(spins) if !spins[usize::from(!want.is_call)].pays()) {
            return false;
        }
        spin::glance(GLANCE, || is_there(&wires.memory, requests, responses, want))
    }

    fn wait(&mut self, want: Want, at_most: Duration) -> Waited {
        let Client { wires, requests, responses, waits } = self;
        let memory = &wires.memory;
        let mut there = || is_there(memory, requests, responses, want);
        let Waits::Sleeping(spins) = waits else {
            return match spin::until(&BootClock, at_most, there, || false) {
                Spun::Came { .. } => Waited::Spun,
                Spun::Over | Spun::Pointless { .. } => Waited::InVain,
            };
        };
        wires.say_core();
        let spin = &mut spins[usize::from(!want.is_call)];
        let in_the_way = || wires.helper_is_on_this_core();
        let allowed = if in_the_way() { Duration::ZERO } else { spin.budget(wires.is_crowded()) };
        let (budget, mut spun) = (allowed.min(at_most), Duration::ZERO);
        if !budget.is_zero() {
            match spin::until(&BootClock, budget, &mut there, in_the_way) {
                Spun::Came { after } => {
                    spin.paid(after);
                    return Waited::Spun;
                }
                Spun::Over => {
                    spun = budget;
                    spin.wasted(spun, allowed);
                }
                Spun::Pointless { after } => spun = after,
            }
        }
        let mut what = 0;
        if want.response {
            what |= FOR_RESPONSE;
        }
        if want.room.is_some() {
            what |= FOR_ROOM;
        }
        let began = BootClock.now();
        let sleep = || memory.sleep(CLIENT_SLEEPS, what, at_most.saturating_sub(spun));
        bell::sleep_unless(memory, CLIENT_SLEEPS, what, &mut there, sleep);
        if !there() {
            return Waited::InVain;
        }
        spin.slept(spun + BootClock.now().since(began), wires.is_crowded());
        Waited::Slept
    }
}

fn is_there(memory: &Mapping, requests: &mut Producer, responses: &Consumer, want: Want) -> bool {
    want.response && responses.waiting(memory) || want.room.is_some_and(|bytes| requests.has_room(memory, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Sharing;
    use crate::message::{ANSWER, REQUEST};

    fn pair() -> (Beacon, Box<dyn HelperEnd>, Box<dyn ClientEnd>) {
        pair_of(Waiting::Sleeps)
    }

    fn pair_of(waiting: Waiting) -> (Beacon, Box<dyn HelperEnd>, Box<dyn ClientEnd>) {
        let beacon = Beacon::new(false).unwrap();
        let geometry = Geometry::new(4096).unwrap();
        let (helper, passed) = open(waiting, &beacon, geometry).unwrap();
        let client = accept(waiting, geometry, passed).unwrap();
        (beacon, helper, client)
    }

    fn rings(helper: &dyn HelperEnd) -> bool {
        let mut count = [0; 8];
        rustix::io::read(helper.bell(), &mut count).is_ok()
    }

    #[test]
    fn the_doorbell_rings_only_while_the_helper_sleeps() {
        let (beacon, mut helper, mut client) = pair();
        let request = Header { kind: REQUEST, number: 1 };
        assert!(client.send(request, b"one").unwrap());
        assert!(!rings(&*helper));
        let mut payload = Vec::new();
        assert!(helper.receive(&mut payload).unwrap().is_some());
        let slept = beacon.sleep_unless(|| false, || assert!(client.send(request, b"two").unwrap()));
        assert!(slept && rings(&*helper));
        assert!(!beacon.sleep_unless(|| helper.has_request(), || panic!("a request is there")));
    }

    #[test]
    fn what_is_on_the_board_is_read_by_all_and_outlives_the_helper() {
        let (beacon, helper, client) = pair();
        let (_, passed) = open(Waiting::Polls, &beacon, Geometry::new(4096).unwrap()).unwrap();
        let other = accept(Waiting::Polls, Geometry::new(4096).unwrap(), passed).unwrap();
        beacon.publish(7, u64::MAX);
        let (mine, theirs) = (client.board(), other.board());
        assert_eq!([mine.read(7), theirs.read(7), mine.read(6)], [u64::MAX, u64::MAX, 0]);
        drop((beacon, helper, client));
        assert_eq!(mine.read(7), u64::MAX);
    }

    #[test]
    fn room_rings_only_if_it_is_wanted() {
        let (beacon, mut helper, mut client) = pair();
        let answer = Header { kind: ANSWER, number: 1 };
        let mut sent = 0;
        while helper.send(answer, &[7; 1000]).unwrap() {
            sent += 1;
        }
        assert_eq!(sent, 3);
        let mut payload = Vec::new();
        beacon.sleep_unless(|| false, || assert!(client.receive(&mut payload).unwrap().is_some()));
        assert!(!rings(&*helper));
        assert!(helper.send(answer, &[7; 1000]).unwrap() && !helper.has_room(1000));
        helper.want_room(true);
        beacon.sleep_unless(|| helper.has_room(1000), || assert!(client.receive(&mut payload).unwrap().is_some()));
        assert!(rings(&*helper) && helper.has_room(1000));
    }

    #[test]
    fn a_wait_ends_when_the_time_is_over() {
        for (waiting, room) in [(Waiting::Sleeps, Waited::Slept), (Waiting::Polls, Waited::Spun)] {
            let (_beacon, _helper, mut client) = pair_of(waiting);
            let want = Want { response: true, ..Want::default() };
            assert_eq!(client.wait(want, Duration::from_millis(5)), Waited::InVain);
            assert_eq!(client.wait(Want { room: Some(1024), ..Want::default() }, Duration::ZERO), room);
        }
    }

    /// It would keep the helper from answering.
    #[test]
    fn nobody_spins_on_the_core_of_the_helper() {
        let spins = std::thread::available_parallelism().unwrap().get() > 1;
        let here_and_elsewhere = [(0, Waited::Slept), (1, if spins { Waited::Spun } else { Waited::Slept })];
        let pairs = [pair(), pair()];
        let on_one_core = move || {
            verbena_terms::stay_on(cores::current()).unwrap();
            for ((beacon, mut helper, mut client), (further, waited)) in pairs.into_iter().zip(here_and_elsewhere) {
                beacon.say_core(cores::current() + further);
                assert!(helper.send(Header { kind: ANSWER, number: 1 }, b"").unwrap());
                let want = Want { response: true, ..Want::default() };
                assert_eq!(client.wait(want, Duration::from_secs(10)), waited);
            }
        };
        std::thread::spawn(on_one_core).join().unwrap();
    }

    /// What it announces by mistake, or out of malice, costs the helper no system call.
    #[test]
    fn who_polls_is_never_woken() {
        for (waiting, woken) in [(Waiting::Sleeps, true), (Waiting::Polls, false)] {
            let (beacon, geometry) = (Beacon::new(false).unwrap(), Geometry::new(4096).unwrap());
            let (mut helper, passed) = open(waiting, &beacon, geometry).unwrap();
            let theirs = Mapping::accept(&passed[0], geometry.bytes_with(2), Sharing::Both).unwrap();
            theirs.store(CLIENT_SLEEPS, FOR_RESPONSE, Ordering::Relaxed);
            assert!(helper.send(Header { kind: ANSWER, number: 1 }, b"").unwrap());
            assert_eq!(helper.flush(), woken);
        }
    }

    #[test]
    fn fewer_descriptors_than_three_are_refused() {
        let geometry = Geometry::new(4096).unwrap();
        assert!(matches!(accept(Waiting::Sleeps, geometry, Vec::new()), Err(Error::Greeting { descriptors: 0, .. })));
    }
}
