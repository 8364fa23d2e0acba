//! What members say to each other about memory: what parses is written as something that reads the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_memory::wire::exercise(input);
});
