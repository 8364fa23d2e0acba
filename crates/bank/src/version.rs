//! The version of a file, and whether it can be trusted (rules B13 and B14).

/// A time by some file system's clock, in nanoseconds since 1970.
pub type Time = i128;

/// What a file system says of one state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// When bytes changed.
    pub modified: Time,
    /// When anything changed.
    pub changed: Time,
    /// Bytes.
    pub size: u64,
}

/// How far the times of a file system can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Two changes within this time can show the same stamp, in nanoseconds.
    pub grain: Time,
    /// By how much our clock can be ahead of the file system's, in nanoseconds.
    pub ahead: Time,
    /// Whether `changed` is the file system's own. If not, it repeats `modified`, which any program can set.
    pub has_changed: bool,
}

impl Clocks {
    /// Two seconds more, where `changed` says nothing of its own (rule B14).
    const WITHOUT_CHANGED: Time = 2_000_000_000;

    /// How old a stamp must be before it is settled, in nanoseconds.
    pub fn margin(&self) -> Time {
        self.grain + self.ahead + if self.has_changed { 0 } else { Self::WITHOUT_CHANGED }
    }
}

impl Stamp {
    /// Whether a later change must show another stamp. `now` was read from our clock before the stamp was asked for, and
    /// no byte has been read yet: a look at the age when storing lets a write of the same tick slip in between.
    pub fn is_settled(&self, now: Time, clocks: Clocks) -> bool {
        now - self.modified.max(self.changed) > clocks.margin()
    }

    /// The version as it stands in a key.
    pub fn bytes(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.modified.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.changed.to_le_bytes());
        bytes[32..].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// The version of which these are the bytes.
    pub fn from_bytes(bytes: &[u8; 40]) -> Self {
        let (modified, rest) = bytes.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let (changed, rest) = rest.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let size = rest.first_chunk().unwrap_or(&[0; 8]);
        Stamp {
            modified: Time::from_le_bytes(*modified),
            changed: Time::from_le_bytes(*changed),
            size: u64::from_le_bytes(*size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_settles_when_the_clock_has_left_its_grain() {
        let stamp = Stamp { modified: 1000, changed: 2000, size: 1 };
        let clocks = Clocks { grain: 100, ahead: 50, has_changed: true };
        assert!(!stamp.is_settled(2150, clocks));
        assert!(stamp.is_settled(2151, clocks));
        // A file from the future never settles before its time.
        assert!(!stamp.is_settled(0, clocks));
        let clocks = Clocks { has_changed: false, ..clocks };
        assert!(!stamp.is_settled(2151, clocks));
        assert!(stamp.is_settled(2_000_002_151, clocks));
    }

    #[test]
    fn every_part_of_a_stamp_is_in_its_bytes() {
        let stamp = Stamp { modified: 1, changed: 2, size: 3 };
        assert_ne!(stamp.bytes(), Stamp { modified: 2, ..stamp }.bytes());
        assert_ne!(stamp.bytes(), Stamp { changed: 1, ..stamp }.bytes());
        assert_ne!(stamp.bytes(), Stamp { size: 4, ..stamp }.bytes());
        assert_eq!(Stamp::from_bytes(&stamp.bytes()), stamp);
    }
}
