//! Whether an open file may use the bank (rules B3, B13 and B15).

use crate::Rules;

/// What is known of a file when it is opened, after the request arrived.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Whether it has bytes of its own, as no directory, device, pipe or socket has.
    pub is_regular: bool,
    /// Whether this open can write.
    pub writes: bool,
    /// Open files of this mount that can write it.
    pub writers: u64,
    /// Whether something names the file for all clients of the volume (rule B3).
    pub has_identity: bool,
    /// Whether its stamp is settled ([`crate::Stamp::is_settled`]), or the promise does not ask for that.
    pub settled: bool,
    /// Whether the caller asked for the device itself (`O_DIRECT`).
    pub direct: bool,
}

/// Why reads of an open file go to the file system below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direct {
    /// It is no regular file.
    Kind,
    /// The caller asked for the device itself.
    Asked,
    /// It is open for writing on this mount.
    Writer,
    /// Nothing names it for all clients.
    Identity,
    /// It changed so recently that a further change could show the same stamp.
    Unsettled,
    /// A lock was taken since it was opened.
    Lock,
}

impl Direct {
    /// All reasons.
    pub const ALL: [Direct; 6] =
        [Direct::Kind, Direct::Asked, Direct::Writer, Direct::Identity, Direct::Unsettled, Direct::Lock];

    /// Its name in metrics and in `--explain`.
    pub fn name(self) -> &'static str {
        match self {
            Direct::Kind => "kind",
            Direct::Asked => "direct",
            Direct::Writer => "writer",
            Direct::Identity => "identity",
            Direct::Unsettled => "unsettled",
            Direct::Lock => "lock",
        }
    }
}

/// Nothing if reads may use the bank, else the reason why not.
pub fn decide(opening: &Opening, rules: Rules) -> Option<Direct> {
    let reasons = [
        (!opening.is_regular, Direct::Kind),
        (opening.direct, Direct::Asked),
        (opening.writes || (rules.writers && opening.writers > 0), Direct::Writer),
        (!opening.has_identity, Direct::Identity),
        (rules.settled && !opening.settled, Direct::Unsettled),
    ];
    reasons.into_iter().find(|(holds, _)| *holds).map(|(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_alone_keeps_a_file_from_the_bank() {
        let good =
            Opening { is_regular: true, writes: false, writers: 0, has_identity: true, settled: true, direct: false };
        let reason = |opening: Opening| decide(&opening, Rules::default());
        assert_eq!(reason(good), None);
        assert_eq!(reason(Opening { is_regular: false, ..good }), Some(Direct::Kind));
        assert_eq!(reason(Opening { direct: true, ..good }), Some(Direct::Asked));
        assert_eq!(reason(Opening { writes: true, ..good }), Some(Direct::Writer));
        assert_eq!(reason(Opening { writers: 1, ..good }), Some(Direct::Writer));
        assert_eq!(reason(Opening { has_identity: false, ..good }), Some(Direct::Identity));
        assert_eq!(reason(Opening { settled: false, ..good }), Some(Direct::Unsettled));
        assert_eq!(decide(&Opening { settled: false, ..good }, Rules { settled: false, ..Rules::default() }), None);
    }
}
