//! Everything that crosses a connection of the provider `tcp`: what parses is written again as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_fabric::tcp::fuzz_frame(input);
});
