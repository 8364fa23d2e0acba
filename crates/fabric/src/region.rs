//! Regions of memory: the owner's side, the key, and the peer's side.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use verbena_terms::{Incarnation, Time, ViewNumber};

use crate::completion::Pending;
use crate::error::Result;
use crate::message::Class;
use crate::operation::{Batch, Completed, OperationId, Settled};

/// What the holder of a key may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rights {
    /// Reads.
    Read,
    /// Everything.
    Change,
}

/// 128 random bits that make a key one that was given and not guessed. Not shown when printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// A new one from the system's randomness.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| crate::Error::system("random bytes", error))?;
        Ok(Secret(bytes))
    }

    /// As two words, the first bytes in the lower ones.
    #[cfg(feature = "xdp")]
    pub(crate) fn words(&self) -> [u64; 2] {
        let whole = u128::from_le_bytes(self.0);
        [whole as u64, (whole >> 64) as u64]
    }

    /// Compares without telling by the time it takes where they differ.
    pub fn matches(&self, other: &Secret) -> bool {
        self.0.iter().zip(other.0).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// What gives access to a region: the owner hands it to nodes that it trusts, by message or by membership record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RegionKey {
    /// The owner of the memory.
    pub owner: Incarnation,
    /// Which of its regions.
    pub region: u32,
    /// The view in which the region was made (F4).
    pub view: ViewNumber,
    /// How large it is.
    pub bytes: u64,
    /// What the key allows.
    pub rights: Rights,
    /// One secret for each of the two rights.
    pub secret: Secret,
}

/// A region's memory, to be mapped by other processes of this machine for reading.
#[derive(Debug)]
pub struct Readable {
    /// Sealed, so that no process can take the memory away under a mapping; the kernel refuses to map it for writing.
    pub descriptor: OwnedFd,
    /// Where in it the region begins: a multiple of 8.
    pub from: u64,
}

/// The owner's side of a region. Dropping it gives the memory up and revokes its keys.
///
/// Where peers change a word by atomics and [`AtomicScope`](crate::AtomicScope) is `Fabric`, the owner changes it by posting too (F3); the
/// two atomics here then answer [`Error::PostInstead`](crate::Error::PostInstead).
pub trait Region: Send + Sync {
    /// A key for the region as it is now.
    fn key(&self, rights: Rights) -> RegionKey;

    /// The word at byte `at`.
    fn load(&self, at: u64) -> Result<u64>;

    /// Stores a word that no atomic changes (F3). Visible to every read posted after this returned.
    fn store(&self, at: u64, value: u64) -> Result<()>;

    /// Adds to a word, gives what was there.
    fn fetch_add(&self, at: u64, addend: u64) -> Result<u64>;

    /// Stores `desired` if the word is `expected`, gives what was there.
    fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> Result<u64>;

    /// Copies bytes out; only aligned words are untorn.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<()>;

    /// Copies bytes in; only aligned words are untorn.
    fn write(&self, at: u64, from: &[u8]) -> Result<()>;

    /// Gives the whole pages among `bytes` from `at` on back to the system, until something is written there again;
    /// they read as zeros after that. No operation may be under way on them. Does nothing where memory is
    /// [pinned](crate::Capabilities::pins_memory), and for pages that other things share.
    fn discard(&self, at: u64, bytes: u64) -> Result<()> {
        let _ = (at, bytes);
        Ok(())
    }

    /// The memory as it is now, for other processes of this machine to read; `None` where its kind cannot be handed on
    /// so. A process that has it keeps the memory, also when the region is made anew: notify the process then.
    fn readable(&self) -> Result<Option<Readable>> {
        Ok(None)
    }

    /// Makes the region anew, as zeroed memory of `view`: other memory that no older key reaches. Operations begun
    /// before may still land in the old memory, which is never read again (F4).
    fn remake(&self, view: ViewNumber) -> Result<()>;

    /// Every member has acknowledged `view`: memory made in earlier ones may be used for something else (F4).
    fn everyone_is_in(&self, view: ViewNumber);
}

/// A peer's side of a region: what a key opens. Cheap to share.
pub trait Remote: Send + Sync {
    /// The key it was opened with.
    fn key(&self) -> &RegionKey;

    /// Posts a batch. Each element with an effect takes the caller's next identifier in this class, in order. Never
    /// blocks; ends at `deadline` at the latest, on the clock of the fabric.
    fn post(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed>;

    /// The same, where others are posted at the same moment: what the tasks of a thread post in one turn may go in one frame. It is sent when the
    /// result is waited for, awaited or looked at for the second time, or dropped; so that the wait is no longer than a turn.
    fn post_gathered(&self, batch: Batch, class: Class, deadline: Time) -> Pending<Completed> {
        self.post(batch, class, deadline)
    }

    /// Asks the target what became of an operation that ended as unknown, or bars it for ever (F2). May itself end as
    /// unknown, and be asked again. An identifier that this caller has not given out yet is answered with
    /// [`Error::Forgotten`](crate::Error::Forgotten) and never barred: the operation that is to have it must not find it taken.
    fn settle(&self, operation: OperationId, class: Class, deadline: Time) -> Pending<Settled>;
}

/// A shared [`Remote`].
pub type SharedRemote = Arc<dyn Remote>;
