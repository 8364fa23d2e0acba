//! What happened in a storm.

verbena_testkit::counts! {
    /// What clients saw, and what befell nodes that share memory.
    pub struct Seen {
        pub hungers: u64,
        pub gets: u64,
        /// Gets of parts of values.
        pub parts: u64,
        pub puts: u64,
        pub conflicts: u64,
        pub unknown: u64,
        pub late: u64,
        pub allocated: u64,
        pub released: u64,
        /// Requests that heard that their segment was lost or released.
        pub gone: u64,
        /// Names that were of lost segments.
        pub lost: u64,
        /// Copies of new segments.
        pub copies: u64,
        /// Segments that were found at another home than made them.
        pub moved: u64,
        /// Times that a home was to offer another amount of memory.
        pub reclaims: u64,
        /// Times that a client heard that a segment was reclaimed.
        pub reclaimed: u64,
        /// Times that a segment was found at another home while the one that made it is a member.
        pub relocated: u64,
        /// Segments that homes took memory back of, and gave to others.
        pub given: u64,
        /// Segments that were shown in place.
        pub windows: u64,
        /// Values that were seen there.
        pub looks: u64,
        /// Windows that had come to their end when somebody looked.
        pub closed: u64,
    }
}
