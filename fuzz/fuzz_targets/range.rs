//! Parts of a page, in a plain second reading too.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = verbena_caching::range(input);
});
