//! A request and its answer, through all that is decided from their heads: nothing is shared that must not be.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_caching::http_head(input);
});
