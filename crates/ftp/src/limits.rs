//! What one user may use, over all the user's connections: bytes a second, bytes in the home, connections.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use verbena_terms::{BootClock, Clock, Time};
use verbena_transfer::{FileError, Kind, Room, Root, VirtualPath};

use crate::rights::Login;

/// How far the bytes of a rate may come ahead of their time.
const BURST: Duration = Duration::from_millis(250);
/// The deepest directory that is counted.
const DEEPEST: usize = 256;

/// A rate, as a machine without a clock: until when the bytes that passed have used it up.
#[derive(Debug)]
struct Rate {
    per_second: u64,
    used_until: Time,
}

impl Rate {
    /// How long to wait after so many bytes.
    fn take(&mut self, bytes: u64, now: Time) -> Duration {
        let from = self.used_until.max(Time::from_nanos(now.nanos().saturating_sub(BURST.as_nanos() as u64)));
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.per_second.max(1));
        self.used_until = from + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX / 4));
        Duration::from_nanos(self.used_until.nanos().saturating_sub(now.nanos()))
    }
}

/// A rate that the connections of one copy share.
#[derive(Clone, Debug)]
pub struct RateLimit(pub(crate) Arc<Limits>);

impl RateLimit {
    /// At most `per_second` bytes a second, and at least one.
    pub fn new(per_second: u64) -> RateLimit {
        let rate = Some(Mutex::new(Rate { per_second: per_second.max(1), used_until: BootClock.now() }));
        RateLimit(Arc::new(Limits { rate, quota: None, sessions: AtomicUsize::new(0), most_sessions: usize::MAX }))
    }
}

/// The limits of one user, shared by the user's sessions.
#[derive(Debug)]
pub(crate) struct Limits {
    rate: Option<Mutex<Rate>>,
    quota: Option<Quota>,
    sessions: AtomicUsize,
    most_sessions: usize,
}

/// Bytes in the home: counted when they are first needed, and followed from then on.
#[derive(Debug)]
struct Quota {
    most: u64,
    used: Mutex<Option<u64>>,
    root: Arc<Root>,
}

impl Quota {
    /// Changes the bytes that are used, if `change` says how.
    fn change(&self, change: impl FnOnce(u64) -> Option<u64>) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = change(used.unwrap_or_else(|| counted(&self.root)));
        if changed.is_some() {
            *used = changed;
        }
        changed.is_some()
    }
}

impl Limits {
    fn new(login: &Login, root: &Arc<Root>) -> Limits {
        let rate = login.rate.map(|per_second| Mutex::new(Rate { per_second, used_until: BootClock.now() }));
        let quota = login.quota.map(|most| Quota { most, used: Mutex::default(), root: root.clone() });
        let most_sessions = login.connections.unwrap_or(usize::MAX);
        Limits { rate, quota, sessions: AtomicUsize::new(0), most_sessions }
    }

    fn fits(&self, login: &Login) -> bool {
        let rate = self.rate.as_ref().map(|rate| rate.lock().unwrap_or_else(PoisonError::into_inner).per_second);
        rate == login.rate
            && self.quota.as_ref().map(|quota| quota.most) == login.quota
            && self.most_sessions == login.connections.unwrap_or(usize::MAX)
    }

    /// Bytes to move at once, so that a slow rate moves often.
    pub(crate) fn block(&self, most: usize) -> usize {
        let Some(rate) = &self.rate else { return most };
        let tenth = rate.lock().unwrap_or_else(PoisonError::into_inner).per_second / 10;
        usize::try_from(tenth).unwrap_or(most).clamp(1 << 10, most.max(1 << 10))
    }

    /// Waits until the rate allows the bytes that have passed.
    pub(crate) fn passed(&self, bytes: u64) {
        if let Some(rate) = &self.rate {
            let wait = rate.lock().unwrap_or_else(PoisonError::into_inner).take(bytes, BootClock.now());
            std::thread::sleep(wait);
        }
    }

    /// Whether there is a quota: others need not be counted.
    pub(crate) fn has_quota(&self) -> bool {
        self.quota.is_some()
    }

    /// Follows what came of something: so many bytes more, or less.
    pub(crate) fn changed(&self, before: u64, after: u64) {
        if let Some(quota) = &self.quota {
            let mut used = quota.used.lock().unwrap_or_else(PoisonError::into_inner);
            // What is not counted yet is counted as it stands then.
            *used = used.map(|used| used.saturating_add(after).saturating_sub(before));
        }
    }

    /// Counts the home anew when it is next needed: after a session of many files, which does not say what it replaced.
    pub(crate) fn forget(&self) {
        if let Some(quota) = &self.quota {
            *quota.used.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

impl Room for Limits {
    fn take(&self, bytes: u64) -> bool {
        let Some(quota) = &self.quota else { return true };
        quota.change(|used| used.checked_add(bytes).filter(|used| *used <= quota.most))
    }
}

/// A session of a user; dropped, it is counted out.
#[derive(Debug)]
pub(crate) struct Seat(pub Arc<Limits>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The limits of users that are here.
#[derive(Debug, Default)]
pub(crate) struct AllLimits(Mutex<HashMap<Vec<u8>, Weak<Limits>>>);

impl AllLimits {
    /// Counts a session in. `None`: the user has as many as may be.
    pub(crate) fn enter(&self, user: &[u8], login: &Login, root: &Arc<Root>) -> Option<Seat> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, limits| limits.strong_count() > 0);
        // After a change of the file, sessions of before keep the limits of before.
        let known = all.get(user).and_then(Weak::upgrade).filter(|limits| limits.fits(login));
        let limits = known.unwrap_or_else(|| Arc::new(Limits::new(login, root)));
        all.insert(user.to_vec(), Arc::downgrade(&limits));
        let more = |sessions: usize| (sessions < limits.most_sessions).then(|| sessions + 1);
        limits.sessions.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).ok()?;
        Some(Seat(limits))
    }
}

/// Bytes of a file, 0 if there is none.
pub(crate) fn size(root: &Root, path: &VirtualPath) -> u64 {
    root.facts(path).ok().filter(|facts| facts.kind == Kind::File).map_or(0, |facts| facts.size)
}

/// Bytes of all files below a home. What cannot be read counts for nothing.
fn counted(root: &Root) -> u64 {
    let (mut bytes, mut open) = (0u64, vec![(VirtualPath::root(), 0)]);
    while let Some((directory, depth)) = open.pop() {
        for (name, facts) in root.entries(&directory).into_iter().flatten().filter_map(Result::ok) {
            match (facts.kind, directory.descend(&name)) {
                (Kind::File, _) => bytes = bytes.saturating_add(facts.size),
                (Kind::Directory, Some(path)) if depth < DEEPEST => open.push((path, depth + 1)),
                _ => {}
            }
        }
    }
    bytes
}

/// Takes room for bytes that are about to be written.
pub(crate) fn take(limits: &Limits, bytes: u64) -> Result<(), FileError> {
    if limits.take(bytes) { Ok(()) } else { Err(FileError::Quota) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_a_burst_pass_and_then_its_bytes_a_second() {
        let start = Time::from_nanos(10_000_000_000);
        let mut rate = Rate { per_second: 1000, used_until: Time::from_nanos(0) };
        assert_eq!(rate.take(250, start), Duration::ZERO);
        assert_eq!(rate.take(100, start), Duration::from_millis(100));
        assert_eq!(rate.take(100, start + Duration::from_millis(100)), Duration::from_millis(100));
        // Silence is not saved up beyond the burst.
        let later = start + Duration::from_secs(3600);
        assert_eq!(rate.take(1250, later), Duration::from_secs(1));
        assert!(rate.take(u64::MAX, later) > Duration::from_secs(1));
    }
}
