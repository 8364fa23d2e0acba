/// Which rules are kept: all, but in a test that must see what a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// An object counts by its version, not by its key alone (rule K2).
    pub compares_version: bool,
    /// The version word of an object is read again behind its bytes (rule K3).
    pub reads_head_twice: bool,
    /// A node that dropped an object takes no copy of that version while a read that began before may go on (rule K3).
    pub takes_no_copy_again: bool,
    /// A miss is no answer to what depends on absence: the home is asked (rule K4).
    pub asks_home_for_absence: bool,
    /// The lease is looked at when a read is in hand (rule K5).
    pub checks_lease_of_read: bool,
    /// The home looks at its lease before it decides, the asker before it answers (rule K6). Either alone would do where messages belong to views.
    pub checks_lease_of_change: bool,
    /// A request that was sent is not sent again (rule K6).
    pub sends_once: bool,
    /// A home decides a request once, also where its message comes twice (rule K6).
    pub decides_once: bool,
    /// A set that cannot be completed deletes (rule K6).
    pub deletes_what_failed: bool,
    /// A home drops entries of keys that it gives up (rule K7).
    pub drops_given_up: bool,
    /// A home answers from when its view is in effect (rule K7).
    pub opens_in_effect: bool,
    /// Readers look at the word that says so (rule K7).
    pub reads_open_word: bool,
    /// No hand-over is taken behind that (rule K7).
    pub refuses_late_hand_over: bool,
    /// A flush counts in one view (rule K10).
    pub flushes_in_one_view: bool,
    /// Entries below the floor are not handed over (rule K10).
    pub keeps_floor_in_hand_over: bool,
    /// A change that rests on a version is made only if that version is still valid (rule K6).
    pub compares_expected: bool,
    /// Who dropped an object names its version and place, and the home compares both (rule K11).
    pub compares_gone: bool,
    /// A set that names the cas value of a stub is refused once the stub is gone (rule K12).
    pub stub_ends: bool,
    /// Expired objects are not read (rule K13).
    pub compares_expiry: bool,
    /// The place is changed only if the version is still that (rule K8).
    pub compares_moved: bool,
    /// A change goes to the mirror first, then into the home's own word (rule K9).
    pub mirrors_first: bool,
    /// A mirror keeps the largest version of a key that it heard of (rule K9).
    pub mirrors_largest: bool,
    /// A removal is a version too (rule K9).
    pub mirrors_removals: bool,
    /// A node drops what it mirrors no longer (rule K9).
    pub mirrors_drop: bool,
    /// What is flushed gives its memory back at once: no rule, but what rests on floors is seen less often by it.
    pub frees_flushed: bool,
    /// A change reads again what is valid and not whole yet: no rule, but absence is wrong less often by it.
    pub reads_again: bool,
    /// An object of a tenant that has no more than is guaranteed to it does not go for another's.
    pub keeps_guarantees: bool,
    /// Mirrors get floors, before a home raises its own (rules K9, K10).
    pub mirrors_floors: bool,
}

impl Rules {
    /// All.
    pub const ALL: Rules = Rules {
        compares_version: true,
        reads_head_twice: true,
        takes_no_copy_again: true,
        asks_home_for_absence: true,
        checks_lease_of_read: true,
        checks_lease_of_change: true,
        sends_once: true,
        decides_once: true,
        deletes_what_failed: true,
        drops_given_up: true,
        opens_in_effect: true,
        reads_open_word: true,
        refuses_late_hand_over: true,
        flushes_in_one_view: true,
        keeps_floor_in_hand_over: true,
        compares_expected: true,
        compares_gone: true,
        stub_ends: true,
        compares_expiry: true,
        compares_moved: true,
        mirrors_first: true,
        mirrors_largest: true,
        mirrors_removals: true,
        mirrors_drop: true,
        frees_flushed: true,
        reads_again: true,
        keeps_guarantees: true,
        mirrors_floors: true,
    };
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::ALL
    }
}
