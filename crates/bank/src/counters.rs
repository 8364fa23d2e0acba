//! What a bank counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::Fault;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters that many threads raise.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub(crate) $name: AtomicU64,)* }

        /// One reading of [`Counters`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// All at once, as near as relaxed loads go.
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl Counts {
            /// Each counter with its name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Blocks that the bank had.
    hits,
    /// Blocks that no daemon had.
    absent,
    /// Blocks whose daemon rests, died or did not answer in time.
    daemon_down,
    /// Items that were cut off or too long.
    wrong_length,
    /// Items that were something else.
    wrong_format,
    /// Items that were another block.
    wrong_key,
    /// Items whose checksum was wrong.
    wrong_checksum,
    /// Items whose seal did not open.
    wrong_seal,
    /// Blocks stored.
    stored,
    /// Blocks that a daemon refused, or that did not reach it.
    not_stored,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Relaxed);
    }

    pub(crate) fn fault(&self, fault: Fault) {
        let counter = match fault {
            Fault::Length => &self.wrong_length,
            Fault::Format => &self.wrong_format,
            Fault::Key => &self.wrong_key,
            Fault::Checksum => &self.wrong_checksum,
            Fault::Seal => &self.wrong_seal,
        };
        Self::add(counter, 1);
    }
}
