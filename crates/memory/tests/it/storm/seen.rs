//! What happened in a storm.

use std::ops::AddAssign;

/// What befell nodes, and what clients saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub views: u64,
    pub crashes: u64,
    pub pauses: u64,
    pub cuts: u64,
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

impl AddAssign for Seen {
    fn add_assign(&mut self, other: Seen) {
        let Seen {
            views,
            crashes,
            pauses,
            cuts,
            hungers,
            gets,
            parts,
            puts,
            conflicts,
            unknown,
            late,
            allocated,
            released,
            gone,
            lost,
            copies,
            moved,
            reclaims,
            reclaimed,
            relocated,
            given,
            windows,
            looks,
            closed,
        } = other;
        self.views += views;
        self.crashes += crashes;
        self.pauses += pauses;
        self.cuts += cuts;
        self.hungers += hungers;
        self.gets += gets;
        self.parts += parts;
        self.puts += puts;
        self.conflicts += conflicts;
        self.unknown += unknown;
        self.late += late;
        self.allocated += allocated;
        self.released += released;
        self.gone += gone;
        self.lost += lost;
        self.copies += copies;
        self.moved += moved;
        self.reclaims += reclaims;
        self.reclaimed += reclaimed;
        self.relocated += relocated;
        self.given += given;
        self.windows += windows;
        self.looks += looks;
        self.closed += closed;
    }
}
