//! A relay of datagrams between two nodes, which can lose, hold, double and mix up what it carries.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

/// What happens to datagrams in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Pass,
    Lose,
    Hold,
    Double,
    /// Of a hundred two are lost, and some overtake others.
    Rough,
}

/// One relay to one target, for one caller.
pub struct Datagrams {
    ways: [Arc<Way>; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

struct Way {
    fate: Mutex<Fate>,
    /// Told to both directions by the one that hears of it.
    caller: Arc<Mutex<Option<SocketAddr>>>,
    carried: AtomicU64,
}

/// How often a thread looks whether it is to stop, or whether what is held may go on.
const LOOK: Duration = Duration::from_millis(2);

impl Datagrams {
    /// From `here`, which is bound, to a target.
    pub fn to(here: UdpSocket, target: SocketAddr, fate: Fate) -> Self {
        let there = UdpSocket::bind(SocketAddr::new(here.local_addr().unwrap().ip(), 0)).unwrap();
        there.connect(target).unwrap();
        let caller = Arc::new(Mutex::new(None));
        let way = || Arc::new(Way { fate: Mutex::new(fate), caller: caller.clone(), carried: AtomicU64::new(0) });
        let (ways, stop) = ([way(), way()], Arc::new(AtomicBool::new(false)));
        let sockets = [(here.try_clone().unwrap(), there.try_clone().unwrap()), (there, here)];
        let carry = |((from, to), way): ((UdpSocket, UdpSocket), &Arc<Way>)| {
            let (way, stop) = (way.clone(), stop.clone());
            from.set_read_timeout(Some(LOOK)).unwrap();
            std::thread::spawn(move || way.carry(&from, &to, &stop))
        };
        let threads = sockets.into_iter().zip(&ways).map(carry).collect();
        Datagrams { ways, stop, threads }
    }

    /// From the caller to the target.
    pub fn up(&self, fate: Fate) {
        *self.ways[0].fate.lock() = fate;
    }

    /// From the target to the caller.
    pub fn down(&self, fate: Fate) {
        *self.ways[1].fate.lock() = fate;
    }

    /// Datagrams that came.
    pub fn carried(&self) -> u64 {
        self.ways.iter().map(|way| way.carried.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

impl Way {
    fn carry(&self, from: &UdpSocket, to: &UdpSocket, stop: &AtomicBool) {
        let mut held: VecDeque<Vec<u8>> = VecDeque::new();
        let mut buffer = [0; 2048];
        let mut dice = 1u64;
        let is_up = to.peer_addr().is_ok();
        let pass = |bytes: &[u8]| {
            // Nobody may listen there any more.
            let _ = match (is_up, *self.caller.lock()) {
                (true, _) => to.send(bytes),
                (false, Some(caller)) => to.send_to(bytes, caller),
                (false, None) => Ok(0),
            };
        };
        while !stop.load(Ordering::SeqCst) {
            let came = from.recv_from(&mut buffer);
            let fate = *self.fate.lock();
            if fate != Fate::Hold && fate != Fate::Rough {
                held.drain(..).for_each(|bytes| pass(&bytes));
            }
            let Ok((bytes, sender)) = came else {
                // What was put aside to be overtaken does not wait for ever.
                if fate == Fate::Rough {
                    held.drain(..).for_each(|bytes| pass(&bytes));
                }
                continue;
            };
            self.carried.fetch_add(1, Ordering::Relaxed);
            if is_up {
                *self.caller.lock() = Some(sender);
            }
            let bytes = &buffer[..bytes];
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match (fate, (dice >> 33) % 100) {
                (Fate::Pass, _) => pass(bytes),
                (Fate::Double, _) => (0..2).for_each(|_| pass(bytes)),
                (Fate::Lose, _) | (Fate::Rough, 0..2) => {}
                (Fate::Hold, _) | (Fate::Rough, 2..12) => held.push_back(bytes.to_vec()),
                (Fate::Rough, _) => {
                    pass(bytes);
                    held.drain(..).for_each(|bytes| pass(&bytes));
                }
            }
        }
    }
}
