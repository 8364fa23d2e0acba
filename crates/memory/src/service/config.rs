//! The section `[memory]` of the configuration file.

use verbena_terms::{Contradiction, Size, section};

use crate::{MemoryOptions, Rules};

/// What every node could have that has as many segments as words can name.
const MOST_SEGMENTS: u32 = 1 << 24;

section! {
    /// Memory that nodes share.
    pub struct MemoryConfig as "memory", checked by MemoryConfig::check {
        /// Bytes that this node offers for segments, all slots counted; 0 offers none. Only a node with the role `home` offers any. A new view needs them
        /// twice for a moment; where memory is registered with an adapter they are pinned. `verbena mem reclaim` makes a running node offer less. The default
        /// has room for one segment of the largest size, 16 MiB, with its three writers.
        pub share: Size as "SIZE" = Size(72 << 20),
        /// Segments that may be in them at a time, 16 bytes each.
        pub segments: u32 as "NUMBER" = 1 << 14,
        /// Bytes of them that one user may have. Not set: all.
        pub user_share: Option<Size> as "SIZE" = None,
        /// Bytes of copies that this node keeps of segments with a coherence that allows it (`delta`, `temporal`).
        pub copies: Size as "SIZE" = Size(16 << 20),
    }
}

impl MemoryConfig {
    /// What the service is started with.
    pub fn options(&self) -> MemoryOptions {
        MemoryOptions {
            bytes: self.share.0,
            segments: self.segments,
            owner_bytes: self.user_share.map_or(self.share.0, |share| share.0),
            copies_bytes: self.copies.0,
            rules: Rules::ALL,
        }
    }

    fn check(&self) -> Vec<Contradiction> {
        let more = self.user_share.filter(|user| user.0 > self.share.0);
        let more = more.map(|user| {
            let problem = format!("one user may have {user}, and there are {}", self.share);
            Contradiction::new("user_share", problem)
        });
        let none = (self.segments == 0 && self.share.0 > 0)
            .then(|| Contradiction::new("segments", "bytes are offered, and no segment could be in them"));
        let many = (self.segments > MOST_SEGMENTS)
            .then(|| Contradiction::new("segments", format!("at most {MOST_SEGMENTS} can be named")));
        more.into_iter().chain(none).chain(many).collect()
    }
}
