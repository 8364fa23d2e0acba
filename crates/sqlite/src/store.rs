//! What a session needs of the memory and the locks that nodes share: a helper's connection, or, in tests, a model of one whose calls fail.

use std::time::Duration;

use verbena_client::wire::LockMode;
use verbena_client::{Hold, Memory, NewSegment, PutOptions, Result, Socket, Value};

/// Makes connections, one for each session and more when one has ended.
pub(crate) trait Connect: Clone + Send + Sync + 'static {
    type Store: Store;

    fn connect(&self) -> Result<Self::Store>;
}

/// One connection. What it holds is released when it is dropped, after everything that it has put has arrived or never will (rule M3).
pub(crate) trait Store: Send + 'static {
    /// A lock that is held.
    type Hold: Copy + Send;

    fn allocate(&mut self, wanted: NewSegment) -> Result<()>;

    fn release(&mut self, segment: &str) -> Result<()>;

    fn get(&mut self, segment: &str) -> Result<Value>;

    /// Exactly `length` bytes from `offset` on.
    fn get_part(&mut self, segment: &str, offset: u64, length: u64) -> Result<Value>;

    /// Puts from the first byte on, over the version `over` and no other; the new version.
    fn put(&mut self, segment: &str, bytes: &[u8], over: u64) -> Result<u64>;

    /// The version of a segment, which is there.
    fn version(&mut self, segment: &str) -> Result<u64>;

    /// The name of the lock of a segment.
    fn lock_name(&mut self, segment: &str) -> Result<Vec<u8>>;

    /// Waits for a lock as long as `at_most`; zero takes it if it is free.
    fn acquire(&mut self, name: &[u8], mode: LockMode, at_most: Duration) -> Result<Self::Hold>;

    /// Turns a hold of one alone into a shared one.
    fn share(&mut self, hold: &mut Self::Hold) -> Result<()>;

    /// Releases a hold.
    fn unlock(&mut self, hold: Self::Hold) -> Result<()>;

    /// Whether it is still held; does not ask the helper.
    fn is_held(&mut self, hold: &Self::Hold) -> bool;
}

/// The helper at a socket.
#[derive(Clone, Debug)]
pub(crate) struct Helper {
    pub(crate) socket: Socket,
    pub(crate) patience: Duration,
}

impl Connect for Helper {
    type Store = Memory;

    fn connect(&self) -> Result<Memory> {
        Memory::connect(&self.socket, self.patience)
    }
}

impl Store for Memory {
    type Hold = Hold;

    fn allocate(&mut self, wanted: NewSegment) -> Result<()> {
        Memory::allocate(self, wanted).map(|_| ())
    }

    fn release(&mut self, segment: &str) -> Result<()> {
        Memory::release(self, segment)
    }

    fn get(&mut self, segment: &str) -> Result<Value> {
        Memory::get(self, segment)
    }

    fn get_part(&mut self, segment: &str, offset: u64, length: u64) -> Result<Value> {
        Memory::get_part(self, segment, offset, Some(length))
    }

    fn put(&mut self, segment: &str, bytes: &[u8], over: u64) -> Result<u64> {
        self.put_with(segment, bytes, PutOptions { offset: 0, over: Some(over) })
    }

    fn version(&mut self, segment: &str) -> Result<u64> {
        self.stat(segment).map(|stat| stat.version)
    }

    fn lock_name(&mut self, segment: &str) -> Result<Vec<u8>> {
        Memory::lock_name(self, segment)
    }

    fn acquire(&mut self, name: &[u8], mode: LockMode, at_most: Duration) -> Result<Hold> {
        self.locks().acquire(name, mode, Some(at_most))
    }

    fn share(&mut self, hold: &mut Hold) -> Result<()> {
        self.locks().share(hold)
    }

    fn unlock(&mut self, hold: Hold) -> Result<()> {
        Memory::unlock(self, hold)
    }

    fn is_held(&mut self, hold: &Hold) -> bool {
        self.locks().is_held(hold)
    }
}
