//! The search path of a session, through transactions that are rolled back.

use crate::search::{Path, path};

/// What is known of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// That with which sessions of its user begin.
    Usual,
    To(Path),
    Unknown,
}

/// The path of one session.
#[derive(Debug)]
pub(super) struct SearchPath {
    /// That of the login.
    login: Set,
    now: Set,
    /// What holds after the end of the transaction, if it was changed in that: committed, rolled back.
    after: Option<(Set, Set)>,
}

impl SearchPath {
    pub fn new(login: Set) -> SearchPath {
        SearchPath { now: login.clone(), login, after: None }
    }

    pub fn now(&self) -> &Set {
        &self.now
    }

    /// A statement has set it.
    pub fn set(&mut self, value: &[u8], is_local: bool) {
        let set = match value.trim_ascii() {
            default if default.eq_ignore_ascii_case(b"default") => self.login.clone(),
            text => path(text).map_or(Set::Unknown, Set::To),
        };
        let before = std::mem::replace(&mut self.now, set.clone());
        let (committed, _) = self.after.get_or_insert_with(|| (before.clone(), before));
        if !is_local {
            *committed = set;
        }
    }

    /// A savepoint may have been rolled back.
    pub fn savepoint(&mut self) {
        if let Some((committed, _)) = &mut self.after {
            *committed = Set::Unknown;
            self.now = Set::Unknown;
        }
    }

    /// The transaction has ended; `committed` says how, if that is known.
    pub fn ended(&mut self, committed: Option<bool>) {
        if let Some((on_commit, on_rollback)) = self.after.take() {
            self.now = match committed {
                Some(true) => on_commit,
                Some(false) => on_rollback,
                None => Set::Unknown,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> Set {
        Set::To(path(text.as_bytes()).unwrap())
    }

    #[test]
    fn what_is_rolled_back_and_what_is_local_is_not_kept() {
        let mut path = SearchPath::new(Set::Usual);
        path.set(b"a", false);
        path.set(b"b", true);
        assert_eq!(path.now(), &to("b"));
        path.ended(Some(true));
        assert_eq!(path.now(), &to("a"));
        path.set(b"c", false);
        path.ended(Some(false));
        assert_eq!(path.now(), &to("a"));
        path.set(b"c", true);
        path.savepoint();
        assert_eq!(path.now(), &Set::Unknown);
        path.ended(Some(false));
        assert_eq!(path.now(), &to("a"));
        path.set(b"DEFAULT", false);
        path.ended(Some(true));
        assert_eq!(path.now(), &Set::Usual);
        path.set(b"it's", false);
        path.ended(None);
        assert_eq!(path.now(), &Set::Unknown);
    }
}
