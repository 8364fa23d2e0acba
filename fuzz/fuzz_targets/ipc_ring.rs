//! Both ends of an ipc ring against memory that answers every load as it likes.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_ipc::ring_ends(input);
});
