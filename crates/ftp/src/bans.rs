//! Addresses that failed to log in too often, as a machine without a clock.
//!
//! An address is banned for a time once so many logins failed within as long. An IPv6 client has a whole /64 to come from,
//! so these count as one address. A login that succeeds forgets what failed before.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use verbena_terms::Time;

/// Addresses that are kept: those that failed longest ago are forgotten first.
const MOST: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct Failed {
    count: u32,
    first: Time,
    banned: Option<Time>,
}

/// Failed logins by address.
#[derive(Debug)]
pub(crate) struct Bans {
    /// Failures that ban; 0 never does.
    after: u32,
    lasts: Duration,
    failed: HashMap<IpAddr, Failed>,
}

/// What counts as one address.
fn origin(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !u128::from(u64::MAX)).into(),
    }
}

impl Bans {
    pub(crate) fn new(after: u32, lasts: Duration) -> Bans {
        Bans { after, lasts, failed: HashMap::new() }
    }

    /// Whether the address is banned now.
    pub(crate) fn is_banned(&self, peer: IpAddr, now: Time) -> bool {
        self.failed.get(&origin(peer)).and_then(|failed| failed.banned).is_some_and(|until| now < until)
    }

    /// How many addresses are banned now.
    pub(crate) fn banned(&self, now: Time) -> usize {
        self.failed.values().filter(|failed| failed.banned.is_some_and(|until| now < until)).count()
    }

    /// A login failed. True if the address is banned by it.
    pub(crate) fn failed(&mut self, peer: IpAddr, now: Time) -> bool {
        if self.after == 0 {
            return false;
        }
        let (origin, lasts) = (origin(peer), self.lasts);
        if self.failed.len() >= MOST && !self.failed.contains_key(&origin) {
            self.forget(now);
        }
        let fresh = Failed { count: 0, first: now, banned: None };
        let failed = self.failed.entry(origin).or_insert(fresh);
        let is_over = match failed.banned {
            Some(until) => until <= now,
            None => failed.first + lasts <= now,
        };
        if is_over {
            *failed = fresh;
        }
        failed.count += 1;
        let is_banned = failed.count >= self.after && failed.banned.is_none();
        if is_banned {
            failed.banned = Some(now + lasts);
        }
        is_banned
    }

    /// A login succeeded.
    pub(crate) fn succeeded(&mut self, peer: IpAddr) {
        let origin = origin(peer);
        if self.failed.get(&origin).is_some_and(|failed| failed.banned.is_none()) {
            self.failed.remove(&origin);
        }
    }

    fn forget(&mut self, now: Time) {
        let lasts = self.lasts;
        self.failed.retain(|_, failed| failed.banned.unwrap_or(failed.first + lasts) > now);
        if self.failed.len() >= MOST
            && let Some(oldest) = self.failed.iter().min_by_key(|(_, failed)| failed.first).map(|(peer, _)| *peer)
        {
            self.failed.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_address_is_banned_for_a_time_and_a_success_forgets() {
        let mut bans = Bans::new(3, Duration::from_secs(60));
        let (one, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        assert_eq!([0, 1, 2, 3].map(|now| bans.failed(one, at(now))), [false, false, true, false]);
        assert!(bans.is_banned(one, at(61)) && !bans.is_banned(one, at(62)) && !bans.is_banned(other, at(5)));
        assert_eq!((bans.banned(at(5)), bans.banned(at(62))), (1, 0));
        // Failures that are further apart, and a success between them.
        assert_eq!([0, 59, 60, 61].map(|now| bans.failed(other, at(now))), [false; 4]);
        bans.succeeded(other);
        assert_eq!([62, 63].map(|now| bans.failed(other, at(now))), [false; 2]);
        // A ban that is over begins anew.
        assert_eq!([70, 71, 72].map(|now| bans.failed(one, at(now))), [false, false, true]);
        assert!(!Bans::new(0, Duration::from_secs(60)).failed(one, at(0)));
    }

    #[test]
    fn a_network_is_one_address_and_memory_is_bounded() {
        let mut bans = Bans::new(2, Duration::from_secs(60));
        let of = |high: u64, low: u64| IpAddr::V6(Ipv6Addr::from((u128::from(high) << 64) | u128::from(low)));
        bans.failed(of(1, 1), at(0));
        assert!(bans.failed(of(1, 2), at(0)) && bans.is_banned(of(1, 3), at(1)) && !bans.is_banned(of(2, 1), at(1)));
        for high in 0..3 * MOST as u64 {
            bans.failed(of(high + 10, 0), at(1));
        }
        assert!(bans.failed.len() <= MOST);
    }
}
