//! The rules, one switch each, so that a test can show that its checker sees what a rule prevents.

/// Which rules are kept. Outside tests: all.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// L2: the last writer writes its token before it frees the lock.
    pub token_before_free: bool,
    /// L2: a writer that comes after readers is granted by the home, when they have released.
    pub after_readers_by_home: bool,
    /// L3: the home answers no writer while it settles the count.
    pub answer_after_settling: bool,
    /// L3: a participant counts the readers that it owes a grant from an earlier hold.
    pub count_owed: bool,
    /// L3: a reader tries by a swap.
    pub try_by_swap: bool,
    /// L3: a home whose swap is lost swaps what it found.
    pub swap_what_is_found: bool,
    /// L4: a lock is evicted by a swap of the free word.
    pub evict_what_is_free: bool,
    /// L4: a node that finds an evicted word is in no queue, and asks the home.
    pub evicted_is_no_queue: bool,
    /// L4: the home answers a node that has asked it about evicted words.
    pub tell_who_asked: bool,
    /// L2: the tokens of words that are made begin where those of all evicted ones ended.
    pub begin_at_floor: bool,
    /// L4: words are used again when all members have forgotten them.
    pub forgotten_before_reuse: bool,
}

impl Rules {
    /// Every rule.
    pub const ALL: Rules = Rules {
        token_before_free: true,
        after_readers_by_home: true,
        answer_after_settling: true,
        count_owed: true,
        try_by_swap: true,
        swap_what_is_found: true,
        evict_what_is_free: true,
        evicted_is_no_queue: true,
        tell_who_asked: true,
        begin_at_floor: true,
        forgotten_before_reuse: true,
    };
}
