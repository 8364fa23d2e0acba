//! Which serial carries what.
//!
//! A frame is *under way* as long as it carries the newest copy of something that is waited for. When everything in it was answered, has ended or was
//! sent again it is given up; it is remembered still, because an answer to an older copy is as good as one to the newest.

use std::collections::BTreeMap;

use verbena_terms::Time;

use super::MOST_FRAMES;

/// Frames whose answers are understood. With [`MOST_FRAMES`] of them sent in each of the longest times between two copies, those of
/// two seconds.
const MOST_REMEMBERED: usize = 256;

/// A part of a batch, or a settle, that a frame carries a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) task: u64,
    pub(super) part: u32,
}

#[derive(Default)]
pub(super) struct Frames {
    sent: BTreeMap<u64, Frame>,
    /// Serials of those under way, oldest first.
    under_way: Vec<u64>,
}

struct Frame {
    items: Vec<Item>,
    /// Items that are waited for, sent again or not.
    waiting: usize,
}

pub(super) struct Item {
    pub(super) carried: Carried,
    /// When it is sent again. `None`: it was, or it is over.
    pub(super) due: Option<Time>,
}

impl Frame {
    fn dues(&self) -> impl Iterator<Item = Time> {
        self.items.iter().filter_map(|item| item.due)
    }

    fn cross_off(&mut self, carried: Carried) {
        self.items.iter_mut().filter(|item| item.carried == carried).for_each(|item| item.due = None);
    }

    fn is_under_way(&self) -> bool {
        self.items.iter().any(|item| item.due.is_some())
    }
}

impl Frames {
    /// Whether no frame may be sent, but one that takes another's place.
    pub(super) fn is_full(&self) -> bool {
        self.under_way.len() >= MOST_FRAMES
    }

    pub(super) fn is_under_way(&self, serial: u64) -> bool {
        self.under_way.contains(&serial)
    }

    /// What is to be sent again, and first that of frames of which everything is: a new one with that much takes their place. Nothing if one
    /// more frame would be too many.
    pub(super) fn due(&self, now: Time) -> Vec<Carried> {
        let frames = self.under_way.iter().filter_map(|serial| self.sent.get(serial));
        let (whole, parted): (Vec<_>, Vec<_>) = frames
            .filter(|frame| frame.dues().any(|due| due <= now))
            .partition(|frame| frame.dues().all(|due| due <= now));
        if whole.is_empty() && self.is_full() {
            return Vec::new();
        }
        let items = whole.into_iter().chain(parted).flat_map(|frame| &frame.items);
        items.filter(|item| item.due.is_some_and(|due| due <= now)).map(|item| item.carried).collect()
    }

    /// When [`Frames::due`] has something next.
    pub(super) fn next(&self) -> Time {
        let frames = self.under_way.iter().filter_map(|serial| self.sent.get(serial));
        let next = if self.is_full() {
            frames.filter_map(|frame| frame.dues().max()).min()
        } else {
            frames.filter_map(|frame| frame.dues().min()).min()
        };
        next.unwrap_or(Time::FAR)
    }

    /// A frame is sent, with these items.
    pub(super) fn sent(&mut self, serial: u64, items: Vec<Item>) {
        self.sent.insert(serial, Frame { waiting: items.len(), items });
        self.under_way.push(serial);
        debug_assert!(self.under_way.len() <= MOST_FRAMES, "one more was sent only in the place of another");
        while self.sent.len() > MOST_REMEMBERED {
            let given_up = self.sent.iter().find(|(_, frame)| !frame.is_under_way()).map(|(serial, _)| *serial);
            let Some(serial) = given_up else { break };
            self.sent.remove(&serial);
        }
    }

    /// What the frame with this serial carries, if that is known and any of it is waited for.
    pub(super) fn carried(&self, serial: u64) -> Option<impl Iterator<Item = Carried>> {
        self.sent.get(&serial).map(|frame| frame.items.iter().map(|item| item.carried))
    }

    /// The copy that the frame carries is not the newest any more.
    pub(super) fn sent_again(&mut self, serial: u64, carried: Carried) {
        if let Some(frame) = self.sent.get_mut(&serial) {
            frame.cross_off(carried);
            if !frame.is_under_way() {
                self.under_way.retain(|other| *other != serial);
            }
        }
    }

    /// It is no longer waited for, of all copies in these frames.
    pub(super) fn over(&mut self, serials: &[u64], carried: Carried) {
        for serial in serials {
            self.sent_again(*serial, carried);
            let Some(frame) = self.sent.get_mut(serial) else { continue };
            frame.waiting -= 1;
            if frame.waiting == 0 {
                self.sent.remove(serial);
            }
        }
    }

    /// No answer to any of them is understood any more.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
        self.under_way.clear();
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.sent.len()
    }
}
