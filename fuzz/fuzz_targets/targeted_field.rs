//! What the nearest targeted field says plainly is what holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = verbena_caching::targeted_field(input);
});
