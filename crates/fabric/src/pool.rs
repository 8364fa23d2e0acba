//! Memory that may be handed to a fabric: registered once, lent out, and back when the last holder drops it.
//!
//! Only the owner of a [`Buffer`] may see its bytes as a slice. Posting moves it into the operation, completion moves
//! it back, and an operation that ended as unknown keeps it as long as an adapter might still touch it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// A bounded stock of buffers of this process. Cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Stock>);

struct Stock {
    limit_bytes: usize,
    shelves: Mutex<Shelves>,
    /// Lets an adapter reach every block that is made.
    #[cfg(feature = "verbs")]
    registrar: Option<Arc<dyn Registrar>>,
}

/// Lets an adapter reach memory of this process.
#[cfg(feature = "verbs")]
pub(crate) trait Registrar: Send + Sync {
    /// The block stays where it is for as long as what is given back is there.
    fn register(&self, block: &[u8]) -> Result<Registration>;
}

/// An adapter reaches a block while this is there.
#[cfg(feature = "verbs")]
pub(crate) struct Registration {
    /// What the adapter wants to have with each request.
    pub(crate) local_key: u32,
    pub(crate) _reached: Box<dyn std::any::Any + Send + Sync>,
}

/// What buffers are made of.
#[derive(Default)]
struct Block {
    // Dropped before the bytes.
    #[cfg(feature = "verbs")]
    registration: Option<Box<Registration>>,
    bytes: Box<[u8]>,
}

#[derive(Default)]
struct Shelves {
    /// Bytes in all blocks that exist, lent or not.
    allocated_bytes: usize,
    /// Blocks that wait to be lent, one shelf a size class.
    free: [Vec<Block>; CLASSES.len()],
}

/// Block sizes in bytes. A request takes the smallest that holds it.
const CLASSES: [usize; 6] = [256, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

impl Pool {
    /// A pool that never holds more than `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Self {
        let shelves = Mutex::default();
        #[cfg(feature = "verbs")]
        let stock = Stock { limit_bytes, shelves, registrar: None };
        #[cfg(not(feature = "verbs"))]
        let stock = Stock { limit_bytes, shelves };
        Pool(Arc::new(stock))
    }

    /// The same, with buffers that an adapter reaches.
    #[cfg(feature = "verbs")]
    pub(crate) fn registered(limit_bytes: usize, registrar: Arc<dyn Registrar>) -> Self {
        Pool(Arc::new(Stock { limit_bytes, shelves: Mutex::default(), registrar: Some(registrar) }))
    }

    /// The largest buffer there is, in bytes.
    pub const fn largest(&self) -> usize {
        CLASSES[CLASSES.len() - 1]
    }

    /// A buffer of `bytes`, whose contents are whatever its last holder left. [`Error::Full`] when the pool has lent out
    /// all that it may have.
    pub fn take(&self, bytes: usize) -> Result<Buffer> {
        let class = CLASSES.iter().position(|class| bytes <= *class).ok_or(Error::TooLarge {
            what: "a buffer",
            asked: bytes as u64,
            most: self.largest() as u64,
        })?;
        let mut shelves = self.0.shelves.lock();
        let block = match shelves.free[class].pop() {
            Some(block) => block,
            None => {
                if shelves.allocated_bytes + CLASSES[class] > self.0.limit_bytes {
                    shelves.drop_free();
                }
                if shelves.allocated_bytes + CLASSES[class] > self.0.limit_bytes {
                    return Err(Error::Full { what: "the buffer pool", most: self.0.limit_bytes });
                }
                let block = self.0.make(CLASSES[class])?;
                shelves.allocated_bytes += CLASSES[class];
                block
            }
        };
        Ok(Buffer { block, class, length: bytes, stock: self.0.clone() })
    }

    /// Whether a buffer is of this pool.
    #[cfg(feature = "verbs")]
    pub(crate) fn has_lent(&self, buffer: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &buffer.stock)
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn copy_of(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.take(bytes.len())?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }
}

impl Stock {
    #[cfg(feature = "verbs")]
    fn make(&self, bytes: usize) -> Result<Block> {
        let bytes = vec![0; bytes].into_boxed_slice();
        let registration =
            self.registrar.as_ref().map(|registrar| registrar.register(&bytes).map(Box::new)).transpose()?;
        Ok(Block { registration, bytes })
    }

    #[cfg(not(feature = "verbs"))]
    fn make(&self, bytes: usize) -> Result<Block> {
        Ok(Block { bytes: vec![0; bytes].into_boxed_slice() })
    }
}

impl Shelves {
    /// Gives back what lies unused in every class, so that a demand for one size is not refused for the sake of another.
    fn drop_free(&mut self) {
        for (shelf, class) in self.free.iter_mut().zip(CLASSES) {
            self.allocated_bytes -= shelf.len() * class;
            shelf.clear();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let allocated = self.0.shelves.lock().allocated_bytes;
        write!(f, "Pool({allocated} of {} bytes)", self.0.limit_bytes)
    }
}

/// Bytes of a [`Pool`], held by one owner.
pub struct Buffer {
    block: Block,
    class: usize,
    length: usize,
    stock: Arc<Stock>,
}

impl Buffer {
    /// How many bytes were asked for.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether none were.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.block.bytes[..self.length]
    }

    /// The key by which its fabric's adapter reaches it; 0 without one.
    #[cfg(feature = "verbs")]
    pub(crate) fn local_key(&self) -> u32 {
        self.block.registration.as_ref().map_or(0, |registration| registration.local_key)
    }

    /// The bytes, to fill.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.block.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let block = std::mem::take(&mut self.block);
        self.stock.shelves.lock().free[self.class].push(block);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_bounded_and_gets_its_buffers_back() {
        let pool = Pool::new(8 << 10);
        let first = pool.copy_of(b"abc").unwrap();
        assert_eq!(first.bytes(), b"abc");
        let _second = pool.take(4096).unwrap();
        assert_eq!(pool.take(4096).unwrap_err(), Error::Full { what: "the buffer pool", most: 8 << 10 });
        drop(first);
        let third = pool.take(4096).unwrap();
        assert_eq!(third.len(), 4096);
    }

    #[test]
    fn what_no_class_holds_is_refused() {
        let pool = Pool::new(usize::MAX);
        assert!(matches!(pool.take((1 << 20) + 1), Err(Error::TooLarge { .. })));
        assert!(pool.take(0).unwrap().is_empty());
    }
}
