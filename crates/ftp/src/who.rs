//! The sessions that are there, as the server's administrator sees them, and their ends by the administrator.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::session::Running;

/// One session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionFacts {
    /// Its number, which no other session of this server has.
    pub id: u64,
    /// The client's address.
    pub address: IpAddr,
    /// The user, once logged in.
    pub user: Option<String>,
    /// When it began, in seconds since 1970.
    pub since: u64,
    /// Whether the control connection is encrypted.
    pub is_encrypted: bool,
    /// The command whose transfer runs, and its path.
    pub doing: Option<String>,
    /// Bytes that the transfer has moved.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    user: Option<String>,
    is_encrypted: bool,
    doing: Option<(String, Arc<Running>)>,
}

/// What a session tells of itself.
#[derive(Debug)]
pub(crate) struct Visible {
    id: u64,
    address: IpAddr,
    since: u64,
    state: Mutex<State>,
    /// The administrator wants it to end.
    pub(crate) kicked: Notify,
    all: Arc<Sessions>,
}

impl Visible {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn logged_in(&self, user: Option<String>) {
        self.state().user = user;
    }

    pub(crate) fn encrypted(&self) {
        self.state().is_encrypted = true;
    }

    pub(crate) fn doing(&self, what: Option<(String, Arc<Running>)>) {
        self.state().doing = what;
    }

    fn facts(&self) -> SessionFacts {
        let state = self.state();
        SessionFacts {
            id: self.id,
            address: self.address,
            user: state.user.clone(),
            since: self.since,
            is_encrypted: state.is_encrypted,
            doing: state.doing.as_ref().map(|(what, _)| what.clone()),
            bytes: state.doing.as_ref().map_or(0, |(_, running)| running.moved.load(Ordering::Relaxed)),
        }
    }
}

/// A session's place in the list, until it is dropped.
#[derive(Debug)]
pub(crate) struct Listed(pub Arc<Visible>);

impl Drop for Listed {
    fn drop(&mut self) {
        self.0.all.listed().remove(&self.0.id);
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    last: AtomicU64,
    listed: Mutex<BTreeMap<u64, Arc<Visible>>>,
}

impl Sessions {
    fn listed(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Visible>>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Listed {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (state, kicked) = (Mutex::default(), Notify::new());
        let visible = Arc::new(Visible { id, address, since, state, kicked, all: self.clone() });
        self.listed().insert(id, visible.clone());
        Listed(visible)
    }

    pub(crate) fn facts(&self) -> Vec<SessionFacts> {
        self.listed().values().map(|visible| visible.facts()).collect()
    }

    /// Ends a session. False if there is none.
    pub(crate) fn kick(&self, id: u64) -> bool {
        let found = self.listed().get(&id).cloned();
        if let Some(visible) = &found {
            visible.kicked.notify_one();
        }
        found.is_some()
    }
}
