//! What is chosen is there, and not refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = verbena_caching::accept_list(input);
});
