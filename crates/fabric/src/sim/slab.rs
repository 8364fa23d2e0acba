//! Numbered places for things that come and go, reused in an order that only depends on what came and went.

use std::ops::{Index, IndexMut};

/// A growing array with holes.
#[derive(Debug)]
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, thing: T) -> usize {
        match self.free.pop() {
            Some(place) => {
                self.places[place] = Some(thing);
                place
            }
            None => {
                self.places.push(Some(thing));
                self.places.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, place: usize) -> T {
        self.free.push(place);
        self.places[place].take().expect("invariant: who holds a place's number removes it once")
    }

    /// The places that are taken, in order.
    pub(super) fn taken(&self) -> impl Iterator<Item = usize> + '_ {
        self.places.iter().enumerate().filter(|(_, thing)| thing.is_some()).map(|(place, _)| place)
    }
}

impl<T> Index<usize> for Slab<T> {
    type Output = T;
    fn index(&self, place: usize) -> &T {
        self.places[place].as_ref().expect("invariant: a number is held as long as its place is taken")
    }
}

impl<T> IndexMut<usize> for Slab<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        self.places[place].as_mut().expect("invariant: a number is held as long as its place is taken")
    }
}
