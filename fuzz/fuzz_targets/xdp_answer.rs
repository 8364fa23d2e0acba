//! What comes back to a caller of the provider `xdp`, under the right tag.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_fabric::xdp::fuzz_answer(input);
});
