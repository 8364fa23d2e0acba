//! The thread that looks after links whose answers have not come yet: takes them when they come, sends again, keeps deadlines.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::epoll::{self, EventData, EventFlags};
use verbena_terms::Time;

use super::link::Link;
use crate::error::{Error, Result};
use crate::rota::Rota;

/// What wakes it, where links have numbers.
const WAKE: u64 = u64::MAX;

pub(super) struct Clerk {
    epoll: OwnedFd,
    rota: Rota<Link>,
    next_number: AtomicU64,
}

impl Clerk {
    /// Starts it.
    pub(super) fn start() -> Result<Arc<Self>> {
        let failed = |error: rustix::io::Errno| Error::system("make a poll", error);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let rota = Rota::new()?;
        epoll::add(&epoll, rota.alarm(), EventData::new_u64(WAKE), EventFlags::IN).map_err(failed)?;
        let clerk = Arc::new(Clerk { epoll, rota, next_number: AtomicU64::new(0) });
        let its = clerk.clone();
        clerk.rota.start("xdp-clerk", move || its.work())?;
        Ok(clerk)
    }

    /// Its links.
    pub(super) fn rota(&self) -> &Rota<Link> {
        &self.rota
    }

    /// A number for a link.
    pub(super) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// A link that may be left to it later.
    pub(super) fn meet(&self, link: &Arc<Link>) -> Result<()> {
        let nothing = EventFlags::ONESHOT;
        epoll::add(&self.epoll, link.socket(), EventData::new_u64(link.number), nothing)
            .map_err(|error| Error::system("poll a socket", error))
    }

    fn work(&self) {
        let mut links: HashMap<u64, Arc<Link>> = HashMap::new();
        let mut events = Vec::with_capacity(64);
        while !self.rota.is_over() {
            links.extend(self.rota.take_left().into_iter().map(|link| (link.number, link)));
            let mut until = Time::FAR;
            links.retain(|_, link| {
                let Some(next) = link.serve() else { return false };
                until = until.min(next);
                let told = EventFlags::IN | EventFlags::ONESHOT;
                // A socket that is being closed is polled no more.
                let _ = epoll::modify(&self.epoll, link.socket(), EventData::new_u64(link.number), told);
                true
            });
            events.clear();
            self.rota.sleep(until, |longest| {
                // Interrupted, it looks around and sleeps again.
                let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(longest));
            });
            if events.iter().any(|event| event.data.u64() == WAKE) {
                self.rota.quiet();
            }
        }
    }
}
