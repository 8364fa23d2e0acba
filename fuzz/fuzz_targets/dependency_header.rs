//! What responses say that they depend on: no dependency is lost, and every limit is kept.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_content::dependency_header(input);
});
