//! What a store says that it takes is what it takes. In a process of its own, because it looks at the memory of the whole process.

use verbena_content::{KEY_BYTES, Replacement, Store, Weigh};
use verbena_testkit::programs::alone;

/// As large as a pointer to a page, and pointing to nothing: slots and tables are all that is taken.
#[derive(Clone)]
struct Pointer(#[allow(dead_code, reason = "its size counts")] u64);

impl Weigh for Pointer {
    fn bytes(&self) -> usize {
        0
    }
}

fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

#[test]
fn slots_and_tables_take_as_much_memory_as_the_store_says() {
    alone("store_memory::slots_and_tables_take_as_much_memory_as_the_store_says", measure_stores);
}

fn measure_stores() {
    // Tables that double are about as full, at this number, as they are on average.
    const ENTRIES: usize = 360_000;
    // Both are there at the end, so that neither uses memory that the other left.
    let stores = Replacement::ALL.map(|replacement| {
        let before = resident();
        let store = Store::new(replacement, 1 << 30, 8192, 1 << 20);
        for page in 0..ENTRIES as u128 {
            store.keep(page.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835), Pointer(0));
        }
        let taken = (resident() - before) / ENTRIES as f64;
        let said = KEY_BYTES + replacement.entry_overhead_bytes::<Pointer>();
        println!("{}: {taken:.1} bytes an entry, {said} said", replacement.name());
        assert_eq!((store.len(), store.bytes()), (ENTRIES, (ENTRIES * said) as u64));
        assert!((0.9..1.1).contains(&(taken / said as f64)), "{}: {taken:.1}, not {said}", replacement.name());
        store
    });
    assert_eq!(stores.map(|store| store.len()), [ENTRIES; 2]);
}
