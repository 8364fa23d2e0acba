//! Why the last open or read of a file did not come from the bank, in words. The process that serves the mount gives it as an extended attribute
//! of the file, which no listing shows.

use verbena_bank::{Direct, Fault, Miss};

/// The attribute of a file that holds it.
pub(crate) const EXPLAIN: &str = "user.verbena.explain";

/// What became of the last open or read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LastAccess {
    /// It was purged, and not opened since.
    Purged,
    /// It was opened, and its reads may use the bank.
    Opened,
    /// It was opened, and all its reads go below.
    Direct(Direct),
    /// A read was answered by the bank alone: its blocks, and how many of them the mount's own memory had.
    Whole(usize, usize),
    /// A read needed blocks from below, which the bank missed so.
    Partial(usize, Vec<Miss>),
    /// A read went below: a writer, a lock or another version came after the open.
    Ended,
    /// A read went below: it begins at or behind the end that the file had at its open.
    End,
    /// A read went below: the file changed while it was read.
    Moved,
}

impl LastAccess {
    pub(crate) fn words(&self) -> String {
        match self {
            LastAccess::Opened => {
                "opened: its reads use the bank; none came yet, or the kernel had the pages".to_owned()
            }
            LastAccess::Purged => "purged: nothing that was kept of it is used, and it was not opened since".to_owned(),
            LastAccess::Direct(reason) => format!("below: {}", direct(*reason)),
            LastAccess::Whole(blocks, 0) => format!("hit: {blocks} blocks, all from the bank"),
            LastAccess::Whole(blocks, near) => {
                format!("hit: {blocks} blocks, {near} of them from the mount's own memory")
            }
            LastAccess::Partial(blocks, misses) => {
                let count = |is_it: &dyn Fn(&Miss) -> bool| misses.iter().filter(|miss| is_it(miss)).count();
                let causes = [
                    (
                        count(&|miss| *miss == Miss::Absent),
                        "not in the bank under this version (never stored, or replaced)",
                    ),
                    (count(&|miss| *miss == Miss::Down), "daemon or helper down, or late"),
                    (count(&|miss| matches!(miss, Miss::Fault(Fault::Key))), "another block in its place"),
                    (
                        count(&|miss| matches!(miss, Miss::Fault(Fault::Checksum))),
                        "a wrong checksum: torn, turned bits, or another secret",
                    ),
                    (
                        count(&|miss| matches!(miss, Miss::Fault(Fault::Seal))),
                        "a seal that does not open: torn, turned bits, or another secret",
                    ),
                    (
                        count(&|miss| matches!(miss, Miss::Fault(Fault::Length | Fault::Format))),
                        "something else in its place",
                    ),
                ];
                let causes =
                    causes.iter().filter(|(count, _)| *count > 0).map(|(count, cause)| format!("{count} {cause}"));
                format!("miss: {} of {blocks} blocks: {}", misses.len(), causes.collect::<Vec<_>>().join("; "))
            }
            LastAccess::Ended => {
                "below: a writer, a lock or a change came after it was opened; open it again".to_owned()
            }
            LastAccess::End => "below: the read begins behind the end that the file had when it was opened".to_owned(),
            LastAccess::Moved => "below: the file changed while it was read".to_owned(),
        }
    }
}

fn direct(reason: Direct) -> &'static str {
    match reason {
        Direct::Kind => "it is no regular file",
        Direct::Asked => "it was opened with O_DIRECT",
        Direct::Writer => "it is, or was then, open for writing on this mount",
        Direct::Identity => "nothing names it for all clients: it is on another device, or has no name any more",
        Direct::Unsettled => {
            "it changed so recently that a further change could show the same time; open it again later"
        }
        Direct::Lock => "a lock was taken on it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_of_misses_are_counted_apart() {
        let words =
            LastAccess::Partial(5, vec![Miss::Absent, Miss::Absent, Miss::Down, Miss::Fault(Fault::Key)]).words();
        assert!(words.starts_with("miss: 4 of 5 blocks: 2 not in the bank"), "{words}");
        assert!(words.contains("; 1 daemon or helper down") && words.contains("; 1 another block"), "{words}");
        assert!(Direct::ALL.iter().all(|reason| LastAccess::Direct(*reason).words().starts_with("below: ")));
    }
}
