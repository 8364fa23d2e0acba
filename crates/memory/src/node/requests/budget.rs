//! Bytes of values that requests have under way: their sum has a limit.

use crate::Refusal;

/// Bytes of the long values that may be under way: what is asked for beyond is refused.
pub(super) const UNDER_WAY: u64 = 256 << 20;
/// Values up to so long are not counted: they are let in however much is under way, and their number bounds them.
pub(super) const SHORT: u64 = 16 << 10;

#[derive(Default)]
pub(super) struct Budget {
    under_way: u64,
}

/// What one request has of the budget.
#[derive(Default)]
pub(super) struct Charge(u64);

impl Budget {
    pub(super) fn under_way(&self) -> u64 {
        self.under_way
    }

    /// The request carries `bytes` bytes of a value from now on, instead of those before.
    ///
    /// # Errors
    /// If there is no room for them: nothing is changed.
    pub(super) fn charge(&mut self, charge: &mut Charge, bytes: u64) -> Result<(), Refusal> {
        let bytes = if bytes <= SHORT { 0 } else { bytes };
        let others = self.under_way - charge.0;
        if bytes > 0 && others + bytes > UNDER_WAY {
            return Err(Refusal::TooMuch { most: UNDER_WAY });
        }
        (charge.0, self.under_way) = (bytes, others + bytes);
        Ok(())
    }

    pub(super) fn release(&mut self, Charge(bytes): Charge) {
        self.under_way -= bytes;
    }
}
