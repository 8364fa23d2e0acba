//! What happened in a run, so that the silence of the checkers means something.

verbena_testkit::counts! {
    pub struct Counts {
        pub steps: u64,
        pub views: u64,
        pub crashes: u64,
        pub keeper_crashes: u64,
        pub pauses: u64,
        pub cuts: u64,
        pub replaced: u64,
        pub left: u64,
        pub at_rest: u64,
        pub expelled: u64,
        /// A lease that was lost and came back to the same incarnation.
        pub resumed: u64,
        pub lost: u64,
        pub doubled: u64,
        pub late: u64,
        pub terms: u64,
        pub resigned: u64,
        pub overtaken: u64,
        /// Questions of which nothing was known.
        pub unanswered: u64,
    }
}
