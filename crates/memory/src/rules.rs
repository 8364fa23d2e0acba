//! The rules, each of which a test can switch off to see what it is there for.

/// Which rules hold. A program has all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// M1: a reader compares the head of the slot with the word, before and behind the value.
    pub heads_compared: bool,
    /// M1: a writer fills only a slot that it has claimed.
    pub claims_first: bool,
    /// M1: a put whose swap finds another word reads what it changes a part of once more (`write` and stronger).
    pub base_read_again: bool,
    /// M4: a reader looks at the word.
    pub word_read: bool,
    /// A put of `version` is compared with the version that it names.
    pub version_compared: bool,
    /// A copy of `delta` is compared with the word.
    pub delta_compared: bool,
    /// A copy of `temporal` is as old as the question that brought it, and not as its answer.
    pub age_from_question: bool,
    /// C5: an answer counts when lease and view still hold after it came.
    pub lease_looked_at: bool,
    /// C3, M2: a home copies values into the memory of a view when no node writes to the older one any longer.
    pub waits_for_effect: bool,
    /// M2: what was released is used again when every member has forgotten it.
    pub forgotten_before_reuse: bool,
    /// M3: a put is at all copies before any reader can see it.
    pub copies_first: bool,
    /// M3: copies hold the highest version before their segment is served in a view.
    pub brought_up_first: bool,
    /// M3: each holder of a copy is known to all others before it is filled.
    pub holders_told_first: bool,
    /// M2: a released segment is marked at all copies before that is said.
    pub released_everywhere: bool,
    /// M2: the words of what is reclaimed are marked before any node learns of it.
    pub reclaimed_marked: bool,
    /// M3: no operation runs on a segment that is moved.
    pub forgotten_before_move: bool,
    /// What is to be reclaimed is there until the notice is over.
    pub notice_kept: bool,
    /// No allocation takes a home above what it offers.
    pub offer_kept: bool,
    /// C3: what programs read in place is over before the node's part in its view is.
    pub windows_end_with_views: bool,
    /// M2: what programs read in place is over before its bytes are used again.
    pub windows_end_with_segments: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: Rules = Rules {
        heads_compared: true,
        claims_first: true,
        base_read_again: true,
        word_read: true,
        version_compared: true,
        delta_compared: true,
        age_from_question: true,
        lease_looked_at: true,
        waits_for_effect: true,
        forgotten_before_reuse: true,
        copies_first: true,
        brought_up_first: true,
        holders_told_first: true,
        released_everywhere: true,
        reclaimed_marked: true,
        forgotten_before_move: true,
        notice_kept: true,
        offer_kept: true,
        windows_end_with_views: true,
        windows_end_with_segments: true,
    };
}
