//! What nodes say to each other before their adapters can: what is understood is said again as it was.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verbena_fabric::verbs::fuzz_message(input);
});
