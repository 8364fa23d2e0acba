//! The rules of docs/concepts/bank.md, each with a switch.

/// Which rules hold. All do, except in tests that show what a rule protects.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// B1: the version stands in the key.
    pub version: bool,
    /// B2: an item counts only if its envelope proves itself.
    pub envelope: bool,
    /// B3: the identity stands in the key, so a path that names another file is another key.
    pub identity: bool,
    /// B13: a version is used only if the clock had left the grain of its time stamps.
    pub settled: bool,
    /// B13: the version is taken again after the bytes, and must be equal.
    pub recheck: bool,
    /// B15: a file that is open for writing on this mount neither hits nor fills.
    pub writers: bool,
    /// B18: a lock taken drops what was validated before it.
    pub locks: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Rules {
            version: true,
            envelope: true,
            identity: true,
            settled: true,
            recheck: true,
            writers: true,
            locks: true,
        }
    }
}
