//! Switches that take a rule out, so that the tests can show what each rule is for. Nothing else sets them.

/// Which rules hold. Everything outside the tests uses [`Rules::ALL`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// P2: a registration compares the words and the stamps.
    pub fills_compare: bool,
    /// P2: a set other than the one that stands bumps first.
    pub other_sets_bump: bool,
    /// P3: an update is forwarded only when every home has acknowledged it.
    pub updates_wait: bool,
    /// P3: messages are handled without gaps.
    pub without_gaps: bool,
    /// P3: an end bumps and moves clock and stamps.
    pub ends_move: bool,
    /// P3: the everything word is what it was before only if nothing came of all that held it together.
    pub voids_alone: bool,
    /// P4: a page without dependencies compares the clock.
    pub clock_compared: bool,
    /// P5: a new home starts busy.
    pub new_homes_busy: bool,
    /// P5: open updates are begun again at the homes of a new view.
    pub begun_again: bool,
    /// P6: the dead are settled only after lease and longest transaction.
    pub dead_outlast: bool,
    /// P6: the dead are settled at all.
    pub dead_settled: bool,
    /// P6: an update is in the record of open updates before it begins.
    pub recorded_first: bool,
    /// P6: the record of an incarnation that may still act is not read.
    pub records_outlast: bool,
    /// P6: an incarnation that says that it leaves at rest has nothing open.
    pub rest_is_true: bool,
    /// P6: an incarnation that leaves begins nothing more.
    pub leavers_begin_nothing: bool,
    /// P7: view and lease are looked at again before the client is answered.
    pub checked_again: bool,
    /// P7: a dropped registration bumps its page.
    pub drops_bump: bool,
    /// H1: a purge of all moves the purge word.
    pub purges_move: bool,
    /// H3: a hard purge leaves its generation in the hard word.
    pub hard_words: bool,
    /// H3: an update that is not soft leaves its generation in the change word.
    pub change_words: bool,
    /// H6: a standard page is fetched by one request at a time, until its answer is stored.
    pub one_refresh: bool,
    /// P8: a waiter joins only before the registration is sent.
    pub waiters_early: bool,
}

impl Rules {
    /// All of them.
    pub const ALL: Rules = Rules {
        fills_compare: true,
        other_sets_bump: true,
        updates_wait: true,
        without_gaps: true,
        ends_move: true,
        voids_alone: true,
        clock_compared: true,
        new_homes_busy: true,
        begun_again: true,
        dead_outlast: true,
        dead_settled: true,
        recorded_first: true,
        records_outlast: true,
        rest_is_true: true,
        leavers_begin_nothing: true,
        checked_again: true,
        drops_bump: true,
        purges_move: true,
        hard_words: true,
        change_words: true,
        one_refresh: true,
        waiters_early: true,
    };
}

impl Default for Rules {
    fn default() -> Self {
        Rules::ALL
    }
}
