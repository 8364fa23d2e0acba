//! The owner's side of regions, and what the agent does on them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use verbena_terms::{Incarnation, ViewNumber};

use super::wire::{BatchHead, Element};
use crate::capability::AtomicScope;
use crate::ending::Outcome;
use crate::error::{Error, Result};
use crate::memory::check_range;
use crate::operation::OperationId;
use crate::region::{Readable, Region, RegionKey, Rights};
use crate::supply::{Life, Part, Supply};
use crate::window::{Claim, Window};

/// What came of an element, or why it was not executed.
type Executed<T> = std::result::Result<T, Outcome>;

/// What one incarnation has registered. Cheap to clone.
#[derive(Clone)]
pub(super) struct Regions(Arc<Table>);

struct Table {
    owner: Incarnation,
    most_bytes: u64,
    supply: Arc<dyn Supply>,
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    live: HashMap<u32, Arc<Memory>>,
    bytes: u64,
    is_closed: bool,
}

/// One making of a region: its memory, and the secrets that reach it. Made anew it is another one (F4); the old one is
/// unmapped when the last batch that had begun on it ends. No other process changes it, so nothing can land in it later
/// and it need not wait for every member to acknowledge the view.
struct Memory {
    words: Part,
    life: Life,
}

impl Memory {
    fn new(words: Part, life: Life) -> Arc<Self> {
        Arc::new(Memory { words, life })
    }
}

impl Regions {
    pub(super) fn new(owner: Incarnation, most_bytes: u64, supply: Arc<dyn Supply>) -> Self {
        Regions(Arc::new(Table { owner, most_bytes, supply, inner: RwLock::default() }))
    }

    pub(super) fn register(&self, bytes: u64, view: ViewNumber) -> Result<TcpRegion> {
        {
            let mut inner = self.0.inner.write();
            let total = inner.bytes.checked_add(bytes).filter(|total| *total <= self.0.most_bytes);
            inner.bytes =
                total.ok_or(Error::Full { what: "the memory for regions", most: self.0.most_bytes as usize })?;
        }
        let made = Life::new(bytes, view).and_then(|life| Ok((self.0.supply.make(&life)?, life)));
        let mut inner = self.0.inner.write();
        let ((number, words), life) = made.inspect_err(|_| inner.bytes -= bytes)?;
        let memory = Memory::new(words, life);
        inner.live.insert(number, memory.clone());
        drop(inner);
        Ok(TcpRegion { number, bytes, memory: RwLock::new(memory), regions: self.clone() })
    }

    /// Revokes everything: the fabric is closed.
    pub(super) fn close(&self) {
        let mut inner = self.0.inner.write();
        inner.live.clear();
        inner.is_closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.0.inner.read().is_closed
    }

    /// What else has atomics on them.
    pub(super) fn atomics(&self) -> AtomicScope {
        self.0.supply.atomics()
    }

    /// Executes a batch in order up to the first element that is refused. Each effect of another node's is claimed before it is made (F2); without a window they are this
    /// node's own, which learns at once what came of them. Appends the results.
    pub(super) fn execute(
        &self,
        head: &BatchHead,
        elements: &[Element<'_>],
        mut window: Option<&mut Window>,
        results: &mut Vec<u8>,
    ) -> (u16, Outcome) {
        let memory = self.0.inner.read().live.get(&head.region).cloned();
        let rights = memory.as_ref().and_then(|memory| memory.life.rights(head.view, &head.secret));
        let (Some(memory), Some(mut rights)) = (memory, rights) else {
            return (0, Outcome::Revoked);
        };
        // Where another executor has the atomics this one changes nothing (F3).
        if self.atomics() == AtomicScope::Fabric {
            rights = Rights::Read;
        }
        let mut next = head.first.map_or(0, |id| id.0);
        for (done, element) in elements.iter().enumerate() {
            let executed = if !element.has_effect() {
                read(&memory, element, results)
            } else if let Some(window) = &mut window {
                next += 1;
                once(window, OperationId(next - 1), || change(&memory, rights, element)).map(Some)
            } else {
                change(&memory, rights, element).map(Some)
            };
            match executed {
                Ok(Some(before)) if !matches!(element, Element::Write { .. }) => {
                    results.extend_from_slice(&before.to_le_bytes());
                }
                Ok(_) => {}
                Err(refused) => return (done as u16, refused),
            }
        }
        (elements.len() as u16, Outcome::Done)
    }
}

/// The word, or none where bytes were read.
fn read(memory: &Memory, element: &Element<'_>, results: &mut Vec<u8>) -> Executed<Option<u64>> {
    check(memory, element)?;
    match *element {
        Element::Read { at, length } => {
            let start = results.len();
            results.resize(start + length as usize, 0);
            memory.words.copy_out(at, &mut results[start..]);
            Ok(None)
        }
        _ => Ok(Some(memory.words.load(element.range().0))),
    }
}

fn once(window: &mut Window, id: OperationId, change: impl FnOnce() -> Executed<u64>) -> Executed<u64> {
    match window.claim(id) {
        Claim::Executed(before) => Ok(before),
        Claim::Barred | Claim::Unknown => Err(Outcome::Unknown),
        Claim::Execute => {
            let changed = change();
            match changed {
                Ok(before) => window.executed(id, before),
                Err(_) => window.refused(id),
            }
            changed
        }
    }
}

/// The word as it was before where the processor tells.
fn change(memory: &Memory, rights: Rights, element: &Element<'_>) -> Executed<u64> {
    if rights != Rights::Change {
        return Err(Outcome::Denied);
    }
    check(memory, element)?;
    Ok(make(&memory.words, element))
}

/// Makes an effect that was found allowed; the word as it was before where the processor tells.
fn make(words: &Part, element: &Element<'_>) -> u64 {
    match *element {
        Element::WriteWord { at, value } => {
            words.store(at, value);
            0
        }
        Element::Write { at, from } => {
            words.copy_in(at, from);
            0
        }
        Element::CompareSwap { at, expected, desired } => words.compare_swap(at, expected, desired),
        Element::FetchAdd { at, addend } => words.fetch_add(at, addend),
        Element::ReadWord { .. } | Element::Read { .. } => unreachable!("a read has no effect to make"),
    }
}

fn check(memory: &Memory, element: &Element<'_>) -> Executed<()> {
    let (at, length, is_word) = element.range();
    check_range(at, length, is_word, memory.life.bytes).map_err(|error| match error {
        Error::Misaligned { .. } => Outcome::Misaligned,
        _ => Outcome::OutOfBounds(memory.life.bytes),
    })
}

/// A region of this process, as its owner has it.
pub(super) struct TcpRegion {
    number: u32,
    bytes: u64,
    memory: RwLock<Arc<Memory>>,
    regions: Regions,
}

impl TcpRegion {
    fn memory(&self) -> Arc<Memory> {
        self.memory.read().clone()
    }

    /// For an atomic of the processor's.
    fn atomic(&self, at: u64) -> Result<Arc<Memory>> {
        let memory = self.checked(at, 8, true)?;
        match self.regions.atomics() {
            AtomicScope::Processor => Ok(memory),
            AtomicScope::Fabric => Err(Error::PostInstead),
        }
    }

    fn checked(&self, at: u64, length: u64, is_word: bool) -> Result<Arc<Memory>> {
        check_range(at, length, is_word, self.bytes)?;
        Ok(self.memory())
    }
}

impl Region for TcpRegion {
    fn key(&self, rights: Rights) -> RegionKey {
        let memory = self.memory();
        let secret = match rights {
            Rights::Read => memory.life.read,
            Rights::Change => memory.life.change,
        };
        RegionKey {
            owner: self.regions.0.owner,
            region: self.number,
            view: memory.life.view,
            bytes: self.bytes,
            rights,
            secret,
        }
    }

    fn load(&self, at: u64) -> Result<u64> {
        Ok(self.checked(at, 8, true)?.words.load(at))
    }

    fn store(&self, at: u64, value: u64) -> Result<()> {
        self.checked(at, 8, true)?.words.store(at, value);
        Ok(())
    }

    fn fetch_add(&self, at: u64, addend: u64) -> Result<u64> {
        Ok(self.atomic(at)?.words.fetch_add(at, addend))
    }

    fn compare_swap(&self, at: u64, expected: u64, desired: u64) -> Result<u64> {
        Ok(self.atomic(at)?.words.compare_swap(at, expected, desired))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<()> {
        self.checked(at, into.len() as u64, false)?.words.copy_out(at, into);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<()> {
        self.checked(at, from.len() as u64, false)?.words.copy_in(at, from);
        Ok(())
    }

    fn discard(&self, at: u64, bytes: u64) -> Result<()> {
        let memory = self.checked(at, bytes, false)?;
        if self.regions.0.supply.pins_memory() { Ok(()) } else { memory.words.discard(at, bytes) }
    }

    fn readable(&self) -> Result<Option<Readable>> {
        self.memory().words.readable()
    }

    fn remake(&self, view: ViewNumber) -> Result<()> {
        let life = Life::new(self.bytes, view)?;
        let mut memory = self.memory.write();
        if self.regions.is_closed() {
            return Err(Error::Closed);
        }
        // It may wait for a kernel, and what is asked of other regions is not to wait with it.
        let anew = Memory::new(self.regions.0.supply.make_anew(self.number, &life)?, life);
        // A fabric that was closed meanwhile has no region to bring back. The supply takes back what it made with the
        // region, or before: its keys were never given out.
        let mut inner = self.regions.0.inner.write();
        let live = inner.live.get_mut(&self.number).ok_or(Error::Closed)?;
        *live = anew.clone();
        *memory = anew;
        Ok(())
    }

    fn everyone_is_in(&self, _view: ViewNumber) {
        // Old memory went with its last batch (see `Memory`).
    }
}

impl Drop for TcpRegion {
    fn drop(&mut self) {
        let mut inner = self.regions.0.inner.write();
        inner.live.remove(&self.number);
        inner.bytes -= self.bytes;
        // Taking memory back may wait for a kernel, and the agent is not to wait with it.
        drop(inner);
        self.regions.0.supply.take_back(self.number);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use parking_lot::Mutex;

    use super::*;
    use crate::supply::Anonymous;

    /// Memory that is made anew when the test says so.
    struct Slow {
        of: Anonymous,
        begun: Sender<()>,
        goes_on: Mutex<Receiver<()>>,
    }

    impl Supply for Slow {
        fn make(&self, life: &Life) -> Result<(u32, Part)> {
            self.of.make(life)
        }

        fn make_anew(&self, number: u32, life: &Life) -> Result<Part> {
            self.begun.send(()).unwrap();
            self.goes_on.lock().recv_timeout(Duration::from_secs(20)).unwrap();
            self.of.make_anew(number, life)
        }

        fn take_back(&self, _: u32) {}
    }

    #[test]
    fn other_regions_are_reached_while_one_is_made_anew_and_a_closed_fabric_has_none() {
        let (begun, has_begun) = channel();
        let (go_on, goes_on) = channel();
        let slow = Slow { of: Anonymous::default(), begun, goes_on: Mutex::new(goes_on) };
        let regions = Regions::new(Incarnation::new(0, 1), 1 << 20, Arc::new(slow));
        let [anew, other] = [(); 2].map(|()| regions.register(64, ViewNumber(1)).unwrap());
        let head = |region: &TcpRegion| {
            let RegionKey { region, view, secret, .. } = region.key(Rights::Change);
            BatchHead { number: 0, region, view, first: None, secret }
        };
        let (old, other) = (head(&anew), head(&other));
        let add = |head: BatchHead| {
            let regions = regions.clone();
            let (done, is_done) = channel();
            std::thread::spawn(move || {
                let outcome = regions.execute(&head, &[Element::FetchAdd { at: 0, addend: 1 }], None, &mut vec![]);
                done.send(outcome).unwrap();
            });
            is_done.recv_timeout(Duration::from_secs(10)).expect("it waits for another region")
        };
        std::thread::scope(|scope| {
            let made = scope.spawn(|| anew.remake(ViewNumber(2)));
            has_begun.recv().unwrap();
            assert_eq!(add(other), (1, Outcome::Done));
            go_on.send(()).unwrap();
            made.join().unwrap().unwrap();
            assert_eq!((add(old), add(head(&anew))), ((0, Outcome::Revoked), (1, Outcome::Done)));
            // Closed while it is made.
            let made = scope.spawn(|| anew.remake(ViewNumber(3)));
            has_begun.recv().unwrap();
            regions.close();
            go_on.send(()).unwrap();
            assert!(matches!(made.join().unwrap(), Err(Error::Closed)));
        });
        assert_eq!((add(other), anew.key(Rights::Read).view), ((0, Outcome::Revoked), ViewNumber(2)));
        // And before: it is never made.
        assert!(matches!(anew.remake(ViewNumber(3)), Err(Error::Closed)));
        assert!(has_begun.try_recv().is_err());
    }
}
