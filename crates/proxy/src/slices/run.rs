//! Which slice may follow which (rule H9), without input or output.
//!
//! All slices of an answer must be of one state of the page. A strong tag says so of what the origin had at one time; the words say so of what was purged: a page can be
//! published again under the tag that it had, with other bytes. So a slice follows if it has the tag of the first one, and either was registered under the same words as
//! that one, or was asked for when those were in force and is in hand while they still are.

#[cfg(test)]
mod tests;

/// What a slice must have to follow those before: the first one's stamp and tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Run<S, T> {
    /// `None`: what the first one was in force under is not known, and nothing follows it.
    stamp: Option<S>,
    tag: T,
}

/// Whether a slice may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follows {
    Yes,
    /// It is of another state of the page, as the origin says.
    OtherTag,
    /// The page was purged, or has another home.
    Changed,
}

impl<S: PartialEq, T: PartialEq> Run<S, T> {
    /// Of a first slice with this tag. It was registered under these words, or else asked for when these were in force.
    pub fn new(tag: T, registered: Option<S>, read: Option<S>) -> Self {
        Run { stamp: registered.or(read), tag }
    }

    /// What each slice has.
    pub fn tag(&self) -> &T {
        &self.tag
    }

    /// Judges a slice: by its tag, the words that it is registered under, and if it is not, those that were in force when it was asked for. `is_in_force` tells of
    /// words that were read when the slice was in hand.
    pub fn follows(
        &self,
        tag: Option<&T>,
        registered: Option<&S>,
        read: Option<&S>,
        is_in_force: impl FnOnce(&S) -> bool,
    ) -> Follows {
        if tag != Some(&self.tag) {
            return Follows::OtherTag;
        }
        let is_of_this_state = match (&self.stamp, registered) {
            (None, _) => false,
            (Some(first), Some(registered)) => registered == first,
            (Some(first), None) => read == Some(first) && is_in_force(first),
        };
        if is_of_this_state { Follows::Yes } else { Follows::Changed }
    }
}
