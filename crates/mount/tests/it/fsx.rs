//! Random operations on one file at a mount, against a model in memory: reads, writes, maps, truncates, holes, reopens.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::setup::Pair;

const LARGEST: u64 = 300_000;

pub fn operations() -> u64 {
    if std::env::var_os("VERBENA_LONG").is_some() { 1_000_000 } else { 20_000 }
}

fn open(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// One file and what it must hold.
pub struct Exerciser<'a> {
    path: &'a Path,
    file: File,
    model: Vec<u8>,
    random: Pcg64,
}

impl<'a> Exerciser<'a> {
    pub fn new(path: &'a Path, seed: u64) -> Self {
        Exerciser { path, file: open(path), model: vec![], random: Pcg64::seed_from_u64(seed) }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit.max(1)
    }

    fn range(&mut self, limit: u64) -> (u64, usize) {
        let offset = self.below(limit);
        let longest = if self.below(10) == 0 { 150_000 } else { 9000 };
        (offset, self.below(longest.min(limit - offset)) as usize)
    }

    fn grow(&mut self, size: u64) {
        if size > self.model.len() as u64 {
            self.model.resize(size as usize, 0);
        }
    }

    pub fn step(&mut self, number: u64) {
        let size = self.model.len() as u64;
        let (offset, bytes) = self.range(LARGEST);
        match self.below(20) {
            0..6 => {
                let mut found = vec![0; bytes];
                let count = self.file.read_at(&mut found, offset).unwrap();
                let from = size.min(offset) as usize;
                let wanted = &self.model[from..self.model.len().min(from + bytes)];
                assert!(found[..count] == *wanted, "operation {number}: read of {bytes} at {offset} of {size}");
            }
            6..10 if bytes > 0 => {
                let data = vec![number as u8 | 1; bytes];
                self.file.write_all_at(&data, offset).unwrap();
                self.grow(offset + bytes as u64);
                self.model[offset as usize..][..bytes].copy_from_slice(&data);
            }
            10..13 if offset < size => {
                let is_write = self.below(2) == 0;
                self.map(offset, bytes.min((size - offset) as usize), is_write, number);
            }
            13 => {
                self.file.set_len(offset).unwrap();
                self.model.resize(offset as usize, 0);
            }
            14 if bytes > 0 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&self.file, flags, offset, bytes as u64).unwrap();
                let from = self.model.len().min(offset as usize);
                let to = self.model.len().min(offset as usize + bytes);
                self.model[from..to].fill(0);
            }
            15 if bytes > 0 => {
                fallocate(&self.file, FallocateFlags::empty(), offset, bytes as u64).unwrap();
                self.grow(offset + bytes as u64);
            }
            16 => {
                self.file.sync_data().unwrap();
                assert_eq!(self.file.metadata().unwrap().len(), size, "operation {number}");
            }
            17.. => {
                self.file = open(self.path);
                assert_eq!(self.file.metadata().unwrap().len(), size, "operation {number}");
            }
            _ => {}
        }
    }

    fn map(&mut self, offset: u64, bytes: usize, is_write: bool, number: u64) {
        if bytes == 0 {
            return;
        }
        let start = offset / 4096 * 4096;
        let skip = (offset - start) as usize;
        let length = skip + bytes;
        // SAFETY: a new mapping of its own place; it is within the file, which nothing truncates before it is unmapped.
        let map = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &self.file, start)
                .unwrap()
        }
        .cast::<u8>();
        for at in 0..bytes {
            let wanted = &mut self.model[offset as usize + at];
            // SAFETY: in bounds of the mapping.
            let place = unsafe { map.add(skip + at) };
            if is_write {
                *wanted = number as u8 | 1;
                // SAFETY: as above.
                unsafe { place.write_volatile(*wanted) };
            } else {
                // SAFETY: as above.
                let found = unsafe { place.read_volatile() };
                assert_eq!(found, *wanted, "operation {number}: map at {offset} + {at}");
            }
        }
        // SAFETY: nothing refers to the mapping any more.
        unsafe { munmap(map.cast(), length).unwrap() };
    }

    /// The whole file, by another path to it.
    pub fn check(&mut self, other: &Path) {
        self.file.sync_all().unwrap();
        assert!(std::fs::read(other).unwrap() == self.model, "the file below is another");
    }
}

#[test]
fn a_plain_mount_holds_what_random_operations_wrote() {
    let Some(pair) = Pair::new(|_| {}) else { return };
    let (path, below) = (pair.fast.join("f"), pair.slow.join("f"));
    let mut exerciser = Exerciser::new(&path, 50);
    for number in 0..operations() {
        exerciser.step(number);
        if number % 2000 == 0 {
            exerciser.check(&below);
        }
    }
    exerciser.check(&below);
}
