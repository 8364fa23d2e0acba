//! The rules, one switch each, so that a test can show that its checker sees what a rule prevents.

/// Which rules are kept. Outside tests: all.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// C1: a start number is durable before it is used.
    pub durable_start: bool,
    /// C1: an incarnation that is out never comes back.
    pub out_is_final: bool,
    /// C2: a member counts its lease from the sending of the renewal, not from the arrival of the grant.
    pub count_from_sending: bool,
    /// C2: a member that is gone counts as out only after a full lease.
    pub wait_a_full_lease: bool,
    /// C2: no renewal for a member that has not acknowledged the newest view within one lease.
    pub refuse_unacknowledged: bool,
    /// C2: no renewal for a member that has not heard an answer for one lease.
    pub refuse_deaf: bool,
    /// C3: a view is durable before any node learns of it.
    pub durable_view: bool,
    /// C3: an acknowledgement counts for its own view only.
    pub exact_acknowledgement: bool,
    /// C3: acknowledging a view ends acting in the older one.
    pub stop_before_acknowledging: bool,
    /// C3: an incarnation that left at rest is on the record until the view without it is in effect.
    pub rest_on_record: bool,
    /// C2, C4: a restarted keeper waits for the leases of its earlier incarnation.
    pub wait_after_restart: bool,
    /// C2, C4: a keeper without authority says nothing.
    pub silent_without_authority: bool,
    /// C2, C4: the office is taken only when the holder's authority is over by the taker's own clock.
    pub wait_for_authority: bool,
}

impl Rules {
    /// Every rule.
    pub const ALL: Rules = Rules {
        durable_start: true,
        out_is_final: true,
        count_from_sending: true,
        wait_a_full_lease: true,
        refuse_unacknowledged: true,
        refuse_deaf: true,
        durable_view: true,
        exact_acknowledgement: true,
        stop_before_acknowledging: true,
        rest_on_record: true,
        wait_after_restart: true,
        silent_without_authority: true,
        wait_for_authority: true,
    };
}
