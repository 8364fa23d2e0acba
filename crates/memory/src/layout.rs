//! The memory that a home offers: one region, made anew for each view.
//!
//! ```text
//!  0        8        16         24       32   64
//!  +--------+--------+----------+--------+----+------------------------+-----------------------------+
//!  | header | free   | largest  | going  | 0  | controls, 16 bytes each | extents of slots            |
//!  | "VMEM" | bytes  | free ext.| segm.  |    | (as many as segments)   | (64-byte lines)             |
//!  +--------+--------+----------+--------+----+------------------------+-----------------------------+
//!
//!  control  = word    [version : 56 | slot : 8]     slot 255: the segment was released      } changed by atomics alone (rule F3)
//!                                                   slot 254: its home took its memory back }
//!             claims  a bit for each slot that somebody fills, or that is the value         }
//!  slot     = head    the version of the value in it; all ones while it is filled           } written plainly, by who has claimed it
//!             stamp   when it was put: nanoseconds since 1970, by its writer's clock         }
//!             value   the segment's bytes, then zeros up to a line                           }
//! ```
//!
//! Numbers are little endian. What a word says of the slot is checked by the head, which is read before and behind the value: a slot is filled anew only after
//! its head says so, and gets the next version last.

use verbena_terms::Format;
pub use verbena_terms::{FILLING, SLOT_HEAD_BYTES, SegmentEnd as End, SegmentWord as Word};

use crate::heap::EXTENT_ALIGNMENT;

/// What a region begins with.
pub const REGION: Format = Format::new(*b"VMEM", 2);
/// Where the number of free bytes is, which peers read.
pub const FREE_AT: u64 = 8;
/// Where the length of the largest free extent is.
pub const LARGEST_AT: u64 = 16;
/// Where the number of segments under notice is. A node that asks after a segment looks there whether to ask its home
/// too.
pub const GOING_AT: u64 = 24;
/// Where controls begin.
pub const CONTROLS_AT: u64 = 64;
/// Bytes of one.
pub const CONTROL_BYTES: u64 = 16;

/// Where the word of a control is.
pub const fn word_at(control: u32) -> u64 {
    CONTROLS_AT + control as u64 * CONTROL_BYTES
}

/// Where its claims are.
pub const fn claims_at(control: u32) -> u64 {
    word_at(control) + 8
}

/// Bytes of a slot for a value of `value_bytes`.
pub const fn slot_bytes(value_bytes: u64) -> u64 {
    (SLOT_HEAD_BYTES + value_bytes).next_multiple_of(EXTENT_ALIGNMENT)
}

/// Where extents begin in a region with `controls` controls.
pub const fn extents_at(controls: u32) -> u64 {
    (CONTROLS_AT + controls as u64 * CONTROL_BYTES).next_multiple_of(EXTENT_ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        assert_eq!((word_at(0), claims_at(0), word_at(1)), (64, 72, 80));
        assert_eq!((extents_at(0), extents_at(1), extents_at(5)), (64, 128, 192));
        assert_eq!((slot_bytes(1), slot_bytes(48), slot_bytes(49)), (64, 64, 128));
    }
}
