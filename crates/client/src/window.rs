//! A segment's value where it is: in its home's memory, for programs of that node.

use std::fmt;
use std::hint;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use verbena_ipc::{BoardReader, ReadableMemory};
use verbena_terms::{Coherence, SLOT_HEAD_BYTES, SegmentId, SegmentWord};

use crate::board;
use crate::memory_wire::Pane;
use crate::wire::BOARD_FORGETS;

/// Looks for a value that no put writes over meanwhile: each is a few loads.
const LOOKS: usize = 10_000;

/// A segment's value as it was when it was looked for, without a copy: in the memory of this node, which is the segment's home.
///
/// Writers do not wait for readers: after some more puts a value's place is filled with a later value. So a reader
/// checks afterwards whether the window [`holds`](Self::holds), and only then counts what it read. Of a `null` segment
/// that promises nothing about the bytes, as its gets do not. A window keeps the memory mapped, also one that no longer
/// holds.
#[derive(Clone)]
pub struct Window {
    place: Arc<Place>,
    version: u64,
    stamp_ns: u64,
    slot: u64,
}

/// Where its values are.
struct Place {
    memory: Arc<ReadableMemory>,
    pane: Pane,
    board: BoardReader,
    /// How often something was forgotten before it was looked for.
    forgets: u64,
}

impl Window {
    /// The newest value there; `None` where it is there no more.
    pub(crate) fn open(memory: Arc<ReadableMemory>, pane: Pane, board: BoardReader, forgets: u64) -> Option<Window> {
        let place = Place { memory, pane, board, forgets };
        if place.is_inside() { Window::onto(&Arc::new(place)) } else { None }
    }

    /// Which segment's.
    pub fn id(&self) -> SegmentId {
        self.place.pane.id
    }

    /// Bytes of the value: 1 or more.
    #[allow(clippy::len_without_is_empty, reason = "no segment is empty")]
    pub fn len(&self) -> usize {
        self.place.pane.bytes as usize
    }

    /// Grows by one with each put.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// When it was put, in nanoseconds since 1970, by its writer's clock; 0 if nothing was, or the coherence is `null`.
    pub fn stamp_ns(&self) -> u64 {
        self.stamp_ns
    }

    /// Whether all that was read here before was this version, and the segment's newest value at a moment after the
    /// window was asked for: nothing was put over it, and the node had its lease and its part in the view (rules M1,
    /// C5). A few loads, without a request to the helper, which may be stopped. It is false as well when the view has
    /// ended, when any segment of the node is released or moved, and when the helper is dead: then ask for another
    /// window.
    pub fn holds(&self) -> bool {
        // What was read before comes before the looks.
        fence(Ordering::Acquire);
        self.place.is_filled_with(self.version, self.slot) && self.place.is_in_place()
    }

    /// Whether no newer value was put so far, as far as the window shows that: a few loads, for a reader that waits for
    /// the next value. It is false too when the value is elsewhere, as [`newest`](Self::newest) then says.
    pub fn is_newest(&self) -> bool {
        let word = self.place.word();
        word.version() == self.version && word.slot().is_some() && self.place.is_in_place()
    }

    /// A window onto the newest value. `None` where that is elsewhere, was released, or is of a view that has ended:
    /// [`Memory::window`](crate::Memory::window) finds another one, or says what became of it.
    pub fn newest(&self) -> Option<Window> {
        Window::onto(&self.place)
    }

    fn onto(place: &Arc<Place>) -> Option<Window> {
        for _ in 0..LOOKS {
            let word = place.word();
            let (slot, version) = (place.slot(word.slot()?)?, word.version());
            let stamp_ns = if place.is_null() { 0 } else { place.memory.word(slot + 8) };
            let is_whole = place.is_filled_with(version, slot);
            if !place.is_in_place() {
                return None;
            }
            if is_whole {
                return Some(Window { place: place.clone(), version, stamp_ns, slot });
            }
            hint::spin_loop();
        }
        None
    }

    /// Copies bytes from `offset` on. Whether they are of this version, whole; if not, what is in `into` is of no use.
    ///
    /// # Panics
    /// If the value does not have those bytes.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len()), "bytes outside the value");
        self.place.memory.copy_out(self.at() + offset as u64, into);
        self.holds()
    }

    /// Where its bytes are, for code that is not Rust. A writer may change them while they are read, so Rust must hold
    /// no reference to them. Valid as long as the window or a clone of it.
    pub fn as_ptr(&self) -> *const u8 {
        self.place.memory.address(self.at(), self.place.pane.bytes)
    }

    fn at(&self) -> u64 {
        self.slot + SLOT_HEAD_BYTES
    }
}

impl fmt::Debug for Window {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Window({}, version {})", self.id(), self.version)
    }
}

impl Place {
    /// Whether what the helper said of it fits the memory.
    fn is_inside(&self) -> bool {
        let Pane { word, slots, stride, count, bytes, .. } = self.pane;
        let all = stride.checked_mul(count.into());
        let is_aligned = [word, slots, stride].iter().all(|at| at.is_multiple_of(8));
        let fits = SLOT_HEAD_BYTES.checked_add(bytes).is_some_and(|slot| slot <= stride);
        is_aligned && fits && self.memory.has(word, 8) && all.is_some_and(|all| self.memory.has(slots, all))
    }

    fn is_null(&self) -> bool {
        self.pane.coherence == Coherence::Null
    }

    fn word(&self) -> SegmentWord {
        SegmentWord::from_bits(self.memory.word(self.pane.word))
    }

    fn slot(&self, nth: u8) -> Option<u64> {
        (nth < self.pane.count).then(|| self.pane.slots + self.pane.stride * u64::from(nth))
    }

    /// The head of a slot is written before anything in it is (rule M1).
    fn is_filled_with(&self, version: u64, slot: u64) -> bool {
        self.is_null() || self.memory.word(slot) == version
    }

    /// Whether nothing else can be here.
    fn is_in_place(&self) -> bool {
        board::is_good(&self.board, BOARD_FORGETS, self.forgets)
    }
}
