//! What comes into a receive queue of the provider `verbs`: what is understood is written again as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_fabric::verbs::fuzz_letter(input);
});
