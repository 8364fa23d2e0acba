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
}

/// One life of a region: its memory, and the secrets that reach it. Made anew it is another one (F4); the old one is unmapped when
/// the last batch that had begun on it ends. Nobody outside this process changes it, so that nothing can land in it later and it
/// need not wait for every member to acknowledge the view.
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
        self.0.inner.write().live.clear();
    }

    /// Executes a batch in order up to the first element that is refused, claiming each effect before it is made (F2). Appends the results.
    pub(super) fn execute(
        &self,
        head: &BatchHead,
        elements: &[Element<'_>],
        window: &mut Window,
        results: &mut Vec<u8>,
    ) -> (u16, Outcome) {
        let memory = self.0.inner.read().live.get(&head.region).cloned();
        let rights = memory.as_ref().and_then(|memory| memory.life.rights(head.view, &head.secret));
        let (Some(memory), Some(mut rights)) = (memory, rights) else {
            return (0, Outcome::Revoked);
        };
        // Where another executor has the atomics this one changes nothing (F3).
        if self.0.supply.atomics() == AtomicScope::Fabric {
            rights = Rights::Read;
        }
        let mut next = head.first.map_or(0, |id| id.0);
        for (done, element) in elements.iter().enumerate() {
            let outcome = if element.has_effect() {
                next += 1;
                change(&memory, rights, element, OperationId(next - 1), window, results)
            } else {
                read(&memory, element, results)
            };
            if outcome != Outcome::Done {
                return (done as u16, outcome);
            }
        }
        (elements.len() as u16, Outcome::Done)
    }
}

fn read(memory: &Memory, element: &Element<'_>, results: &mut Vec<u8>) -> Outcome {
    if let Some(refused) = refusal(memory, element) {
        return refused;
    }
    match *element {
        Element::Read { at, length } => {
            let start = results.len();
            results.resize(start + length as usize, 0);
            memory.words.copy_out(at, &mut results[start..]);
        }
        _ => results.extend_from_slice(&memory.words.load(element.range().0).to_le_bytes()),
    }
    Outcome::Done
}

fn change(
    memory: &Memory,
    rights: Rights,
    element: &Element<'_>,
    id: OperationId,
    window: &mut Window,
    results: &mut Vec<u8>,
) -> Outcome {
    let before = match window.claim(id) {
        Claim::Executed(before) => before,
        Claim::Barred | Claim::Unknown => return Outcome::Unknown,
        Claim::Execute => {
            let refused = if rights == Rights::Change { refusal(memory, element) } else { Some(Outcome::Denied) };
            if let Some(refused) = refused {
                window.refused(id);
                return refused;
            }
            let before = make(&memory.words, element);
            window.executed(id, before);
            before
        }
    };
    if !matches!(element, Element::Write { .. }) {
        results.extend_from_slice(&before.to_le_bytes());
    }
    Outcome::Done
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

fn refusal(memory: &Memory, element: &Element<'_>) -> Option<Outcome> {
    let (at, length, is_word) = element.range();
    match check_range(at, length, is_word, memory.life.bytes) {
        Ok(()) => None,
        Err(Error::Misaligned { .. }) => Some(Outcome::Misaligned),
        Err(_) => Some(Outcome::OutOfBounds(memory.life.bytes)),
    }
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
        match self.regions.0.supply.atomics() {
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
        // A fabric that was closed meanwhile has no region to bring back.
        let mut inner = self.regions.0.inner.write();
        let live = inner.live.get_mut(&self.number).ok_or(Error::Closed)?;
        let anew = Memory::new(self.regions.0.supply.make_anew(self.number, &life)?, life);
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
